"""What a notification says, whatever things are called."""

from __future__ import annotations

import json
import math
import unicodedata
from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import pytest
from halfscope_server.alerts.notification import Message, body_of, link_of, one_line
from halfscope_server.query.format import json_number

from tests.helpers.notices import HOSTILE, episode, notice, rule, run


def test_a_notification_says_what_where_when_and_why() -> None:
    """Title and text name rule, run, step, the sentence, the reason, the runbook and the link, each on its line."""
    why = rule(reason="Healthy scaling skips one step in 2,000.", runbook="https://wiki.test/amp")
    body = body_of(episode(), kind="fired", run=run(), rule=why, base_url="https://scope.test", now_us=5)
    message = Message(notices=[replace(notice(), body=body)])
    assert message.title == "critical: NaN/Inf caught · fp16-digits"
    assert message.text.split("\n") == [
        "Critical at step 1,200 · fp16-digits (digits)",
        "NaN/Inf rate 4.1% > 1% for 200 steps",
        "Why: Healthy scaling skips one step in 2,000.",
        "Runbook: https://wiki.test/amp",
        "https://scope.test/runs/run1?r=900-1500&alert=e1",
    ]


def test_the_end_says_that_it_is_over() -> None:
    """A resolved notification reads as one, keeps its severity in the data, and is good news."""
    message = Message(notices=[notice(kind="resolved")])
    assert message.title == "resolved: NaN/Inf caught · fp16-digits"
    assert message.text.startswith("Resolved (cleared) at step 1,500 · fp16-digits (digits)\n")
    assert message.is_resolved
    assert message.notices[0].body["severity"] == "critical"


def test_a_repeat_says_again() -> None:
    """A reminder is told apart from the first word."""
    assert Message(notices=[notice(kind="repeat:1")]).text.startswith("Critical again at step 1,200")


def test_a_burst_is_one_message_that_counts() -> None:
    """Many notifications: counts and runs in the title, the first 20 in the text, the rest counted."""
    burst = [notice(n, name=f"run {n % 5}") for n in range(30)] + [notice(99, "resolved", name="run 0")]
    message = Message(notices=burst)
    assert message.title == "30 alerts, 1 resolved · run 0, run 1, run 2 and 2 more"
    assert len(message.paragraphs) == 21
    assert message.text.endswith("and 11 more on the Alerts page")
    assert not message.is_resolved


def test_the_gravest_counts() -> None:
    """A message is as grave as the gravest it tells of."""
    severities = ["info", "warning", "critical", "info"]
    messages = [Message(notices=[notice(n, severity=s) for n, s in enumerate(severities[:k])]) for k in (1, 2, 3, 4)]
    assert [message.severity for message in messages] == ["info", "warning", "critical", "critical"]


def test_the_same_notifications_have_the_same_id() -> None:
    """An id depends on which they are, not on their order or on when they are sent; kinds tell apart."""
    one, two, end = notice(1), notice(2), notice(1, "resolved")
    assert Message(notices=[one, two]).id == Message(notices=[two, one]).id
    assert len({Message(notices=n).id for n in ([one], [two], [end], [one, two], [one, end])}) == 5


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_single_lines_of_text(name: str) -> None:
    """Line breaks, control characters, reading direction and length of names do not get into a message's form."""
    about = notice(name=name, rule_name=name, layer=name, text=name, metric=name, labels={name: name})
    message = Message(notices=[about])
    assert "\n" not in message.title
    assert len(message.title) <= 150
    assert len(message.paragraphs[0]) == 3
    bad = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    shown = [message.title, *message.paragraphs[0], *_texts(about.body)]
    assert not [text for text in shown if any(unicodedata.category(char) in bad for char in text)]
    assert all(len(text) <= 16_000 for text in shown)


def _texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for key, held in value.items() for text in (*_texts(key), *_texts(held))]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize("name", ["{run.__class__}", "{0}", "%s", "${x}", "{{x}}"])
def test_braces_in_names_are_only_braces(name: str) -> None:
    """Nothing here is taken for a template."""
    assert name in Message(notices=[notice(name=name)]).title


@pytest.mark.parametrize(
    ("value", "expected"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity"), (0.5, 0.5)]
)
def test_numbers_that_json_has_not_are_words(value: float, expected: object) -> None:
    """NaN and infinities are words, and a body with them is strict JSON."""
    assert json_number(value) == expected
    body = body_of(episode(value=value), kind="fired", run=None, rule=None, base_url="", now_us=0)
    assert json.loads(json.dumps(body, allow_nan=False))["value"] == expected


def test_a_link_shows_the_run_around_the_episode() -> None:
    """A link's range holds the episode with a margin, never below step 0; without an address there is none."""
    assert link_of(episode(first_step=5, fired_step=6, last_step=7)) == "/runs/run1?r=0-27&alert=e1"
    assert body_of(episode(), kind="fired", run=None, rule=None, base_url="", now_us=0)["url"] == ""
    sent = body_of(episode(), kind="fired", run=None, rule=None, base_url="https://scope.test", now_us=0)["url"]
    assert sent == f"https://scope.test{link_of(episode())}"


def test_a_link_of_a_layer_opens_the_layer_at_the_step() -> None:
    """A layer's alert leads to the Layers page; its name is escaped."""
    link = urlsplit(link_of(episode(layer="block.0&step=9/<x>", run_id="../a?b")))
    query = parse_qs(link.query)
    assert link.path == "/runs/..%2Fa%3Fb/layers"
    assert (query["layer"], query["step"]) == (["block.0&step=9/<x>"], ["1200"])


def test_what_is_too_long_is_cut() -> None:
    """A cut text says so by its last character."""
    assert one_line("abcdef", 4) == "abc…"
    assert one_line("  a\t\nb  ") == "a b"


def test_bodies_of_other_versions_can_be_sent() -> None:
    """What an older or newer server put into the outbox does not stop its delivery."""
    bare = replace(notice(), body={"text": "x", "rule": None})
    message = Message(notices=[bare])
    assert "x" in message.text
    assert message.severity == "info"
