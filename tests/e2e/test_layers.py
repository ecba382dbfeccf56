"""The Layers page in a browser: from a mark on the strip to a layer, a step and its numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.e2e import layered

pytestmark = pytest.mark.browser
Open = Callable[..., Page]
NUM_STEPS = 2000
"""Of the run whose layer is flushed."""


@pytest.fixture(scope="module")
def flushed(busy_server: Any, trainers: Any) -> Any:
    """An FP16 training in which one layer sinks below what FP16 holds."""
    return trainers.write_flushed(busy_server, num_steps=NUM_STEPS)


def drawn(page: Page, panel: str) -> Locator:
    return page.locator(f"#panel-{panel} .js-plotly-plot .main-svg").first


def address(page: Page) -> dict[str, str]:
    return {key: values[0] for key, values in parse_qs(urlsplit(page.url).query).items()}


def row(page: Page, name: str) -> Locator:
    return page.get_by_test_id("layer-tree").locator(f"[title^='{name}\\a ']")


def test_shows_the_layer_in_trouble_without_a_choice(flushed: Any, open_page: Open) -> None:
    """Tab by key, tree in forward order with the worst value, and three charts of the worst layer."""
    page = open_page(flushed.server, "/runs/flushed")
    expect(page.get_by_test_id("zoom-strip")).to_be_visible()
    page.keyboard.press("2")
    tree = page.get_by_role("tree", name="Layers")
    expect(tree).to_be_visible()
    for panel in ("layers-heatmap", "window", "histogram"):
        expect(drawn(page, panel)).to_be_visible()
    first = tree.get_by_role("treeitem").first
    expect(first).to_have_attribute("aria-level", "1")
    expect(first).to_contain_text("embed")
    expect(row(page, "block")).to_have_attribute("aria-expanded", "true")
    # One of five layers of equal size: the module's share is a fifth of the layer's, from summed counts.
    expect(row(page, "block.3")).to_contain_text("20%")
    expect(row(page, "embed")).to_contain_text("0")
    expect(page.get_by_role("figure", name=re.compile(r"^Window of block\.3\.mlp\.fc2"))).to_be_visible()


def test_the_table_of_the_histogram_has_the_measured_numbers(flushed: Any, open_page: Open) -> None:
    """What the page prints equals the API's table, and both equal counts made from the gradients themselves."""
    step = 1900
    page = open_page(flushed.server, f"/runs/flushed/layers?layer={layered.WORST}&step={step}")
    numbers = page.get_by_test_id("histogram-numbers")
    expect(numbers.get_by_role("row").nth(2)).to_be_visible()
    query = urlencode({"layer": layered.WORST, "step": step, "gradient": "auto"})
    table = json.loads(flushed.server.request("GET", f"/api/v1/runs/flushed/panels/histogram/table?{query}"))
    printed = [row.split("\t") for row in numbers.locator("tbody tr").all_inner_texts()]
    assert printed == table["rows"]
    values = layered.Model(growth=layered.flushing).gradients(step, step / NUM_STEPS, 1024.0)[layered.WORST]
    text = numbers.inner_text()
    num_zeros = int((values == 0).sum())
    assert 0 < num_zeros < values.size
    assert f"{values.size:,}" in text
    assert f"{num_zeros:,}" in text or f"{num_zeros / values.size:.3%}"[:3] in text


def test_tree_works_from_the_keyboard(flushed: Any, open_page: Open) -> None:
    """Arrows, j and k move; right opens, left closes; Enter chooses; a search leaves what it finds."""
    page = open_page(flushed.server, "/runs/flushed/layers")
    tree = page.get_by_role("tree", name="Layers")
    expect(drawn(page, "window")).to_be_visible()
    tree.focus()
    page.keyboard.press("Home")
    expect(active_row(page)).to_contain_text("embed")
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(active_row(page)).to_have_text(re.compile("^block"))
    page.keyboard.press("k")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    expect(active_row(page)).to_have_attribute("aria-level", "2")
    page.keyboard.press("ArrowRight")
    expect(active_row(page)).to_have_attribute("aria-expanded", "false")
    page.keyboard.press("ArrowRight")
    expect(active_row(page)).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("ArrowLeft")
    expect(active_row(page)).to_have_attribute("aria-expanded", "false")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"layer=block\.0\.attn($|&)"))
    expect(active_row(page)).to_have_attribute("aria-selected", "true")
    page.get_by_role("searchbox", name="Search layers").fill("5.mlp.fc2")
    expect(tree.get_by_role("treeitem")).to_have_count(5)
    expect(page.get_by_text("1 of 33 layers")).to_be_visible()
    page.get_by_role("searchbox", name="Search layers").fill("nowhere")
    page.get_by_role("button", name="clear").click()
    expect(row(page, "block.5")).to_be_visible()


def active_row(page: Page) -> Locator:
    return page.locator("[role=treeitem][data-active]")


def test_clicks_and_keys_on_the_charts_choose_layer_step_and_gradient(flushed: Any, open_page: Open) -> None:
    """A heatmap cell is a layer at a step; arrows on the window chart go to the next measured step; u shows the true
    gradient and back, and the default leaves no trace in the address."""
    page = open_page(flushed.server, "/runs/flushed/layers")
    expect(drawn(page, "layers-heatmap")).to_be_visible()
    expect(drawn(page, "window")).to_be_visible()
    area = page.locator("#panel-layers-heatmap .nsewdrag").first.bounding_box()
    assert area is not None
    page.mouse.click(area["x"] + area["width"] * 0.5, area["y"] + 3)
    expect(page).to_have_url(re.compile(r"step=\d+"))
    expect(page).to_have_url(re.compile(r"layer=(embed|head)"))
    chosen = int(address(page)["step"])
    figure = page.get_by_test_id("panel-window").get_by_role("figure")
    figure.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("(from) => Number(new URLSearchParams(location.search).get('step')) > from", arg=chosen)
    there = int(address(page)["step"])
    assert there % 50 == 0
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("(from) => Number(new URLSearchParams(location.search).get('step')) < from", arg=there)
    assert int(address(page)["step"]) == there - 50
    page.get_by_role("button", name="show newest").click()
    expect(page).not_to_have_url(re.compile("step="))
    expect(page.get_by_role("radio", name="As FP16 sees it")).to_be_checked()
    page.keyboard.press("u")
    expect(page.get_by_role("radio", name="True gradient")).to_be_checked()
    expect(page).to_have_url(re.compile("u=true"))
    expect(page.get_by_role("figure", name=re.compile("^Window of .*true gradient"))).to_be_visible()
    page.keyboard.press("u")
    expect(page.get_by_role("figure", name=re.compile("^Window of .*as FP16 sees it"))).to_be_visible()
    assert "u" not in address(page)


def test_from_a_red_mark_to_the_layer_and_the_step_in_two_clicks(server: Any, open_page: Open) -> None:
    """The strip's mark opens a menu, the menu the layer in which it began, at its step, zoomed; [ goes on."""
    page = open_page(server, "/runs/troubled")
    strip = page.get_by_test_id("zoom-strip")
    box = strip.bounding_box()
    assert box is not None
    strip.click(position={"x": box["width"] * 1207 / 3000, "y": 20})
    menu = page.get_by_role("menu")
    expect(menu).to_contain_text("in a streak")
    menu.get_by_role("menuitem", name=re.compile(f"Open {re.escape(layered.OVERFLOWING)} at step 1,2")).click()
    expect(page.get_by_role("tree", name="Layers")).to_be_visible()
    found = address(page)
    assert found["layer"] == layered.OVERFLOWING
    assert 1200 <= int(found["step"]) <= 1215
    first, last = map(int, found["r"].split("-"))
    assert first <= 1200 < 1215 <= last
    values = layered.Model(growth=layered.overflowing, poisoned=range(1200, 1216)).gradients(1200, 0.4, 65536.0)
    infinite = int(np.isinf(values[layered.OVERFLOWING]).sum())
    expect(page.get_by_test_id("histogram-numbers")).to_contain_text(str(infinite))
    page.keyboard.press("0")
    expect(page).not_to_have_url(re.compile(r"[?&]r="))
    page.keyboard.press("[")
    expect(page).to_have_url(re.compile(r"step=2400"))


def test_an_event_and_the_sentence_lead_to_their_layer(server: Any, open_page: Open) -> None:
    """Rows of the Events page name the layers they lead to; so does the sentence's worst underflow."""
    page = open_page(server, "/runs/troubled/events?kind=bad_streak")
    page.get_by_role("link", name=layered.OVERFLOWING).click()
    expect(page.get_by_role("tree", name="Layers")).to_be_visible()
    assert address(page)["step"] == "1202"
    page.goto(f"{server.url}/runs/healthy")
    page.get_by_test_id("sentence").get_by_role("link", name=re.compile("underflow")).click()
    expect(page.get_by_role("tree", name="Layers")).to_be_visible()


def test_the_strip_of_a_list_has_both_lanes_and_leads_on(flushed: Any, open_page: Open) -> None:
    """Violet below, a read-out of both lanes, and the same menu as on the run's page."""
    page = open_page(flushed.server, "/?q=flushed")
    item = page.get_by_test_id("run-flushed")
    lower = item.locator("canvas[data-lane=underflow]")
    expect(lower).to_be_visible()
    violet = page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--c-underflow')")
    colours = lower.evaluate(
        """(canvas) => {
          const { data } = canvas.getContext('2d').getImageData(0, canvas.height - 1, canvas.width, 1);
          const hex = (at) => [...data.slice(at, at + 3)].map((v) => v.toString(16).padStart(2, '0')).join('');
          return Array.from({ length: canvas.width }, (_, x) => '#' + hex(x * 4));
        }"""
    )
    share = colours.count(violet.strip().lower()) / len(colours)
    assert 0.2 < share < 0.4, share
    box = lower.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.95, box["y"] + 3)
    expect(page.locator(".readout")).to_contain_text(re.compile(r"steps [\d,-]+: clean, underflow [\d.]+% in block\.3"))
    page.mouse.click(box["x"] + box["width"] * 0.95, box["y"] + 3)
    page.get_by_role("menuitem", name=re.compile("^Open block.3")).click()
    expect(page.get_by_role("tree", name="Layers")).to_be_visible()
    assert address(page)["layer"] == layered.WORST


def test_new_frames_change_tree_and_table_without_a_reload(busy_server: Any, open_page: Open, trainers: Any) -> None:
    """First what is waited for, then one frame, then the next, each as it comes."""
    trainer = trainers.write_plain(busy_server, "sketching", "sketching", "FP16-AMP", num_steps=120, project="layers")
    page = open_page(busy_server, "/runs/sketching/layers")
    expect(page.get_by_role("heading", name="No layers to show")).to_be_visible()
    model = layered.Model(names=("a.weight", "b.weight"), growth=lambda name, place: -8.0)
    trainer.sketch(model, [50], 120, lambda step: 1024.0)
    expect(page.get_by_role("treeitem")).to_have_count(4)
    numbers = page.get_by_test_id("histogram-numbers")
    expect(numbers).to_contain_text("2,048")
    sunk = layered.Model(names=("a.weight", "b.weight"), growth=lambda name, place: -40.0 if name[0] == "b" else -8.0)
    trainer.sketch(sunk, [100], 120, lambda step: 1024.0)
    expect(row(page, "b")).to_contain_text("100%")
    expect(row(page, "a")).to_contain_text("0")
    expect(page.get_by_role("figure", name=re.compile("^Window of b,"))).to_be_visible()


def test_phone_has_a_select_the_worst_layers_and_the_charts(flushed: Any, open_page: Open) -> None:
    """390 px: no sideways scrolling, a tap on a row chooses it, and so does the select."""
    page = open_page(flushed.server, "/runs/flushed/layers", width=390, height=844, has_touch=True)
    worst = page.get_by_test_id("worst-layers").get_by_role("button")
    expect(worst).to_have_count(12)
    expect(worst.first).to_contain_text("fc2")
    expect(worst.first).to_have_attribute("aria-pressed", "true")
    page.locator("#panel-window").scroll_into_view_if_needed()
    expect(drawn(page, "window")).to_be_visible()
    page.wait_for_function("document.documentElement.scrollWidth <= 390")  # a chart is drawn, then fitted
    page.get_by_label("Layer", exact=True).select_option("head.weight")
    expect(page).to_have_url(re.compile(r"layer=head\.weight"))
    # Charts that are drawn anew move what lies around them: a tap meanwhile may land beside its row.
    expect(page.get_by_role("figure", name=re.compile("^Window of head"))).to_be_visible()
    worst.first.tap()
    expect(page).to_have_url(re.compile(rf"layer={re.escape(layered.WORST)}"))


def test_five_thousand_layers_stay_usable(busy_server: Any, open_page: Open, trainers: Any) -> None:
    """Only rows in sight are in the page, and the last layer is a key away."""
    trainer = trainers.Trainer(busy_server, "wide", name="wide", project="layers")
    trainer.points("loss", range(10), 1.0)
    names = tuple(f"m{k // 100:02}.l{k:04}.weight" for k in range(5000))
    trainer.sketch(layered.Model(names=names, growth=lambda name, place: -8.0), [5], 10, lambda step: float("nan"))
    page = open_page(busy_server, "/runs/wide/layers")
    tree = page.get_by_role("tree", name="Layers")
    expect(drawn(page, "layers-heatmap")).to_be_visible()
    assert tree.get_by_role("treeitem").count() < 100
    tree.focus()
    page.keyboard.press("End")
    expect(active_row(page)).to_be_in_viewport()
    expect(active_row(page)).to_contain_text(re.compile("l4999|weight"))
    page.get_by_role("searchbox", name="Search layers").fill("l4321")
    expect(row(page, "m43.l4321.weight")).to_be_visible()
