"""Whether runs may be compared: what they agree in, what differs, what nobody recorded.

A module of this folder with a `CHECK` is a check; add a file and it appears, tested by the contract tests. Must not
import plotly. Invariant: what is unknown of one member is never told as the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from halfscope_server.compare.fairness.base import Check, Finding
from halfscope_server.compare.types import Agreement, Fairness, FairnessItem
from halfscope_server.query.view import RunView
from halfscope_server.scanning import found_in

if TYPE_CHECKING:
    from halfscope_server.compare.comparison import Comparison

_STATE_ORDER: dict[Agreement, int] = {"different": 0, "unknown": 1, "same": 2}


@cache
def checks() -> tuple[Check, ...]:
    """Every check, in their order.

    Raises:
        ValueError: two files hold one id.
    """
    found: dict[str, Check] = found_in(__name__, __path__, "CHECK")
    return tuple(sorted(found.values(), key=lambda check: (check.order, check.id)))


def judge(comparison: Comparison) -> Fairness:
    """All checks over a comparison: different ones first, then unknown ones."""
    items = [_item(check, comparison) for check in checks()]
    items.sort(key=lambda item: _STATE_ORDER[item.state])
    counted = [item.state for item in items if not item.is_intended]
    return Fairness(
        items=items,
        num_same=counted.count("same"),
        num_different=counted.count("different"),
        num_unknown=counted.count("unknown"),
    )


def are_repeats(one: RunView, other: RunView) -> bool:
    """Whether two runs differ in nothing but the seed and what comes with it, as far as was recorded."""
    if not one.row.facts.get("precision") or not other.row.facts.get("precision"):
        return False  # What is being compared may be the very thing they differ in.
    return all(check.compare(one, other).state != "different" for check in checks() if check.is_configuration)


def _item(check: Check, comparison: Comparison) -> FairnessItem:
    baseline = comparison.baseline
    findings = [Finding(state="same"), *(check.compare(baseline, view) for view in comparison.views[1:])]
    states = [finding.state for finding in findings]
    state = min(states, key=_STATE_ORDER.__getitem__)
    return FairnessItem(
        id=check.id,
        title=check.title,
        state=state,
        values=[check.words(view) for view in comparison.views],
        states=states,
        confounds=list(check.confounds),
        text=_text(check, comparison, findings, state),
        is_intended=check.is_intended,
    )


def _text(check: Check, comparison: Comparison, findings: Sequence[Finding], state: Agreement) -> str:
    """Of the first member that is so, and of all others of which the same can be said."""
    if state == "same":
        return ""
    text = next(finding.text for finding in findings if finding.state == state)
    if len(findings) > 2:
        told = zip(comparison.members, findings, strict=True)
        who = [member.letter for member, finding in told if finding.state == state and finding.text == text]
        text = f"{', '.join(who)}: {text}"
    if state == "different" and check.confounds and not check.is_intended:
        text += f"; {confounded(check.confounds)}"
    return text


def within_sentence(title: str) -> str:
    """A check's title where it does not begin one: `batch size`, `FP32 baseline`."""
    return title[:1].lower() + title[1:] if title[1:2].islower() else title


def confounded(what: Sequence[str]) -> str:
    """`speed and quality are not comparable`."""
    named = " and ".join(filter(None, [", ".join(what[:-1]), what[-1]]))
    return f"{named} {'is' if len(what) == 1 else 'are'} not comparable"


def why_unpaired(baseline: RunView, other: RunView) -> str:
    """Why what batches do to the one does not show in the other too; empty: they began alike and were fed alike."""
    found = {check.id: check.compare(baseline, other) for check in checks() if check.id in _PAIRING}
    same_seed = found["seed"].state == "same"
    for name, words in _PAIRING.items():
        # Where weights and batches are known to be the same, the seed does not matter.
        if found[name].state == "different" and not (
            name == "seed" and found["data_order"].state == found["initial_weights"].state == "same"
        ):
            return f"{words}, one run each"
    for name in ("data_order", "initial_weights"):
        if found[name].state == "unknown" and not same_seed:
            return "whether both began alike and were fed alike is not known"
    return ""


_PAIRING = {
    "batch_size": "another batch size",
    "data_order": "another data order",
    "initial_weights": "other initial weights",
    "seed": "another seed",
}
"""What must agree for two runs to be a pair, with what is said where it does not."""
