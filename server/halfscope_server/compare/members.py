"""The runs of a comparison: their letters, what tells them from each other, which of them are repeats.

Must not import the store's tables. Invariant: letters follow the order in which runs were chosen, and the baseline's
group is 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from halfscope_server.compare import fairness
from halfscope_server.compare.fairness.base import plain
from halfscope_server.compare.fairness.config import flat
from halfscope_server.compare.types import Member, Options
from halfscope_server.query.format import MISSING
from halfscope_server.query.names import is_own
from halfscope_server.query.states import precision_of, precision_role
from halfscope_server.query.view import RunView

if TYPE_CHECKING:
    from halfscope_server.compare.comparison import Comparison

LETTERS = "ABCDEFGH"
DEFAULT_METRIC = Options().metric
MAX_KEYS = 50
"""Keys of the configuration told at most."""
MAX_CHARS = 200
"""Of one value."""

_HIGHER = re.compile(
    r"(?<![a-z])(acc|accuracy|auc|auroc|f1|bleu|rouge|score|precision|recall|reward|return|psnr|ssim|iou|dice|map|r2|hits"
    r"|success|winrate|ndcg|mrr|top[0-9]+|elo)(?![a-z])"
)
_LOWER = re.compile(
    r"(?<![a-z])(loss|error|err|perplexity|ppl|nll|mse|mae|rmse|mape|wer|cer|fid|kl|bpc|bpb|bpd|bce|xent|crossentropy|ce"
    r"|regret|cost|brier|ece|distance|residual)(?![a-z])"
)


def describe(comparison: Comparison) -> list[Member]:
    """Every member, the baseline first."""
    views = comparison.views
    groups = _groups(comparison)
    configs = _different([flat(view.row.config) for view in views])
    return [
        Member(
            run=view.run_id,
            name=view.row.name,
            project=view.row.project,
            letter=LETTERS[at],
            precision=precision_of(view.row),
            precision_role=precision_role(view.row),
            state=view.row.state,
            last_step=view.span.last_step if view.span else view.row.last_step,
            group=groups[at],
            config=configs[at],
        )
        for at, view in enumerate(views)
    ]


def _groups(comparison: Comparison) -> list[int]:
    """A number per run; equal ones are repeats of one configuration."""
    leaders: list[RunView] = []
    found = []
    for view in comparison.views:
        group = next((at for at, leader in enumerate(leaders) if fairness.are_repeats(leader, view)), len(leaders))
        if group == len(leaders):
            leaders.append(view)
        found.append(group)
    return found


def metrics(views: Sequence[RunView]) -> list[str]:
    """Series that at least two members have and that may stand for quality; the loss first."""
    names: dict[str, int] = {}
    for view in views:
        for name in {series.name for series in view.series if is_quality(series.name) and series.kind == "gauge"}:
            names[name] = names.get(name, 0) + 1
    return sorted((name for name, count in names.items() if count > 1), key=lambda name: (name != "loss", name))


def metric_of(views: Sequence[RunView], asked: str) -> str:
    """The metric that is asked for; where that is the loss and the baseline and another do not both have one, the first
    that they have, those whose direction is known before others."""
    if asked != DEFAULT_METRIC or _is_shared(views, asked):
        return asked
    shared = [name for name in metrics(views) if _is_shared(views, name)]
    return min(shared, key=lambda name: (lower_is_better(name) is None, name), default=asked)


def _is_shared(views: Sequence[RunView], name: str) -> bool:
    return views[0].has(name) and any(view.has(name) for view in views[1:])


def is_quality(name: str) -> bool:
    """Whether a series may say how good a model is."""
    return not is_own(name)


def lower_is_better(name: str) -> bool | None:
    """Whether small values of a metric are the good ones; None: its name does not tell."""
    if _LOWER.search(name.lower()):
        return True
    return False if _HIGHER.search(name.lower()) else None


def _different(configs: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Of each configuration the keys in which any two are not the same."""
    keys = sorted({key for config in configs for key in config})
    told = [{key: _short(config[key]) if key in config else MISSING for key in keys} for config in configs]
    chosen = [key for key in keys if len({config[key] for config in told}) > 1][:MAX_KEYS]
    return [{key: config[key] for key in chosen} for config in told]


def _short(value: Any) -> str:
    text = plain(value)
    return text if len(text) <= MAX_CHARS else text[: MAX_CHARS - 1] + "…"
