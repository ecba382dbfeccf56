"""Painting a figure for a file, held to the example that the page's client is held to as well."""

from __future__ import annotations

import json
from pathlib import Path

from halfscope_server.panels.report.painting import painted

CONTRACT = Path(__file__).parents[4] / "web" / "src" / "chart" / "painting.json"


def test_roles_become_what_they_become_on_the_page() -> None:
    """One figure with every kind of trace, area, shape, word and axis: the example says what each colour is; the web's
    own test holds figure.ts to the same one. A file says how high a chart is, the page lays it out."""
    contract = json.loads(CONTRACT.read_text())
    found = painted({**contract["figure"], "info": {"height_px": 220}})
    assert found["layout"].pop("height") == 220
    assert found == contract["painted"]
