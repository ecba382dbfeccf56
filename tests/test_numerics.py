"""docs/numerics.md: its tables against torch and the code."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import get_args

import pytest
import torch
from halfscope import formats
from halfscope.formats import NumberFormat
from halfscope.instrument import skips
from halfscope.instrument.attempt import Point
from halfscope.instrument.skips import SkipClass
from halfscope.sketch import DEFAULT_SCALE, structural
from halfscope_server.query import underflow
from halfscope_server.query.window import Statistic

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "numerics.md").read_text(encoding="utf-8")
DTYPES = {
    "FP32": torch.float32,
    "BF16": torch.bfloat16,
    "FP16": torch.float16,
    "FP8 E4M3": torch.float8_e4m3fn,
    "FP8 E5M2": torch.float8_e5m2,
}
CASTABLE = ("FP16", "BF16", "FP8 E5M2")
"""Formats with infinity that are narrower than float32: their limits can be tried by casting."""


def section(heading: str) -> str:
    return re.split(r"^## ", PAGE.split(f"## {heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def rows(heading: str) -> list[list[str]]:
    """Cells of a section's table, without its head."""
    lines = [line for line in section(heading).splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def number(cell: str) -> float:
    """A cell's number; powers of two are written with superscripts."""
    if cell.startswith("2⁻"):
        return 2.0 ** -int(cell[2:].translate(str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")))
    return float(cell.replace(",", ""))


LIMITS = {cells[0]: cells[1:] for cells in rows("Number formats")}


def test_every_format_of_the_code_is_listed() -> None:
    """And TF32, which is no type of numbers that anything is stored in."""
    assert set(LIMITS) == {*formats.FORMATS, "TF32"}


@pytest.mark.parametrize("name", formats.FORMATS)
def test_limits_are_the_codes(name: str) -> None:
    """Column by column; decimal numbers to the digits that are printed."""
    item: NumberFormat = formats.FORMATS[name]
    bits, *cells = LIMITS[name]
    assert bits == f"1/{item.exponent_bits}/{item.mantissa_bits}"
    expected = [
        item.largest,
        item.overflows_at,
        item.smallest_normal,
        item.smallest_subnormal,
        item.flushed_at,
        item.epsilon,
    ]
    for cell, value in zip(cells, expected, strict=True):
        assert float(f"{value:.4e}") == number(cell) if "e" in cell else value == number(cell), (name, cell, value)


@pytest.mark.parametrize("name", DTYPES)
def test_limits_are_torchs(name: str) -> None:
    """As `torch.finfo` has them."""
    info = torch.finfo(DTYPES[name])
    _, largest, _, normal, _, _, eps = LIMITS[name]
    assert float(f"{info.max:.4e}") == float(f"{number(largest):.4e}")
    assert (info.tiny, info.eps) == (number(normal), number(eps))


@pytest.mark.parametrize("name", CASTABLE)
def test_limits_are_where_casting_changes(name: str) -> None:
    """A value at the limit, and the float32 just on its other side. (torch casts a float64 by way of float32, so a
    closer one would be rounded to the limit first.)"""
    item, dtype = formats.FORMATS[name], DTYPES[name]
    top, floor = torch.tensor(item.overflows_at), torch.tensor(item.flushed_at)
    assert top.to(dtype).float().isinf()
    assert top.nextafter(torch.tensor(0.0)).to(dtype).float().isfinite()
    assert floor.to(dtype).float() == 0
    assert floor.nextafter(torch.tensor(1.0)).to(dtype).float() > 0


def test_tf32_is_fp32s_exponent_with_fp16s_mantissa() -> None:
    """Its largest value and eps follow from its bits."""
    bits, largest, _, normal, *_, eps = LIMITS["TF32"]
    assert bits == "1/8/10"
    assert float(f"{(2 - 2.0**-10) * 2.0**127:.4e}") == number(largest)
    assert (number(normal), number(eps)) == (2.0**-126, 2.0**-10)


def test_scaler_defaults_are_torchs() -> None:
    """The four arguments that say how the scale moves."""
    parameters = inspect.signature(torch.amp.GradScaler).parameters
    listed = {cells[0].strip("`"): number(cells[1]) for cells in rows("GradScaler, as PyTorch really does it")}
    assert listed == {name: parameters[name].default for name in listed}
    assert set(listed) == set(parameters) - {"device", "enabled"}
    assert listed["init_scale"] == DEFAULT_SCALE


def test_skip_classes_and_their_numbers_are_the_codes() -> None:
    """Names of the classes, and each constant of the rules."""
    text = section("Skips and their classes")
    assert {cells[0] for cells in rows("Skips and their classes")} == set(get_args(SkipClass))
    assert f"the first {skips.SETTLED_AFTER} clean steps in a row" in text
    assert f"log₂(first scale) + {skips.SETTLING_SLACK}" in text
    share = f"{skips.RATE_LIMIT_SHARE:.0%}"
    assert (
        f"{skips.STREAK_IN_A_ROW} or more in a row, or more than {share} of the last {skips.RATE_WINDOW} steps" in text
    )


def test_points_are_those_at_which_gradients_are_read() -> None:
    """One row each."""
    listed = [cells[0].strip("`") for cells in rows("Sketches of gradients")]
    assert sorted(listed) == sorted(get_args(Point))


def test_statistics_are_those_that_can_be_asked_for() -> None:
    """One row each, in the order of the menu."""
    assert [cells[0].strip("`") for cells in rows("The statistics of the Layers page")] == list(get_args(Statistic))


def test_numbers_of_the_underflow_section_are_the_codes() -> None:
    """Levels of the strip, and what it takes for zeros to be called structural."""
    text = " ".join(section("Underflow: three numbers").split())
    levels = [f"{level:.0%}" for level in underflow.LEVELS]
    assert f"From {levels[0]}, {levels[1]} and {levels[2]} on" in text
    assert f"a measured share of {underflow.WARNING_SHARE:.0%} is a warning" in text
    assert f"of {underflow.CRITICAL_SHARE:.0%} critical" in text
    assert f"under {structural.ROOM_SHARE:.1%} of the nonzero elements" in text
    assert structural.HALF_WINDOW == 8
    assert "eight on either side" in text
    assert f"by a factor of {2**structural.SCALE_STEP_LOG2:.0f} or more" in text
    assert f"scale {DEFAULT_SCALE:,.0f}" in text
