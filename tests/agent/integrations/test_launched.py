"""The programs of the pages: as they stand, and without a line of ours in a process of its own, by `halfscope run`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

from tests.agent.instrument.conftest import Recorded, read_journal
from tests.helpers.frameworks.seen import Read, assert_same_record, program_of
from tests.helpers.preloaded import Preloaded

pytestmark = pytest.mark.filterwarnings("ignore")

PAGES = {"accelerate": "accelerated", "lightning": "boring", "transformers": "bert"}
"""By which a `watch` or callback of ours stands in the program, to the name that it gives the run."""
HELPERS = {"accelerate": "accelerate_loops", "lightning": "lightning_trainings", "transformers": "trainer_trainings"}
OURS = re.compile(r"^from halfscope.*\n|^run = watch\(.*\n|, callbacks=\[HalfscopeCallback\(.*?\)\]", re.MULTILINE)
SEED = "import torch\ntorch.set_num_threads(1)\ntorch.manual_seed(0)\n"


@pytest.fixture(scope="module")
def by_itself(python: Preloaded, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Recorded]:
    """What `halfscope run` records of one program that is all pages' one after the other."""
    folder = tmp_path_factory.mktemp("launched")
    programs = [OURS.sub("", program_of(page)) for page in PAGES]
    assert not any("halfscope" in program.lower() for program in programs)
    (folder / "train.py").write_text("".join(SEED + program for program in programs), encoding="utf-8")
    # Older Transformers leave the precision of a training in a variable of Accelerate's.
    others = ("HALFSCOPE_", "ACCELERATE_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    environment |= {"HALFSCOPE_DIR": str(folder / "journals"), "HALFSCOPE_MODE": "offline"}
    # All three frameworks are loaded anew there, in an environment of other versions for the first time.
    command = ["-m", "halfscope", "run", "train.py"]
    done = python.run(command, env=environment, cwd=folder, strict=False, timeout_s=600)
    assert done.returncode == 0, done.stderr
    found = read_journal(folder / "journals")
    assert [each.start and each.start.name for each in found] == ["train", "train-2", "train-3"]
    return dict(zip(PAGES, found, strict=True))


@pytest.mark.parametrize("page", PAGES)
def test_a_page_runs_as_it_stands_and_is_recorded_likewise_without_us(
    page: str, framework: Callable[[str], Any], by_itself: Mapping[str, Recorded], read: Read
) -> None:
    """The program on the page trains and is watched to its end; `halfscope run` records the same of it, without the
    lines that are ours."""
    framework(HELPERS[page])
    # Accelerate keeps the settings of a process's first Accelerator for all: not another test's.
    framework("accelerate_loops").accelerator_for("fp32")
    torch.manual_seed(0)
    exec(program_of(page), {"__name__": "__main__"})
    (recorded,) = read()
    assert recorded.start is not None
    assert (recorded.start.project, recorded.start.name) == ("digits", PAGES[page])
    assert len(recorded.steps()) >= 8
    assert recorded.series("loss").keys() == set(recorded.steps())
    assert_same_record(recorded, by_itself[page])
