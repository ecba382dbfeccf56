"""How integrations are found, and what they say where their framework is missing."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from halfscope import integrations
from halfscope.integrations import base, trainings

from tests.helpers.preloaded import Preloaded

FRAMEWORKS = {"lightning", "pytorch_lightning", "transformers", "accelerate", "keras", "deepspeed", "megatron", "torch"}
ROOT = Path(__file__).resolve().parents[3]
ALL = list(integrations.found().values())


LOADED = "import sys\n{}\nprint(*{{name.split('.')[0] for name in sys.modules}}, sep='\\n')"
"""Prints the top-level packages that a statement brings into a process."""


def loaded(statement: str) -> set[str]:
    """In a fresh one."""
    command = [sys.executable, "-c", LOADED.format(statement)]
    return set(subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout.split())


def test_importing_halfscope_and_finding_integrations_loads_no_framework() -> None:
    """Nor torch: `halfscope run` finds them before the program has set anything up."""
    assert not FRAMEWORKS & loaded("import halfscope")
    files = [path.stem for path in Path(base.__file__).parent.glob("*.py") if path.stem != "__init__"]
    imports = "\n".join(f"import halfscope.integrations.{name}" for name in files)
    assert not FRAMEWORKS & loaded(f"{imports}\nfrom halfscope.integrations import found\nassert found()")


def test_loading_one_would_be_noticed(python: Preloaded) -> None:
    """The check above can fail; here torch is there before, but no framework."""
    statement = "assert not {'accelerate', 'transformers', 'lightning'} & sys.modules.keys()\n"
    statement += "from halfscope.integrations.accelerate import HalfscopeTracker\nHalfscopeTracker()"
    done = python.run(["-c", LOADED.format(statement)], strict=False)
    assert done.returncode == 0, done.stderr
    assert "accelerate" in done.stdout.split()


def test_files_of_the_folder_are_found_by_their_name() -> None:
    """Each file with an `INTEGRATION` is one, under the file's name."""
    folder = Path(base.__file__).parent
    files = {path.stem for path in folder.glob("*.py") if "\nINTEGRATION = " in path.read_text("utf-8")}
    assert {"lightning", "transformers", "accelerate"} <= files
    assert {each.id for each in ALL} == files


def test_entry_points_of_other_packages_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind ours; an id that is there already is refused."""
    other = base.Integration(id="other", title="Other", packages={"other": "1"}, made={}, adopt=lambda made, by: None)

    class Point:
        def __init__(self, item: Any) -> None:
            self.load = lambda: item

    points = [Point(other)]
    monkeypatch.setattr(base.metadata, "entry_points", lambda group: points if group == base.ENTRY_POINTS else [])
    assert list(integrations.found().values())[-1] is other
    points.append(Point(other))
    with pytest.raises(ValueError, match="'other' is there twice"):
        integrations.found()


@pytest.mark.parametrize("integration", ALL, ids=lambda each: each.id)
def test_a_missing_framework_is_told_with_the_line_that_installs_it(
    integration: base.Integration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was seen, the lowest version that was tested, and the command."""

    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(base.metadata, "version", missing)
    first, lowest = next(iter(integration.packages.items()))
    with pytest.raises(integrations.NotAvailable, match=rf"saw no package .*pip install '{first}>={lowest}'"):
        integration.require()
    monkeypatch.setattr(base.metadata, "version", lambda name: "0.0.1")
    with pytest.raises(integrations.NotAvailable, match=rf"saw {first} 0.0.1.*expected at least {lowest}"):
        integration.require()
    monkeypatch.setattr(base.metadata, "version", lambda name: f"{lowest}+cu130")
    integration.require()


def test_the_lowest_versions_are_those_that_are_tried() -> None:
    """`make test-versions` runs the tests with the very versions that integrations ask for, and asks for no others."""
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        from versions import SETS
    finally:
        sys.path.remove(str(ROOT / "scripts"))
    tried = dict(item.split("==") for item in SETS["lowest"])
    asked = {name: lowest for each in ALL for name, lowest in each.packages.items()}
    assert tried.items() <= asked.items()
    assert {"lightning", "transformers", "accelerate"} <= tried.keys()


def test_callbacks_refuse_wrong_options_at_once() -> None:
    """When they are made, not when a training begins."""
    with pytest.raises(ValueError, match="mode is 'of'"):
        trainings.Trainings({"mode": "of"})
    with pytest.raises(TypeError, match="unexpected keyword argument 'nmae'"):
        trainings.Trainings({"nmae": "a"})  # type: ignore[typeddict-unknown-key]
