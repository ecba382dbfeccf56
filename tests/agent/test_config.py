"""Arguments, variables and defaults. What a wrong value raises is in the tests of `watch`."""

from __future__ import annotations

from pathlib import Path

import pytest
from halfscope import config


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("MODE", "DIR", "PROJECT", "NAME", "RUN_ID", "SERVER", "BUDGET_SHARE"):
        monkeypatch.delenv(f"HALFSCOPE_{name}", raising=False)
    for name in ("RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HALFSCOPE_HOME", str(tmp_path))


def test_defaults(tmp_path: Path) -> None:
    """Online, one rank, first attempt, named after itself."""
    found = config.resolve()
    assert (found.mode, found.project, found.name) == ("online", "default", found.run_id)
    assert (found.rank, found.world_size, found.attempt, found.server) == (0, 1, 0, None)
    assert found.directory == tmp_path / "journals"


def test_arguments_win_over_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """And variables over defaults."""
    monkeypatch.setenv("HALFSCOPE_MODE", "disabled")
    monkeypatch.setenv("HALFSCOPE_SERVER", "http://one")
    assert config.resolve().mode == "disabled"
    found = config.resolve(mode="offline", server="http://two")
    assert (found.mode, found.server) == ("offline", "http://two")


def test_run_ids_sort_by_time_and_differ() -> None:
    """16 characters, milliseconds first."""
    early, late = config.new_run_id(1_700_000_000_000), config.new_run_id(1_700_000_000_001)
    assert early < late
    assert len(early) == len(late) == 16
    assert len({config.new_run_id(5) for _ in range(100)}) == 100


def test_the_interval_of_sketches_is_by_the_device_unless_told(tmp_path: Path) -> None:
    """None travels on as it is: only the gradients say where they live."""
    assert config.resolve(directory=tmp_path).every is None
    assert config.resolve(directory=tmp_path, every=3).every == 3


def test_the_budget_of_sketches_is_a_share_of_step_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a percent; the argument wins over the variable, and a variable that is no share is refused."""
    assert config.resolve(directory=tmp_path).budget_share == 0.005
    monkeypatch.setenv("HALFSCOPE_BUDGET_SHARE", "0.02")
    assert config.resolve(directory=tmp_path).budget_share == 0.02
    assert config.resolve(directory=tmp_path, budget_share=1).budget_share == 1.0
    for wrong in ("a lot", "-1", "nan", "5"):
        monkeypatch.setenv("HALFSCOPE_BUDGET_SHARE", wrong)
        with pytest.raises(ValueError, match=f"budget_share is '{wrong}'; .*HALFSCOPE_BUDGET_SHARE"):
            config.resolve(directory=tmp_path)
