"""Series numbers by name, declared when first used. Must not import torch.

Invariant: a series exists in the journal only if it has, or is about to have, a value.
"""

from __future__ import annotations

from collections.abc import Mapping

from halfscope.instrument.records import Declares
from halfscope.probes.catalog import specs


class Sids(dict[str, int]):
    """Numbers of the built-in series under one set of labels."""

    __slots__ = ("_labels", "_recorder")

    def __init__(self, recorder: Declares, labels: Mapping[str, str]) -> None:
        super().__init__()
        self._recorder = recorder
        self._labels = labels

    def __missing__(self, name: str) -> int:
        spec = specs()[name]
        sid = self[name] = self._recorder.declare(
            name, unit=spec.unit, kind=spec.kind, reduction=spec.reduction, labels=self._labels
        )
        return sid
