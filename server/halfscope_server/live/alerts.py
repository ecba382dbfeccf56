"""Alerts as plain data for pages: one episode in words and links, the bell's numbers, and what changed since last time.

Owns the shape of an alert on its way out, which mirrors `api.alert_models.AlertItem`; routes and the live message share
it. Must not import fastapi. Invariant: what is said of an episode comes from the episode; a rule or run that is gone
takes only its name and reason with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from halfscope_server import panels
from halfscope_server.alerts import metrics
from halfscope_server.alerts.notification import link_of
from halfscope_server.alerts.routing import covers
from halfscope_server.alerts.rule import Rule
from halfscope_server.alerts.sentences import asks_whether, value_words
from halfscope_server.alerts.validation import InvalidRule, parse
from halfscope_server.live.messages import Message
from halfscope_server.query.format import json_number
from halfscope_server.query.summary import now_us as wall_clock_us
from halfscope_server.store.store import Store
from halfscope_server.store.types import EpisodeRow, NoticeRow, RunRow, SilenceRow

KIND = "alerts"
"""`type` of the live message."""
OPEN = ("firing", "no_data", "error")
"""States of what is not over and has come so far that people are told."""
MAX_NEWS = 200
"""Changed alerts told at once; a page asks for its lists again anyway."""
OVERLAP_US = 30_000_000
"""Clocks of several servers differ, and a transaction may be seen later than one that is newer."""


def describe(store: Store, episodes: Sequence[EpisodeRow]) -> list[dict[str, Any]]:
    """Episodes as pages show them, in the order given, with the silences that hold now."""
    if not episodes:
        return []
    silences = store.alerts.silences(wall_clock_us())
    runs = {run_id: store.get_run(run_id) for run_id in {episode.run_id for episode in episodes}}
    rules = {row.rule_id: rule for row in store.alerts.rules() if (rule := _readable(row.body)) is not None}
    channels = {row.channel_id: row.name for row in store.alerts.channels()}
    notices: dict[str, list[NoticeRow]] = {}
    for notice in store.alerts.notices(*(episode.episode_id for episode in episodes)):
        notices.setdefault(notice.episode_id, []).append(notice)
    return [
        _item(
            episode,
            run=runs[episode.run_id],
            rule=rules.get(episode.rule_id),
            silence=_silence_of(episode, silences),
            notices=[_notice(notice, channels) for notice in notices.get(episode.episode_id, ())],
        )
        for episode in episodes
    ]


def _silence_of(episode: EpisodeRow, silences: Sequence[SilenceRow]) -> SilenceRow | None:
    """What keeps an alert that goes on quiet for longest; None: nothing does, or it is over."""
    found = [silence for silence in silences if episode.state in OPEN and covers(silence, episode)]
    return max(found, key=lambda silence: (silence.until_us is None, silence.until_us or 0), default=None)


def silence_item(silence: SilenceRow, run: RunRow | None) -> dict[str, Any]:
    """A silence as pages show it; mirrors `SilenceItem`.

    Args:
        run: the one that it names, where that is there.
    """
    return {
        "id": silence.silence_id,
        "rule": silence.rule_id,
        "run": silence.run_id,
        "run_name": run.name if run else silence.run_id,
        "layer": silence.layer,
        "comment": silence.comment,
        "created_us": silence.created_us,
        "until_us": silence.until_us,
    }


def counts(store: Store) -> dict[str, int]:
    """The bell's numbers."""
    return asdict(store.alerts.count_episodes())


def bands(episodes: Sequence[EpisodeRow]) -> list[dict[str, Any]]:
    """Where the episodes of one run lie on its charts; those that never fired are left out."""
    return [
        {
            "alert": episode.episode_id,
            "panel": panel_of(episode.metric),
            "layer": episode.layer,
            "first_step": episode.first_step,
            "last_step": None if episode.state in OPEN else _end(episode),
            "severity": episode.severity,
            "text": episode.text,
        }
        for episode in episodes
        if episode.fired_step is not None
    ]


def panel_of(metric: str) -> str:
    """Id of the panel that shows a metric, where a run has it; empty: none does."""
    derived = metrics.find(metric)
    return panels.of_series(metric) if derived is None else derived.panel


class AlertReader:
    """What changed among alerts since it was last asked. For one thread at a time.

    Steps that a firing alert goes on through are no news: they would be told all the time.
    """

    def __init__(self, store: Store, since_us: int) -> None:
        self._store = store
        self._since_us = since_us
        self._known: dict[str, object] = {}
        self._counts: dict[str, int] | None = None
        self._silences: list[str] = []

    def read(self) -> tuple[Message, bool]:
        """(the message, whether there is anything new in it)."""
        rows = self._store.alerts.episodes(changed_since_us=self._since_us - OVERLAP_US, limit=MAX_NEWS)
        # Nobody was told of what is only pending, nor need be that it is over.
        changed = [row for row in rows if row.fired_us is not None and self._known.get(row.episode_id) != _said(row)]
        is_first = self._counts is None
        found = counts(self._store)
        # Also those that another server was told of, and those that ended by themselves.
        silences = [silence.silence_id for silence in self._store.alerts.silences(wall_clock_us())]
        is_new = found != self._counts or silences != self._silences or bool(changed)
        self._known = {row.episode_id: _said(row) for row in rows}
        self._since_us = max([self._since_us, *(row.updated_us for row in rows)])
        self._counts, self._silences = found, silences
        shown = [] if is_first else describe(self._store, changed)
        return alerts_message(found, silences, shown), is_new and not is_first


def alerts_message(
    found: Mapping[str, int], silences: Sequence[str], changed: Sequence[Mapping[str, Any]] = ()
) -> Message:
    """The live message."""
    return {"type": KIND, "counts": dict(found), "silences": list(silences), "changed": list(changed)}


def merged(waiting: Message, newer: Message) -> Message:
    """Two messages of which the first was not taken yet."""
    changed = {alert["id"]: alert for alert in [*waiting["changed"], *newer["changed"]]}
    return alerts_message(newer["counts"], newer["silences"], list(changed.values()))


def _said(row: EpisodeRow) -> object:
    return row.state, row.acknowledged_us, row.muted_by, row.text


def _item(
    episode: EpisodeRow,
    *,
    run: RunRow | None,
    rule: Rule | None,
    silence: SilenceRow | None,
    notices: list[dict[str, Any]],
) -> dict[str, Any]:
    wording = rule or Rule(id="deleted", name=".", metric=episode.metric or ".", threshold=0)
    return {
        "id": episode.episode_id,
        "rule": episode.rule_id,
        "rule_name": episode.rule_name,
        "run": episode.run_id,
        "run_name": run.name if run else episode.run_id,
        "project": run.project if run else "",
        "metric": episode.metric,
        "layer": episode.layer,
        "rank": episode.rank,
        "labels": dict(episode.labels),
        "severity": episode.severity,
        "state": episode.state,
        "text": episode.text,
        "reason": rule.reason if rule else "",
        "runbook": rule.runbook if rule else "",
        "first_step": episode.first_step,
        "fired_step": episode.fired_step,
        "last_step": episode.last_step,
        "resolved_step": episode.resolved_step,
        "first_us": episode.first_us,
        "fired_us": episode.fired_us,
        "last_us": episode.last_us,
        "resolved_us": episode.resolved_us,
        "resolution": episode.resolution,
        "value": json_number(episode.value),
        "worst": json_number(episode.worst),
        "threshold": json_number(episode.threshold),
        "value_text": "" if asks_whether(wording) and episode.value == 1 else value_words(wording, episode.value),
        "threshold_text": value_words(wording, episode.threshold),
        "spark_steps": list(episode.evidence.get("step", ())),
        "spark_values": [json_number(value) for value in episode.evidence.get("value", ())],
        "acknowledged_us": episode.acknowledged_us,
        "acknowledged_by": episode.acknowledged_by,
        "muted_by": _why_not_sent(episode.muted_by),
        "silence": None if silence is None else silence_item(silence, run if silence.run_id else None),
        "panel": panel_of(episode.metric),
        "link": link_of(episode),
        "notices": notices,
    }


def _why_not_sent(muted_by: str) -> str:
    """As the page says it behind "Not sent:"."""
    kind, _, name = muted_by.partition(":")
    if kind == "silence":
        return "silenced"
    return f"the rule {name} fires on the same run" if kind == "inhibited" else muted_by


def _notice(notice: NoticeRow, channels: Mapping[str, str]) -> dict[str, Any]:
    return {
        "channel": notice.channel_id,
        "channel_name": channels.get(notice.channel_id, "a deleted channel"),
        "kind": notice.kind,
        "state": notice.state,
        "num_tries": notice.num_tries,
        "created_us": notice.created_us,
        "sent_us": notice.sent_us,
        "error": notice.error,
    }


def _end(episode: EpisodeRow) -> int:
    return max(episode.last_step, episode.resolved_step or 0)


def _readable(body: Mapping[str, Any]) -> Rule | None:
    try:
        return parse(body)
    except InvalidRule:
        return None
