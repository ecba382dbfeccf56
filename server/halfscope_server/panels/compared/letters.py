"""Letters and names of the runs on a chart: at the ends of lines, apart from each other, and in the legend.

Owns where they stand. Must not import fastapi. Invariant: of letters whose lines end beside each other none lies on
another while there is room for all; their order is that of the lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from halfscope_server.compare.types import Member
from halfscope_server.query.format import shortened

LETTER_PX = 12
LINE_PX = 13
"""What a letter needs from top to bottom."""
BESIDE_PX = 16
"""Letters further apart from left to right cannot touch."""
COLUMN_PX = 95
"""Of the grid of 12 on a common screen."""
AROUND_PX = 85
"""What axis, title and legend take of a chart's height."""
SWATCH_PX, CHAR_PX = 48, 7
"""A legend's line with the room around it, and a character of its text."""
LEGEND_PX = 660
"""A longer legend takes three rows of a phone."""
NAME_CHARS = 28
"""A longer name is shortened in a legend: it stands whole at the head of the page."""


def letter_note(member: Member, role: str, x: float, y: float) -> dict[str, Any]:
    """A run's letter behind the end of its line."""
    return {
        "name": f"role:{role}",
        "text": member.letter,
        "x": x,
        "y": y,
        "xanchor": "left",
        "xshift": 3,
        "showarrow": False,
        "font": {"size": LETTER_PX},
    }


def apart(
    notes: list[dict[str, Any]], x_range: Sequence[float], y_range: Sequence[float], height_px: int, columns: int
) -> list[dict[str, Any]]:
    """The same letters, those that would lie on others moved up or down.

    Args:
        x_range, y_range: of the axes, in what letters are placed in.
        height_px, columns: of the chart.
    """
    x_px = columns * COLUMN_PX / ((x_range[1] - x_range[0]) or 1.0)
    room_px = float(height_px - AROUND_PX)
    y_px = room_px / ((y_range[1] - y_range[0]) or 1.0)
    for beside in _beside(sorted(notes, key=lambda note: float(note["x"])), BESIDE_PX / x_px):
        # From below; of lines that end in one place the first stands on top.
        beside.sort(key=lambda note: (float(note["y"]), -ord(note["text"])))
        wanted = [(float(note["y"]) - y_range[0]) * y_px for note in beside]
        for note, at, to in zip(beside, wanted, _spread(wanted, room_px), strict=True):
            if abs(to - at) >= 1:
                note["yshift"] = round(to - at)
    return notes


def _beside(notes: list[dict[str, Any]], reach: float) -> list[list[dict[str, Any]]]:
    """Letters by which of them end beside each other."""
    found: list[list[dict[str, Any]]] = []
    for note in notes:
        if found and note["x"] - found[-1][-1]["x"] < reach:
            found[-1].append(note)
        else:
            found.append([note])
    return found


def _spread(wanted: list[float], room_px: float) -> list[float]:
    """Places that are `LINE_PX` apart and near to rising ones: groups stand around their mean."""
    groups: list[tuple[list[float], float]] = []
    for place in wanted:
        members, at = [place], place
        while groups and at - groups[-1][1] < LINE_PX * len(groups[-1][0]):
            members = groups.pop()[0] + members
            at = sum(members) / len(members) - LINE_PX * (len(members) - 1) / 2
            at = max(0.0, min(at, room_px - LINE_PX * (len(members) - 1)))
        groups.append((members, at))
    return [at + LINE_PX * place for members, at in groups for place in range(len(members))]


def legend_names(members: Sequence[Member], columns: int) -> list[str]:
    """What the legend of a chart so wide calls each run: its letter, with its name where all stand in one row."""
    names = [f"{member.letter} {shortened(member.name, NAME_CHARS)}" for member in members]
    fits = sum(SWATCH_PX + CHAR_PX * len(name) for name in names) <= min(columns * COLUMN_PX, LEGEND_PX)
    return names if fits else [member.letter for member in members]
