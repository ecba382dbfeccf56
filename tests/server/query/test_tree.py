"""Layer trees against what their names say."""

from __future__ import annotations

from halfscope_server.query.tree import build_tree
from hypothesis import given
from hypothesis import strategies as st

NAMES = st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(".".join), unique=True, max_size=20)


@given(NAMES, st.randoms(use_true_random=False))
def test_the_layers_of_a_node_are_those_whose_names_begin_with_its_own(names: list[str], random: object) -> None:
    """Whatever the order; and every node of every name is there once, above what lies below it."""
    order = list(names)
    random.shuffle(order)  # type: ignore[attr-defined]
    tree = build_tree(names, order[: len(order) // 2])
    assert sorted(tree.leaves) == sorted(names)
    modules = {".".join(n.split(".")[:k]) for n in names for k in range(1, n.count(".") + 1)}
    assert {n.name for n in tree.nodes if n.is_module} == modules
    assert len(tree.nodes) == len(modules) + len(names)
    for node in tree.nodes:
        below = set(tree.leaves[node.first : node.end])
        assert below == ({n for n in names if n.startswith(node.name + ".")} if node.is_module else {node.name})
        assert node.depth == node.name.count(".")
        assert node.label == node.name.split(".")[-1]


def test_layers_stand_in_forward_order_with_each_module_in_one_piece() -> None:
    """A module that is used twice in different places stays where it was used first."""
    names = ["head.weight", "embed.weight", "block.1.fc.weight", "block.0.fc.weight"]
    order = ["embed.weight", "block.0.fc.weight", "head.weight", "block.1.fc.weight"]
    expected = ("embed.weight", "block.0.fc.weight", "block.1.fc.weight", "head.weight")
    assert build_tree(names, order).leaves == expected
    assert build_tree(names).leaves == ("head.weight", "embed.weight", "block.1.fc.weight", "block.0.fc.weight")


def test_names_the_order_does_not_know_stay_behind_their_neighbours() -> None:
    """A parameter that was frozen when the order was recorded."""
    assert build_tree(["a", "b", "c", "d"], ["c", "a", "d"]).leaves == ("c", "a", "b", "d")


def test_modules_at_depth_two_are_closed_at_first() -> None:
    """So that a transformer shows its blocks' parts, and not every parameter."""
    tree = build_tree(["blocks.0.attn.qkv.weight", "blocks.0.norm.weight", "head.weight", "scale"])
    assert [n.name for n in tree.nodes if n.is_open] == ["blocks", "blocks.0", "head"]
    assert [n.name for n in tree.first_seen] == [
        "blocks",
        "blocks.0",
        "blocks.0.attn",
        "blocks.0.norm",
        "head",
        "head.weight",
        "scale",
    ]


def test_a_parameter_and_a_module_of_one_name_are_two_nodes() -> None:
    """Odd, but nothing forbids it; asked for by name it is the parameter."""
    tree = build_tree(["w", "w.a"])
    assert [(n.name, n.is_module) for n in tree.nodes] == [("w", False), ("w", True), ("w.a", False)]
    found = tree.find("w")
    assert found is not None
    assert not found.is_module
    assert tree.find("nothing") is None


def test_chosen_nodes_keep_the_order_of_the_tree() -> None:
    """Names that are not there are left out; without any that are, it is what is seen at first."""
    tree = build_tree(["a.x", "b.y", "c"])
    assert [n.name for n in tree.chosen(["c", "nothing", "a"])] == ["a", "c"]
    assert tree.chosen(["nothing"]) == tree.first_seen


def test_a_wide_model_shows_fewer_levels_at_first() -> None:
    """A thousand rows would have less than a pixel each; what is asked for by name is cut at the end."""
    tree = build_tree([f"layer.{k}.weight" for k in range(390)])
    assert [n.depth for n in tree.chosen([])] == [0] + [1] * 390
    wide = build_tree([f"layer.{k}.weight" for k in range(500)])
    assert [n.depth for n in wide.chosen([])] == [0] + [1] * 399
    assert len(wide.chosen(wide.leaves)) == 400
