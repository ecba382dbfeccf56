"""The Config tab: everything that was sent is shown somewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from halfscope_server.query import config_sections
from halfscope_server.store.store import Store


def shown(store: Store) -> dict[str, dict[str, str]]:
    """Section to key to value."""
    row = store.get_run("run1")
    assert row is not None
    return {s.title: {e.key: e.value for e in s.entries} for s in config_sections(row)}


def test_facts_are_worded_and_unknown_ones_kept(lite: Store, write_run: Callable[..., Any]) -> None:
    """Scaler, optimizer and memory in words; a fact of a newer agent under its own key."""
    writer = write_run(
        config={"lr": 3e-4, "model": {"width": 256, "bias": True, "betas": [0.9, 0.95]}},
        environment={
            "torch": "2.13.0",
            "variables": {"NCCL_DEBUG": "INFO"},
            "command": ["python", "train.py", "--name", "two words"],
        },
    )
    writer.facts(
        precision="FP16-AMP",
        scalers=[
            {"name": "scaler", "class": "GradScaler", "init_scale": 65536.0, "growth_interval": 2000, "hysteresis": 2}
        ],
        optimizers=[
            {"name": "adam", "class": "AdamW", "fused": True, "num_parameters": 12},
            {"name": "sgd", "class": "SGD"},
        ],
        memory={"parameter_bytes": 1_048_576, "gradient_bytes": 512},
        samples_source="inferred",
        weather="fine",
    )
    writer.commit()
    sections = shown(lite)
    assert sections["Precision"] == {"precision": "FP16-AMP", "samples per step": "inferred"}
    assert sections["Loss scaler"] == {
        "class": "GradScaler",
        "init_scale": "2¹⁶",
        "growth_interval": "2,000 clean steps",
        "hysteresis": "2",
    }
    assert sections["Optimizer"] == {
        "adam: class": "AdamW",
        "adam: fused": "yes",
        "adam: parameters": "12",
        "sgd: class": "SGD",
    }
    assert sections["Model"] == {"parameter memory": "1 MiB", "gradient memory": "512 B"}
    assert sections["Configuration"] == {
        "lr": "0.0003",
        "model.width": "256",
        "model.bias": "yes",
        "model.betas": "0.9, 0.95",
    }
    assert sections["Environment"] == {
        "torch": "2.13.0",
        "variables.NCCL_DEBUG": "INFO",
        "command": "python train.py --name 'two words'",
    }
    assert sections["More facts"] == {"weather": "fine"}


def test_a_run_that_gave_nothing_has_no_empty_sections(lite: Store, write_run: Callable[..., Any]) -> None:
    """Its own section, and a precision that says when it is known."""
    write_run().commit()
    sections = shown(lite)
    assert set(sections) == {"Run", "Precision"}
    assert sections["Precision"] == {"precision": "–"}


def test_facts_of_unexpected_types_do_not_break_the_page(lite: Store, write_run: Callable[..., Any]) -> None:
    """They come from outside."""
    writer = write_run(
        config={"deep": {"a": {"b": {"c": {"d": {"e": {"f": {"g": 1}}}}}}}, "long": "x" * 5000, "nan": float("nan")}
    )
    writer.facts(scalers="none", optimizers=[1, None], memory=3, parameters=["x"], precision=None)
    writer.commit()
    sections = shown(lite)
    assert len(sections["Configuration"]["long"]) <= 2000
    assert sections["Configuration"]["nan"] == "nan"
