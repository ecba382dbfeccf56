"""What is said of each member against the baseline, in words, and the sentence at the top.

Owns how quality, numerics, reasons, cost and fairness become one judgement. Must not import plotly or the store's
tables. Invariant: the outcome is that of the metric; what makes it incomparable makes it unknown, except where it is no
number any more; and nothing is given as the cause that was neither measured nor parted by the time it is said to begin.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from halfscope_server.compare import reasons as causes
from halfscope_server.compare.fairness import within_sentence
from halfscope_server.compare.types import (
    Cost,
    Estimate,
    FairnessItem,
    Member,
    Numerics,
    Outcome,
    Quality,
    Reason,
    Verdict,
)
from halfscope_server.query.format import MISSING, integer, layer_words, number, plural, share, shortened

if TYPE_CHECKING:
    from halfscope_server.compare.comparison import Comparison

OF_SEEDS = ("seed", "data_order", "initial_weights")
"""What other seeds bring along: its size is what the noise band is about, so it makes nothing incomparable."""
CONFIGURATION, STEPS = "config", "steps"
GRAVITY: tuple[Outcome, ...] = ("worse", "unknown", "better", "equal")
"""The first of these that any member has is told of all."""
TELLING_TOLERANCES = 10
"""Times the tolerance: with so much of a difference beside a measured mechanism, and the same seed and data, it is the
mechanism's. Healthy pairs of one seed stay below a third of it, and have no mechanism."""
OF_A_MEMBER = re.compile(r"[A-H]: ")
MAX_NAME_CHARS = 60
"""Of a run's name within a sentence."""
MAX_NAMED = 4
"""Things named one by one; of more the number is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """Everything about one member that a judgement rests on."""

    at: int
    """The member's place."""
    member: Member
    name: str
    baseline_name: str
    baseline_ruin: str
    """What its metric ends as, where that is no number."""
    quality: Quality
    numerics: Numerics
    cost: Cost
    reasons: list[Reason]
    """Of the member; where its metric is better, of the baseline."""
    confounders: list[FairnessItem]
    """Of quality."""
    slowing: list[FairnessItem]
    """Of speed or memory."""
    unknown: list[FairnessItem]
    """That may be confounders of quality."""
    tolerance_share: float
    asked: str
    """The metric that was asked for, where another is compared."""
    num_withheld: int
    """Steps of the member that its scaler withheld."""
    beyond: FairnessItem | None
    """How far each came, where that is not the same."""
    is_by_time: bool
    is_live: bool


def judge(comparison: Comparison) -> tuple[list[Verdict], str, Outcome]:
    """Of each member but the baseline; the sentence over all of them, and its outcome."""
    cases = [_case(comparison, at) for at in range(1, len(comparison.views))]
    verdicts = [_verdict(case) for case in cases]
    outcome = min((verdict.outcome for verdict in verdicts), key=GRAVITY.index)
    return verdicts, _headline(cases, verdicts), outcome


def _case(comparison: Comparison, at: int) -> _Case:
    members, quality = comparison.members, comparison.quality[at]
    items = [item for item in comparison.fairness.items if not item.is_intended]
    different = [item for item in items if item.states[at] == "different"]
    confounders = [item for item in different if "quality" in item.confounds and item.id not in OF_SEEDS]
    names = [shortened(member.name, MAX_NAME_CHARS) for member in members]
    told = [f"{n} ({m.letter})" if names.count(n) > 1 else n or m.letter for n, m in zip(names, members, strict=True)]
    return _Case(
        at=at,
        member=members[at],
        name=told[at],
        baseline_name=told[0],
        baseline_ruin=comparison.quality[0].final_words if comparison.quality[0].final is None else "",
        quality=quality,
        numerics=comparison.numerics[at],
        cost=comparison.cost[at],
        reasons=_reasons(comparison, at, is_judged=not confounders),
        confounders=confounders,
        slowing=[item for item in different if {"speed", "memory"} & set(item.confounds)],
        unknown=[item for item in items if item.states[at] == "unknown" and "quality" in item.confounds],
        tolerance_share=comparison.options.tolerance_share,
        asked="" if comparison.metric_asked == comparison.options.metric else comparison.metric_asked,
        num_withheld=sum(comparison.stability[at].skips.values()),
        beyond=next((item for item in different if item.id == STEPS), None),
        is_by_time=comparison.options.align == "time",
        is_live=comparison.is_live,
    )


def _reasons(comparison: Comparison, at: int, *, is_judged: bool) -> list[Reason]:
    """What speaks for the member being worse. One that is better is so because of what is wrong with the baseline: that
    is found as it would be of the baseline, were it the other way round."""
    own = causes.find(comparison, at)
    if comparison.quality[at].outcome != "better" or not is_judged:
        return own
    return [replace(reason, is_of_baseline=True) for reason in causes.find(comparison.against(at), 1)] + own


def _verdict(case: _Case) -> Verdict:
    outcome = _outcome(case)
    start = _start(case, outcome)
    return Verdict(
        run=case.member.run,
        outcome=outcome,
        sentence=_sentence(case, outcome, start),
        from_step=start.step,
        layer=start.layer,
        reasons=case.reasons,
        limits=_limits(case, outcome),
    )


def _outcome(case: _Case) -> Outcome:
    if case.confounders and not _is_lost(case):
        return "unknown"
    return "worse" if _is_shown_by_mechanism(case) else case.quality.outcome


def _is_shown_by_mechanism(case: _Case) -> bool:
    """Whether a difference within the noise is told all the same: a trouble that sets in makes the difference of a pair
    change, which a pair alone cannot tell from noise; a mechanism that was measured can."""
    quality = case.quality
    if quality.noise != "paired" or quality.difference is None or quality.noise_share is None:
        return False
    if quality.outcome in ("worse", "better") or abs(quality.difference.value) > quality.noise_share:
        return False
    is_measured = any(reason.certainty == "measured" and not reason.is_of_baseline for reason in case.reasons)
    loss = quality.difference.value if quality.lower_is_better else -quality.difference.value
    return is_measured and loss > TELLING_TOLERANCES * case.tolerance_share


def _is_lost(case: _Case) -> bool:
    """Whether the metric is no number any more: worse, whatever else differs."""
    return case.quality.final is None and case.quality.outcome == "worse"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    """Where it began."""

    step: int | None
    layer: str


def _start(case: _Case, outcome: Outcome) -> _Start:
    """What is measured of a cause comes before the metric shows it; without one it is where layers part, if that comes
    no later."""
    quality, numerics = case.quality, case.numerics
    for reason in case.reasons:
        if reason.step is not None or reason.layer:
            return _Start(step=quality.first_step if reason.step is None else reason.step, layer=reason.layer)
    if outcome not in ("worse", "better"):
        return _Start(step=numerics.first_step, layer=numerics.first_layer)
    if numerics.first_step is None or (quality.first_step or 0) < numerics.first_step:
        return _Start(step=quality.first_step, layer="")
    return _Start(step=numerics.first_step, layer=numerics.first_layer)


# ---- sentences -------------------------------------------------------------------------------


def _headline(cases: Sequence[_Case], verdicts: Sequence[Verdict]) -> str:
    """The sentence of the only member; of several what each is, the worst first, with the worst one's cause."""
    if len(cases) == 1:
        return verdicts[0].sentence
    pairs = sorted(zip(cases, verdicts, strict=True), key=lambda pair: GRAVITY.index(pair[1].outcome))
    parts: list[str] = []
    for case, verdict in pairs:
        start = _Start(step=verdict.from_step, layer=verdict.layer)
        part = f"{case.name} {_judgement(case, verdict.outcome, start)}"
        if not parts and verdict.outcome == "worse":
            part += _because(case, start)
        parts.append(part)
    return _live(cases[0], f"Against {cases[0].baseline_name}: {'; '.join(parts)}.")


def _sentence(case: _Case, outcome: Outcome, start: _Start) -> str:
    against = {"equal": "to", "worse": "than", "better": "than", "unknown": "against"}[outcome]
    text = f"{case.name} {_judgement(case, outcome, start, f'{against} {case.baseline_name}')}"
    text += _because(case, start) if outcome == "worse" else _faulty_baseline(case, outcome) or _but(case, outcome)
    costs = _cost_words(case)
    return _live(case, f"{text}{f'; {costs}' if costs else ''}.")


def _live(case: _Case, text: str) -> str:
    return f"So far: {text}" if case.is_live else text


def _judgement(case: _Case, outcome: Outcome, start: _Start, against: str = "") -> str:
    quality, against = case.quality, f" {against}" if against else ""
    match outcome:
        case "equal":
            return f"is equal{against} within noise ({_difference(case)})"
        case "unknown":
            return f"cannot be judged{against}: {_why_unknown(case)}"
        case _:
            if quality.final is None:
                return f"is {outcome}{against}: its {quality.metric} is {quality.final_words}"
            if quality.difference is None and case.baseline_ruin:
                return f"is {outcome}{against}: the baseline's {quality.metric} is {case.baseline_ruin}"
            by = f" by {_size(quality).lstrip('+-')}" if quality.difference else ""
            return f"is {outcome}{against}{by} in {quality.metric}{_from(case, start)}"


def _from(case: _Case, start: _Start) -> str:
    first = case.quality.first_step
    text = "" if first is None else f" from step {integer(first)} on"
    if start.layer:
        at = f" at step {integer(start.step)}" if start.step not in (None, first) else ""
        text += f", starting in {layer_words(start.layer)}{at}"
    return text


def _difference(case: _Case) -> str:
    quality = case.quality
    if quality.difference is None:
        return f"{quality.metric} {quality.final_words}"
    noise = _band(quality)
    return f"{quality.metric} {_size(quality)}{f', noise {noise}' if noise else ''}"


def _size(quality: Quality) -> str:
    """The difference with its sign: relative, or as it is where the baseline's level is next to nothing."""
    if quality.absolute is not None:
        return f"{'-' if quality.absolute < 0 else '+'}{number(abs(quality.absolute))}"
    return _signed(quality.difference.value) if quality.difference else MISSING


def _band(quality: Quality) -> str:
    if quality.absolute is not None:
        return "" if quality.noise_absolute is None else f"±{number(quality.noise_absolute)}"
    return "" if quality.noise_share is None else f"±{share(quality.noise_share)}"


def _signed(value: float) -> str:
    return f"{'-' if value < 0 else '+'}{share(abs(value))}" if value else "the same"


def _why_unknown(case: _Case) -> str:
    if case.confounders:
        return _listed(
            [f"{within_sentence(item.title)} {_difference_in(case, item)}" for item in _telling(case.confounders)]
        )
    return case.quality.reason or "not enough was recorded of both"


def _difference_in(case: _Case, item: FairnessItem) -> str:
    """`64 against 32`: what is said of the first member that differs, where that is this one."""
    text, own = item.text.partition(";")[0], f"{case.member.letter}: "
    if OF_A_MEMBER.match(text) and not text.startswith(own):
        return f"{item.values[case.at]} against {item.values[0]}"
    return text.removeprefix(own)


def _telling(items: Sequence[FairnessItem]) -> Sequence[FairnessItem]:
    """Without the user's configuration, which mostly says the same in other words, where anything else differs."""
    return [item for item in items if item.id != CONFIGURATION] or items


def _because(case: _Case, start: _Start) -> str:
    if not case.reasons:
        return f", {_no_cause(case, start)}"
    first = case.reasons[0]
    return f", {'' if first.certainty == 'measured' else 'likely '}because {first.text}"


def _faulty_baseline(case: _Case, outcome: Outcome) -> str:
    """`, because in fp16 narrow lost 69% of its gradient ...`, of a run that is better than such a baseline."""
    found = next((reason for reason in case.reasons if reason.is_of_baseline), None)
    if outcome != "better" or found is None:
        return ""
    return f", {'' if found.certainty == 'measured' else 'likely '}because in {case.baseline_name} {found.text}"


def _no_cause(case: _Case, start: _Start) -> str:
    speedup = case.cost.speedup
    if case.is_by_time and speedup is not None and (speedup.high or speedup.value) < 1:
        return f"likely because it is slower: {times(speedup)} the work in the same time"
    if case.numerics.reason:
        return f"why cannot be told: {case.numerics.reason}"
    # What parts first is named before this, and is not said to be missing.
    before = "" if start.layer else "no layer parts before that, and "
    withheld = f"but for {plural(case.num_withheld, 'skipped step')} " if case.num_withheld else ""
    return f"why cannot be told: {before}{withheld}nothing was withheld or lost"


def _but(case: _Case, outcome: Outcome) -> str:
    """What is wrong, or only different, with the numbers though the metric does not say so."""
    measured = [reason for reason in case.reasons if reason.certainty == "measured" and not reason.is_of_baseline]
    if measured:
        return f", but {measured[0].text}"
    numerics = case.numerics
    if numerics.first_step is None or outcome == "better":
        return ""
    where = layer_words(numerics.first_layer)
    harmless = ", which does not make it worse" if outcome == "equal" else ""
    return f"; gradients differ in {where} from step {integer(numerics.first_step)} on{harmless}"


def _cost_words(case: _Case) -> str:
    cost = case.cost
    if case.slowing:
        named = _listed([within_sentence(item.title) for item in _telling(case.slowing)])
        return f"speed and memory not comparable ({named})"
    words = []
    if cost.speedup is not None:
        words.append(f"speedup {times(cost.speedup)}")
    if cost.memory_ratio is not None:
        of = "" if cost.memory_of == "device" else f"{cost.memory_of} "
        words.append(f"{of}memory {number(round(cost.memory_ratio, 2))}×")
    return ", ".join(words)


def times(found: Estimate) -> str:
    """`1.83× (1.79 to 1.88)`."""
    text = f"{_short(found.value)}×"
    if found.low is None or found.high is None:
        return text
    return f"{text} ({_short(found.low)} to {_short(found.high)})"


def _short(value: float) -> str:
    return f"{value:.3g}" if value < 100 else integer(round(value))


# ---- limits ----------------------------------------------------------------------------------


def _limits(case: _Case, outcome: Outcome) -> list[str]:
    quality, numerics = case.quality, case.numerics
    found = [_noise_words(case)]
    if case.asked:
        found.append(f"not both have {case.asked}: they are compared by {quality.metric}")
    if outcome == "worse" and _is_shown_by_mechanism(case):
        found.append(
            f"called worse because of what was measured: by itself the difference is within the noise of one run each"
            f" ({_band(quality) or '±unknown'})"
        )
    if quality.absolute is not None:
        found.append("the baseline's level is next to nothing: the difference is told as it is, not as a share of it")
    told = outcome == "unknown" and not case.confounders
    if quality.reason and not told and not found[0].startswith(quality.reason):
        found.append(quality.reason)
    if numerics.reason:
        found.append(f"layers are not compared: {numerics.reason}")
    elif numerics.interval and numerics.interval > 1:
        found.append(f"the step at which layers part is known to within {plural(numerics.interval, 'step')}")
    if case.unknown:
        found.append(f"not recorded of both: {_listed([within_sentence(item.title) for item in case.unknown])}")
    different = [*case.confounders, *(item for item in case.slowing if item not in case.confounders)]
    found += [f"{within_sentence(item.title)}: {_difference_in(case, item)}" for item in different]
    if case.beyond is not None and not case.is_live:
        found.append(f"{within_sentence(case.beyond.title)}: {_difference_in(case, case.beyond)}")
    if case.is_live:
        found.append("still training: this is as far as both have come")
    return [text for text in found if text]


def _noise_words(case: _Case) -> str:
    tolerance = f"differences below {share(case.tolerance_share)} are never called one"
    match case.quality.noise:
        case "repeats":
            return f"noise from repeats of the same configuration; {tolerance}"
        case "paired":
            return f"one run each: noise from the scatter of their difference; {tolerance}"
        case "tolerance":
            return f"one run each; {tolerance}"
        case _:
            return ""


def _listed(words: Sequence[str]) -> str:
    more = [f"{len(words) - MAX_NAMED} more"] if len(words) > MAX_NAMED else []
    return ", ".join([*words[:MAX_NAMED], *more])
