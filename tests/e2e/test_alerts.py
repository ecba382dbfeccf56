"""The Alerts pages in a browser: a rule from a preset to an alert that is over, and what is around it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from halfscope.wire.codec import decode_record
from playwright.sync_api import Locator, Page, expect

from tests.helpers import demos

pytestmark = pytest.mark.browser
Open = Callable[..., Page]
CheckAxe = Callable[[Page], None]

PROJECT = "alarms"
PRESET = "nonfinite-applied"
SIDEWAYS = "document.documentElement.scrollWidth > document.documentElement.clientWidth"


def begin(trainers: Any, server: Any, run_id: str) -> Any:
    """A training that begins now: rules judge what comes after them."""
    trainer = trainers.Trainer(
        server, run_id, name=f"{run_id}-fp16", project=PROJECT, steps_per_s=1000, began_s_ago=0, config={"lr": 0.1}
    )
    trainer.facts(precision="FP16-AMP")
    return trainer


def go_on(trainer: Any, first: int, last: int, *, bad: frozenset[int] = frozenset()) -> None:
    """Steps with what every step brings; in bad ones NaN reaches the weights."""
    steps = np.arange(first, last + 1)
    for step in sorted(bad):
        trainer.event("nonfinite_applied", step, "critical", ["block.3.mlp.fc2.weight"])
        trainer.event("loss_nonfinite", step, "critical", value="NaN", caught=False)
    trainer.points("opt.steps", steps, steps + 1, unit="steps", kind="counter")
    trainer.points("loss", steps, np.where(np.isin(steps, sorted(bad)), math.nan, 1.0))
    trainer.points("amp.scale", steps, 65536.0, kind="state")
    trainer.send()


def ask(server: Any, method: str, path: str, body: Any = None) -> Any:
    answer = server.request(method, path, None if body is None else json.dumps(body).encode())
    return json.loads(answer) if answer else None


@pytest.fixture
def server(busy_server: Any) -> Iterator[Any]:
    """Without rules and channels before and after."""

    def clear() -> None:
        for kind, key in (("rules", "rule"), ("channels", ""), ("silences", "")):
            for item in ask(busy_server, "GET", f"/api/v1/{kind}")[kind]:
                ask(busy_server, "DELETE", f"/api/v1/{kind}/{item[key]['id'] if key else item['id']}")

    clear()
    yield busy_server
    clear()


def bell(page: Page, says: str) -> Locator:
    return page.get_by_role("button", name=re.compile(f"^Alerts: {says}"))


def test_a_preset_becomes_a_rule_that_fires_is_acknowledged_silenced_and_over(
    server: Any, open_page: Open, troubled_demo: Sequence[bytes]
) -> None:
    """Tried on the stored troubled run of the demo first; then the same training live, on whatever page one is."""
    losses = demos.series([decode_record(payload) for payload in troubled_demo], "loss")
    bad = [step for step, loss in losses.items() if not math.isfinite(loss)]
    first = bad[0]
    demos.Replay("stored", demos.TROUBLED, troubled_demo, server.exchange).go_on()

    page = open_page(server, "/alerts")
    expect(page.get_by_role("heading", name="Nothing is watched yet")).to_be_visible()
    page.get_by_role("link", name="Choose rules").click()
    expect(page.get_by_role("heading", name="No rules yet")).to_be_visible()
    page.get_by_role("link", name="Try Loss is NaN or Inf on stored runs").click()
    tried = page.get_by_test_id("backtest-stored")
    expect(tried).to_contain_text("fires once")
    expect(tried.get_by_role("link", name=f"step {first}")).to_be_visible()
    level = page.get_by_role("textbox", name="Threshold, in %")
    level.fill("200")
    expect(tried).to_contain_text("does not fire")
    level.fill("0")
    expect(tried).to_contain_text("fires once")
    page.locator("summary", has_text="Where").click()
    page.get_by_label("Projects").fill("halfscope-demo")
    page.get_by_role("button", name="Make rule").click()
    rule = page.get_by_test_id("rule-loss-nonfinite")
    expect(rule).to_contain_text("Quiet")
    expect(page.get_by_text("Taken over already: 1")).to_be_visible()

    live = demos.Replay("live", "demo-live", troubled_demo, server.exchange)
    assert live.go_on(first - 20) < first
    live.go_on(first)
    expect(bell(page, "1 firing")).to_be_visible()
    expect(page.get_by_text(f"Alert: the loss is NaN or infinite at step {first}, run demo-live")).to_be_attached()
    expect(rule).to_contain_text("Firing: 1")
    page.keyboard.press("g")
    page.keyboard.press("a")
    card = page.get_by_test_id("alerts").get_by_role("listitem").filter(has_text="demo-live")
    expect(card).to_contain_text(f"step {first}")
    page.keyboard.press("a")
    expect(card).to_contain_text("Acknowledged by a browser")
    expect(bell(page, "1 firing, 1 of them acknowledged")).to_be_visible()
    card.get_by_role("button", name="Silence 1 h").click()
    silences = page.get_by_test_id("silences")
    expect(silences).to_contain_text("Rule Loss is NaN or Inf, run demo-live")
    expect(silences).to_contain_text("ends in 1 h")
    expect(card).to_contain_text("Silenced for another 1 h")
    card.get_by_role("button", name="Lift silence").click()
    expect(silences).to_have_count(0)
    expect(card).not_to_contain_text("Silenced")
    card.get_by_role("button", name="Silence 1 h").click()
    expect(card).to_contain_text("Silenced for another 1 h")

    card.get_by_role("link", name="Open at step").click()
    expect(page).to_have_url(re.compile(r"/runs/live\?r=\d+-\d+&alert="))
    banner = page.get_by_role("region", name="Alert", exact=True)
    expect(banner).to_contain_text(f"fired at step {first}")
    expect(page.get_by_test_id("panel-loss")).to_contain_text("1 alert, 1 firing")
    drawn = page.locator("#panel-loss .shapelayer path, #panel-loss .layer-below path")
    expect(drawn.first).to_be_attached()

    live.go_on()
    expect(bell(page, "nothing fires")).to_be_visible()
    page.goto(f"{server.url}/alerts/history")
    row = page.get_by_test_id("history").get_by_role("listitem").filter(has_text="demo-live")
    expect(row).to_contain_text("Resolved")
    row.get_by_role("button", name="Details of").click()
    expect(row).to_contain_text(f"Fired at step {first}")
    (episode,) = ask(server, "GET", "/api/v1/alerts?state=resolved")["alerts"]
    after_last = [step for step in losses if step > bad[-1] + 50]
    assert episode["resolved_step"] == after_last[0]
    page.goto(f"{server.url}/alerts")
    expect(page.get_by_role("heading", name="Nothing fires")).to_be_visible()
    silences.get_by_role("button", name="Lift").click()
    expect(silences).to_have_count(0)


NOTED = """
window.noted = [];
window.Notification = class {
  static permission = "default";
  static requestPermission = async () => (window.Notification.permission = "granted");
  constructor(title, options) { window.noted.push({title, ...options}); window.noted.last = this; }
  close() {}
};
"""
"""A browser without a head shows none: what a page asks it to show is kept."""


def test_the_browser_notifies_once_and_an_alert_is_drawn_over_steps_and_time(
    server: Any, open_page: Open, trainers: Any
) -> None:
    """Only where one asked for it; a click leads to the alert's steps, and its band lies on the axis of time too."""
    ask(server, "POST", "/api/v1/rules/presets", {"ids": [PRESET]})
    page = open_page(server, "/alerts/channels")
    page.add_init_script(NOTED)
    page.reload()
    live = begin(trainers, server, "noted")
    go_on(live, 0, 20, bad=frozenset({10}))
    expect(bell(page, "1 firing")).to_be_visible()
    assert page.evaluate("noted") == []
    page.get_by_role("checkbox", name="Notify me here").check()
    go_on(live, 21, 120)
    expect(bell(page, "nothing fires")).to_be_visible()
    go_on(live, 121, 140, bad=frozenset({130}))
    expect(page.get_by_role("alert").filter(has_text="Critical alert")).to_contain_text("step 130")
    (shown,) = page.evaluate("noted")
    assert shown["title"] == "critical: noted-fp16"
    assert "step 130" in shown["body"]
    page.evaluate("noted.last.onclick()")
    expect(page).to_have_url(re.compile(r"/runs/noted\?r=\d+-\d+&alert="))
    band = page.locator("#panel-scale .shapelayer path, #panel-scale .layer-below path")
    expect(band.first).to_be_attached()
    page.keyboard.press("t")
    expect(page).to_have_url(re.compile("x=time"))
    expect(page.get_by_test_id("panel-scale")).to_contain_text(re.compile(r"\d\d:\d\d:\d\d"))
    expect(band.first).to_be_attached()
    box, chart = band.first.bounding_box(), page.locator("#panel-scale .bglayer").bounding_box()
    assert box is not None
    assert chart is not None
    assert chart["x"] - 2 <= box["x"] <= chart["x"] + chart["width"]


def test_rules_are_edited_imported_and_exported_and_secrets_stay_inside(server: Any, open_page: Open) -> None:
    """What is wrong is said at the field; YAML with a problem changes nothing; secrets are never shown again."""
    page = open_page(server, "/alerts/rules/new")
    metric = page.get_by_role("combobox", name="Metric")
    metric.fill("underflow_share")
    metric.press("Tab")
    page.get_by_role("textbox", name="Level at which it is over, in %").fill("90")
    expect(page.get_by_role("alert").filter(has_text="expected at most the threshold")).to_be_visible()
    expect(page.get_by_role("button", name="Make rule")).to_be_disabled()
    page.get_by_role("textbox", name="Level at which it is over, in %").fill("")
    page.get_by_role("textbox", name="Name", exact=True).fill("Own rule")
    page.get_by_role("button", name="Make rule").click()
    expect(page.get_by_test_id("rule-own-rule")).to_be_visible()
    assert ask(server, "GET", "/api/v1/rules")["rules"][0]["rule"]["clear"] is None

    page.get_by_role("button", name="YAML").click()
    expect(page.get_by_test_id("yaml")).to_contain_text("id: own-rule")
    page.get_by_role("radio", name="Import").check(force=True)
    text = page.get_by_role("textbox", name="YAML")
    text.fill("rules:\n- {id: other, name: Other, metric: loss}\n")
    page.get_by_role("button", name="Check").click()
    expect(page.get_by_role("alert").filter(has_text="rules[0].threshold")).to_be_visible()
    text.fill("rules:\n- {id: other, name: Other, metric: loss, threshold: 3}\n")
    page.get_by_role("button", name="Check").click()
    expect(page.get_by_text("1 new: other")).to_be_visible()
    page.get_by_role("button", name="Take over", exact=True).click()
    expect(page.get_by_test_id("rule-other")).to_be_visible()
    page.get_by_role("checkbox", name="Other is on").click()
    expect(page.get_by_test_id("rule-other")).to_contain_text("Off")

    page.goto(f"{server.url}/alerts/channels")
    page.get_by_role("button", name="New channel").click()
    page.get_by_role("combobox", name="Kind").select_option("webhook")
    form = page.get_by_role("dialog")
    form.get_by_label("Name").fill("Team hook")
    form.locator("input[type=password]").first.fill("https://127.0.0.1:9/hidden-path")
    form.get_by_role("button", name="Make channel").click()
    channel = page.get_by_test_id("channels").get_by_role("listitem")
    channel.get_by_role("button", name="Send a test to Team hook").click()
    expect(channel).to_contain_text("private or reserved network")
    channel.get_by_role("button", name="Actions for Team hook").click()
    page.get_by_role("menuitem", name="Edit").click()
    expect(form.get_by_placeholder("kept; type to replace it").first).to_be_visible()
    assert "hidden-path" not in page.content()


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_axe_finds_nothing_on_the_alert_pages_with_overlays_open(
    server: Any, open_page: Open, check_axe: CheckAxe, trainers: Any, width: int, scheme: str
) -> None:
    """Wide and light, narrow and dark; nothing makes a page scroll sideways."""
    ask(server, "POST", "/api/v1/rules/presets", {"ids": [PRESET, "loss-nonfinite"]})
    trainer = begin(trainers, server, f"axe{width}")
    go_on(trainer, 0, 60, bad=frozenset({40}))
    page = open_page(
        server, "/alerts", width=width, height=844, color_scheme=scheme, has_touch=width < 768, is_mobile=width < 768
    )
    card = page.get_by_test_id("alerts").get_by_role("listitem").first

    def steps() -> Iterator[bool]:
        """Whether the page has been checked without what is open."""
        expect(card).to_be_visible()
        yield False
        card.get_by_role("button", name="More for").click()
        page.get_by_role("menuitem", name="Silence…").click()
        expect(page.get_by_role("dialog")).to_be_visible()
        yield True
        page.keyboard.press("Escape")
        bell(page, r"\d+ firing").click()
        expect(page.get_by_role("dialog")).to_be_visible()
        yield True
        page.goto(f"{server.url}/alerts/history")
        page.get_by_role("button", name="Details of").first.click()
        yield False
        page.goto(f"{server.url}/alerts/rules")
        expect(page.get_by_test_id("presets")).to_contain_text("Loss scale")
        yield False
        page.goto(f"{server.url}/alerts/rules/{PRESET}?run=axe{width}")
        expect(page.get_by_test_id(f"backtest-axe{width}")).to_contain_text("fires once")
        page.locator("summary", has_text="Where").click()
        page.locator("summary", has_text="What it says").click()
        yield False
        page.goto(f"{server.url}/alerts/channels")
        page.get_by_role("button", name="New channel").click()
        page.get_by_role("combobox", name="Kind").select_option("webhook")
        yield False
        page.goto(f"{server.url}/runs/axe{width}?alert=none")
        expect(page.get_by_test_id("run-alerts")).to_be_visible()
        yield False

    for checked in steps():
        check_axe(page, checked_without_overlay=checked)
        assert not page.evaluate(SIDEWAYS), page.url
