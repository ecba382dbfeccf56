"""Saves every page, light and dark, wide and narrow, as PNG files: `python tests/e2e/screenshots.py FOLDER`.

Uses the server, runs and browser of the browser tests. For people to look at; no test compares pixels of whole pages.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from tests.e2e import layered  # noqa: E402  # found from the root alone, and this file runs as a script

SIZES = {"1440": (1440, 900), "390": (390, 844)}
PANELS_READY = """() => [...document.querySelectorAll('.panel')]
  .filter((panel) => panel.checkVisibility() && panel.getBoundingClientRect().top < innerHeight)
  .every((panel) => panel.querySelector('.main-svg, .panel-empty'))"""


def load_support() -> ModuleType:
    """The conftest beside this file, as a module."""
    spec = importlib.util.spec_from_file_location("halfscope_e2e", Path(__file__).with_name("conftest.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def open_menu(page: Page) -> None:
    page.get_by_role("button", name="Actions for digits-fp16", exact=True).click()


def open_help(page: Page) -> None:
    page.keyboard.press("?")


def open_delete(page: Page) -> None:
    open_menu(page)
    page.get_by_role("menuitem", name="Delete").click()


def open_search(page: Page) -> None:
    page.get_by_role("button", name="Search runs").click()
    page.get_by_role("searchbox").fill("digits")


def open_table(page: Page) -> None:
    page.get_by_test_id("panel-loss").get_by_role("button", name="Show Loss as table").click()


def open_filters(page: Page) -> None:
    """The sheet on a phone, the first menu elsewhere."""
    narrow = page.get_by_role("button", name="Filters")
    (narrow if narrow.count() else page.get_by_role("button", name="Filter by precision")).click()


def hover_strip(page: Page) -> None:
    page.get_by_test_id("zoom-strip").hover()


def open_bad(page: Page) -> None:
    """The menu on the streak of the troubled run."""
    strip = page.get_by_test_id("zoom-strip")
    box = strip.bounding_box()
    assert box is not None
    strip.click(position={"x": box["width"] * 1207 / 3000, "y": 20})


def open_window_table(page: Page) -> None:
    page.get_by_role("button", name="Show Window as table").click()


def nothing(page: Page) -> None:
    """The page as it is."""


SHOTS: list[tuple[str, str, Callable[[Page], None]]] = [
    ("runs", "/", nothing),
    ("runs-menu", "/", open_menu),
    ("runs-filters", "/", open_filters),
    ("runs-delete", "/", open_delete),
    ("overview", "/runs/healthy", nothing),
    ("overview-hover", "/runs/healthy", hover_strip),
    ("overview-zoomed", "/runs/healthy?r=1400-2600&s=0.9&x=step", nothing),
    ("overview-table", "/runs/healthy", open_table),
    ("overview-troubled", "/runs/troubled", nothing),
    ("overview-all-nan", "/runs/allnan", nothing),
    ("overview-waiting", "/runs/waiting", nothing),
    ("overview-fp32", "/runs/fp32?x=time", nothing),
    ("overview-flushed", "/runs/flushed", nothing),
    ("overview-bad-menu", "/runs/troubled", open_bad),
    ("layers", "/runs/healthy/layers", nothing),
    ("layers-headroom-true", "/runs/healthy/layers?stat=headroom&u=true&step=3000", nothing),
    ("layers-flushed", "/runs/flushed/layers", nothing),
    ("layers-flushed-zoomed", f"/runs/flushed/layers?r=1200-1800&step=1500&layer={layered.WORST}", nothing),
    ("layers-flushed-table", "/runs/flushed/layers", open_window_table),
    ("layers-overflow", f"/runs/troubled/layers?stat=nonfinite&step=1205&layer={layered.OVERFLOWING}", nothing),
    ("layers-fp32", "/runs/oneframe/layers", nothing),
    ("layers-10000", "/runs/manyframes/layers?stat=norm", nothing),
    ("layers-10000-zoomed", "/runs/manyframes/layers?x=step&r=40000-40600", nothing),
    ("layers-waiting", "/runs/fp32/layers", nothing),
    ("compare", "/compare", nothing),
    ("compare-two", "/compare?runs=oneframe,flushed", nothing),
    ("compare-overlay", "/compare?runs=oneframe,flushed,healthy,troubled&o=overlay&stat=norm", nothing),
    ("events", "/runs/healthy/events", nothing),
    ("events-troubled", "/runs/troubled/events", nothing),
    ("config", "/runs/healthy/config", nothing),
    ("settings", "/settings", nothing),
    ("help", "/settings", open_help),
    ("search", "/settings", open_search),
    ("missing", "/runs/neverwas", nothing),
]


def settle(page: Page) -> None:
    page.wait_for_load_state("networkidle")
    page.wait_for_function(PANELS_READY)
    page.wait_for_timeout(300)


def save_all(folder: Path) -> int:
    """Takes every picture; the number of files."""
    support = load_support()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=support.CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        with support.serving(Path(first)) as server, support.serving(Path(second)) as empty:
            support.write_plain(server, "fp32", "digits-fp32", "FP32")
            support.write_plain(server, "bf16", "digits-bf16", "BF16-AMP")
            support.write_all_nan(server)
            support.write_troubled(server)
            support.write_waiting(server)
            support.write_flushed(server)
            support.write_one_frame(server)
            support.write_many_frames(server)
            support.write_healthy(server)
            num_files = 0
            for size, (width, height) in SIZES.items():
                for scheme in ("light", "dark"):
                    context = browser.new_context(
                        viewport={"width": width, "height": height},
                        color_scheme=scheme,
                        reduced_motion="reduce",
                        has_touch=size == "390",
                    )
                    page = context.new_page()
                    page.goto(f"{server.url}/?signed=out")
                    settle(page)
                    page.screenshot(path=folder / f"sign-in-{size}-{scheme}.png")
                    support.sign_in(context, empty)
                    page.goto(empty.url)
                    settle(page)
                    page.screenshot(path=folder / f"runs-empty-{size}-{scheme}.png")
                    support.sign_in(context, server)
                    for name, path, act in SHOTS:
                        page.goto(server.url + path)
                        settle(page)
                        act(page)
                        settle(page)
                        if act is nothing:
                            # As tall as the page, so that every chart is on screen and drawn.
                            tall = page.evaluate("document.documentElement.scrollHeight")
                            page.set_viewport_size({"width": width, "height": max(height, tall)})
                            settle(page)
                        page.screenshot(path=folder / f"{name}-{size}-{scheme}.png")
                        page.set_viewport_size({"width": width, "height": height})
                        num_files += 1
                    context.close()
                    num_files += 2
        browser.close()
    return num_files


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python tests/e2e/screenshots.py FOLDER")
    print(f"{save_all(Path(sys.argv[1]))} pictures in {sys.argv[1]}")
