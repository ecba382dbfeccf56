"""Fairness: the contract over every check that is found, and each of them on what agents record."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from halfscope_server.compare import fairness
from halfscope_server.compare.comparison import Comparison
from halfscope_server.compare.types import Agreement, FairnessItem
from halfscope_server.query import RunView, Views
from halfscope_server.store.store import Store

from tests.helpers.compared_trainings import Recipe
from tests.helpers.comparing import Recordings

WriteRun = Callable[..., Any]
CUDA = {"type": "cuda", "name": "NVIDIA H100"}
USUAL: Mapping[str, Any] = {
    "facts": {
        "precision": "FP32",
        "seed": 5,
        "weights": {"digest": "aa", "digest_float16": "bb", "digest_bfloat16": "cc", "sum": 1.5},
        "optimizers": [{"class": "AdamW", "fused": False, "groups": [{"lr": 1e-3, "betas": [0.9, 0.999]}]}],
        "scalers": [],
        "parameters": {"names": ["fc.weight", "fc.bias"], "num_elements": 1_300},
        "device": CUDA,
        "settings": {
            "float32_matmul_precision": "highest",
            "cuda_matmul_allow_tf32": False,
            "cudnn_allow_tf32": False,
            "allow_fp16_reduced_precision_reduction": True,
            "deterministic_algorithms": False,
        },
        "compiled": False,
    },
    "environment": {
        "torch": "2.13.0",
        "cuda": "12.8",
        "python": "3.11.2",
        "num_torch_threads": 8,
        "num_cpus": 16,
        "git": {"commit": "0123456789abcdef", "dirty": False},
    },
    "config": {"width": 64},
    "series": {
        "loss": (range(100), 1.0),
        "input.mean": (range(0, 100, 10), np.arange(10.0)),
        "samples": ([0], 64.0),
        "lr": ([0, 50], [1e-3, 1e-4]),
        "grad.norm": (range(100), 1.0),
        "host.other_load": (range(0, 100, 10), 0.2),
    },
    "world_size": 1,
}


def write(write_run: WriteRun, run_id: str, changes: Mapping[str, Any] | None = None) -> None:
    """A run as agents record it, with some of it other: `{"facts.seed": 6}`; None takes a thing away."""
    parts: dict[str, dict[str, Any]] = {name: dict(USUAL[name]) for name in USUAL if name != "world_size"}
    for path, value in (changes or {}).items():
        part, _, name = path.partition(".")
        if part in parts:
            parts[part] = {**parts[part], name: value} if value is not None else _without(parts[part], name)
    writer = write_run(
        run_id,
        config=parts["config"],
        environment=parts["environment"],
        world_size=(changes or {}).get("world_size", 1),
    )
    writer.facts(**parts["facts"])
    for name, (steps, values) in parts["series"].items():
        writer.points(name, steps, values, kind="state" if name in ("samples", "lr") else "gauge")
    writer.commit()


def _without(part: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in part.items() if key != name}


def compare(store: Store, *run_ids: str) -> dict[str, FairnessItem]:
    """The items of runs by their id."""
    views = [Views(store).get(run_id) for run_id in run_ids]
    found = Comparison([view for view in views if view is not None]).fairness
    counted = [item.state for item in found.items if not item.is_intended]
    assert (found.num_same, found.num_different, found.num_unknown) == tuple(
        counted.count(state) for state in ("same", "different", "unknown")
    )
    return {item.id: item for item in found.items}


def test_a_run_agrees_with_its_twin_in_everything(lite: Store, write_run: WriteRun) -> None:
    """Every check that is found is one of what is recorded here; none needs more."""
    for run in ("run1", "run2"):
        write(write_run, run)
    items = compare(lite, "run1", "run2")
    assert {name: item.state for name, item in items.items() if item.state != "same"} == {}
    assert set(items) == {check.id for check in fairness.checks()}
    assert all(item.values[0] == item.values[1] and item.text == "" for item in items.values())


def test_what_was_not_recorded_is_unknown(lite: Store, write_run: WriteRun) -> None:
    """Two runs of which nothing is known but their loss: of everything else that runs may differ in, and why."""
    for run in ("run1", "run2"):
        writer = write_run(run)
        writer.points("loss", range(10), 1.0)
        writer.commit()
    items = compare(lite, "run1", "run2")
    assert {name for name, item in items.items() if item.state == "same"} == {"start", "steps", "world_size"}
    unknown = [item for item in items.values() if item.state == "unknown"]
    assert all(item.text for item in unknown)
    assert all(item.values == ["–", "–"] for item in unknown)


CHANGES: list[tuple[str, dict[str, Any], str]] = [
    ("seed", {"facts.seed": 6}, "6 against 5; quality is not comparable"),
    ("data_order", {"series.input.mean": (range(0, 100, 10), np.arange(10.0) + (np.arange(10) > 3))},
     "they were fed other batches from step 40 on; quality is not comparable"),
    ("initial_weights", {"facts.weights": {"digest": "dd"}}, "they start from other weights"),
    ("batch_size", {"series.samples": ([0], 32.0)},
     "32 samples against 64 samples; quality, speed and memory are not comparable"),
    ("learning_rate", {"series.lr": ([0, 50], [1e-3, 5e-4])}, "5e-4 against 1e-4 at step 50"),
    ("learning_rate", {"series.lr": ([0, 80], [1e-3, 1e-4])}, "0.001 against 1e-4 at step 50"),
    ("optimizer", {"facts.optimizers": [{"class": "SGD", "groups": [{"lr": 1e-3, "momentum": 0.9}]}]},
     "SGD (momentum 0.9) against AdamW"),
    ("optimizer", {"facts.optimizers": [{"class": "AdamW", "groups": [{"betas": [0.9, 0.95]}]}]}, "0.95"),
    ("model", {"facts.parameters": {"names": ["fc.weight"], "num_elements": 1_280}},
     "the baseline alone has fc.bias, of 1 in all"),
    ("model", {"facts.parameters": {"names": ["fc.weight", "fc.bias"], "num_elements": 2_600}},
     "2.6k against 1.3k parameters"),
    ("steps", {"series.loss": (range(60), 1.0), "series.input.mean": None, "series.grad.norm": None,
               "series.host.other_load": None}, "60 against 100: the first 60 are compared"),
    ("start", {"series.loss": (range(40, 100), 1.0), "series.input.mean": None, "series.grad.norm": None,
               "series.host.other_load": None}, "what came before step 40 is not compared"),
    (
        "code",
        {"environment.git": {"commit": "fedcba9876543210", "dirty": False}},
        "fedcba9876 against 0123456789; a change of the training between them would matter",
    ),
    ("device", {"facts.device": {"type": "cuda", "name": "NVIDIA A100"}}, "NVIDIA A100 against NVIDIA H100"),
    ("versions", {"environment.torch": "2.11.0"}, "torch 2.11.0"),
    ("compiled", {"facts.compiled": True}, "compiled against no; speed and memory are not comparable"),
    ("clipping", {"series.grad.norm_clipped": (range(100), 0.5)}, "clipped against none seen"),
    ("reductions", {"facts.settings": {"allow_fp16_reduced_precision_reduction": False}},
     "none against FP16 reductions"),
    ("determinism", {"facts.settings": {"deterministic_algorithms": True}},
     "deterministic algorithms against as usual"),
    ("threads", {"facts.device": {"type": "cpu"}, "environment.num_torch_threads": 2},
     "2 threads against on the device"),
    ("world_size", {"world_size": 2}, "2 ranks against 1 rank"),
    ("load", {"series.host.other_load": (range(0, 100, 10), 9.0)}, "other programs used 9 against 0.2 cores"),
    ("config", {"config.width": 32, "config.depth": 3}, "depth 3 against –, and 1 more"),
    ("precision", {"facts.precision": "FP16-AMP"}, "FP16-AMP against FP32"),
    ("scaler", {"facts.scalers": [{"enabled": True, "init_scale": 65536.0, "growth_interval": 2000}]},
     "from 2¹⁶, grows every 2,000 steps against none"),
]  # fmt: skip


def test_each_check_tells_what_differs(lite: Store, write_run: WriteRun) -> None:
    """In words, against the baseline; and also where the other one is the baseline."""
    write(write_run, "base")
    for at, (name, changes, text) in enumerate(CHANGES):
        write(write_run, f"run{at}", changes)
        item = compare(lite, "base", f"run{at}")[name]
        assert (item.state, item.states) == ("different", ["same", "different"]), name
        assert text in item.text
        assert compare(lite, f"run{at}", "base")[name].state == "different"


SAME: list[tuple[str, dict[str, Any]]] = [
    # Weights stored in half precision are the others', rounded.
    ("initial_weights", {"facts.weights": {"digest": "cc", "digest_bfloat16": "cc"}}),
    ("learning_rate", {"series.lr": ([0, 51], [1e-3, 1e-4])}),  # stepped with applied steps, one was skipped
    ("optimizer", {"facts.optimizers": [{"class": "AdamW", "fused": True, "groups": [
        {"lr": 5e-2, "fused": True, "betas": [0.9, 0.999]}]}]}),
    ("model", {"facts.parameters": {"names": ["_orig_mod.module.fc.weight", "module.fc.bias"], "num_elements": 1_300}}),
    ("config", {"config.seed": 9, "config.run_name": "other", "config.amp": True, "config.out_dir": "/x"}),
    ("threads", {"environment.num_torch_threads": 2}),  # a device does the work
]  # fmt: skip


def test_what_makes_no_difference_is_the_same(lite: Store, write_run: WriteRun) -> None:
    """Where two records differ in form alone, or as two precisions have to."""
    write(write_run, "base")
    for at, (name, changes) in enumerate(SAME):
        write(write_run, f"run{at}", changes)
        assert compare(lite, "base", f"run{at}")[name].state == "same", name


BASELINES: list[tuple[dict[str, Any], Agreement, str]] = [
    ({"settings": {"float32_matmul_precision": "medium"}}, "different", 'float32 matmul precision is "medium"'),
    ({"settings": {"cuda_matmul_allow_tf32": True}}, "different", "matmuls in TF32"),
    ({"settings": {"cudnn_allow_tf32": True}}, "different", "convolutions in TF32"),
    ({"settings": {"cudnn_allow_tf32": True}, "device": {"type": "cpu"}}, "same", ""),
    ({"precision": "TF32", "settings": None}, "different", "TF32"),
    ({"settings": None}, "unknown", "how precisely float32 is computed was not recorded"),
    ({"precision": "BF16-AMP", "settings": {"float32_matmul_precision": "medium"}}, "same", ""),
]


def test_an_fp32_baseline_that_is_not_fp32_is_told(lite: Store, write_run: WriteRun) -> None:
    """Its dtype says float32 all the same. Of the member it does not matter, nor of a baseline that does not say so."""
    write(write_run, "member", {"facts.precision": "FP16-AMP"})
    for at, (facts, state, words) in enumerate(BASELINES):
        write(write_run, f"run{at}", {f"facts.{name}": value for name, value in facts.items()})
        item = compare(lite, f"run{at}", "member")["baseline_not_fp32"]
        assert item.state == state, facts
        assert words in item.text
        if state == "different":
            assert compare(lite, "member", f"run{at}")["baseline_not_fp32"].state == "same"


def test_different_ones_come_first_and_name_the_members(lite: Store, write_run: WriteRun) -> None:
    """Then what is unknown; of several members the letters of those of which the same is said as of the first."""
    write(write_run, "run1")
    write(write_run, "run2")
    for at, seed in ((3, 9), (4, 9), (5, 8)):
        write(write_run, f"run{at}", {"facts.seed": seed, "facts.compiled": None})
    items = list(compare(lite, *(f"run{at}" for at in range(1, 6))).values())
    assert [item.state for item in items[:2]] == ["different", "unknown"]
    assert items[0].text == "C, D: 9 against 5; quality is not comparable"
    assert items[0].states == ["same", "same", *["different"] * 3]


def test_pairs_are_known_by_weights_and_batches(lite: Store, write_run: WriteRun) -> None:
    """The seed counts only where one of these is unknown."""

    def why(changes: Mapping[str, Any]) -> str:
        run = f"r{len(lite.list_runs())}"
        write(write_run, run, changes)
        views = [Views(lite).get(name) for name in ("base", run)]
        one, two = (view for view in views if isinstance(view, RunView))
        return fairness.why_unpaired(one, two)

    write(write_run, "base")
    assert why({"facts.seed": 6}) == ""
    assert why({"facts.weights": None}) == ""
    assert why({"facts.weights": None, "facts.seed": 6}) == "another seed, one run each"
    assert (
        why({"facts.weights": None, "facts.seed": None}) == "whether both began alike and were fed alike is not known"
    )
    assert why({"facts.weights": {"digest": "x"}}) == "other initial weights, one run each"
    assert why({"series.samples": ([0], 32.0)}) == "another batch size, one run each"


def test_real_runs_say_what_they_differ_in(recordings: Recordings) -> None:
    """Recorded by a real agent on a CPU: the twin differs in nothing, others in what their recipe says, and a baseline
    with narrow matmuls is not FP32."""

    def differing(*names: str | Recipe) -> set[str]:
        found = Comparison(recordings.views(*names)).fairness.items
        return {item.id for item in found if item.state == "different"} - {"load", "code"}

    assert differing("fp32", "fp32_again") == set()
    assert differing("fp32", "fp16") == {"precision", "scaler"}
    assert differing("fp32", "fp32_seed1") == {"seed", "data_order", "initial_weights"}
    assert differing("fp32", "fp32_other_order") == {"data_order"}
    assert differing("fp32", "fp32_batch32") == {"batch_size", "config", "data_order", "steps"}
    assert differing("fp32_small_steps", "bf16_lost_updates") == {"precision"}
    assert differing("fp32", "fp32_small_steps") == {"learning_rate", "config"}
    narrow = Recipe(matmul_precision="medium", num_steps=30)
    assert differing(narrow, "fp32") == {"baseline_not_fp32", "steps"}


def test_the_page_lists_every_check() -> None:
    """And none that is not there; those that are compared on purpose are named in its text."""
    page = (Path(__file__).parents[3] / "docs/compare.md").read_text()
    section = page.partition("## Fairness")[2].partition("\n## ")[0]
    rows = [row.split("|")[1] for row in section.splitlines() if row.startswith("| `")]
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert listed == {check.id for check in fairness.checks() if not check.is_intended}


def test_a_schedule_that_waits_for_a_settling_scaler_is_the_same(lite: Store, write_run: WriteRun) -> None:
    """Twelve skips at the start of a short run explain twelve steps of lag, and no more."""
    for run, num_skips, lag in (("base", 0, 0), ("settles", 12, 12), ("few", 3, 12)):
        writer = write_run(run)
        writer.points("loss", range(200), 1.0)
        writer.points("lr", [0, 20 + lag, 40 + lag], [1e-3, 1e-4, 1e-5], kind="state")
        for step in range(num_skips):
            writer.skip(step, "settling")
        writer.commit()
    assert compare(lite, "base", "settles")["learning_rate"].state == "same"
    assert compare(lite, "base", "few")["learning_rate"].state == "different"
