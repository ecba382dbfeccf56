"""Signing in, settings, and every page with its overlays under axe, in both themes and sizes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.proxy import prefix_proxy

pytestmark = pytest.mark.browser
Open = Callable[..., Page]
CheckAxe = Callable[..., None]


def test_a_sign_in_link_signs_in_and_leaves_no_code_in_the_address(server: Any, open_page: Open) -> None:
    """The fragment is gone at once, and a reload stays signed in."""
    page = open_page(server, f"/#code={server.sign_in_code()}", signed_in=False)
    expect(page.get_by_test_id("run-healthy")).to_be_visible()
    assert "code" not in page.url
    page.reload()
    expect(page.get_by_test_id("run-healthy")).to_be_visible()


def test_a_used_link_says_how_to_get_a_new_one(server: Any, open_page: Open, check_axe: CheckAxe) -> None:
    """A code is good once; the page then names the command."""
    code = server.sign_in_code()
    first = open_page(server, f"/#code={code}", signed_in=False)
    expect(first.get_by_test_id("run-healthy")).to_be_visible()
    page = open_page(server, f"/#code={code}", signed_in=False)
    expect(page.get_by_text("used already or is older than ten minutes")).to_be_visible()
    expect(page.get_by_text("halfscope open")).to_be_visible()
    check_axe(page)


def test_without_a_session_nothing_is_shown(server: Any, open_page: Open) -> None:
    """Any page leads to the sign-in page, and signing in there goes on to it."""
    page = open_page(server, "/runs/healthy", signed_in=False)
    expect(page.get_by_role("heading", name="Sign in to halfscope")).to_be_visible()
    page.evaluate("(code) => { location.hash = `code=${code}`; }", server.sign_in_code())
    expect(page.get_by_test_id("sentence")).to_be_visible()
    assert page.url == f"{server.url}/runs/healthy"


def test_signing_out_elsewhere_leads_an_open_page_to_the_sign_in_page(server: Any, open_page: Open) -> None:
    """Another window of the same browser signs out: the page that only listens notices by itself."""
    page = open_page(server, "/")
    expect(page.get_by_test_id("run-healthy")).to_be_visible()
    expect(page.get_by_test_id("live-pill")).to_have_text("Live")
    answer = page.context.request.delete(f"{server.url}/api/v1/session", headers={"Origin": server.url})
    assert answer.status == 204
    expect(page.get_by_role("heading", name="Sign in to halfscope")).to_be_visible()


def test_works_below_a_path_of_a_reverse_proxy(tmp_path: Path, trainers: Any, browser: Browser) -> None:
    """Pages, scripts, charts, links, the live socket and the cookie all stay below the prefix."""
    prefix = "/tools/halfscope"
    with (
        trainers.serving(tmp_path, "--root-path", prefix) as server,
        prefix_proxy(server.port, prefix) as address,
    ):
        trainer = trainers.Trainer(server, "proxied", name="proxied")
        trainer.advance(0, 59, 1.0)
        context = browser.new_context()
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.goto(f"{address}/#code={server.sign_in_code()}")
        page.get_by_role("link", name="proxied").click()
        expect(page).to_have_url(f"{address}/runs/proxied")
        expect(page.locator("#panel-loss .js-plotly-plot .main-svg").first).to_be_visible()
        expect(page.get_by_test_id("live-pill")).to_have_text("Live")
        page.reload()
        expect(page.get_by_test_id("sentence")).to_contain_text("step 59")
        trainer.advance(60, 79, 1.0)
        expect(page.get_by_test_id("sentence")).to_contain_text("step 79")
        assert {cookie["path"] for cookie in context.cookies()} == {prefix}
        context.close()


def test_settings_change_the_theme_and_switch_shortcuts_off(server: Any, open_page: Open) -> None:
    """The theme applies at once; without shortcuts a key does nothing; the server says what it is."""
    page = open_page(server, "/settings", color_scheme="light")
    expect(page.get_by_text(server.url)).to_be_visible()
    expect(page.get_by_text("SQLite")).to_be_visible()
    background = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(background) == BACKGROUNDS["light"]
    page.get_by_role("radio", name="Dark").check()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert page.evaluate(background) == BACKGROUNDS["dark"]
    page.keyboard.press("m")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    page.get_by_role("checkbox", name="Keyboard shortcuts on").uncheck()
    page.get_by_role("heading", name="Appearance").click()
    page.keyboard.press("m")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_search_opens_a_run_from_any_page(server: Any, open_page: Open, check_axe: CheckAxe) -> None:
    """Slash, type, Enter."""
    page = open_page(server, "/settings")
    expect(page.get_by_role("heading", name="Server")).to_be_visible()
    page.keyboard.press("/")
    page.get_by_role("searchbox").fill("troubled")
    expect(page.get_by_role("menuitem")).to_have_count(1)
    check_axe(page)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{server.url}/runs/troubled")


def test_unknown_addresses_are_answered_by_a_page(server: Any, open_page: Open) -> None:
    """A run that never was and a page that is none both lead back."""
    page = open_page(server, "/runs/neverwas00000000")
    expect(page.get_by_role("heading", name="There is no such run")).to_be_visible()
    page.goto(f"{server.url}/nowhere")
    expect(page.get_by_role("heading", name="There is no such page")).to_be_visible()


def open_help(page: Page) -> None:
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()


def open_row_menu(page: Page) -> None:
    page.get_by_role("button", name="Actions for digits-fp16", exact=True).click()
    expect(page.get_by_role("menu")).to_be_visible()


def open_delete_dialog(page: Page) -> None:
    open_row_menu(page)
    page.get_by_role("menuitem", name="Delete").click()
    expect(page.get_by_role("alertdialog")).to_be_visible()


def open_table(page: Page) -> None:
    page.get_by_test_id("panel-loss").get_by_role("button", name="Show Loss as table").click()
    expect(page.get_by_role("dialog").get_by_role("row").nth(3)).to_be_visible()


def open_details(page: Page) -> None:
    page.get_by_role("button", name=re.compile("^Details of")).first.click()


def open_filters(page: Page) -> None:
    page.get_by_role("button", name="Filters").click()
    expect(page.get_by_role("dialog")).to_be_visible()


def nothing(page: Page) -> None:
    """The page as it is."""


def open_bad(page: Page) -> None:
    page.get_by_role("list", name="Bad stretches").get_by_role("button").first.press("Enter")
    expect(page.get_by_role("menu")).to_be_visible()


BACKGROUNDS: dict[Literal["light", "dark"], str] = {"light": "rgb(255, 255, 255)", "dark": "rgb(14, 20, 26)"}
PAGES: list[tuple[str, str, list[Callable[[Page], None]]]] = [
    ("/", "run-healthy", [nothing, open_row_menu]),
    ("/", "run-healthy", [open_delete_dialog]),
    ("/runs/healthy", "panel-loss", [nothing, open_table]),
    ("/runs/troubled/events", "events", [nothing, open_details]),
    ("/runs/troubled/layers?step=1205&stat=nonfinite", "panel-window", [nothing, open_bad]),
    ("/runs/healthy/config", "", [open_help]),
    ("/settings", "", [nothing]),
]
PAGE_IDS = ["runs", "delete", "overview", "events", "layers", "help", "settings"]


@pytest.mark.parametrize(("path", "test_id", "overlays"), PAGES, ids=PAGE_IDS)
def test_axe_finds_nothing_with_overlays_open(
    server: Any,
    open_page: Open,
    check_axe: CheckAxe,
    path: str,
    test_id: str,
    overlays: list[Callable[[Page], None]],
) -> None:
    """WCAG 2.2 AA, light and dark, with menus and dialogs open."""
    page = open_page(server, path)
    ready = page.get_by_test_id(test_id) if test_id else page.get_by_role("heading", level=2).first
    expect(ready).to_be_visible()
    if test_id.startswith("panel-"):
        expect(page.locator(f"#{test_id} .js-plotly-plot .main-svg").first).to_be_visible()
    for overlay in overlays:
        overlay(page)
        for scheme, background in BACKGROUNDS.items():
            page.emulate_media(color_scheme=scheme)
            expect(page.locator("body")).to_have_css("background-color", background)
            checked = overlay is not nothing and nothing in overlays
            check_axe(page, colours_alone=scheme == "dark", checked_without_overlay=checked)


def test_a_pale_word_in_a_dialog_would_be_found(server: Any, open_page: Open, check_axe: CheckAxe) -> None:
    """Also where the page behind it was checked before, and only what lies over it is looked at in full."""
    page = open_page(server, "/settings")
    expect(page.get_by_role("heading", name="Server")).to_be_visible()
    open_help(page)
    check_axe(page, checked_without_overlay=True)
    page.evaluate("document.querySelector('[role=dialog] h2').style.color = '#eee'")
    for colours_alone in (False, True):
        with pytest.raises(AssertionError, match="color-contrast"):
            check_axe(page, checked_without_overlay=True, colours_alone=colours_alone)


def test_axe_finds_nothing_on_a_phone(server: Any, open_page: Open, check_axe: CheckAxe) -> None:
    """390 px: cards with the filter sheet, and the overview."""
    page = open_page(server, width=390, height=844, has_touch=True)
    expect(page.get_by_test_id("run-healthy")).to_be_visible()
    check_axe(page)
    open_filters(page)
    check_axe(page)
    page.goto(f"{server.url}/runs/healthy")
    expect(page.locator("#panel-loss .js-plotly-plot .main-svg").first).to_be_visible()
    check_axe(page)


def test_touch_targets_are_44_px(server: Any, open_page: Open) -> None:
    """Buttons and links in the bars and cards are large enough for a finger."""
    page = open_page(server, width=390, height=844, has_touch=True, is_mobile=True)
    expect(page.get_by_test_id("run-healthy")).to_be_visible()
    small = page.evaluate(
        """() => [...document.querySelectorAll('.rail a, .top-bar button, .toolbar button, .run-card :is(a, button)')]
          .map((element) => [element.ariaLabel ?? element.textContent, element.getBoundingClientRect()])
          .filter(([, box]) => box.width > 0 && box.height < 44)
          .map(([name, box]) => `${name}: ${box.height}`)"""
    )
    assert small == []
