"""The weights that training starts from, by their fingerprint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halfscope_server.compare.fairness.base import Check, Confounds, Finding, fact
from halfscope_server.query.format import MISSING, number
from halfscope_server.query.view import RunView

NARROW = ("digest_float16", "digest_bfloat16")
UNKNOWN = "no fingerprint of the weights was recorded"


class _InitialWeights:
    id, title, order = "initial_weights", "Initial weights", 30
    confounds: tuple[Confounds, ...] = ("quality",)
    is_intended = is_configuration = False

    def words(self, view: RunView) -> str:
        found = _fingerprint(view)
        return MISSING if found is None else f"{str(found['digest'])[:8]}, sum {number(_sum(found))}"

    def compare(self, baseline: RunView, other: RunView) -> Finding:
        one, two = _fingerprint(baseline), _fingerprint(other)
        if one is None or two is None:
            return Finding(state="unknown", text=UNKNOWN)
        # Weights that are stored in half precision are the others' rounded.
        if one["digest"] == two["digest"] or any(one.get(name) and one.get(name) == two.get(name) for name in NARROW):
            return Finding(state="same")
        return Finding(state="different", text="they start from other weights")


def _fingerprint(view: RunView) -> Mapping[str, Any] | None:
    found = fact(view, "weights")
    return found if isinstance(found, Mapping) and found.get("digest") else None


def _sum(found: Mapping[str, Any]) -> float | None:
    value = found.get("sum")
    return value if isinstance(value, float) else None


CHECK: Check = _InitialWeights()
