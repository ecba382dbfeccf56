"""The user's own configuration, but for keys that name a run or its seed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from halfscope_server.compare.fairness.base import Check, Confounds, Finding, frozen, plain
from halfscope_server.query.format import MISSING, integer, plural
from halfscope_server.query.view import RunView

OF_THE_RUN = re.compile(
    r"(^|[._-])(seed|random_state|name|run_name|run|run_id|id|tag|tags|notes?|description|experiment|group"
    r"|(output|out|log|save|work|checkpoint|ckpt|run)_?(dir|path|folder)|resume|port|device_id|rank|local_rank"
    r"|amp|fp16|bf16|half|precision|autocast|dtype|mixed_precision|use_amp|grad_scaler|loss_scale|init_scale)$"
)
"""Keys that differ from repeat to repeat, or that say in which precision a run computes: that has its own check."""
MAX_CHARS = 60


class _Config:
    id, title, order = "config", "Configuration", 7
    confounds: tuple[Confounds, ...] = ("quality", "speed", "memory")
    is_intended = False
    is_configuration = True

    def words(self, view: RunView) -> str:
        return plural(len(flat(view.row.config)), "key") if view.row.config else MISSING

    def compare(self, baseline: RunView, other: RunView) -> Finding:
        one, two = _compared(baseline), _compared(other)
        if not one and not two:
            return Finding(state="unknown", text="no configuration was given; watch(config=...) takes one")
        keys = sorted(one.keys() | two.keys())
        differs = [key for key in keys if key not in one or key not in two or frozen(one[key]) != frozen(two[key])]
        if not differs:
            return Finding(state="same")
        key = differs[0]
        more = f", and {integer(len(differs) - 1)} more" if len(differs) > 1 else ""
        return Finding(state="different", text=f"{key} {_short(two, key)} against {_short(one, key)}{more}")


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested configuration with dotted keys."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def _compared(view: RunView) -> dict[str, Any]:
    return {key: value for key, value in flat(view.row.config).items() if not OF_THE_RUN.search(key.lower())}


def _short(config: Mapping[str, Any], key: str) -> str:
    text = plain(config[key]) if key in config else MISSING
    return text if len(text) <= MAX_CHARS else text[: MAX_CHARS - 1] + "…"


CHECK: Check = _Config()
