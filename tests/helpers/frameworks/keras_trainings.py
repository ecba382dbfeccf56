"""Trainings by Keras on the torch backend that keep what they see of each of their steps. Imports Keras."""

from __future__ import annotations

import os
from typing import Any

os.environ["KERAS_BACKEND"] = "torch"  # read once, when it is imported

import keras
import numpy as np

from tests.helpers.frameworks.seen import Seen, norm_of

__all__ = ["BATCH", "NUM_ROWS", "Net", "fit", "keras", "np"]

NUM_ROWS, BATCH = 40, 4


class Net(keras.Sequential):
    """A small regression that keeps what it sees of each of its steps."""

    def __init__(self, policy: str = "float32", **options: Any) -> None:
        keras.utils.set_random_seed(1)
        layers = keras.layers
        super().__init__(
            [layers.Input((6,)), layers.Dense(8, activation="tanh", dtype=policy), layers.Dense(2, dtype=policy)]
        )
        # The policy of a model is its own, beside those of its layers.
        self.dtype_policy = keras.dtype_policies.get(policy)
        optimizer = keras.optimizers.AdamW(keras.optimizers.schedules.ExponentialDecay(1e-2, 1, 0.9), **options)
        if policy == "mixed_float16":
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=2.0**18, dynamic_growth_steps=3)
        self.compile(optimizer=optimizer, loss="mse")
        self.seen: list[Seen] = []
        self.raw = 0.0

    def compute_loss(self, *args: Any, training: bool = True, **kwargs: Any) -> Any:
        loss = super().compute_loss(*args, training=training, **kwargs)
        self.raw = float(loss.detach())
        return loss

    def train_step(self, data: Any) -> Any:
        optimizer, scale = self.optimizer, None
        if hasattr(optimizer, "inner_optimizer"):
            scale = float(optimizer.dynamic_scale.value) if optimizer.built else optimizer.initial_scale
        rate = float(optimizer.learning_rate)
        result = super().train_step(data)
        norm = norm_of([v.value for v in self.trainable_variables]) / (scale or 1.0)
        self.seen.append(Seen([self.raw], scale, norm, scale is None or norm < float("inf"), rate))
        return result


def fit(net: Net, callbacks: Any = (), **options: Any) -> Net:
    """One epoch of ten batches."""
    generator = np.random.default_rng(3)
    inputs = generator.standard_normal((NUM_ROWS, 6)).astype("float32")
    targets = generator.standard_normal((NUM_ROWS, 2)).astype("float32")
    inputs[NUM_ROWS // 2 : NUM_ROWS // 2 + BATCH] *= 3e4  # overflows FP16
    net.fit(inputs, targets, batch_size=BATCH, shuffle=False, verbose=0, callbacks=list(callbacks), **options)
    return net
