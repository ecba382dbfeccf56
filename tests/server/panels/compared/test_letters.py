"""Where letters of runs stand, against what they would cover."""

from __future__ import annotations

import itertools

from halfscope_server.compare.types import Member
from halfscope_server.panels.compared.letters import LINE_PX, apart, legend_names, letter_note
from hypothesis import given
from hypothesis import strategies as st

HEIGHT_PX = 240
ROOM_PX = HEIGHT_PX - 85


def member(letter: str, name: str = "") -> Member:
    return Member(run=letter, letter=letter, name=name or letter, project="p", precision="FP32", precision_role="fp32",
                  state="finished", last_step=1, group=0)  # fmt: skip


@given(st.lists(st.tuples(st.sampled_from([0.0, 50.0, 100.0]), st.floats(0, 1)), min_size=1, max_size=8))
def test_no_letter_lies_on_another(ends: list[tuple[float, float]]) -> None:
    """Whatever lines end beside each other: their letters are a line apart, in the order of the lines, on the chart."""
    notes = [letter_note(member(chr(65 + at)), "fp32", x, y) for at, (x, y) in enumerate(ends)]
    placed = apart(notes, (0.0, 100.0), (0.0, 1.0), HEIGHT_PX, 6)
    by_place = lambda note: note["x"]  # noqa: E731  # of a group
    for _, group in itertools.groupby(sorted(placed, key=by_place), key=by_place):
        beside = sorted(group, key=lambda note: (note["y"], -ord(note["text"])))
        at = [note["y"] * ROOM_PX + note.get("yshift", 0) for note in beside]
        assert all(upper - lower >= LINE_PX - 2 for lower, upper in itertools.pairwise(at))
        assert -1 <= min(at) <= max(at) <= ROOM_PX + 1


def test_letters_with_room_stay_where_their_lines_end() -> None:
    """Only those that would touch are moved, and together no further than they must."""
    notes = [letter_note(member(letter), "fp32", 9.0, y) for letter, y in (("A", 0.5), ("B", 0.5), ("C", 0.9))]
    first, second, third = apart(notes, (0.0, 10.0), (0.0, 1.0), HEIGHT_PX, 12)
    assert "yshift" not in third
    assert abs(first["yshift"] - second["yshift"] - LINE_PX) <= 1
    assert abs(second["yshift"] + first["yshift"]) <= 1


def test_a_legend_stays_in_one_row() -> None:
    """Names where they fit, else letters alone; a long name is shortened in its middle."""
    two = [member("A", "fp32"), member("B", "N" * 300)]
    assert legend_names(two, 6) == ["A fp32", f"B {'N' * 13}…{'N' * 14}"]
    assert legend_names(two * 3, 4) == ["A", "B"] * 3
