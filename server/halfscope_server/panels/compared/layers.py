"""The layer that charts of a comparison are about, under the name that each run has for it.

Must not import fastapi. Invariant: a run without the layer is said to have none; it never shows another instead.
"""

from __future__ import annotations

from halfscope_server.compare.comparison import Comparison
from halfscope_server.compare.pairing import match_names
from halfscope_server.query.format import layer_words
from halfscope_server.query.frames import run_frames
from halfscope_server.query.underflow import default_layer
from halfscope_server.query.view import RunView
from halfscope_server.query.window import Window

NOTHING = "None of these runs has measured layers yet."


def chosen_layer(comparison: Comparison, window: Window) -> str:
    """The name asked for; without, the layer that parted most, else the worst of the first run that has any."""
    if window.layer:
        return window.layer
    worst = [layer for numerics in comparison.numerics for layer in numerics.layers[:1]]
    if worst:
        return max(worst, key=lambda layer: layer.score).layer
    measured = [view for view in comparison.views if view.layers]
    return default_layer(measured[0]) if measured else ""


def own_name(view: RunView, layer: str) -> str | None:
    """What a run calls a layer or module; None: it has none of that name. Empty: all of it."""
    frames = run_frames(view)
    if frames is None:
        return None
    if not layer or frames.tree.find(layer) is not None:
        return layer
    names = [*frames.tree.leaves, *(node.name for node in frames.tree.nodes if node.is_module)]
    found = match_names([layer], names)
    return names[found[0][1]] if found else None


def has_none(letter: str, layer: str) -> str:
    """That a run lacks a layer."""
    return f"Run {letter} has no layer {layer_words(layer)}, or has not measured it yet."
