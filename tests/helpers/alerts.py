"""Rows of alerts for tests to change what they are about: an episode in each state, and a notification."""

from __future__ import annotations

import dataclasses
import math

from halfscope_server.store.types import EpisodeRow, NoticeRow, SilenceRow

PENDING = EpisodeRow(
    episode_id="e1",
    rule_id="skips",
    rule_version=1,
    run_id="run1",
    rule_name="Too many skips",
    metric="skip_rate",
    severity="critical",
    layer="",
    rank=None,
    labels={"scaler": "0"},
    attempt=0,
    state="pending",
    first_step=100,
    first_us=1_000,
    fired_step=None,
    fired_us=None,
    last_step=100,
    last_us=1_000,
    resolved_step=None,
    resolved_us=None,
    resolution="",
    value=math.nan,
    worst=math.inf,
    threshold=0.01,
    text="NaN/Inf rate 4.1% > 1%",
    evidence={"step": [99, 100], "value": [0.0, math.nan]},
    updated_us=0,
)
FIRING = dataclasses.replace(PENDING, state="firing", fired_step=110, fired_us=1_100, last_step=110, value=0.5)
RESOLVED = dataclasses.replace(FIRING, state="resolved", resolved_step=200, resolved_us=2_000, resolution="cleared")
NOTICE = NoticeRow(
    episode_id="e1",
    channel_id="mail",
    kind="fired",
    state="waiting",
    num_tries=0,
    due_us=50,
    created_us=50,
    sent_us=None,
    error="",
    body={"text": "NaN/Inf rate", "value": math.nan},
)
MUTED = SilenceRow(silence_id="s1", rule_id="", run_id="run1", layer="", comment="", created_us=2, until_us=None)
