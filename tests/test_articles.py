"""docs/articles.md: every claim has a check on the page, and every check holds on the installed torch."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import torch

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "articles.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))


def check_of(heading: str) -> str:
    """The one block of code in a section."""
    (code,) = re.findall(r"```python\n(.*?)```", SECTIONS[heading], re.DOTALL)
    return str(code)


@pytest.mark.parametrize("heading", SECTIONS)
def test_check_holds(heading: str) -> None:
    """The block runs as it stands after `import torch`."""
    code = compile(check_of(heading), f"docs/articles.md: {heading}", "exec")
    names: dict[str, Any] = {"torch": torch, "__name__": "articles"}
    with torch.random.fork_rng(devices=[]):
        exec(code, names)


@pytest.mark.parametrize("heading", SECTIONS)
def test_check_asserts_something_that_it_computed(heading: str) -> None:
    """A block without an assertion, or with one of constants alone, would show nothing."""
    claims = [node.test for node in ast.walk(ast.parse(check_of(heading))) if isinstance(node, ast.Assert)]
    assert claims
    for claim in claims:
        assert any(isinstance(node, ast.Name | ast.Call) for node in ast.walk(claim)), ast.unparse(claim)


def test_table_and_sections_are_in_step() -> None:
    """The overview names every section once, in its order, with what is said and what is true."""
    rows = re.findall(r"^\| \[(.+?)\]\(#(.+?)\) \| (.+?) \| (.+?) \|$", PAGE, re.MULTILINE)
    assert [heading for heading, _, _, _ in rows] == list(SECTIONS)
    assert len(rows) >= 20


def test_a_false_claim_would_be_noticed() -> None:
    """The runner raises what a block raises."""
    with pytest.raises(AssertionError):
        exec(check_of("Smallest values").replace("== 2.0**-14", "== 2.0**-24"), {"torch": torch})
