"""Exported rows as bytes."""

from __future__ import annotations

import csv
import io
import json

import pytest
from halfscope_server.api.rows import CHUNK_ROWS, chosen_kinds, encode

POINT = {
    "kind": "point",
    "series": "amp.scale",
    "labels": {"scaler": "g,1"},
    "rank": 0,
    "attempt": 0,
    "step": 3,
    "time": "2026-01-02T03:04:05.000006Z",
    "value": 65536.0,
}


def test_jsonl_row_is_one_line_that_reads_back() -> None:
    """Named non-finite values stay strings."""
    rows = [POINT, {**POINT, "value": "NaN"}, {**POINT, "value": "-Infinity"}]
    assert [json.loads(line) for line in b"".join(encode(rows, "jsonl")).splitlines()] == rows


def test_small_numbers_survive_to_the_last_bit() -> None:
    """A double is written so that it reads back the same."""
    values = [5e-324, 0.1 + 0.2, 2.0**-24, 1.7976931348623157e308]
    lines = b"".join(encode([{**POINT, "value": value} for value in values], "jsonl")).splitlines()
    assert [json.loads(line)["value"] for line in lines] == values


def test_csv_has_a_head_and_quotes_what_needs_it() -> None:
    """Labels are JSON in a cell."""
    read = list(csv.DictReader(io.StringIO(b"".join(encode([POINT], "csv")).decode())))
    assert read[0]["value"] == "65536.0"
    assert json.loads(read[0]["labels"]) == {"scaler": "g,1"}


def test_csv_of_sketches_has_a_column_for_each_key() -> None:
    """Exponents as JSON; what is null is an empty cell."""
    sketch = {
        "kind": "sketch",
        "of": "grad",
        **dict.fromkeys(("layer", "point", "clipped"), "x"),
        **dict.fromkeys(("rank", "attempt", "step", "n", "zeros", "nan", "pos_inf", "neg_inf", "sum", "sumsq"), 0),
        **dict.fromkeys(("scale", "absmax", "absmin_nonzero")),
        "exponents": {"-3": 7},
    }
    (read,) = csv.DictReader(io.StringIO(b"".join(encode([sketch], "csv", kind="sketches")).decode()))
    assert set(read) == sketch.keys() - {"kind"}
    assert (json.loads(read["exponents"]), read["scale"], read["n"]) == ({"-3": 7}, "", "0")


def test_csv_cell_cannot_be_a_formula() -> None:
    """A series name comes from the training and may end in somebody's spreadsheet; negative infinity is no formula."""
    rows = [{**POINT, "series": "=HYPERLINK(1)", "value": "-Infinity"}]
    read = list(csv.DictReader(io.StringIO(b"".join(encode(rows, "csv")).decode())))
    assert read[0]["series"] == "'=HYPERLINK(1)"
    assert read[0]["value"] == "-Infinity"


def test_chunks_end_at_rows() -> None:
    """What was sent before a server fell over is whole rows."""
    chunks = list(encode((dict(POINT, step=step) for step in range(2 * CHUNK_ROWS + 1)), "jsonl"))
    assert len(chunks) == 3
    assert all(chunk.endswith(b"\n") for chunk in chunks)


@pytest.mark.parametrize(
    ("asked", "series", "format", "expected"),
    [
        ((), "", "jsonl", ("points", "events", "sketches")),
        ((), "amp.*", "jsonl", ("points",)),
        ((), "", "csv", ("points",)),
        (("events",), "amp.*", "csv", ("events",)),
        (("events", "points"), "", "jsonl", ("points", "events")),
    ],
)
def test_kinds_follow_from_what_was_asked(
    asked: tuple[str, ...], series: str, format: str, expected: tuple[str, ...]
) -> None:
    """Everything by default, points alone for a glob or a CSV."""
    assert chosen_kinds(asked, series=series, format=format) == expected  # type: ignore[arg-type]


def test_csv_of_two_kinds_is_refused() -> None:
    """Their columns differ."""
    with pytest.raises(ValueError, match="a CSV holds one kind"):
        chosen_kinds(("points", "events"), series="", format="csv")
