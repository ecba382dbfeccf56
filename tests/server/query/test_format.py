"""How numbers read on the pages, against the examples and rules of the design."""

from __future__ import annotations

import math

import pytest
from halfscope_server.query import format as fmt
from hypothesis import given
from hypothesis import strategies as st

WRITERS = (
    fmt.power_of_two,
    fmt.power_of_two_spoken,
    fmt.share,
    fmt.short,
    fmt.size_bytes,
    fmt.duration,
    fmt.norm,
    fmt.number,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (65536.0, "2¹⁶"),
        (1.0, "2⁰"),
        (0.125, "2⁻³"),
        (49667.0, "2¹⁵·⁶"),
        (65504.0, "2¹⁶·⁰"),
        (0.0, "0"),
        (2.0**-24, "2⁻²⁴"),
    ],
)
def test_scale_reads_as_a_power_of_two(value: float, text: str) -> None:
    """A whole power has no decimals, anything else has one."""
    assert fmt.power_of_two(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (65536.0, "2 to the 16th"),
        (2.0, "2 to the 1st"),
        (2.0**22, "2 to the 22nd"),
        (2.0**13, "2 to the 13th"),
        (0.125, "2 to the minus 3rd"),
        (49667.0, "2 to the power of 15.6"),
    ],
)
def test_scale_is_spoken_as_words(value: float, text: str) -> None:
    """A screen reader hears an ordinal, not a row of superscripts."""
    assert fmt.power_of_two_spoken(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (1.0, "100%"),
        (0.0005, "0.05%"),
        (0.041, "4.1%"),
        (0.0412, "4.12%"),
        (0.12345, "12.3%"),
        (0.00009, "< 0.01%"),
        (0.99999, "> 99.9%"),
        (0.003, "0.3%"),
        (2.5, "250%"),
    ],
)
def test_share_reads_as_percent_with_three_digits(value: float, text: str) -> None:
    """Zero and one are exact; what rounds to them is not written as them."""
    assert fmt.share(value) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1240.0, "samples/s", "1.24k samples/s"),
        (3_500_000.0, "samples/s", "3.5M samples/s"),
        (999.7, "tokens/s", "1k tokens/s"),
        (0.038, "s", "38 ms"),
        (8040.0, "s", "2 h 14 min"),
        (1.5 * 2**30, "bytes", "1.5 GiB"),
        (512.0, "bytes", "512 B"),
        (1010 * 2.0**20, "bytes", "0.99 GiB"),
        (0.003, "share", "0.3%"),
        (2.302585, "", "2.303"),
        (12.5, "°C", "12.5 °C"),
    ],
)
def test_quantity_follows_its_unit(value: float, unit: str, text: str) -> None:
    """Each unit has its own words; an unknown unit stands behind the number."""
    assert fmt.quantity(value, unit) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 s"),
        (2.5e-4, "250 µs"),
        (1.2, "1.2 s"),
        (59.96, "1 min"),
        (200.0, "3 min 20 s"),
        (3600.0, "1 h"),
        (97200.0, "1 d 3 h"),
    ],
)
def test_duration_has_at_most_two_units(value: float, text: str) -> None:
    """Short ones in ms and s, long ones in the two largest units."""
    assert fmt.duration(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(6.8e-4, "6.80e-4"), (1.234, "1.23"), (45.67, "45.7"), (999.0, "999"), (1e5, "1.00e5"), (0.0, "0")],
)
def test_norm_has_three_digits(value: float, text: str) -> None:
    """Norms keep their zeros, so that a column of them lines up."""
    assert fmt.norm(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2.3025, "2.303"),
        (0.04123, "0.04123"),
        (1e-5, "1e-5"),
        (12345.6, "12,346"),
        (7.0, "7"),
        (-0.5, "-0.5"),
        (123456789.0, "1.235e8"),
    ],
)
def test_loss_has_four_digits(value: float, text: str) -> None:
    """Four significant digits, thousands separated."""
    assert fmt.number(value) == text


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize(("value", "text"), [(math.nan, "NaN"), (math.inf, "+Inf"), (-math.inf, "-Inf"), (None, "–")])
def test_nonfinite_and_missing_are_written_out(write: object, value: float | None, text: str) -> None:
    """No writer turns NaN or infinity into a number or a missing value into zero."""
    assert callable(write)
    assert write(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_finite_number_can_be_written(value: float) -> None:
    """Subnormals and the largest doubles have a reading in every unit, and none of them looks non-finite."""
    for write in WRITERS:
        text = write(value)
        assert text
        assert "nan" not in text.lower()
        assert "inf" not in text.lower()
        assert text != fmt.MISSING


@given(st.floats(min_value=1e-12, max_value=1e12))
def test_a_written_number_is_near_the_number(value: float) -> None:
    """Reading back what was written gives the value to its stated digits."""
    assert float(fmt.number(value).replace(",", "")) == pytest.approx(value, rel=6e-4)
    assert float(fmt.norm(value).replace(",", "")) == pytest.approx(value, rel=6e-3)


def test_ago_rounds_down() -> None:
    """Nothing is ever younger than it is said to be old."""
    assert [fmt.ago(s) for s in (1, 59.9, 119, 7300, 200_000)] == [
        "just now",
        "59 s ago",
        "1 min ago",
        "2 h ago",
        "2 d ago",
    ]


def test_times_keep_their_microseconds() -> None:
    """The machine form loses nothing, also before the epoch's first second ended."""
    assert fmt.iso(1_700_000_000_000_250) == "2023-11-14T22:13:20.000250Z"
    assert fmt.utc(0) == "1970-01-01 00:00:00 UTC"


def test_listing_counts_what_it_leaves_out() -> None:
    """The number left out refers to all there are, not only to those sent."""
    assert fmt.listing(["a", "b", "c"], 1) == "a and 2 more"
    assert fmt.listing(["a"], 1, total=40) == "a and 39 more"
    assert fmt.listing([], 1, total=2) == "2 layers"
