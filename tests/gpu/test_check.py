"""The script for a CUDA machine, as far as it can be tried without one: its truth, on the CPU."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from halfscope.sketch import ArraySketcher, pack
from halfscope.wire.messages import Layer, Layers

from tests.helpers.kernels import interpreted

SCRIPT = Path(__file__).with_name("check.py")


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, with fewer steps."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec = importlib.util.spec_from_file_location("gpu_check", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "gpu_check", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "NUM_STEPS", 60)
    return module


@pytest.mark.slow
@pytest.mark.parametrize(("fused", "clipped"), [(False, False), (True, True)])
def test_truth_holds_on_the_cpu(check: ModuleType, fused: bool, clipped: bool) -> None:
    """The same comparison that the device gets finds nothing wrong here."""
    assert check.check_truth(check.Case(device="cpu", fused=fused, clipped=clipped)) == []


def test_comparison_can_fail(check: ModuleType) -> None:
    """A journal without the numbers that were read is found wanting, number by number."""
    reading = check.Reading(
        scale=[2.0] * 60,
        scale_next=[2.0] * 60,
        growth_tracker=[1.0] * 60,
        skipped=[False] * 50 + [True] * 10,
        norm=[1.0] * 60,
    )
    problems = check.compare(reading, [])
    assert [problem.split(":")[0] for problem in problems] == [
        "amp.scale",
        "amp.scale_next",
        "amp.growth_tracker",
        "amp.skipped",
        "opt.steps",
        "grad.norm at step 0",
    ]


@pytest.mark.skipif(torch.cuda.is_available(), reason="says so only where there is no CUDA device")
def test_says_that_there_is_no_device(check: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a CUDA device it ends with a clear message and measures nothing."""
    assert check.main([]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "no CUDA device" in said.err


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
def test_kernels_are_exact_in_the_interpreter(check: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison that the device gets finds nothing wrong with any type, and something where there is."""
    monkeypatch.setattr(check.kernel_checks, "SCALES", (3.0,))
    found = dict(check.kernel_checks.check_exactness(torch.device("cpu"), interpreted(), large=5_000))
    assert found == {str(dtype).removeprefix("torch."): [] for dtype in check.kernel_checks.DTYPES}
    monkeypatch.setattr(check.kernel_checks, "expected_bins", lambda tensor, scale: {})
    monkeypatch.setattr(check.kernel_checks, "DTYPES", (torch.float64,))
    wrong = dict(check.kernel_checks.check_exactness(torch.device("cpu"), interpreted(), large=5_000))
    assert len(wrong["float64"]) == 10


def test_comparison_of_sketches_can_fail(check: ModuleType) -> None:
    """Sketches that are not there, and one that says something else, are found wanting."""
    reading = check.Reading(bins=[{"weight": check.bins_of(np.array([0.5, 0.0, np.inf]))}])
    assert reading.bins[0]["weight"] == {-1: 1, "zero": 1, "nonfinite": 1}
    assert check.compare_sketches(reading, []) == ["only 0 sketched steps"]
    sketches = ArraySketcher()([np.array([0.25, 0.0, np.inf])])
    (record,) = pack(sketches, np.array([0]), step=0, time_us=0, point="step", clipped="no", scale=1.0)
    records = [Layers(layers=[Layer(lid=0, name="weight")]), record]
    assert check.compare_sketches(reading, records)[1:] == ["sketches at step 0: 1 layers differ, first weight"]
