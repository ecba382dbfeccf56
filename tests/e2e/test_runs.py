"""The Runs page in a browser."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser
Open = Callable[..., Page]


def names(page: Page) -> list[str]:
    return page.locator("[data-row]").all_inner_texts()


def test_lists_every_run_with_verdict_and_numbers(server: Any, open_page: Open) -> None:
    """A row says precision, step, scale and skips; live runs come first."""
    page = open_page(server)
    row = page.get_by_test_id("run-healthy")
    expect(row).to_contain_text("FP16-AMP")
    expect(row).to_contain_text("5,999")
    expect(row).to_contain_text("2¹³")
    expect(row).to_contain_text("14 · 0.233%")
    expect(row.get_by_role("img")).to_have_attribute("aria-label", re.compile("6,000 steps"))
    expect(page.get_by_test_id("run-troubled")).to_contain_text(re.compile("failed|unhealthy", re.IGNORECASE))
    assert names(page)[0] == "digits-fp16"


def test_filters_are_in_the_address_and_can_be_cleared(server: Any, open_page: Open) -> None:
    """Search and filters narrow the table, live in the URL, and say how many runs are left."""
    page = open_page(server, "/?q=digits&precision=FP32")
    expect(page.locator("[data-row]")).to_have_count(1)
    expect(page.get_by_text("1 of 5")).to_be_visible()
    page.get_by_role("searchbox").fill("nothing of this name")
    expect(page.get_by_text("0 of 5")).to_be_visible()
    assert "q=nothing" in page.url
    page.get_by_role("button", name="clear").click()
    expect(page.locator("[data-row]")).to_have_count(5)
    page.get_by_role("button", name="Filter by state").click()
    page.get_by_role("menuitemcheckbox", name="finished").click()
    page.keyboard.press("Escape")
    expect(page.locator("[data-row]")).to_have_count(2)
    assert "state=finished" in page.url


def test_sorts_by_a_column(server: Any, open_page: Open) -> None:
    """A click on a header sorts, another turns it round, and the header says so."""
    page = open_page(server)
    page.get_by_role("button", name="Step", exact=True).click()
    expect(page.get_by_role("columnheader", name="Step", exact=True)).to_have_attribute("aria-sort", "descending")
    assert names(page)[0] == "digits-fp16"
    page.get_by_role("button", name="Step", exact=True).click()
    assert names(page)[0] == "bf16-all-nan"


def test_columns_can_be_chosen_and_are_remembered(server: Any, open_page: Open) -> None:
    """Device is no usual column; once chosen it stays over a reload."""
    page = open_page(server)
    expect(page.get_by_role("columnheader", name="Device")).to_have_count(0)
    page.get_by_role("button", name="Columns").click()
    page.get_by_role("menuitemcheckbox", name="Device").click()
    page.keyboard.press("Escape")
    page.reload()
    expect(page.get_by_role("columnheader", name="Device")).to_be_visible()


def test_rows_stay_under_the_pointer_until_asked_to_move(busy_server: Any, open_page: Open, trainers: Any) -> None:
    """A run that would jump to the top waits in a pill while the pointer is in the table."""
    for name in ("first", "second"):
        trainers.write_plain(busy_server, name, name, "FP32", num_steps=50, project="held")
    page = open_page(busy_server, "/?project=held&sort=-step")
    expect(page.locator("[data-row]")).to_have_count(2)
    before = names(page)
    page.get_by_role("link", name=before[0]).hover()
    late = trainers.Trainer(busy_server, "heldthird", name="third", project="held")
    late.advance(0, 499, 1.0)
    expect(page.get_by_role("button", name=re.compile("moved"))).to_be_visible()
    assert names(page) == [*before, "third"]
    page.get_by_role("button", name=re.compile("moved")).click()
    expect(page.locator("[data-row]").first).to_have_text("third")


def test_phone_shows_cards_and_a_filter_sheet(server: Any, open_page: Open) -> None:
    """At 390 px: cards without sideways scrolling, filters in a sheet."""
    page = open_page(server, width=390, height=844)
    expect(page.get_by_test_id("run-healthy")).to_contain_text("14 skips · 0.233%")
    expect(page.get_by_role("table")).to_have_count(0)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.get_by_role("button", name="Filters").click()
    page.get_by_role("checkbox", name="BF16-AMP").check()
    page.get_by_role("button", name="Show runs").click()
    expect(page.get_by_text("2 of 5")).to_be_visible()


def test_empty_server_tells_how_to_begin_and_reacts_to_the_first_run(
    own_server: Any, open_page: Open, trainers: Any
) -> None:
    """Three lines with the address filled in; the table appears by itself."""
    page = open_page(own_server)
    expect(page.get_by_role("heading", name="No runs yet")).to_be_visible()
    expect(page.get_by_text("halfscope.watch(")).to_contain_text(own_server.url)
    expect(page.get_by_text("Waiting for the first step")).to_be_visible()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert "import halfscope" in page.evaluate("navigator.clipboard.readText()")
    trainers.write_healthy(own_server, num_steps=600)
    expect(page.get_by_test_id("run-healthy")).to_be_visible()


def test_rename_tag_and_delete(busy_server: Any, open_page: Open, trainers: Any) -> None:
    """A run's menu renames, tags and, after a question, deletes it."""
    trainers.write_plain(busy_server, "one", "one", "FP32", num_steps=50, project="managed")
    trainers.write_plain(busy_server, "two", "two", "FP32", num_steps=50, project="managed")
    page = open_page(busy_server, "/?project=managed")
    page.get_by_role("button", name="Actions for one").click()
    page.get_by_role("menuitem", name="Rename").click()
    page.get_by_role("textbox", name="Name").fill("renamed <b>")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("run-one")).to_contain_text("renamed <b>")

    page.get_by_role("button", name="Actions for renamed").click()
    page.get_by_role("menuitem", name="Edit tags").click()
    page.get_by_role("textbox", name="Tags").fill("kept, night")
    page.get_by_role("button", name="Save tags").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.goto(f"{busy_server.url}/?project=managed&tag=night")
    expect(page.locator("[data-row]")).to_have_count(1)

    page.get_by_role("button", name="Actions for renamed").click()
    page.get_by_role("menuitem", name="Delete").click()
    dialog = page.get_by_role("alertdialog")
    expect(dialog).to_contain_text("cannot be undone")
    dialog.get_by_role("button", name="Cancel").click()
    expect(page.get_by_test_id("run-one")).to_be_visible()
    page.get_by_role("button", name="Actions for renamed").click()
    page.get_by_role("menuitem", name="Delete").click()
    page.get_by_role("alertdialog").get_by_role("button", name="Delete run").click()
    expect(page.get_by_test_id("run-one")).to_have_count(0)
    page.goto(f"{busy_server.url}/?project=managed")
    expect(page.locator("[data-row]")).to_have_count(1)


def test_keyboard_moves_through_rows_and_opens_one(server: Any, open_page: Open) -> None:
    """j and k move, Enter opens, slash searches, keys rest inside the field."""
    page = open_page(server)
    expect(page.locator("[data-row]")).to_have_count(5)
    page.keyboard.press("j")
    expect(page.locator("[data-row]").nth(0)).to_be_focused()
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("jk?")
    expect(page.get_by_role("searchbox")).to_have_value("jk?")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("searchbox").fill("")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/runs/healthy"))
