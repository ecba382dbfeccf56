"""Whether an FP32 baseline computes in FP32: TF32, narrow matmuls and reductions leave its dtype as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halfscope_server.compare.fairness.base import Check, Confounds, Finding, fact
from halfscope_server.query.format import MISSING
from halfscope_server.query.states import precision_of
from halfscope_server.query.view import RunView

NAMED = ("FP32", "TF32")
TF32 = (("cuda_matmul_allow_tf32", "matmuls"), ("cudnn_allow_tf32", "convolutions"))
PRECISIONS = ("cuda_matmul_fp32_precision", "cudnn_conv_fp32_precision", "mkldnn_matmul_fp32_precision")


class _BaselineNotFp32:
    id, title, order = "baseline_not_fp32", "FP32 baseline computes in FP32", 5
    confounds: tuple[Confounds, ...] = ("quality", "speed")
    is_intended = is_configuration = False

    def words(self, view: RunView) -> str:
        if precision_of(view.row) not in NAMED:
            return precision_of(view.row) or MISSING
        found = shortcuts(view)
        return MISSING if found is None else ", ".join(found) or "in full"

    def compare(self, baseline: RunView, other: RunView) -> Finding:
        label = precision_of(baseline.row)
        if label not in NAMED:
            if not label:
                return Finding(state="unknown", text="the baseline's precision is not known yet")
            return Finding(state="same")  # it does not say that it is FP32
        found = shortcuts(baseline)
        if found is None:
            return Finding(state="unknown", text="how precisely float32 is computed was not recorded")
        if found:
            return Finding(state="different", text=f"the baseline is not FP32: {', '.join(found)}")
        return Finding(state="same")


def shortcuts(view: RunView) -> list[str] | None:
    """What a float32 computation of the run may round more than float32 does; None: not recorded."""
    settings = fact(view, "settings")
    if not isinstance(settings, Mapping):
        return ["TF32"] if precision_of(view.row) == "TF32" else None
    found = _matmuls(settings)
    if fact(view, "device", "type") == "cuda":
        found += _cuda(settings)
    if not found and precision_of(view.row) == "TF32":
        found.append("TF32")
    return found


def _matmuls(settings: Mapping[str, Any]) -> list[str]:
    precision = settings.get("float32_matmul_precision")
    if precision in ("high", "medium"):
        narrowed = "TF32 or three BF16 numbers" if precision == "high" else "BF16 or TF32"
        return [f'float32 matmul precision is "{precision}": {narrowed} where the device has them']
    return []


def _cuda(settings: Mapping[str, Any]) -> list[str]:
    """Reductions in half precision are of half-precision matmuls: nothing of an FP32 run."""
    found = [f"{what} in TF32" for name, what in TF32 if settings.get(name) is True]
    told = " ".join(found)
    for name in PRECISIONS:
        value = settings.get(name)
        what = "convolutions" if "conv" in name else "matmuls"
        if value in ("tf32", "bf16") and what not in told:
            found.append(f"{what} in {str(value).upper()}")
    return found


CHECK: Check = _BaselineNotFp32()
