"""The health strip's pixels: what is calm must look calm, what is grave must be seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]
Open = Callable[..., Page]
STRIP_PX = 320
CALM_SHARE = 0.4
"""Highest part of the lane that base line and quiet ticks may take."""


@pytest.fixture(scope="module")
def millions(busy_server: Any, trainers: Any) -> Any:
    """A healthy run of a million steps, and the same with one NaN applied."""
    trainers.write_million(busy_server, "calm")
    trainers.write_million(busy_server, "poisoned", applied_at=654_321)
    return busy_server


def read_strip(page: Page, run: str) -> list[list[str]]:
    """Colours of a strip's columns from top to bottom, empty where nothing is painted; the canvas is 320 px wide."""
    canvas = page.get_by_test_id(f"run-{run}").get_by_role("img")
    expect(canvas).to_be_visible()
    columns = canvas.evaluate(
        """(canvas) => {
          const { width, height } = canvas;
          const { data } = canvas.getContext('2d').getImageData(0, 0, width, height);
          const hex = (at) => '#' + [...data.slice(at, at + 3)].map((v) => v.toString(16).padStart(2, '0')).join('');
          return Array.from({ length: width }, (_, x) =>
            Array.from({ length: height }, (_, y) => {
              const at = (y * width + x) * 4;
              return data[at + 3] ? hex(at).toUpperCase() : '';
            }));
        }"""
    )
    assert len(columns) == STRIP_PX
    return list(columns)


def role(page: Page, name: str) -> str:
    found = page.evaluate("(name) => getComputedStyle(document.documentElement).getPropertyValue(`--c-${name}`)", name)
    return str(found).strip().upper()


def test_a_healthy_million_steps_look_calm(millions: Any, open_page: Open) -> None:
    """Only base line and quiet ticks, low and nearly level; nothing amber or crimson."""
    page = open_page(millions, "/?project=long")
    columns = read_strip(page, "calm")
    quiet = {"", role(page, "clean"), role(page, "quiet")}
    assert {color for column in columns for color in column} <= quiet
    heights = [sum(color != "" for color in column) for column in columns]
    assert max(heights) <= CALM_SHARE * len(columns[0])
    assert min(heights) > 0


def test_one_applied_nan_in_a_million_steps_is_seen(millions: Any, open_page: Open) -> None:
    """Two columns of full height in the colour of what is not finite, at its place, and nothing covers them."""
    page = open_page(millions, "/?project=long")
    columns = read_strip(page, "poisoned")
    crimson = role(page, "nonfinite")
    marked = [x for x, column in enumerate(columns) if crimson in column]
    assert len(marked) == 2
    assert all(set(columns[x]) == {crimson} for x in marked)
    assert abs(marked[0] - 654_321 / 1_000_000 * STRIP_PX) <= 2


def test_hover_and_arrow_keys_read_out_the_same(millions: Any, open_page: Open) -> None:
    """The pointer and the keyboard tell which steps and what happened in them."""
    page = open_page(millions, "/?project=long")
    canvas = page.get_by_test_id("run-poisoned").get_by_role("img")
    canvas.hover(position={"x": 209, "y": 10})
    expect(page.locator(".readout")).to_contain_text("NaN or Inf applied")
    page.mouse.move(0, 0)
    expect(page.locator(".readout")).to_have_count(0)
    canvas.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".readout")).to_contain_text("probe")
    page.keyboard.press("Escape")
    expect(page.locator(".readout")).to_have_count(0)


def test_bad_stretches_are_a_list_for_the_keyboard(server: Any, open_page: Open) -> None:
    """Arrows move through the list, Enter opens what can be done about a stretch, and zooming is part of it."""
    page = open_page(server, "/runs/troubled")
    buttons = page.get_by_role("list", name="Bad stretches").get_by_role("button")
    expect(buttons).to_have_count(2)
    buttons.first.focus()
    page.keyboard.press("ArrowDown")
    expect(buttons.nth(1)).to_be_focused()
    expect(buttons.nth(1)).to_contain_text("2,400")
    page.keyboard.press("Enter")
    page.get_by_role("menuitem", name="Zoom to step 2,400").press("Enter")
    page.wait_for_url("**/runs/troubled?r=*")


def test_zoom_handles_work_from_the_keyboard(server: Any, open_page: Open) -> None:
    """The two ends are sliders that say their step."""
    page = open_page(server, "/runs/fp32")
    slider = page.get_by_role("slider", name="Zoom from step")
    expect(slider).to_have_attribute("aria-valuetext", "step 0")
    slider.focus()
    page.keyboard.press("Shift+ArrowRight")
    expect(slider).to_have_attribute("aria-valuetext", "step 200")
    page.wait_for_url("**/runs/fp32?r=200-1999")
