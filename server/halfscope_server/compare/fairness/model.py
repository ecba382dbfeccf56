"""The structure of the model: names and shapes of its parameters."""

from __future__ import annotations

from collections.abc import Mapping

from halfscope_server.compare.fairness.base import Check, Confounds, Finding, fact
from halfscope_server.query.format import MISSING, integer, plural, short
from halfscope_server.query.view import RunView

WRAPPERS = ("module.", "_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")
"""What wrappers put into the names of parameters; runs from before they were taken out have them still."""


def canonical(name: str) -> str:
    """A parameter's name without the marks of wrappers."""
    for wrapper in WRAPPERS:
        name = name.removeprefix(wrapper).replace(f".{wrapper}", ".")
    return name


class _Model:
    id, title, order = "model", "Model", 4
    confounds: tuple[Confounds, ...] = ("quality", "speed", "memory")
    is_intended = False
    is_configuration = True

    def words(self, view: RunView) -> str:
        found = _parameters(view)
        count = fact(view, "parameters", "num_elements")
        if found is None:
            return MISSING
        return f"{plural(len(found), 'tensor')}" + (f", {short(count)} parameters" if isinstance(count, int) else "")

    def compare(self, baseline: RunView, other: RunView) -> Finding:
        one, two = _parameters(baseline), _parameters(other)
        if one is None or two is None:
            return Finding(state="unknown", text="the parameters were not recorded")
        missing, added = one.keys() - two.keys(), two.keys() - one.keys()
        if missing or added:
            name = min(missing or added)
            which = "the baseline alone has" if missing else "the baseline lacks"
            return Finding(state="different", text=f"{which} {name}, of {integer(len(missing | added))} in all")
        for name, shape in one.items():
            if shape and two[name] and shape != two[name]:
                return Finding(state="different", text=f"{name} is {_shape(two[name])} against {_shape(shape)}")
        counts = [fact(view, "parameters", "num_elements") for view in (baseline, other)]
        if None not in counts and counts[0] != counts[1]:
            return Finding(state="different", text=f"{short(counts[1])} against {short(counts[0])} parameters")
        return Finding(state="same")


def _parameters(view: RunView) -> Mapping[str, tuple[int, ...]] | None:
    """Shapes by canonical names; empty where only the name is known."""
    shapes = {canonical(name): tuple(row.shape) for name, row in view.layers.items()}
    names = fact(view, "parameters", "names")
    if isinstance(names, list):
        return {canonical(str(name)): shapes.get(canonical(str(name)), ()) for name in names}
    return shapes or None


def _shape(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape))


CHECK: Check = _Model()
