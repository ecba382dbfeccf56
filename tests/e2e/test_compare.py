"""Comparing runs in a browser: from two rows of the list to the verdict, the layer behind it, and a report to keep."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e import layered

pytestmark = pytest.mark.browser
Open = Callable[..., Page]
NUM_STEPS = 1000
HOSTILE = f"<b>bold</b> $x^2$ %{{y}} {'n' * 170}"
"""A name that is markup, a formula and a template to whoever lets it."""
METRIC = "val/acc #1 & é%2F"
"""Its name means something else in an address."""
PARTS_AT = 400
"""Step from which the half precision run's layer sinks and its loss stays behind."""


def sinking(name: str, place: float) -> float:
    """One layer lies, from `PARTS_AT` on, where FP16 loses most of it."""
    return layered.calm(name, 0.0) - (20.0 if name == layered.WORST and place >= PARTS_AT / NUM_STEPS else 0.0)


def begin(server: Any, trainers: Any, run_id: str, precision: str, project: str) -> Any:
    """A training of one seed and one order of its data."""
    trainer = trainers.Trainer(server, run_id, name=f"{project}-{precision.lower()}", project=project)
    facts = trainers._facts(precision)
    facts |= {"baseline": f"{project}32"} if precision != "FP32" else {}
    facts |= {"scalers": [], "seed": 0, "seed_is_set": True, "weights": {"digest": "a380c254", "sum": 1.0}}
    trainer.facts(**facts)
    return trainer


def train(trainer: Any, first: int, last: int, behind: float, *, scale: float = math.nan) -> None:
    """Steps `first` to `last`.

    Args:
        behind: how much higher its loss is than the other's after `PARTS_AT`, as a share.
        scale: loss scale; NaN: it computes in FP32.
    """
    steps = np.arange(first, last + 1)
    noise = np.random.default_rng((9, first)).normal(0, 0.01, steps.size)
    loss = (2.3 * np.exp(-steps / 150) + 0.2) * (1 + noise) * np.where(steps >= PARTS_AT, 1 + behind, 1.0)
    trainer.points("loss", steps, loss)
    trainer.points("time.step_s", steps, 0.01 + 0.001 * np.abs(noise), unit="s")
    trainer.points(METRIC, steps[::20], 1 - loss[::20] / 3)
    trainer.points("input.mean", steps[::20], np.sin(steps[::20]))
    if not math.isnan(scale):
        trainer.points("amp.scale", steps, scale, kind="state")
    sketched = range(first - first % -100, last + 1, 100)
    trainer.sketch(layered.Model(names=(layered.NAMES[1], layered.WORST), growth=sinking), sketched, NUM_STEPS,
                   lambda step: scale)  # fmt: skip


@pytest.fixture(scope="module")
def pair(busy_server: Any, trainers: Any) -> Any:
    """FP32 `compared32` and, worse than it, FP16 `compared16`."""
    for run_id, precision, behind, scale in (
        ("compared32", "FP32", 0.0, math.nan),
        ("compared16", "FP16-AMP", 0.3, 64.0),
    ):
        trainer = begin(busy_server, trainers, run_id, precision, "compared")
        train(trainer, 0, NUM_STEPS - 1, behind, scale=scale)
        trainer.end("finished", NUM_STEPS - 1)
        trainer.send()
    return busy_server


def drawn(page: Page, panel: str) -> None:
    page.get_by_test_id(f"panel-{panel}").scroll_into_view_if_needed()
    expect(page.locator(f"#panel-{panel} .js-plotly-plot .main-svg").first).to_be_visible()


def drag(page: Page, panel: str, start: float, end: float) -> None:
    """Zooms into a part of a chart, by shares of its width."""
    drawn(page, panel)
    area = page.locator(f"#panel-{panel} .nsewdrag").first.bounding_box()
    assert area is not None
    page.mouse.move(area["x"] + area["width"] * start, area["y"] + 40)
    page.mouse.down()
    page.mouse.move(area["x"] + area["width"] * end, area["y"] + 60, steps=4)
    page.mouse.up()


def test_two_chosen_runs_get_a_verdict_that_leads_to_the_layer_and_can_be_shared(pair: Any, open_page: Open) -> None:
    """Ticked in any order FP32 is the baseline; the verdict's reason opens its layer; the address opened anew shows
    the same layer of the same runs, side by side or over each other."""
    page = open_page(pair, "/?project=compared")
    expect(page.get_by_role("button", name="Compare", exact=True)).to_have_attribute("aria-disabled", "true")
    page.get_by_role("checkbox", name="Select compared-fp16-amp").check()
    page.get_by_role("link", name="compared-fp32").focus()
    page.keyboard.press("x")
    expect(page.get_by_role("checkbox", name="Select compared-fp32")).to_be_checked()
    expect(page.get_by_role("button", name="Compare (2)")).to_be_visible()
    page.keyboard.press("c")
    expect(page).to_have_url(f"{pair.url}/compare?runs=compared32,compared16")
    expect(page.get_by_test_id("compare-verdict")).to_contain_text(re.compile("compared-fp16-amp is worse.* from step"))
    expect(page.get_by_test_id("member-A")).to_contain_text("baseline")
    page.get_by_role("button", name=re.compile(rf"^open {re.escape(layered.WORST[:10])}.*at step")).first.click()
    chosen = page.get_by_test_id("divergences").locator("[aria-pressed=true]")
    expect(chosen).to_contain_text(re.compile(r"zeros from step \d"))
    expect(page.get_by_test_id("layer-numbers")).to_contain_text(layered.WORST)
    for letter in "ab":
        drawn(page, f"compare-window-{letter}")

    again = open_page(pair, page.url.removeprefix(pair.url))
    expect(again.get_by_test_id("layer-numbers")).to_contain_text(layered.WORST)
    again.keyboard.press("o")
    drawn(again, "compare-histogram")
    expect(again.get_by_test_id("panel-compare-window-a")).to_have_count(0)
    assert "o=overlay" in again.url
    again.keyboard.press("b")
    expect(again.get_by_test_id("member-A")).to_contain_text("compared-fp16-amp")


def test_fairness_numbers_and_zoom_say_what_the_server_says(pair: Any, open_page: Open) -> None:
    """Three counts that open; a table whose cells are the report's; a zoom that every chart follows."""
    report = json.loads(pair.request("GET", "/api/v1/compare?runs=compared32,compared16"))
    fairness = report["fairness"]
    page = open_page(pair, "/compare?runs=compared32,compared16")
    section = page.get_by_test_id("fairness")
    section.get_by_role("button", name=f"Same {fairness['num_same']}").click()
    same = [item["title"] for item in fairness["items"] if item["state"] == "same"]
    expect(section.get_by_role("row")).to_have_count(len(same) + 1)
    expect(section.get_by_role("rowheader").first).to_contain_text(same[0])
    change = round(report["quality"][1]["difference"]["value"] * 100)
    row = page.get_by_test_id("numbers").get_by_role("row").filter(has=page.get_by_role("rowheader", name="Final loss"))
    expect(row.get_by_role("cell").nth(1)).to_contain_text("worse")
    expect(row.get_by_role("cell").nth(1)).to_contain_text(re.compile(rf"\+{change // 10}\d(\.\d)?%"))

    drag(page, "compare-quality", 0.3, 0.5)
    expect(page).to_have_url(re.compile(r"r=\d+-\d+"))
    first, last = map(int, re.findall(r"r=(\d+)-(\d+)", page.url)[0])
    assert 250 < first < 350 < 450 < last < 550
    figure = page.locator("#panel-compare-quality figure")
    expect(figure).to_have_attribute("aria-label", re.compile(rf"step {first} to {last}"))
    page.keyboard.press("0")
    expect(page).not_to_have_url(re.compile("r="))


def test_metric_alignment_tolerance_and_gradient_are_chosen_and_stay_in_the_address(pair: Any, open_page: Open) -> None:
    """Each choice changes what is said; a zoom into seconds keeps their parts; `u` shows the gradient as FP16 does."""
    page = open_page(pair, "/compare?runs=compared32,compared16")
    page.get_by_label("Tolerance").select_option("0.05")
    expect(page).to_have_url(re.compile("tol=0.05"))
    page.get_by_label("Quality by").select_option(METRIC)
    expect(page.get_by_test_id("panel-compare-quality").get_by_role("heading")).to_have_text(f"Quality: {METRIC}")
    expect(page.get_by_test_id("numbers").get_by_role("rowheader", name=f"Final {METRIC}")).to_be_visible()
    page.get_by_label("Side by side at the same").select_option("training time")
    figure = page.locator("#panel-compare-quality figure")
    expect(figure).to_have_attribute("aria-label", re.compile("seconds of training 0 to "))
    drag(page, "compare-quality", 0.3, 0.35)
    expect(page).to_have_url(re.compile(r"r=\d\.\d+-\d\.\d+"))
    first, last = map(float, re.findall(r"r=([\d.]+)-([\d.]+)", page.url)[0])
    assert 0.3 < last - first < 0.8
    drawn(page, "compare-window-b")
    window = page.locator("#panel-compare-window-b figure")
    as_it_is = window.get_attribute("aria-label") or ""
    page.keyboard.press("u")
    expect(page).to_have_url(re.compile("align=time.*u=seen"))
    expect(window).not_to_have_attribute("aria-label", as_it_is)


def test_a_comparison_is_saved_renamed_exported_and_outlives_a_run(
    pair: Any, open_page: Open, trainers: Any, browser: Browser, tmp_path: Path, check_axe: Callable[..., None]
) -> None:
    """Under its name it stands on Compare; the exported report opens from disk without a network; a deleted run is
    named and gone on without."""
    trainers.write_plain(pair, "third", HOSTILE, "BF16-AMP", num_steps=300, project="compared")
    page = open_page(pair, "/runs/compared16")
    expect(page.get_by_test_id("baseline").get_by_role("link", name="compare with it")).to_have_attribute(
        "href", "/compare?runs=compared32,compared16"
    )
    page.get_by_role("button", name="Actions for compared-fp16-amp").click()
    expect(page.get_by_role("menuitem", name="Compare with")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("c")
    page.get_by_role("searchbox").fill("fp32 compared")
    page.get_by_role("menuitem", name="compared-fp32").click()
    expect(page).to_have_url(re.compile("runs=compared32,compared16"))
    page.get_by_role("button", name="Add run").click()
    page.get_by_role("menuitem", name=HOSTILE[:20]).click()
    expect(page.get_by_test_id("member-C")).to_contain_text(HOSTILE)
    assert page.evaluate("document.documentElement.scrollWidth") <= 1440
    page.get_by_role("button", name="Save…").click()
    page.get_by_role("textbox", name="Name").fill("three <b>precisions")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/compare/[0-9a-f]+$"))
    sentence = page.get_by_test_id("compare-verdict").inner_text()

    page.get_by_role("button", name="Export and more").click()
    with page.expect_download() as downloading:
        page.get_by_role("menuitem", name="Export as HTML").click()
    file = tmp_path / "report.html"
    downloading.value.save_as(file)
    assert_opens_from_disk(browser, trainers, file, sentence.split(";")[0].lstrip("▲▼=? "), check_axe)

    page.keyboard.press("g")
    page.keyboard.press("c")
    page.get_by_role("button", name="Actions for three").click()
    page.get_by_role("menuitem", name="Rename").click()
    page.get_by_role("textbox", name="Name").fill("kept")
    page.keyboard.press("Enter")
    other = open_page(pair, "/compare?runs=compared32,third")
    expect(other.get_by_test_id("compare-verdict")).to_be_visible()
    pair.request("DELETE", "/api/v1/runs/third")
    expect(other.get_by_role("heading", name=f"The run “{HOSTILE}” was deleted")).to_be_visible()
    other.get_by_role("button", name="Go on without it").click()
    expect(other.get_by_role("heading", name="One run alone compares with nothing")).to_be_visible()
    page.reload()
    expect(page.get_by_text(f"{HOSTILE} (deleted)")).to_be_visible()
    page.get_by_role("link", name="kept").click()
    expect(page.get_by_test_id("compare-verdict")).to_be_visible()
    expect(page.get_by_test_id("member-C")).to_have_count(0)
    expect(page.get_by_test_id("gone-runs")).to_contain_text(f"Compared without {HOSTILE}")
    page.get_by_role("button", name="Save changes").click()
    expect(page.get_by_role("button", name="Save changes")).to_have_count(0)
    page.goto(f"{pair.url}/compare")
    page.get_by_role("button", name="Actions for kept").click()
    page.get_by_role("menuitem", name="Delete").click()
    page.get_by_role("alertdialog").get_by_role("button", name="Delete comparison").click()
    expect(page.get_by_role("heading", name="Nothing compared yet")).to_be_visible()


def assert_opens_from_disk(
    browser: Browser, trainers: Any, file: Path, sentence: str, check_axe: Callable[..., None]
) -> None:
    """The report says its verdict and draws its charts, asks nobody for anything, breaks no policy of its own, and axe
    finds nothing in it, dark and light, with everything open that opens."""
    context = browser.new_context(offline=True, viewport={"width": 390, "height": 844}, color_scheme="dark")
    problems = trainers.watch_for_errors(context)
    asked: list[str] = []
    page = context.new_page()
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    expect(page.get_by_text(sentence).first).to_be_visible()
    expect(page.locator(".js-plotly-plot .main-svg").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    assert problems == []
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true })")
    # All rows of a table are made alike, and axe looks at each cell for long.
    page.evaluate("document.querySelectorAll('tbody').forEach((t) => { while (t.rows.length > 8) t.deleteRow(8) })")
    check_axe(page)
    page.emulate_media(color_scheme="light")
    check_axe(page, colours_alone=True)
    context.close()


def test_the_difference_grows_on_the_screen_while_both_train(busy_server: Any, open_page: Open, trainers: Any) -> None:
    """An open page follows both runs: level at first, then the difference and the verdict change without a reload."""
    whole, half = (
        begin(busy_server, trainers, f"growing{bits}", precision, "growing")
        for bits, precision in ((32, "FP32"), (16, "FP16-AMP"))
    )
    for trainer, scale in ((whole, math.nan), (half, 64.0)):
        train(trainer, 0, 399, 0.0, scale=scale)
    page = open_page(busy_server, "/compare?runs=growing32,growing16")
    expect(page.get_by_test_id("live-pill")).to_have_text("Live")
    verdict = page.get_by_test_id("compare-verdict")
    expect(verdict).to_contain_text("So far")
    expect(verdict).not_to_contain_text("worse")
    headline = page.locator("#panel-compare-difference .panel-headline")
    seen = []
    for first in (400, 500, 600):
        for trainer, behind, scale in ((whole, 0.0, math.nan), (half, first / 1000, 64.0)):
            train(trainer, first, first + 99, behind, scale=scale)
        expect(headline).to_contain_text(re.compile(rf"\+{first // 100}\d(\.\d)?%|\+{first // 100 - 1}[5-9](\.\d)?%"))
        seen.append(headline.inner_text())
    assert len(set(seen)) == 3
    expect(verdict).to_contain_text("worse")
    page.keyboard.press("l")
    expect(page.get_by_test_id("live-pill")).to_have_text("Paused: resume")
    train(whole, 700, 799, 0.0)
    expect(page.get_by_test_id("live-pill")).to_have_text("Paused, 100 new steps: resume")
    page.keyboard.press("l")
    expect(page.get_by_test_id("live-pill")).to_have_text("Live")


def test_the_page_is_accessible_and_fits_a_phone(pair: Any, open_page: Open, check_axe: Callable[..., None]) -> None:
    """axe finds nothing, wide and narrow, light and dark, with everything open that opens; a keyboard opens it, and
    the focus comes back; nothing scrolls sideways."""
    page = open_page(pair, "/compare?runs=compared32,compared16")
    drawn(page, "compare-quality")
    for count in page.get_by_test_id("fairness").get_by_role("button").all():
        count.focus()
        page.keyboard.press("Enter")
    check_axe(page)
    for opens, role in (("Add run", "searchbox"), ("Save…", "textbox"), ("Export and more", "menuitem")):
        page.get_by_role("button", name=opens).focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role(role).first).to_be_visible()
        check_axe(page, checked_without_overlay=True)
        page.keyboard.press("Escape")
        expect(page.get_by_role("button", name=opens)).to_be_focused()
    page.emulate_media(color_scheme="dark")
    page.get_by_role("button", name="Actions for B").click()
    expect(page.get_by_role("menuitem", name="Make it the baseline")).to_be_visible()
    check_axe(page)
    page.keyboard.press("Escape")
    page.set_viewport_size({"width": 390, "height": 844})
    expect(page.get_by_test_id("divergences")).to_be_attached()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    check_axe(page)
