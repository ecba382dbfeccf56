"""Notifications for tests of what sends them, hostile ones among them.

Must not know of channels.
"""

from __future__ import annotations

from typing import Any

from halfscope_server.alerts.notification import body_of
from halfscope_server.alerts.rule import Rule
from halfscope_server.store.types import EpisodeRow, NoticeRow, RunRow

HOSTILE = (
    "x\r\nBcc: victim@example.org\r\n\r\n<script>alert(1)</script>",
    "{run.__class__.__mro__} {0} %s %(x)s ${jndi:ldap://x} {{7*7}}",
    "\u202egnp.exe\u202c\x00\x1b[31m\u2028line",
    '"><img src=x onerror=alert(1)>',
    "@everyone <!channel> <@U123> @here [click](https://evil.test) <https://evil.test|click> `x`",
    "javascript:alert(1)",
    "a" * 5000,
    "\ud800broken",
)
"""Names that a run, a layer or a rule may have."""


def episode(**given: Any) -> EpisodeRow:
    """One that fires."""
    values: dict[str, Any] = {
        "episode_id": "e1",
        "rule_id": "nonfinite",
        "rule_version": 2,
        "run_id": "run1",
        "rule_name": "NaN/Inf caught",
        "metric": "nonfinite_rate.caught",
        "severity": "critical",
        "layer": "",
        "rank": None,
        "labels": {},
        "attempt": 0,
        "state": "firing",
        "first_step": 1000,
        "first_us": 1_000_000,
        "fired_step": 1200,
        "fired_us": 1_200_000,
        "last_step": 1400,
        "last_us": 1_400_000,
        "resolved_step": None,
        "resolved_us": None,
        "resolution": "",
        "value": 0.041,
        "worst": 0.05,
        "threshold": 0.01,
        "text": "NaN/Inf rate 4.1% > 1% for 200 steps",
        "evidence": {},
        "updated_us": 1_400_000,
    }
    return EpisodeRow(**{**values, **given})


def run(name: str = "fp16-digits", project: str = "digits") -> RunRow:
    """The run that it is about."""
    return RunRow(
        run_id="run1",
        project=project,
        name=name,
        state="live",
        tags=(),
        config={},
        environment={},
        facts={},
        created_us=0,
        updated_us=0,
        ended_us=None,
        outcome="",
        error_type="",
        error_message="",
        last_step=None,
        num_attempts=1,
        world_size=1,
    )


def rule(**given: Any) -> Rule:
    """The rule that found it."""
    about = {"id": "nonfinite", "name": "NaN/Inf caught", "metric": "nonfinite_rate.caught", "threshold": 0.01}
    return Rule(**{**about, **given})


def notice(
    number: int = 1, kind: str = "fired", *, channel: str = "c1", created_us: int = 0, name: str = "", **given: Any
) -> NoticeRow:
    """A notification as it lies in the outbox; a resolved one is of an episode that is over."""
    if kind == "resolved":
        given = {"state": "resolved", "resolved_step": 1500, "resolved_us": 1, "resolution": "cleared", **given}
    about = episode(episode_id=f"e{number}", **given)
    body = body_of(
        about, kind=kind, run=run(name or "fp16-digits"), rule=rule(), base_url="https://scope.test", now_us=created_us
    )
    return NoticeRow(
        episode_id=about.episode_id,
        channel_id=channel,
        kind=kind,
        state="waiting",
        num_tries=0,
        due_us=created_us,
        created_us=created_us,
        sent_us=None,
        error="",
        body=body,
    )
