"""Which notifications follow from what happened: channels, silences, mutes, inhibition, repeats.

Must not send, nor ask the store. Invariants: an episode is told of once for each channel and kind, and is told to be
over only where it was told of; what keeps one from being sent is written down with it, in `muted_by`, and when that is
over while the episode still goes on, it is sent after all: a real one is never swallowed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from halfscope_server.alerts.metrics import find
from halfscope_server.alerts.notification import body_of, one_line
from halfscope_server.alerts.rule import Rule
from halfscope_server.store.types import ChannelRow, EpisodeRow, NoticeRow, RunRow, SilenceRow

FIRING = ("firing", "no_data")
TOO_LATE_US = 86_400_000_000
TOO_LATE = "found out more than a day later"
"""What the server hears of so late (journals brought in by hand) is history: shown, but nobody is woken by it."""
RUN_MUTED = "run muted"
ENDED = ("run ended", "rank ended")
"""Resolutions that are no news where the alert itself was that the run has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """All that decides, beside the episode."""

    run: RunRow | None
    rules: Mapping[str, Rule]
    firing: Collection[str]
    """Ids of the rules that fire on this run now."""
    channels: Sequence[ChannelRow]
    silences: Sequence[SilenceRow]
    """Those that hold now."""
    base_url: str
    now_us: int


def has_fired(episode: EpisodeRow | None) -> bool:
    """Whether it ever came so far that people are told."""
    return episode is not None and episode.fired_us is not None


def muted_by(episode: EpisodeRow, around: Around) -> str:
    """What keeps an episode from being sent now; empty: nothing."""
    if episode.fired_us is not None and around.now_us - episode.fired_us > TOO_LATE_US:
        return TOO_LATE
    for silence in around.silences:
        if covers(silence, episode):
            is_mute = silence.run_id and not silence.rule_id and not silence.layer
            return RUN_MUTED if is_mute else f"silence:{silence.silence_id}"
    if sending := _inhibiting(episode.rule_id, around):
        return f"inhibited:{sending}"
    rule = around.rules.get(episode.rule_id)
    if (
        rule is not None
        and rule.channels
        and not {row.channel_id for row in around.channels}.intersection(rule.channels)
    ):
        named = ", ".join(rule.channels)
        return one_line(f"no such channel: the rule names {named}, which is not there; choose others in the rule")
    return ""


def _inhibiting(rule_id: str, around: Around) -> str:
    """The firing rule that keeps another one from sending; empty: none does.

    A rule inhibits only while it is not inhibited itself. Of rules that stand in a circle none is: whichever were
    chosen to be told, or all of them, something real would be swallowed for no reason.
    """
    inhibitors: dict[str, list[str]] = {}
    left = [rule_id]
    while left:
        name = left.pop()
        if name not in inhibitors:
            rule = around.rules.get(name)
            inhibitors[name] = [other for other in rule.inhibited_by if other in around.firing] if rule else []
            left += inhibitors[name]
    sends: dict[str, bool] = {}
    while newly := {
        name: not any(sends.get(other) for other in others)
        for name, others in inhibitors.items()
        if name not in sends and (any(sends.get(other) for other in others) or all(other in sends for other in others))
    }:
        sends |= newly
    return next((other for other in inhibitors[rule_id] if sends.get(other)), "")


def covers(silence: SilenceRow, episode: EpisodeRow) -> bool:
    """Whether a silence is about an episode: an empty field is about everything, layers are patterns."""
    return (
        silence.rule_id in ("", episode.rule_id)
        and silence.run_id in ("", episode.run_id)
        and (silence.layer == "" or fnmatchcase(episode.layer, silence.layer))
    )


def fired(episode: EpisodeRow, around: Around) -> list[NoticeRow]:
    """The notifications that an episode has begun, one for each of its rule's channels."""
    rule = around.rules.get(episode.rule_id)
    wanted = None if rule is None else rule.channels
    chosen = [row for row in around.channels if row.enabled and (wanted is None or row.channel_id in wanted)]
    return [_notice(episode, row.channel_id, "fired", around) for row in chosen]


def resolved(episode: EpisodeRow, told: Sequence[NoticeRow], around: Around) -> list[NoticeRow]:
    """That it is over, to whoever was told of it, whatever is silenced by now: channels close what they opened.

    Args:
        episode: as it is now.
        told: its notifications so far.
        around: the rest.
    """
    metric = find(episode.metric)
    if metric is not None and metric.ends_with_run and episode.resolution in ENDED:
        return []
    channel_ids = {notice.channel_id for notice in told if notice.kind == "fired"}
    enabled = {row.channel_id for row in around.channels if row.enabled}
    return [_notice(episode, channel_id, "resolved", around) for channel_id in sorted(channel_ids & enabled)]


def repeated(episode: EpisodeRow, told: Sequence[NoticeRow], around: Around) -> list[NoticeRow]:
    """That it still goes on, where its rule asks for that and nobody has acknowledged it.

    After an outage only the newest repetition is due, not all that were missed.
    """
    rule = around.rules.get(episode.rule_id)
    if rule is None or rule.repeat_s is None or episode.acknowledged_us is not None:
        return []
    enabled = {row.channel_id for row in around.channels if row.enabled}
    due = []
    for first in told:
        if first.kind != "fired" or first.channel_id not in enabled or first.state in ("waiting", "sending"):
            continue  # what was never told is not told again
        made = [notice for notice in told if notice.channel_id == first.channel_id and notice.kind != "resolved"]
        since_us = max(notice.created_us for notice in made)
        number, last = (int((at_us - first.created_us) // (rule.repeat_s * 1e6)) for at_us in (around.now_us, since_us))
        if number > last:
            # The rule may have asked for it more often until now.
            used = max((int(notice.kind.partition(":")[2] or 0) for notice in made), default=0)
            due.append(_notice(episode, first.channel_id, f"repeat:{max(number, used + 1)}", around))
    return due if due and not muted_by(episode, around) else []


def _notice(episode: EpisodeRow, channel_id: str, kind: str, around: Around) -> NoticeRow:
    return NoticeRow(
        episode_id=episode.episode_id,
        channel_id=channel_id,
        kind=kind,
        state="waiting",
        num_tries=0,
        due_us=around.now_us,
        created_us=around.now_us,
        sent_us=None,
        error="",
        body=body_of(
            episode,
            kind=kind,
            run=around.run,
            rule=around.rules.get(episode.rule_id),
            base_url=around.base_url,
            now_us=around.now_us,
        ),
    )
