"""The modules of a model as a tree, from nothing but the names of its parameters.

Owns the order of layers and which of them a module stands for. Must not import the store. Invariant: layers are in
forward order and those below any node are neighbours, so that a node is a range of columns and never a list.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

OPEN_DEPTH = 2
"""Modules above this depth are open when the tree is first seen."""
MOST_ROWS = 400
"""Of a heatmap: more have less than a pixel each."""
ROOT = "(root)"
"""What a name that has no text is called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A module or a parameter."""

    name: str
    label: str
    depth: int
    is_module: bool
    first: int
    """Its layers are [first, end) of `Tree.leaves`."""
    end: int

    @property
    def is_open(self) -> bool:
        """Whether what lies below it is seen at first."""
        return self.is_module and self.depth < OPEN_DEPTH


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """All nodes in preorder, and the layers in the order of the tree."""

    leaves: tuple[str, ...]
    nodes: tuple[Node, ...]

    def find(self, name: str) -> Node | None:
        """The node of this name; where a parameter and a module share it, the parameter."""
        found = [node for node in self.nodes if node.name == name]
        return next((node for node in found if not node.is_module), found[0] if found else None)

    @property
    def first_seen(self) -> tuple[Node, ...]:
        """The nodes that are visible when the tree is first opened."""
        return tuple(node for node in self.nodes if node.depth <= OPEN_DEPTH)

    def chosen(self, names: Iterable[str]) -> tuple[Node, ...]:
        """The nodes of these names, in the order of the tree; without any, those first seen, a level
        fewer where they are too many."""
        wanted = set(names)
        found = [node for node in self.nodes if node.name in wanted]
        if not found:
            found = list(self.first_seen)
            if len(found) > MOST_ROWS:
                found = [node for node in found if node.depth < OPEN_DEPTH]
        return tuple(found[:MOST_ROWS])


@dataclass(slots=True)
class _Module:
    children: dict[tuple[str, bool], _Module] = field(default_factory=dict)
    """By (label, is_module); parameters have none of their own."""


def build_tree(names: Sequence[str], order: Sequence[str] = ()) -> Tree:
    """The tree over parameter names.

    Args:
        names: as they were registered.
        order: forward order, as far as it is known; names that are not in it keep their place behind the one that was
            registered before them.
    """
    root = _Module()
    for name in _ordered(names, order):
        *modules, label = name.split(".")
        at = root
        for part in modules:
            at = at.children.setdefault((part, True), _Module())
        at.children[label, False] = _Module()
    leaves: list[str] = []
    nodes: list[Node] = []
    _walk(root, "", 0, leaves, nodes)
    return Tree(leaves=tuple(leaves), nodes=tuple(nodes))


def _ordered(names: Sequence[str], order: Sequence[str]) -> list[str]:
    place = {name: k for k, name in enumerate(order)}
    keys: list[tuple[int, int]] = []
    newest = -1
    for registered, name in enumerate(names):
        newest = place.get(name, newest)
        keys.append((newest, registered))
    return [names[k] for k in sorted(range(len(names)), key=lambda k: keys[k])]


def _walk(module: _Module, prefix: str, depth: int, leaves: list[str], nodes: list[Node]) -> None:
    for (label, is_module), child in module.children.items():
        name = f"{prefix}{label}"
        below: list[Node] = []
        first = len(leaves)
        if is_module:
            _walk(child, f"{name}.", depth + 1, leaves, below)
        else:
            leaves.append(name)
        nodes.append(
            Node(name=name, label=label or ROOT, depth=depth, is_module=is_module, first=first, end=len(leaves))
        )
        nodes += below
