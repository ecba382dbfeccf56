"""Numbers and times in the words of the pages.

Owns how every number reads on screen; panels, sentences, read-outs and tables all come here. Must not import the store.
Invariant: nothing finite ever reads as missing and nothing non-finite ever reads as a number: NaN, +Inf and -Inf are
written out, and "–" means that there is no value at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime

MISSING = "–"

_SUPERSCRIPTS = str.maketrans("0123456789-.", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻·")
_SI_SUFFIXES = ("", "k", "M", "G", "T", "P")
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def nonfinite_name(value: float) -> str:
    """`NaN`, `+Inf` or `-Inf`; empty for a finite value."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return ""


def json_number(value: float | None) -> float | str | None:
    """A number as it may stand in JSON: `NaN`, `Infinity` and `-Infinity` are strings there."""
    if value is None or math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _named(write: Callable[[float], str]) -> Callable[[float | None], str]:
    """Let a writer of finite numbers take missing and non-finite ones too."""

    def wrapper(value: float | None) -> str:
        if value is None:
            return MISSING
        return nonfinite_name(value) or write(float(value))

    wrapper.__doc__ = write.__doc__
    wrapper.__name__ = write.__name__
    return wrapper


def _trim(text: str) -> str:
    """Drop zeros that a fixed number of decimals left at the end."""
    return text.rstrip("0").rstrip(".") if "." in text else text


def _digits3(value: float) -> str:
    """Three significant digits of a magnitude in [0, 1000), without trailing zeros."""
    if value >= 100:
        return f"{value:.0f}"
    return _trim(f"{value:.1f}" if value >= 10 else f"{value:.2f}")


def _scientific(value: float, decimals: int) -> str:
    """`6.80e-4`: no plus sign, no leading zero in the exponent."""
    mantissa, exponent = f"{value:.{decimals}e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def integer(value: int | None) -> str:
    """Counts and steps: `12,400`."""
    return MISSING if value is None else f"{value:,}"


def plural(count: int, one: str, many: str = "") -> str:
    """`1 skip`, `6 skips`, `1,000 steps`."""
    return f"{integer(count)} {one if count == 1 else many or one + 's'}"


def step_range(first: int, last: int) -> str:
    """`step 5` or `steps 12,000-12,499`."""
    return f"step {integer(first)}" if first == last else f"steps {integer(first)}-{integer(last)}"


def superscript(text: str) -> str:
    """Digits, minus and point as unicode superscripts."""
    return text.translate(_SUPERSCRIPTS)


@_named
def power_of_two(value: float) -> str:
    """A loss scale or a limit: `2¹⁶`; `2¹⁵·⁶` where it is no whole power; `0` for 0; other signs as a plain number."""
    if value <= 0:
        return number(value)
    mantissa, exponent = math.frexp(value)
    whole = mantissa == 0.5
    return "2" + superscript(f"{exponent - 1}" if whole else f"{math.log2(value):.1f}")


def _ordinal(value: int) -> str:
    if value % 100 in (11, 12, 13):
        return f"{value}th"
    return f"{value}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(value % 10, 'th') }"


@_named
def power_of_two_spoken(value: float) -> str:
    """What a screen reader says for `power_of_two`: `2 to the 16th`, `2 to the minus 3rd`, `2 to the power of 15.6`."""
    if value <= 0:
        return number(value)
    mantissa, exponent = math.frexp(value)
    if mantissa != 0.5:
        return f"2 to the power of {math.log2(value):.1f}"
    sign = "minus " if exponent < 1 else ""
    return f"2 to the {sign}{_ordinal(abs(exponent - 1))}"


@_named
def share(value: float) -> str:
    """A share 0..1 as percent with at most three digits: `4.12%`, `< 0.01%`; exactly 0 is `0`, only exactly 1 is
    `100%`."""
    if value == 0:
        return "0"
    percent = abs(value) * 100
    sign = "-" if value < 0 else ""
    if percent < 0.01:
        return f"{sign}< 0.01%" if not sign else "> -0.01%"
    if 99.95 <= percent < 100:
        return f"{sign}> 99.9%" if not sign else "< -99.9%"
    if percent < 1000:
        return f"{sign}{_digits3(percent)}%"
    return f"{sign}{percent:,.0f}%" if percent < 1e6 else number(value)


@_named
def short(value: float) -> str:
    """Three digits with k, M, G: `1.24k`, `3.5M`, `0.532`."""
    size = abs(value)
    if size == 0:
        return "0"
    sign = "-" if value < 0 else ""
    if size < 1e-3 or size >= 1e18:
        return sign + _scientific(size, 2)
    if size < 1:
        return sign + _trim(f"{size:.3f}")
    index = 0
    while size >= 999.5 and index < len(_SI_SUFFIXES) - 1:
        size /= 1000
        index += 1
    return f"{sign}{_digits3(size)}{_SI_SUFFIXES[index]}"


@_named
def size_bytes(value: float) -> str:
    """`1.5 GiB`, `512 MiB`, `12 B`."""
    size = abs(value)
    index = 0
    while size >= 1000 and index < len(_BYTE_UNITS) - 1:
        # From 1000 on, so that three digits are enough: 1,010 MiB reads 0.99 GiB.
        size /= 1024
        index += 1
    sign = "-" if value < 0 else ""
    return f"{sign}{_digits3(size)} {_BYTE_UNITS[index]}"


@_named
def duration(value: float) -> str:
    """Seconds as `250 µs`, `38 ms`, `1.2 s`, `3 min 20 s`, `2 h 14 min`, `4 d 3 h`."""
    if value < 0:
        return f"-{duration(-value)}"
    if value == 0:
        return "0 s"
    if value < 0.9995e-3:
        return f"{_digits3(value * 1e6)} µs"
    if value < 0.9995:
        return f"{_digits3(value * 1e3)} ms"
    if value < 59.95:
        return f"{_digits3(value)} s"
    total = round(value)
    for unit_s, unit, below_s, below in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if total >= unit_s:
            whole, rest = divmod(total, unit_s)
            rest //= below_s
            return f"{whole:,} {unit} {rest} {below}" if rest else f"{whole:,} {unit}"
    return f"{total} s"


def ago(seconds: float) -> str:
    """`just now`, `38 s ago`, `2 min ago`, `3 h ago`, `5 d ago`: one unit, rounded down."""
    if seconds < 5:
        return "just now"
    for unit_s, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        if seconds >= unit_s:
            return f"{int(seconds // unit_s):,} {unit} ago"
    return "just now"


@_named
def norm(value: float) -> str:
    """A gradient norm in three digits: `6.80e-4`, `1.23`, `45.6`."""
    size = abs(value)
    if size == 0:
        return "0"
    if size < 0.01 or size >= 9999.5:
        return _scientific(value, 2)
    if size >= 999.5:
        return f"{value:,.0f}"
    for below, decimals in ((0.09995, 4), (0.9995, 3), (9.995, 2), (99.95, 1)):
        if size < below:
            return f"{value:.{decimals}f}"
    return f"{value:.0f}"


@_named
def number(value: float) -> str:
    """Any other number, and losses: four digits: `2.303`, `0.0412`, `12,345`, `1.5e-5`."""
    size = abs(value)
    if size == 0:
        return "0"
    if value == int(value) and size < 1e7:
        return f"{int(value):,}"
    if size < 1e-3 or size >= 1e7:
        mantissa, exponent = f"{value:.3e}".split("e")
        return f"{_trim(mantissa)}e{int(exponent)}"
    if size >= 1000:
        return f"{value:,.0f}"
    return _trim(f"{value:.{3 - math.floor(math.log10(size))}f}")


loss = number


def quantity(value: float | None, unit: str) -> str:
    """A value of a series in the words of its unit; units nobody knows are put behind the number."""
    if value is None or not math.isfinite(value):
        return number(value)
    writer = _BY_UNIT.get(unit)
    if writer is not None:
        return writer(value)
    if unit.endswith("/s"):
        return f"{short(value)} {unit}"
    return f"{number(value)} {unit}"


_BY_UNIT: dict[str, Callable[[float | None], str]] = {
    "": number,
    "1": number,
    "share": share,
    "s": duration,
    "bytes": size_bytes,
    "bytes/s": lambda value: f"{size_bytes(value)}/s",
    "norm": norm,
}


def utc(time_us: int) -> str:
    """`2026-03-01 12:00:05 UTC`, for tooltips and text exports."""
    return datetime.fromtimestamp(time_us / 1e6, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def iso(time_us: int) -> str:
    """`2026-03-01T12:00:05.000250Z`: every microsecond, for machines."""
    whole_s, rest_us = divmod(time_us, 1_000_000)
    return datetime.fromtimestamp(whole_s, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{rest_us:06d}Z"


def listing(names: list[str] | tuple[str, ...], limit: int = 1, total: int | None = None) -> str:
    """`block.3 and 2 more`: the first names, and how many of `total` (default: all given) are left out."""
    shown = list(names[:limit])
    rest = (len(names) if total is None else max(total, len(names))) - len(shown)
    if not shown:
        return plural(rest, "layer") if rest else "none"
    return ", ".join(shown) + (f" and {integer(rest)} more" if rest > 0 else "")


def layer_words(name: str) -> str:
    """A parameter as it is spoken of: `block.3.mlp.fc2` for its weight, `block.3.mlp.fc2.bias`."""
    return name.removesuffix(".weight") or name


def shortened(name: str, length: int) -> str:
    """A long name without its middle, which tells least: `transformer.h…mlp.fc2`."""
    if len(name) <= length:
        return name
    head = (length - 1) // 2
    return f"{name[:head]}…{name[len(name) - (length - 1 - head) :]}"
