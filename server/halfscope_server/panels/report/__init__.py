"""A comparison as one HTML file: verdict, figures and every table, readable from disk without a network.

Must not import fastapi. Invariants: the file asks for nothing from anywhere, and runs no script but the two whose
hashes its own policy names; its figures are those of the page.
"""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import Any

import orjson
from plotly.offline import get_plotlyjs

from halfscope_server.compare.comparison import Comparison
from halfscope_server.compare.types import Report
from halfscope_server.panels import compared
from halfscope_server.panels.report import tables
from halfscope_server.panels.report.markup import Markup, element, folded, joined, table
from halfscope_server.panels.report.painting import painted
from halfscope_server.panels.report.tables import Block
from halfscope_server.panels.theme import theme
from halfscope_server.query.format import share
from halfscope_server.query.window import Window

WIDTH_PX = {12: 1200, 8: 800, 6: 600, 4: 400}
SECTIONS = {"quality": "Quality", "cost": "Cost", "stability": "Stability", "layer": "Numerics"}


def report_html(comparison: Comparison, at_us: int) -> str:
    """The whole file.

    Args:
        at_us: when it was asked for; stands in its head.
    """
    report = comparison.report
    figures, cards = _figures(comparison)
    scripts = [Markup(_plotly()), Markup(_asset("page.js"))]
    parts = [
        element("h1", report.sentence),
        element("p", _told(report, at_us), class_="muted"),
        *_verdicts(report),
        _table(tables.members(report)),
        _fairness(report),
        *_sections(report, cards),
    ]
    head = joined(
        [
            element("meta", charset="utf-8"),
            element("meta", http_equiv="Content-Security-Policy", content=_policy(scripts)),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("meta", name="generator", content="halfscope"),
            element("title", f"halfscope: {' · '.join(member.name for member in report.members)}"),
            element("style", Markup(_variables() + _asset("page.css"))),
        ]
    )
    body = joined(
        [
            element("main", *parts),
            _data("themes", theme()),
            _data("figures", figures),
            *(element("script", script) for script in scripts),
        ]
    )
    return "<!doctype html>\n" + element("html", element("head", head), element("body", body), lang="en")


# ---- what is said ----------------------------------------------------------------------------


def _told(report: Report, at_us: int) -> str:
    when = datetime.fromtimestamp(at_us / 1e6, tz=UTC).strftime("%Y-%m-%d %H:%M UTC")
    options = report.options
    how = f"aligned by {options.align}, tolerance {share(options.tolerance_share)} of {options.metric}"
    return f"As of {when}{', while runs go on' if report.is_live else ''}; {how}. Made by halfscope."


def _verdicts(report: Report) -> list[Markup]:
    found = []
    names = {member.run: f"{member.letter} {member.name}" for member in report.members}
    for verdict in report.verdicts:
        reasons = [element("li", ". ".join(part for part in (r.text, r.advice) if part)) for r in verdict.reasons]
        limits = [element("p", f"Rests on: {'; '.join(verdict.limits)}.", class_="muted")] if verdict.limits else []
        found.append(
            element(
                "section",
                element("h3", f"{names[verdict.run]}: {tables.WORDS[verdict.outcome]}"),
                element("p", verdict.sentence),
                *([element("ul", *reasons)] if reasons else []),
                *limits,
            )
        )
    return found


def _fairness(report: Report) -> Markup:
    block = tables.fairness(report)
    return folded(block.title, table(block.columns, block.rows))


def _sections(report: Report, cards: dict[str, list[Markup]]) -> list[Markup]:
    blocks = {
        "quality": [tables.quality(report)],
        "cost": [tables.cost(report)],
        "stability": [tables.stability(report)],
        "layer": tables.layers(report),
    }
    found: list[Markup] = []
    for section, title in SECTIONS.items():
        found += [element("h2", title), *map(_table, blocks[section])]
        if cards.get(section):
            found.append(element("div", *cards[section], class_="grid"))
    return found


def _table(block: Block) -> Markup:
    if not block.rows:
        return element("p", f"{block.title}: {block.note or 'nothing'}", class_="muted")
    return table(block.columns, block.rows, ": ".join(part for part in (block.title, block.note) if part))


# ---- figures ---------------------------------------------------------------------------------


def _figures(comparison: Comparison) -> tuple[dict[str, Any], dict[str, list[Markup]]]:
    """Figures by the id of their place, and the cards that hold them by section."""
    figures: dict[str, Any] = {}
    cards: dict[str, list[Markup]] = {}
    for panel in compared.available(comparison):
        window = Window(width_px=WIDTH_PX.get(panel.columns, 800))
        figure = compared.figure(comparison, panel, window)
        fill = figure["fill"]
        content = [element("h3", panel.title), element("p", fill["headline"], class_="muted")]
        if fill["empty"]:
            content.append(element("p", fill["empty"]))
        else:
            figures[panel.id] = painted(figure)
            content.append(element("div", id=panel.id, role="figure", aria_label=fill["label"]))
            numbers = compared.table(comparison, panel, window)
            if numbers.rows:
                content.append(folded("As a table", table(numbers.columns, numbers.rows, numbers.note)))
        card = element("section", *content, class_=f"card w{panel.columns}")
        cards.setdefault(panel.section, []).append(card)
    return figures, cards


# ---- the file --------------------------------------------------------------------------------


def _policy(scripts: list[Markup]) -> str:
    hashes = " ".join(f"'sha256-{_hash(script)}'" for script in scripts)
    # Plotly writes style elements and attributes; they can load nothing, because nothing may be loaded.
    rules = {
        "default-src": "'none'",
        "script-src": hashes,
        "style-src": "'unsafe-inline'",
        "img-src": "data: blob:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _data(name: str, value: Any) -> Markup:
    """Data that the script reads; no text in it can end the element."""
    text = orjson.dumps(value).decode().replace("<", "\\u003c")
    return element("script", Markup(text), type="application/json", id=name)


def _variables() -> str:
    both = theme()

    def of(name: str) -> str:
        return "".join(f"--{role}:{color};" for role, color in both[name].items())

    return f":root{{{of('light')}}}@media (prefers-color-scheme: dark){{:root{{{of('dark')}}}}}\n"


@cache
def _plotly() -> str:
    """The script that the figures were validated for: the one in plotly's own package."""
    return str(get_plotlyjs()).replace("\r", "")


@cache
def _asset(name: str) -> str:
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")
