"""HTML put together from elements, so that text from outside cannot become markup.

Must not import anything of the project. Invariant: whatever is not `Markup` is escaped.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


class Markup(str):
    """HTML that was made here."""

    __slots__ = ()


VOID = frozenset({"meta", "br"})


def element(name: str, /, *content: str, **attributes: str) -> Markup:
    """An element; attributes' underscores at the end are dropped (`class_`), others become hyphens."""
    given = "".join(f' {key.rstrip("_").replace("_", "-")}="{html.escape(value)}"' for key, value in attributes.items())
    if name in VOID:
        return Markup(f"<{name}{given}>")
    return Markup(f"<{name}{given}>{joined(content)}</{name}>")


def joined(content: Iterable[str]) -> Markup:
    """Pieces behind each other, text escaped."""
    return Markup("".join(part if isinstance(part, Markup) else html.escape(part, quote=False) for part in content))


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> Markup:
    """A table whose first column names its rows."""
    head = element("tr", *(element("th", column, scope="col") for column in columns))
    body = [
        element(
            "tr", *(element("th", cell, scope="row") if at == 0 else element("td", cell) for at, cell in enumerate(row))
        )
        for row in rows
    ]
    parts = [element("caption", caption)] if caption else []
    inner = element("table", *parts, element("thead", head), element("tbody", *body))
    return element("div", inner, class_="scroll", tabindex="0", role="region", aria_label=caption or "table")


def folded(summary: str, *content: str) -> Markup:
    """What opens when its summary is pressed."""
    return element("details", element("summary", summary), *content)
