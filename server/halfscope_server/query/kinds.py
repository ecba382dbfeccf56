"""What each kind of event is called, how it is marked and how grave it is.

Owns the table of kinds that the event list, the rug and the read-outs share. Must not import the store. Invariant: a
kind nobody wrote down here still gets a title, a mark and a colour, so that a newer agent's events are shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["info", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "critical")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Words and marks of one kind of event."""

    title: str
    noun: str
    """For counts: `3 skips`."""
    role: str
    mark: str
    severity: Severity = "info"
    """Where the event does not say: on the rug, which reads no event."""

    def counted(self, count: int) -> str:
        """`1 skip`, `3 skips`."""
        return f"{count:,} {self.noun if count == 1 else plural_of(self.noun)}"


def plural_of(noun: str) -> str:
    """English enough for the nouns below."""
    head, space, rest = noun.partition(" of ")
    if head.endswith(("s", "x", "ch")):
        head += "es"
    elif head.endswith("y") and head[-2] not in "aeiou":
        head = head[:-1] + "ies"
    else:
        head += "s"
    return head + space + rest


KINDS: dict[str, Kind] = {
    "skip": Kind(title="Skipped step", noun="skip", role="quiet", mark="▾"),
    "scale_backoff": Kind(title="Scale lowered", noun="scale backoff", role="quiet", mark="▽"),
    "scale_growth": Kind(title="Scale raised", noun="scale growth", role="info", mark="△"),
    "scale_set": Kind(title="Scale set", noun="scale set by hand", role="info", mark="◇"),
    "loss_nonfinite": Kind(
        title="Loss not finite", noun="non-finite loss", role="nonfinite", mark="✕", severity="critical"
    ),
    "nonfinite_applied": Kind(
        title="NaN or Inf applied", noun="step with NaN or Inf applied", role="nonfinite", mark="✕", severity="critical"
    ),
    "input_nonfinite": Kind(
        title="Input not finite", noun="non-finite input", role="nonfinite", mark="✕", severity="critical"
    ),
    "layer_flushed": Kind(title="Layer flushed", noun="flushed layer", role="underflow", mark="▽", severity="warning"),
    "updates_lost": Kind(title="Updates lost", noun="loss of updates", role="underflow", mark="▽", severity="warning"),
    "bad_streak": Kind(title="Streak of skips", noun="streak of skips", role="streak", mark="▾", severity="warning"),
    "bad_streak_end": Kind(title="Streak over", noun="end of a streak", role="info", mark="●"),
    "update_missing": Kind(
        title="scaler.update() missing", noun="missing update", role="warning", mark="▲", severity="warning"
    ),
    "half_precision_parameters": Kind(
        title="Half-precision parameters", noun="half-precision warning", role="critical", mark="▲", severity="critical"
    ),
    "unwatched_scaler": Kind(
        title="Unwatched scaler", noun="unwatched scaler", role="warning", mark="▲", severity="warning"
    ),
    "unwatched_optimizer": Kind(
        title="Unwatched optimizer", noun="unwatched optimizer", role="warning", mark="▲", severity="warning"
    ),
    "agent_degraded": Kind(title="Probe detached", noun="detached probe", role="warning", mark="▲", severity="warning"),
    "run_started": Kind(title="Run started", noun="start", role="info", mark="●"),
    "run_ended": Kind(title="Run ended", noun="end", role="info", mark="●"),
    "restarted": Kind(title="Restarted", noun="restart", role="info", mark="●"),
    "resumed_without_state": Kind(
        title="Resumed without state", noun="restart without state", role="warning", mark="▲", severity="warning"
    ),
    "joined": Kind(title="Rank joined", noun="joined rank", role="info", mark="●"),
    "rank_origin": Kind(
        title="NaN or Inf on a rank", noun="origin on a rank", role="nonfinite", mark="✕", severity="warning"
    ),
    "comm_overflow": Kind(
        title="Overflow in the reduction", noun="overflow of reductions", role="nonfinite", mark="✕", severity="warning"
    ),
    "comm_error": Kind(title="Error of the reduction", noun="change of a reduction's error", role="info", mark="◇"),
    "comm_hook_unwatched": Kind(
        title="Communication hook unwatched", noun="unwatched communication hook", role="info", mark="●"
    ),
    "rank_disagreement": Kind(
        title="Ranks disagree", noun="disagreement of ranks", role="critical", mark="▲", severity="critical"
    ),
    "straggler": Kind(title="Straggler", noun="straggler", role="warning", mark="▲", severity="warning"),
    "rank_stuck": Kind(title="Rank stuck", noun="stuck rank", role="warning", mark="▲", severity="warning"),
    "ranks_missing": Kind(title="Ranks missing", noun="notice of missing ranks", role="info", mark="●"),
    "lost_contact": Kind(title="Lost contact", noun="lost contact", role="warning", mark="▲", severity="warning"),
    "contact_regained": Kind(title="Contact regained", noun="regained contact", role="info", mark="●"),
    "stalled": Kind(title="Training stalls", noun="stall", role="warning", mark="▲", severity="warning"),
    "lost": Kind(title="Records lost", noun="loss of records", role="warning", mark="▲", severity="warning"),
    "journal_forked": Kind(
        title="Journal copied, seen by its agent", noun="copied journal", role="warning", mark="▲", severity="warning"
    ),
    "forked": Kind(title="Journal copied", noun="copied journal", role="warning", mark="▲", severity="warning"),
}


def kind_of(name: str) -> Kind:
    """The kind of this name; unknown ones are called by their name."""
    found = KINDS.get(name)
    if found is not None:
        return found
    words = name.replace("_", " ").replace(".", " ").strip() or "event"
    return Kind(title=words[:1].upper() + words[1:], noun=words, role="info", mark="●")


def as_severity(text: str, otherwise: Severity = "info") -> Severity:
    """A severity as it came over the wire, if it is one."""
    for known in SEVERITIES:
        if text == known:
            return known
    return otherwise
