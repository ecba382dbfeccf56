"""What a notification says: the body that is kept in the outbox, and the message made of one or several.

`body_of` is called when something happened, and what it gives is sent as it was then, however late. `Message` is what a
channel gets: one notification, or a burst of them put together. Must not import the store's tables, nor any channel.
Invariant: texts made here are single lines without control characters and bidirectional overrides, whatever a run, a
layer or a rule is called; escaping for HTML, JSON or a chat's markup is the channel's own.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from halfscope_server.alerts.rule import Rule
from halfscope_server.query.format import json_number
from halfscope_server.store.types import EpisodeRow, NoticeRow, RunRow

MAX_LINE_CHARS = 500
MAX_TITLE_CHARS = 150
MAX_SHOWN = 20
"""Of a burst; the rest is counted."""
MARGIN_SHARE = 0.25
"""Steps shown before and after an episode, as a share of its length."""
MIN_MARGIN_STEPS = 20
_LINE_BREAKS = re.compile(r"[\s\u0085\u2028\u2029]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One notification, or a burst put together: what a channel sends."""

    notices: Sequence[NoticeRow]
    """At least one, in the order in which it happened."""
    is_test: bool = False

    @property
    def id(self) -> str:
        """Same for the same notices: a message that is sent twice can be known by it."""
        text = "\n".join(sorted(notice_id(notice) for notice in self.notices))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @property
    def is_resolved(self) -> bool:
        """Whether all of it is good news."""
        return all(notice.body.get("status") == "resolved" for notice in self.notices)

    @property
    def severity(self) -> str:
        """The gravest of what it tells: `info`, `warning`, `critical`."""
        given = {str(notice.body.get("severity")) for notice in self.notices}
        return next((word for word in ("critical", "warning") if word in given), "info")

    @property
    def title(self) -> str:
        """`critical: NaN/Inf applied · fp16-digits`, or `3 alerts, 1 resolved · fp16-digits`."""
        if len(self.notices) == 1:
            body = self.notices[0].body
            word = "resolved" if self.is_resolved else str(body.get("severity", "alert"))
            return one_line(f"{word}: {_part(body, 'rule', 'name')} · {_part(body, 'run', 'name')}", MAX_TITLE_CHARS)
        num_resolved = sum(notice.body.get("status") == "resolved" for notice in self.notices)
        num_firing = len(self.notices) - num_resolved
        counts = [f"{num_firing} alert{'s' * (num_firing != 1)}"] if num_firing else []
        counts += [f"{num_resolved} resolved"] if num_resolved else []
        names = sorted({_part(notice.body, "run", "name") for notice in self.notices})
        where = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        return one_line(f"{', '.join(counts)} · {where}", MAX_TITLE_CHARS)

    @property
    def paragraphs(self) -> list[list[str]]:
        """The lines that tell of each notification; links are lines of their own."""
        shown = [_lines(notice, self.is_test) for notice in self.notices[:MAX_SHOWN]]
        left = len(self.notices) - MAX_SHOWN
        return [*shown, [f"and {left} more on the Alerts page"]] if left > 0 else shown

    @property
    def text(self) -> str:
        """Plain text, without the title."""
        return "\n\n".join("\n".join(lines) for lines in self.paragraphs)


def notice_id(notice: NoticeRow) -> str:
    """What a receiver can tell a second delivery by."""
    return f"{notice.episode_id}:{notice.kind}"


def body_of(
    episode: EpisodeRow, *, kind: str, run: RunRow | None, rule: Rule | None, base_url: str, now_us: int
) -> dict[str, Any]:
    """What is sent of an episode, as plain values: what docs/alert-channels.md lists.

    Args:
        episode: as it is now.
        kind: `fired`, `resolved`, `repeat:1` ...
        run: None where it is gone.
        rule: None where it was deleted meanwhile.
        base_url: where people open the server, without a slash at the end; empty: unknown, and no link is sent.
        now_us: when it happened.
    """
    return {
        "kind": kind,
        "status": "resolved" if kind == "resolved" else "firing",
        "episode": episode.episode_id,
        "happened_us": now_us,
        "severity": episode.severity,
        "text": one_line(episode.text),
        "rule": {
            "id": episode.rule_id,
            "version": episode.rule_version,
            "name": one_line(episode.rule_name),
            "reason": one_line(rule.reason) if rule else "",
            "runbook": rule.runbook if rule else "",
        },
        "run": {
            "id": episode.run_id,
            "name": one_line(run.name if run else episode.run_id),
            "project": one_line(run.project) if run else "",
        },
        "metric": one_line(episode.metric),
        "layer": one_line(episode.layer),
        "rank": episode.rank,
        "labels": {one_line(key): one_line(value) for key, value in episode.labels.items()},
        "attempt": episode.attempt,
        "first_step": episode.first_step,
        "fired_step": episode.fired_step,
        "last_step": episode.last_step,
        "resolved_step": episode.resolved_step,
        "first_us": episode.first_us,
        "fired_us": episode.fired_us,
        "last_us": episode.last_us,
        "resolved_us": episode.resolved_us,
        "resolution": one_line(episode.resolution),
        "value": json_number(episode.value),
        "worst": json_number(episode.worst),
        "threshold": json_number(episode.threshold),
        "url": f"{base_url}{link_of(episode)}" if base_url else "",
    }


def link_of(episode: EpisodeRow) -> str:
    """Path and query within the web app: the run's charts around the episode, marked, or the layer it is about."""
    first, last = episode.first_step, max(episode.last_step, episode.fired_step or 0, episode.first_step)
    margin = max(MIN_MARGIN_STEPS, round((last - first) * MARGIN_SHARE))
    query = {"r": f"{max(0, first - margin)}-{last + margin}"}
    tab = ""
    if episode.layer:
        tab, query = "/layers", {**query, "layer": episode.layer, "step": str(episode.fired_step or first)}
    query["alert"] = episode.episode_id
    return f"/runs/{quote(episode.run_id, safe='', errors='replace')}{tab}?{urlencode(query, errors='replace')}"


def one_line(text: str, max_chars: int = MAX_LINE_CHARS) -> str:
    """A text without line breaks, control characters and what turns reading direction; cut where it is too long."""
    spaced = _LINE_BREAKS.sub(" ", str(text)).strip()
    # Cc: control; Cf: invisible format characters, bidirectional overrides among them; Cs: halves of pairs.
    plain = "".join(char for char in spaced if unicodedata.category(char) not in ("Cc", "Cf", "Cs"))
    return plain if len(plain) <= max_chars else plain[: max_chars - 1] + "…"


def _lines(notice: NoticeRow, is_test: bool) -> list[str]:
    body = notice.body
    where = _part(body, "run", "name") + (f" ({project})" if (project := _part(body, "run", "project")) else "")
    if body.get("status") == "resolved":
        why = one_line(str(body.get("resolution") or "cleared"))
        head = f"Resolved ({why}) at step {_step(body.get('resolved_step') or body.get('last_step'))} · {where}"
    else:
        word = str(body.get("severity", "alert")).capitalize() + (" again" if notice.kind.startswith("repeat") else "")
        head = f"{word} at step {_step(body.get('fired_step'))} · {where}"
    lines = [one_line(head), one_line(str(body.get("text", "")))]
    if reason := _part(body, "rule", "reason"):
        lines.append(f"Why: {reason}")
    if runbook := _part(body, "rule", "runbook"):
        lines.append(f"Runbook: {runbook}")
    if url := body.get("url"):
        lines.append(str(url))
    return [*lines, "This is a test."] if is_test else lines


def _part(body: Mapping[str, Any], outer: str, inner: str) -> str:
    """A text of a nested field; empty where a body of another version has none."""
    held = body.get(outer)
    return one_line(str(held.get(inner, "")) if isinstance(held, Mapping) else "")


def _step(step: Any) -> str:
    return f"{step:,}" if isinstance(step, int) else "?"
