"""The pages of a run in a browser."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from playwright.sync_api import Page, TimeoutError, expect

pytestmark = pytest.mark.browser
Open = Callable[..., Page]


def x_range(page: Page, panel: str) -> list[float]:
    """What a chart's x axis spans at this moment."""
    return list(
        page.evaluate("(id) => document.querySelector(`#panel-${id} .js-plotly-plot`)._fullLayout.xaxis.range", panel)
    )


def wait_for_range(page: Page, panel: str, first: float, last: float, tolerance: float = 0.5) -> None:
    page.wait_for_function(
        """([id, first, last, tolerance]) => {
          const plot = document.querySelector(`#panel-${id} .js-plotly-plot`);
          const range = plot?._fullLayout?.xaxis?.range;
          return range && Math.abs(range[0] - first) <= tolerance && Math.abs(range[1] - last) <= tolerance;
        }""",
        arg=[panel, first, last, tolerance],
    )


def zoom_in_address(page: Page) -> tuple[int, int]:
    found = re.search(r"[?&]r=(\d+)-(\d+)", page.url)
    assert found is not None, page.url
    return int(found[1]), int(found[2])


def test_overview_says_in_words_what_is_the_case_and_draws_the_charts(server: Any, open_page: Open) -> None:
    """The sentence has step, scale and skips; charts are figures with a label that says their state."""
    page = open_page(server, "/runs/healthy")
    sentence = page.get_by_test_id("sentence")
    expect(sentence).to_contain_text("step 5,999")
    expect(sentence).to_contain_text("scale 2¹³")
    expect(sentence).to_contain_text("14 skips")
    chart = page.get_by_role("figure", name=re.compile("^Loss scale, run digits-fp16, steps 0 to 5,999"))
    expect(chart.locator(".main-svg").first).to_be_visible()
    expect(page.get_by_test_id("rug")).to_have_attribute("aria-label", re.compile(r"^\d+ events"))


def test_dragging_over_the_strip_zooms_every_chart_and_the_address(server: Any, open_page: Open) -> None:
    """Brush to URL to charts, and back out again by key."""
    page = open_page(server, "/runs/healthy")
    wait_for_range(page, "loss", 0, 6000, 1600)
    box = page.get_by_test_id("zoom-strip").bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.25, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, y, steps=4)
    page.mouse.up()
    first, last = zoom_in_address_when_there(page)
    assert abs(first - 1500) < 60
    assert abs(last - 3000) < 60
    wait_for_range(page, "loss", first, last)
    wait_for_range(page, "scale", first, last)
    page.keyboard.press("0")
    expect(page).not_to_have_url(re.compile("r="))


def zoom_in_address_when_there(page: Page) -> tuple[int, int]:
    expect(page).to_have_url(re.compile(r"[?&]r=\d+-\d+"))
    return zoom_in_address(page)


def test_dragging_inside_a_chart_zooms_the_others(server: Any, open_page: Open) -> None:
    """One zoom for the page, wherever it was made."""
    page = open_page(server, "/runs/healthy")
    wait_for_range(page, "loss", 0, 6000, 1600)
    wait_for_range(page, "scale", 0, 6000, 1600)
    box = page.locator("#panel-loss .nsewdrag").first.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.2, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.4, y, steps=5)
    page.mouse.up()
    first, last = zoom_in_address_when_there(page)
    wait_for_range(page, "scale", first, last, 2)


def test_a_link_shows_what_its_maker_saw(server: Any, open_page: Open) -> None:
    """Zoom, axis and smoothing come from the address; the time axis keeps the stretch."""
    page = open_page(server, "/runs/healthy?r=1000-2000&y=log&s=0.9")
    wait_for_range(page, "loss", 1000, 2000)
    expect(page.get_by_role("radio", name="Log", exact=True)).to_be_checked()
    expect(page.get_by_role("radio", name="Medium")).to_be_checked()
    page.keyboard.press("t")
    expect(page).to_have_url(re.compile(r"x=time"))
    first_us, last_us = zoom_in_address(page)
    assert abs((last_us - first_us) / 1e6 - 10) < 0.5
    expect(page.locator(".zoom-range")).to_have_text(re.compile("^(999|1,000|1,001) – (1,999|2,000|2,001)$"))
    page.keyboard.press("t")
    expect(page).not_to_have_url(re.compile("x=time"))
    first, last = zoom_in_address(page)
    assert abs(first - 1000) < 5
    assert abs(last - 2000) < 5


def test_live_run_grows_on_the_page_pauses_and_resumes(busy_server: Any, open_page: Open, trainers: Any) -> None:
    """New steps are seen without a reload; paused, they are counted; resumed, they are shown."""
    trainer = trainers.write_healthy(busy_server, "growing", num_steps=600)
    page = open_page(busy_server, "/runs/growing")
    expect(page.get_by_test_id("live-pill")).to_contain_text("Live")
    expect(page.get_by_test_id("sentence")).to_contain_text("step 599")
    expect(page.locator("#panel-loss .js-plotly-plot .main-svg").first).to_be_visible()
    trainer.advance(600, 899, 0.125)
    expect(page.get_by_test_id("sentence")).to_contain_text("step 899")
    expect(page.locator("#panel-loss .panel-headline")).to_contain_text("0.125")
    page.keyboard.press("l")
    expect(page.get_by_test_id("live-pill")).to_contain_text("Paused")
    trainer.advance(900, 999, 0.25)
    expect(page.get_by_test_id("live-pill")).to_have_text("Paused, 100 new steps: resume")
    page.get_by_test_id("live-pill").click()
    expect(page.get_by_test_id("live-pill")).to_contain_text("Live")
    expect(page.locator("#panel-loss .panel-headline")).to_contain_text("0.25")
    trainer.end("finished", 999)
    trainer.send()
    expect(page.get_by_test_id("live-pill")).to_have_text("Finished")


def test_a_run_full_of_nan_is_readable(server: Any, open_page: Open, check_axe: Callable[[Page], None]) -> None:
    """Nothing finite to draw: the words say so, the strip is crimson, and no chart breaks."""
    page = open_page(server, "/runs/allnan")
    expect(page.get_by_test_id("sentence")).to_contain_text("NaN")
    expect(page.locator("#panel-loss")).to_contain_text(re.compile("NaN"))
    expect(page.locator(".failed")).to_have_count(0)
    color = page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--c-nonfinite')")
    assert strip_colours(page)[color.lower()] > 0.9
    check_axe(page)


def strip_colours(page: Page) -> dict[str, float]:
    """Share of the painted columns of the page's first strip by the colour at their foot."""
    found = page.evaluate(
        """() => {
          const canvas = document.querySelector('.strip canvas');
          const { data } = canvas.getContext('2d').getImageData(0, canvas.height - 1, canvas.width, 1);
          const columns = [];
          for (let at = 0; at < data.length; at += 4) {
            columns.push('#' + [...data.slice(at, at + 3)].map((v) => v.toString(16).padStart(2, '0')).join(''));
          }
          return columns;
        }"""
    )
    return {color: found.count(color) / len(found) for color in set(found)} | _absent()


class _Zero(dict[str, float]):
    def __missing__(self, key: str) -> float:
        return 0.0


def _absent() -> dict[str, float]:
    return _Zero()


def test_show_as_table_gives_the_same_numbers(server: Any, open_page: Open) -> None:
    """A chart's numbers in a table, with what was left out said."""
    page = open_page(server, "/runs/healthy?r=100-110")
    page.get_by_test_id("panel-loss").get_by_role("button", name="Show Loss as table").click()
    dialog = page.get_by_role("dialog", name="Loss")
    expect(dialog.get_by_role("columnheader").first).to_have_text(re.compile("step", re.IGNORECASE))
    expect(dialog.get_by_role("row")).to_have_count(12)
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)


def test_events_are_listed_filtered_paged_and_lead_to_their_step(server: Any, open_page: Open) -> None:
    """Kinds with counts, a filter in the address, and a link that opens the charts around the step."""
    page = open_page(server, "/runs/healthy/events")
    rows = page.get_by_test_id("events").get_by_role("listitem")
    expect(rows.first).to_be_visible()
    page.get_by_role("button", name=re.compile("^Skipped step")).click()
    expect(rows).to_have_count(14)
    expect(page).to_have_url(re.compile("kind=skip"))
    expect(rows.first).to_contain_text("block.3.mlp.fc2")
    page.get_by_role("button", name=re.compile("^Details of")).first.click()
    expect(rows.first).to_contain_text("probe")
    page.get_by_role("link", name="step 5,500").first.click()
    first, last = zoom_in_address_when_there(page)
    assert first < 5500 < last
    wait_for_range(page, "loss", first, last)
    page.get_by_role("link", name=re.compile("^Events")).first.click()
    expect(page.get_by_role("status").filter(has_text="in steps")).to_be_visible()


def test_long_event_lists_come_page_by_page(busy_server: Any, open_page: Open, trainers: Any) -> None:
    """250 events: a hundred at first, the rest on demand, each once."""
    trainer = trainers.Trainer(busy_server, "many", name="many")
    trainer.points("loss", range(250), 1.0)
    for step in range(250):
        trainer.event("scale_growth", step, scale=1.0, scale_next=2.0)
    trainer.send()
    page = open_page(busy_server, "/runs/many/events?kind=scale_growth&order=oldest")
    rows = page.get_by_test_id("events").get_by_role("listitem")
    expect(rows).to_have_count(100)
    page.get_by_role("button", name="Show more").click()
    expect(rows).to_have_count(200)
    page.get_by_role("button", name="Show more").click()
    expect(rows).to_have_count(250)
    expect(page.get_by_role("button", name="Show more")).to_have_count(0)
    steps = page.locator(".event-step").all_inner_texts()
    assert steps == [f"step {step}" for step in range(250)]


def test_config_shows_what_the_run_was_started_with(server: Any, open_page: Open) -> None:
    """The user's configuration, precision and environment, by section."""
    page = open_page(server, "/runs/healthy/config")
    expect(page.get_by_text("batch_size")).to_be_visible()
    expect(page.get_by_text("python train.py --amp")).to_be_visible()
    expect(page.get_by_text("FP16-AMP").first).to_be_visible()


def test_deleted_while_shown_says_its_name_and_when(busy_server: Any, open_page: Open, trainers: Any) -> None:
    """The page of a run that somebody deletes tells so by itself, and after a reload still does."""
    trainers.write_plain(busy_server, "gone", "short-lived", "FP32", num_steps=50)
    page = open_page(busy_server, "/runs/gone")
    expect(page.get_by_test_id("sentence")).to_be_visible()
    busy_server.request("DELETE", "/api/v1/runs/gone")
    heading = page.get_by_role("heading", name="The run “short-lived” was deleted")
    expect(heading).to_be_visible()
    page.reload()
    expect(heading).to_be_visible()
    page.get_by_role("link", name="Back to Runs").click()
    expect(page).to_have_url(f"{busy_server.url}/")


def test_server_stopped_and_returned_keeps_the_last_data(busy_server: Any, open_page: Open, trainers: Any) -> None:
    """A banner, the last picture stays, and both go on by themselves when the server is back. A comparison too, where
    somebody asks for something else meanwhile."""
    trainer = trainers.write_healthy(busy_server, "surviving", num_steps=600)
    trainers.write_plain(busy_server, "beside", "beside", "FP32", num_steps=600)
    compared = open_page(busy_server, "/compare?runs=beside,surviving")
    verdict = compared.get_by_test_id("compare-verdict")
    expect(verdict).to_contain_text("So far")
    page = open_page(busy_server, "/runs/surviving")
    expect(page.get_by_test_id("sentence")).to_contain_text("step 599")
    expect(page.locator("#panel-loss .js-plotly-plot .main-svg").first).to_be_visible()
    busy_server.stop()
    expect(page.get_by_test_id("server-banner")).to_be_visible()
    expect(page.get_by_test_id("live-pill")).to_contain_text("Reconnecting")
    expect(page.get_by_test_id("sentence")).to_contain_text("step 599")
    try_now = page.get_by_role("button", name="Try now")
    try_now.click()
    expect(try_now).to_be_visible()
    expect(compared.get_by_test_id("live-pill")).to_contain_text("Reconnecting")
    compared.get_by_label("Side by side at the same").select_option("training time")
    expect(compared).to_have_url(re.compile("align=time"))
    with suppress(AssertionError):  # what takes its place takes a moment to
        expect(verdict).to_have_count(0, timeout=2_500)
    expect(verdict).to_contain_text("So far", timeout=1)
    busy_server.start()
    with suppress(TimeoutError):  # the page may be back by itself before the click arrives
        try_now.click(timeout=2_000)
    expect(page.get_by_test_id("server-banner")).to_have_count(0)
    trainer.advance(600, 699, 0.5)
    expect(page.get_by_test_id("sentence")).to_contain_text("step 699")
    expect(compared.get_by_test_id("live-pill")).to_have_text("Live")
    expect(compared.locator("#panel-compare-quality figure")).to_have_attribute(
        "aria-label", re.compile("seconds of training")
    )


def test_a_panel_that_fails_fails_alone_and_can_be_retried(server: Any, open_page: Open) -> None:
    """Message, request id and retry in that panel; the others go on."""
    page = open_page(server, "/settings")
    problem = {"code": "boom", "detail": "the panel could not be computed", "request_id": "r-123"}
    broken = re.compile(r"/panels/norm(\?|$)")
    page.route(broken, lambda route: route.fulfill(status=500, json=problem))
    page.goto(f"{server.url}/runs/healthy")
    panel = page.locator("#panel-norm")
    expect(panel).to_contain_text("the panel could not be computed")
    expect(panel).to_contain_text("r-123")
    expect(page.locator("#panel-loss .js-plotly-plot .main-svg").first).to_be_visible()
    page.unroute(broken)
    panel.get_by_role("button", name="Try again").click()
    expect(panel.locator(".js-plotly-plot .main-svg").first).to_be_visible()


def test_a_run_without_a_step_says_what_was_attached(busy_server: Any, open_page: Open, trainers: Any) -> None:
    """Waiting for the first step, with what is known so far; the charts come with the first step."""
    trainer = trainers.write_waiting(busy_server)
    page = open_page(busy_server, "/runs/waiting")
    expect(page.get_by_role("heading", name="Waiting for the first step")).to_be_visible()
    trainer.advance(0, 19, 1.0)
    expect(page.locator("#panel-loss .js-plotly-plot .main-svg").first).to_be_visible()


def test_keys_step_through_bad_stretches_and_tabs(server: Any, open_page: Open) -> None:
    """] and [ go from one bad stretch to the next and back; 1 to 4 change tabs."""
    page = open_page(server, "/runs/troubled")
    expect(page.get_by_test_id("zoom-strip")).to_be_visible()
    page.keyboard.press("]")
    first, last = zoom_in_address_when_there(page)
    assert first <= 1200 < 1215 <= last
    page.keyboard.press("]")
    page.wait_for_function("() => Number(new URLSearchParams(location.search).get('r').split('-')[1]) > 2400")
    page.keyboard.press("[")
    page.wait_for_function("() => Number(new URLSearchParams(location.search).get('r').split('-')[1]) < 2400")
    page.keyboard.press("3")
    expect(page.get_by_test_id("events")).to_be_visible()
    page.keyboard.press("4")
    expect(page.get_by_role("heading", level=2).first).to_be_visible()
    page.keyboard.press("1")
    expect(page.get_by_test_id("zoom-strip")).to_be_visible()


def test_demo_run_says_that_speed_is_not_a_gpus(server: Any, open_page: Open) -> None:
    """The banner stands on a demo run's page and on no other's."""
    page = open_page(server, "/runs/troubled")
    expect(page.get_by_text("numbers are real, speed is not what a GPU gives")).to_be_visible()
    page.goto(f"{server.url}/runs/fp32")
    expect(page.get_by_test_id("sentence")).to_be_visible()
    expect(page.get_by_text("numbers are real")).to_have_count(0)


def test_phone_shows_the_overview_without_sideways_scrolling(server: Any, open_page: Open) -> None:
    """At 390 px everything is reachable and lesser charts are folded."""
    page = open_page(server, "/runs/healthy", width=390, height=844)
    expect(page.get_by_test_id("sentence")).to_be_visible()
    expect(page.locator("#panel-loss .js-plotly-plot .main-svg").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    folded = page.get_by_role("group").filter(has_text="Throughput")
    folded.locator("summary").click()
    expect(page.locator("#panel-throughput .js-plotly-plot .main-svg").first).to_be_visible()


def test_chart_data_are_json_that_browsers_can_read(server: Any) -> None:
    """A panel of the run full of NaN is strict JSON: no bare NaN for a browser to choke on."""
    body = server.request("GET", "/api/v1/runs/allnan/panels/loss").decode()
    json.loads(body, parse_constant=pytest.fail)
