"""The page of a run's ranks in a browser, with a real training on two of them, of which one overflows now and then."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from halfscope.record.layout import find_streams
from playwright.sync_api import Page, expect

from tests.helpers.distributed import train
from tests.helpers.preloaded import Preloaded

pytestmark = pytest.mark.browser
Open = Callable[..., Page]

OVERFLOWING = (7, 23)
TRAINING = f"""
model = DDP(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)))
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
run = halfscope.watch(model, optimizer, scaler, name="two ranks", project="ranks", every=5)
torch.manual_seed(rank)
for step in range(40):
    batch = torch.randn(4, 8)
    if rank == 1 and step in {OVERFLOWING}:
        batch = batch * 1e36
    optimizer.zero_grad()
    loss = model(batch).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    run.step(loss=loss)
run.finish()
"""


@pytest.fixture(scope="module")
def two_ranks(busy_server: Any, python: Preloaded, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The id of a run of two ranks that this server has."""
    folder = tmp_path_factory.mktemp("two_ranks")
    job = train(python, folder, TRAINING)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HALFSCOPE_")}
    environment = {**kept, "HALFSCOPE_TOKEN": busy_server.token}
    sent = python.run(["-m", "halfscope", "sync", str(job.journals), "--server", busy_server.url], env=environment)
    assert sent.returncode == 0, sent.stderr
    return run_of(job.journals)


def run_of(journals: Path) -> str:
    """The one run whose streams a folder holds."""
    (run,) = {place.run_id for place in find_streams(journals)}
    return run


def test_the_page_names_the_rank_and_the_layers_in_which_it_began(
    busy_server: Any, two_ranks: str, open_page: Open
) -> None:
    """Both ranks skip, for the sum is not finite on either; one of them started it, and only that one is named."""
    page = open_page(busy_server, f"/runs/{two_ranks}/ranks")
    expect(page.get_by_test_id("rank-table").get_by_role("row")).to_have_count(3)
    origins = page.get_by_test_id("origins").get_by_role("listitem")
    expect(origins).to_have_count(len(OVERFLOWING))
    for at, step in enumerate(reversed(OVERFLOWING)):
        expect(origins.nth(at)).to_contain_text(f"step {step}")
        expect(origins.nth(at)).to_contain_text("rank 1")
        expect(origins.nth(at)).not_to_contain_text("rank 0")
        expect(origins.nth(at).get_by_role("link", name=re.compile("weight|bias")).first).to_be_visible()
    for item in page.get_by_test_id("agreement").get_by_role("listitem").all():
        expect(item).not_to_contain_text("parted")
    expect(page.get_by_test_id("buckets")).to_be_visible()
    page.get_by_test_id("panel-ranks-norm").scroll_into_view_if_needed()
    chart = page.get_by_role("figure", name=re.compile("^Own gradient norm by rank, run two ranks"))
    expect(chart.locator(".main-svg").first).to_be_visible()


def test_a_rank_is_looked_at_by_keyboard_and_the_address_keeps_it(
    busy_server: Any, two_ranks: str, open_page: Open
) -> None:
    """Its lines stand against the band of the others; Escape leads back to all."""
    page = open_page(busy_server, f"/runs/{two_ranks}/ranks")
    table = page.get_by_test_id("rank-table")
    expect(table.get_by_role("row")).to_have_count(3)
    page.keyboard.press("j")
    expect(table.locator("[data-row]").first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"rank=[01]\b"))
    expect(page.get_by_role("heading", name=re.compile(r"^Rank [01]"))).to_be_visible()
    chart = page.get_by_role("figure", name=re.compile("^Loss, run two ranks"))
    expect(chart.locator(".main-svg").first).to_be_visible()
    page.keyboard.press("Escape")
    expect(page).not_to_have_url(re.compile("rank="))


def test_a_cell_leads_to_its_rank_at_its_step_and_back_returns(
    busy_server: Any, two_ranks: str, open_page: Open
) -> None:
    """By a click on the mark of an overflow, and by arrows and Enter; the rank's own events stand there."""
    page = open_page(busy_server, f"/runs/{two_ranks}/ranks")
    panel = page.get_by_test_id("panel-ranks-norm")
    panel.scroll_into_view_if_needed()
    expect(panel.locator(".scatterlayer .point")).to_have_count(len(OVERFLOWING))
    mark = panel.locator(".scatterlayer .point").nth(1).bounding_box()
    assert mark is not None
    page.mouse.click(mark["x"] + mark["width"] / 2, mark["y"] + mark["height"] / 2)
    expect(page).to_have_url(re.compile(rf"rank=1&step={OVERFLOWING[1]}\b"))
    expect(page.get_by_role("heading", name=re.compile(r"^Rank 1"))).to_be_focused()
    events = page.get_by_test_id("rank-events")
    expect(events.get_by_text(f"step {OVERFLOWING[1]}").first).to_be_visible()
    expect(events.get_by_text(f"step {OVERFLOWING[0]}", exact=True)).to_have_count(0)
    chart = page.get_by_role("figure", name=re.compile("^Loss, run two ranks"))
    expect(chart.locator(".shapelayer path")).to_have_count(1)
    page.go_back()
    expect(page).not_to_have_url(re.compile("rank="))

    chart = panel.get_by_role("figure")
    chart.focus()
    page.keyboard.press("ArrowLeft")
    words = panel.get_by_role("status")
    expect(words).to_contain_text("rank 0")
    expect(words).to_contain_text("step 39")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowDown")
    expect(words).to_contain_text(re.compile(r"^rank 1 on .+, step 38: norm "))
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"rank=1&step=38\b"))


def test_a_run_of_one_process_has_no_such_page(server: Any, open_page: Open) -> None:
    """There is no tab, and who comes by address is told why."""
    page = open_page(server, "/runs/healthy")
    expect(page.get_by_role("link", name="Events").first).to_be_visible()
    expect(page.get_by_role("navigation", name="Run").get_by_role("link", name="Ranks")).to_have_count(0)


def test_the_page_is_accessible_and_fits_a_phone(
    busy_server: Any, two_ranks: str, open_page: Open, check_axe: Callable[[Page], None]
) -> None:
    """axe finds nothing, wide and narrow, with all ranks and with one; nothing scrolls sideways."""
    page = open_page(busy_server, f"/runs/{two_ranks}/ranks")
    expect(page.get_by_test_id("origins")).to_be_visible()
    check_axe(page)
    page.set_viewport_size({"width": 390, "height": 844})
    expect(page.get_by_test_id("ranks-sentence")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    check_axe(page)
    page.get_by_test_id("rank-table").get_by_role("link", name="1", exact=True).click()
    expect(page.get_by_role("heading", name=re.compile("^Rank 1"))).to_be_visible()
    check_axe(page)
