"""What is true of a run as a whole: its parameters, optimizers, scalers, precision, device and memory.

Invariant: every fact says how it was found where that is not plain (`given`, `seen`, `inferred`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from halfscope.instrument import conditions, environment, precision
from halfscope.instrument.device import Slot
from halfscope.instrument.flat import FlatParameters
from halfscope.instrument.records import Tells
from halfscope.instrument.rings import Rings
from halfscope.instrument.watched import WatchedOptimizer, WatchedScaler, describe_scaler
from halfscope.probes import fingerprint, memory

MAX_NAMES_TOLD = 32


class FactTeller:
    """Tells facts as they become known, each once."""

    def __init__(
        self,
        recorder: Tells,
        *,
        models: Mapping[str, torch.nn.Module],
        names: Mapping[int, str],
        optimizers: Sequence[WatchedOptimizer],
        scalers: Sequence[WatchedScaler],
        all_scalers: Mapping[str, torch.amp.GradScaler],
        given_precision: str | None,
        flats: FlatParameters,
        baseline: str | None = None,
    ) -> None:
        """
        Args:
            names: id of a parameter to its canonical name.
            scalers: the enabled ones.
            all_scalers: by name, disabled ones too.
            flats: parameters of the models that hold others.
            baseline: id or name of the run to compare with.
        """
        self.device: torch.device | None = None
        """Where the first parameter lives; None until the first attempt."""
        self._given_precision, self._baseline, self._flats = given_precision, baseline, flats
        self._recorder, self._models, self._names = recorder, models, names
        self._optimizers, self._scalers, self._all_scalers = optimizers, list(scalers), dict(all_scalers)
        self._points: dict[str, tuple[str, str]] = {}
        self._fingerprints: list[tuple[fingerprint.Part, list[float] | Slot]] = []
        """Of the weights, on their way."""
        self._strangers: set[int] = set()
        self._is_lazy = False
        """Some parameters have no shape before the first forward pass."""

    def started(self, step: int, *, demo: bool) -> None:
        """What is known before the first step."""
        self._is_lazy = any(is_lazy(p) for model in self._models.values() for p in model.parameters())
        facts: dict[str, Any] = {**self._sizes(), "demo": demo, **conditions.seed()}
        if self._baseline is not None:
            facts["baseline"] = self._baseline
        if self._given_precision is not None:
            facts.update(precision=self._given_precision, precision_source="given")
        self._recorder.facts(facts)
        self.scalers()
        self._recorder.event("run_started", step)
        self._half_parameters(step)

    def _sizes(self) -> dict[str, Any]:
        unique = list({id(p): p for model in self._models.values() for p in model.parameters()}.values())
        wholes = self._flats.wholes(unique, self._names)
        return {
            "optimizers": [watched.describe() for watched in self._optimizers],
            "parameters": {
                "num_tensors": len(wholes),
                "num_elements": sum(whole.num_elements for whole in wholes),
                "num_trainable": sum(whole.num_elements for whole in wholes if whole.requires_grad),
                "names": [whole.name for whole in wholes],
            },
        }

    def weights(self, rings: Rings) -> None:
        """What tells the weights that the training starts from; on a device it is told with the first attempt."""
        unique = {id(p): p for model in self._models.values() for p in model.parameters()}
        in_order = sorted(unique, key=lambda key: self._names.get(key, ""))  # not as modules happen to be registered
        for part in fingerprint.capture([unique[key] for key in in_order]):
            on_host = rings.on_host(part.numbers)
            numbers = part.numbers.tolist() if on_host else rings.put(part.numbers)
            if numbers is None:
                return  # a device that delivers nothing
            self._fingerprints.append((part, numbers))
        if not rings.used:
            self.arrived()

    def arrived(self) -> None:
        """The values of an attempt are on the host: those that came before it, too."""
        if self._fingerprints:
            parts = [(part, found.read() if isinstance(found, Slot) else found) for part, found in self._fingerprints]
            self._fingerprints.clear()
            self._recorder.facts({"weights": fingerprint.joined(parts)})

    def scalers(self) -> None:
        """Settings of all scalers as they are now."""
        self._recorder.facts({"scalers": [describe_scaler(name, item) for name, item in self._all_scalers.items()]})

    def first_attempt(self, autocast: Collection[torch.dtype], *, forward_seen: bool) -> None:
        """The first attempt is complete: where it runs and in which precision."""
        parameter = next((p for model in self._models.values() for p in model.parameters()), None)
        self.device = torch.device("cpu") if parameter is None else parameter.device
        self._recorder.facts(
            {
                "device": environment.device(self.device),
                "settings": conditions.settings(),
                "compiled": conditions.is_compiled(self._models.values()),
            }
        )
        if self._is_lazy:
            self._recorder.facts(self._sizes())
        if self._given_precision is not None:
            return
        if not forward_seen and self._scalers:
            autocast = {*autocast, torch.float16}  # what else would need a loss scale
        stored = precision.parameter_dtypes(self._models.values())
        label = precision.label(autocast, stored, tf32=precision.uses_tf32(self.device))
        self._recorder.facts({"precision": label, "precision_source": "seen" if forward_seen else "inferred"})

    def parameters_order(self, names: Sequence[str]) -> None:
        """Layers in forward order: the order in which the first backward pass reached them, turned round."""
        self._recorder.facts({"parameters_order": list(names)})

    def memory(self) -> None:
        """A step was applied: optimizer state exists now."""
        optimizers = [watched.optimizer for watched in self._optimizers]
        self._recorder.facts({"memory": memory.training_bytes(self._models.values(), optimizers)})

    def samples_source(self, source: str) -> None:
        """Whether samples per step are `declared` or `inferred`."""
        self._recorder.facts({"samples_source": source})

    def gradient_point(self, optimizer: str, point: str, clipped: str) -> None:
        """Where an optimizer's gradients are read, and whether clipping may have come before."""
        if self._points.get(optimizer) != (point, clipped):
            self._points[optimizer] = point, clipped
            points = {name: {"point": at, "clipped": cut} for name, (at, cut) in self._points.items()}
            self._recorder.facts({"gradient_points": points})

    def adopted(self, step: int, scaler: WatchedScaler, optimizer: WatchedOptimizer | None) -> None:
        """A scaler that was not given is watched from now on; that it steps a watched optimizer is worth an event."""
        self._all_scalers[scaler.name] = scaler.scaler
        if not isinstance(scaler.scaler, torch.amp.GradScaler):
            self.scalers()  # one that is reported: it says nothing of autocast, and may well scale half parameters
            return
        self._scalers.append(scaler)
        if optimizer is not None:
            self._recorder.event(
                "unwatched_scaler",
                step,
                severity="warning",
                where=[optimizer.name],
                attributes={"scaler": scaler.name, "optimizer": optimizer.name},
            )
        self.scalers()
        self._half_parameters(step)

    def unwatched_optimizer(self, step: int, optimizer: torch.optim.Optimizer) -> None:
        """A watched scaler is about to step an optimizer that was not given. Where that one trains what is watched, as
        one made anew for a second stage does, the run is blind to it, and that is told once."""
        if id(optimizer) in self._strangers:
            return
        self._strangers.add(id(optimizer))
        known = {id(p) for model in self._models.values() for p in model.parameters()}
        known |= {id(p) for watched in self._optimizers for p in watched.leaves()}
        if any(id(p) in known for group in optimizer.param_groups for p in group["params"]):
            attributes = {"optimizer": type(optimizer).__name__}
            self._recorder.event("unwatched_optimizer", step, severity="warning", attributes=attributes)

    def degraded(self, step: int, probe: str, error: BaseException) -> None:
        """A part of the agent failed."""
        attributes = {"probe": probe, "error": f"{type(error).__name__}: {error}"}
        self._recorder.event("agent_degraded", step, severity="warning", attributes=attributes)

    def _half_parameters(self, step: int) -> None:
        """FP16 parameters under a scaler make `unscale_` raise; BF16 ones work, but without master weights."""
        if not self._scalers:
            return
        for dtype, severity in ((torch.float16, "critical"), (torch.bfloat16, "warning")):
            parameters = [p for watched in self._optimizers for p in watched.parameters() if p.dtype is dtype]
            if parameters:
                where = [self._names.get(id(p), "?") for p in parameters[:MAX_NAMES_TOLD]]
                attributes = {"dtype": str(dtype).removeprefix("torch."), "num_parameters": len(parameters)}
                self._recorder.event(
                    "half_precision_parameters", step, severity=severity, where=where, attributes=attributes
                )
