"""What tells the weights of one run from those of another: a sum, and digests of the values.

Of each parameter a few elements are looked at. Waits for the device: it is asked once, before the training begins.
Invariant: equal weights have equal fingerprints, whatever device they lie on and whatever wraps their model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from halfscope.probes.stored import no_grad
from halfscope.probes.strided import sampled

MOST_ELEMENTS = 1024
"""Of one parameter. Evenly strided ones: of a network's first and last rows alike."""
DIGEST_BYTES = 8


def fingerprint(parameters: Sequence[torch.Tensor]) -> dict[str, Any]:
    """The fingerprint of parameters in their order; empty where none has values that can be looked at.

    Keys: `sum` and `sum_abs` in float64, `num_tensors` and `num_elements` looked at, `digest` of the values, and
    `digest_float16` and `digest_bfloat16` of the values rounded to those: weights that are stored in half precision
    agree with the FP32 ones that they were made from in one of these alone.
    """
    with no_grad():
        parts = [
            part for parameter in parameters if (part := sampled(parameter, MOST_ELEMENTS, may_wait=True)) is not None
        ]
        if not parts:
            return {}
        values = _on_host(parts)
        rounded = {name: torch.from_numpy(values).to(dtype) for name, dtype in _NARROW.items()}
    return {
        "sum": float(values.sum()),
        "sum_abs": float(np.abs(values).sum()),
        "num_tensors": len(parts),
        "num_elements": len(values),
        "digest": _digest(values),
        **{f"digest_{name}": _digest(narrow.double().numpy()) for name, narrow in rounded.items()},
    }


_NARROW = {"float16": torch.float16, "bfloat16": torch.bfloat16}


def _on_host(parts: Sequence[torch.Tensor]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """As float64, in order; what lies on one device comes over together."""
    by_device: dict[torch.device, list[int]] = {}
    for at, part in enumerate(parts):
        by_device.setdefault(part.device, []).append(at)
    found: dict[int, torch.Tensor] = {}
    for places in by_device.values():
        # FP8 is not promoted with others, and a device may lack float64.
        wide = [parts[at].float() if parts[at].element_size() == 1 else parts[at] for at in places]
        joined = torch.cat(wide).cpu().double()
        found.update(zip(places, joined.split([len(part) for part in wide]), strict=True))
    return torch.cat([found[at] for at in range(len(parts))]).numpy()


def _digest(values: np.ndarray[Any, np.dtype[np.float64]]) -> str:
    # A NaN may have any payload, and zero a sign: neither tells weights apart.
    plain = np.where(np.isnan(values), np.nan, values) + 0.0
    return hashlib.blake2b(plain.astype("<f8").tobytes(), digest_size=DIGEST_BYTES).hexdigest()
