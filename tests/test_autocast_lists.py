"""The page of autocast's operator lists is what the installed torch does, and what torch's own tests expect of it."""

from __future__ import annotations

import ast
import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tests.helpers.preloaded import Preloaded

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "scripts" / "autocast_lists.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("autocast_lists", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def found(python: Preloaded) -> dict[str, Any]:
    """A fresh look at the installed torch, in a process of its own: it overrides kernels."""
    done = python.run([str(SCRIPT), "--json"])
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def test_page_is_what_the_installed_torch_does(script: ModuleType, found: dict[str, Any]) -> None:
    """Mend with: python scripts/autocast_lists.py. Under another torch than the page's only its headings are compared:
    its lists are then rightly another version's."""
    page = script.PAGE.read_text(encoding="utf-8")
    fresh = script.render(found)
    if script.generated_for(page) == found["torch"]:
        assert page == fresh
    else:
        heads = [[line for line in text.splitlines() if line.startswith("## ")] for text in (page, fresh)]
        assert heads[0] == heads[1]


def lists_of_torchs_own_tests(device: str) -> dict[str, str]:
    """Operator to rule, read from the file in which torch keeps what its tests expect; it is parsed, not run."""
    file = Path(torch.__file__).parent / "testing" / "_internal" / "autocast_test_lists.py"
    wanted = {"cpu": "AutocastCPUTestLists", "cuda": "AutocastTestLists"}[device]
    classes = [node for node in ast.parse(file.read_text("utf-8")).body if isinstance(node, ast.ClassDef)]
    (chosen,) = [node for node in classes if node.name == wanted]
    kinds = {"16": "lower", "fp16": "lower", "fp32": "fp32", "promote": "widest"}
    expected: dict[str, str] = {}
    for node in ast.walk(chosen):
        if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute)):
            continue
        prefix, _, kind = node.targets[0].attr.rpartition("_")
        # What promotes without autocast's help is not autocast's doing.
        if kind not in kinds or "builtin" in prefix or not isinstance(node.value, ast.List):
            continue
        for entry in node.value.elts:
            assert isinstance(entry, ast.Tuple)
            name = ast.literal_eval(entry.elts[0])
            expected[name] = kinds[kind]
    return expected


@pytest.mark.parametrize(("device", "at_least"), [("cpu", 30), ("cuda", 85)])
def test_rules_are_those_that_torch_tests_itself_for(found: dict[str, Any], device: str, at_least: int) -> None:
    """For every operator that both know; what only torch's tests name is made of others."""
    rules = found["rules"][device]
    expected = {name: rule for name, rule in lists_of_torchs_own_tests(device).items() if name in rules}
    assert len(expected) >= at_least
    assert {name: rules[name] for name in expected} == expected


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_outputs_and_rules_agree(found: dict[str, Any], device: str) -> None:
    """Two ways of looking: what arrives behind autocast, and the dtype that a caller gets back."""
    rules = found["rules"][device]
    seen_as = {"lower": "lower", "fp32": "fp32", "widest": "inputs"}
    shared = {name: rule for name, rule in found["outputs"][device].items() if name in rules}
    assert len(shared) >= 6
    assert shared == {name: seen_as[rules[name]] for name in shared}


def test_devices_differ_where_the_pages_say_so(found: dict[str, Any]) -> None:
    """What the other pages build on."""
    for name in ("softmax", "layer_norm", "exp", "log", "pow", "sum"):
        assert (found["outputs"]["cpu"][name], found["outputs"]["cuda"][name]) == ("inputs", "fp32")
    assert found["rules"]["cuda"]["binary_cross_entropy"] == "refused"
    for device in ("cpu", "cuda"):
        assert {found["outputs"][device][name] for name in ("linear", "matmul", "conv2d")} == {"lower"}
        assert found["outputs"][device]["cross_entropy"] == "fp32"
