"""What the demo trains, and its command line."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

import pytest
from halfscope.demo.trainings import TRAININGS, Training, find


def test_runs_of_one_network_differ_in_precision_alone() -> None:
    """The FP32 run and the healthy FP16 run of a network share seed, batches, schedule and learning rate."""
    for network in ("cnn", "transformer"):
        fp32, fp16 = find(f"fp32-{network}"), find(f"fp16-{network}")
        differing = {
            field.name
            for field in dataclasses.fields(Training)
            if getattr(fp32, field.name) != getattr(fp16, field.name)
        }
        assert differing - {"init_scale"} == {"name", "fp16", "baseline"}
        assert fp16.baseline == fp32.name, "they are compared while they train"


def test_unknown_name_is_answered_with_the_known_ones() -> None:
    """`find` says what there is."""
    with pytest.raises(ValueError, match=r"no demo run is called 'nope'.*fp16-troubled"):
        find("nope")


def test_list_needs_no_torch() -> None:
    """`--list` prints the five names without importing torch or scikit-learn, so the demo starts at once."""
    program = (
        "import sys; from halfscope.demo.__main__ import main; main(['--list']);"
        "print({'torch', 'sklearn'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    *names, loaded = done.stdout.splitlines()
    assert names == [training.name for training in TRAININGS]
    assert len(set(names)) == 5
    assert loaded == "set()"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "one of the arguments"),
        (["--run", "nope"], "no demo run is called"),
        (["--run", "fp32-cnn", "--steps", "0"], "at least 1"),
    ],
)
def test_wrong_arguments_end_with_code_2_and_a_reason(arguments: list[str], message: str) -> None:
    """A mistake on the command line is answered before anything is trained."""
    command = [sys.executable, "-m", "halfscope.demo", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert message in done.stderr


def test_configuration_is_plain() -> None:
    """What the Config page shows can be written as JSON."""
    for training in TRAININGS:
        assert json.loads(json.dumps(training.config()))["name"] == training.name
