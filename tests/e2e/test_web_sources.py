"""What the web app's sources promise, checked without a browser."""

from __future__ import annotations

import json
import re
from pathlib import Path

from plotly.offline import get_plotlyjs_version

WEB = Path(__file__).parents[2] / "web"
NO_SOURCES = ("schema.d.ts", "painting.json")
"""Made from the API; an example that tests hold the painting to."""
OWN_SOURCES = [path for path in (WEB / "src").rglob("*.*") if ".test." not in path.name and path.name not in NO_SOURCES]


def test_page_and_wheel_draw_with_the_same_plotly() -> None:
    """Figures validated by the Python package are drawn by the very plotly.js it was made for."""
    package = json.loads((WEB / "package.json").read_text())
    assert package["dependencies"]["plotly.js-cartesian-dist-min"] == get_plotlyjs_version()


def test_versions_are_exact_and_the_lock_file_names_no_host() -> None:
    """An install brings what was tested, from whichever registry the reader uses."""
    package = json.loads((WEB / "package.json").read_text())
    versions = {**package["dependencies"], **package["devDependencies"]}
    assert {name: v for name, v in versions.items() if not re.fullmatch(r"\d+\.\d+\.\d+", v)} == {}
    lock = json.loads((WEB / "package-lock.json").read_text())
    assert len(lock["packages"]) > 50
    assert [name for name, package in lock["packages"].items() if "resolved" in package] == []


def test_the_client_names_no_colour_metric_or_colour_role_of_data() -> None:
    """Colours, series and thresholds come from the server; the client knows the roles of its own frame only."""
    assert len(OWN_SOURCES) > 30
    series = r"\b(amp|grad|opt|throughput|memory)\.[a-z_]+\b(?=[\"'`])"
    forbidden = re.compile(rf"#[0-9a-fA-F]{{6}}\b|{series}|c-(nonfinite|streak)")
    found = {
        path.name: forbidden.findall(path.read_text(encoding="utf-8"))
        for path in OWN_SOURCES
        if "test" not in path.parts and forbidden.search(path.read_text(encoding="utf-8"))
    }
    assert found == {}
