"""Steps too small to move weights that are stored in half precision.

Must not import the store's tables. Invariants: an update counts as lost only where it was measured on the stored
weight; what an optimizer is known to make up for is not lost.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from halfscope_server.compare.fairness.base import fact
from halfscope_server.compare.reasons.base import UPDATES, Mechanism, named
from halfscope_server.compare.types import LayerDivergence, Reason
from halfscope_server.query.format import integer, layer_words, share
from halfscope_server.query.view import RunView

if TYPE_CHECKING:
    from halfscope_server.compare.comparison import Comparison


MADE_UP = re.compile("stochastic|kahan")
"""In hyper-parameters that are switched on."""
PLAIN = frozenset(
    [
        *("ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "LBFGS", "Muon", "NAdam", "RAdam"),
        *("RMSprop", "Rprop", "SGD", "SparseAdam"),
    ]
)


def find(comparison: Comparison, index: int) -> list[Reason]:
    """The layer that lost most of its updates, with how many others did."""
    if (certainty := _certainty(comparison.views[index])) is None:
        return []
    numerics = comparison.numerics[index]
    lost = [layer for layer in numerics.layers if layer.what == "updates" and _lost(layer) > 0]
    if not lost:
        return []
    worst, first_step, others = named(lost, numerics.first_layer, _lost)
    return [
        Reason(
            id="lost_updates",
            text=f"{layer_words(worst.layer)} lost {share(worst.lost_update_share)} of its updates, too small to change"
            f" the weights as they are stored, from step {integer(first_step)} on{others}",
            layer=worst.layer,
            step=first_step,
            certainty=certainty,
            score=UPDATES + (worst.lost_update_share or 0.0),
            advice="Keep FP32 master weights (autocast instead of model.bfloat16() or model.half()), or an optimizer"
            " that rounds stochastically or keeps what was rounded off. A larger learning rate only moves the limit.",
        )
    ]


def _certainty(view: RunView) -> Literal["measured", "likely"] | None:
    """None: its optimizer rounds stochastically or keeps what was rounded off, so that a weight that stays as it is has
    lost nothing. Only of torch's own optimizers it is known that they do neither."""
    found = fact(view, "optimizers")
    optimizers = [item for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []
    groups = [group for item in optimizers for group in item.get("groups") or () if isinstance(group, Mapping)]
    if any(value and MADE_UP.search(str(key).lower()) for group in groups for key, value in group.items()):
        return None
    return "measured" if all(item.get("class") in PLAIN for item in optimizers) else "likely"


def _lost(layer: LayerDivergence) -> float:
    """Share beyond the baseline's; where that was not recorded, its weights are FP32 and lose hardly any."""
    return (layer.lost_update_share or 0.0) - (layer.baseline_lost_update_share or 0.0)


REASON = Mechanism(id="lost_updates", find=find)
