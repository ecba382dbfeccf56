"""Facts about the machine, and what is masked in them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch
from halfscope.instrument import environment


@pytest.mark.parametrize(
    ("arguments", "masked"),
    [
        (["train.py", "--lr", "0.1"], ["train.py", "--lr", "0.1"]),
        (["train.py", "--api-key", "abc", "--lr=1"], ["train.py", "--api-key", "***", "--lr=1"]),
        (["train.py", "--hf_token=abc"], ["train.py", "--hf_token=***"]),
        (["train.py", "password=abc", "model=gpt"], ["train.py", "password=***", "model=gpt"]),
        (["train.py", "--token", "--verbose"], ["train.py", "--token", "--verbose"]),
        (["train.py", "hf_" + "a" * 30], ["train.py", "***"]),
        (["train.py", "s3://user:pass@host/x"], ["train.py", "s3://***@host/x"]),
        (["train.py", "--tokenizer", "gpt2"], ["train.py", "--tokenizer", "gpt2"]),
        (["train.py", "--max-tokens=512"], ["train.py", "--max-tokens=512"]),
    ],
)
def test_secrets_on_the_command_line_are_masked(arguments: list[str], masked: list[str]) -> None:
    """Values behind telling names, things that look like keys, passwords in addresses; words like tokenizer stay."""
    assert environment.mask_command(arguments) == masked


def test_only_variables_that_steer_torch_are_taken() -> None:
    """And those with telling names are masked even so."""
    found = environment.variables(
        {"NCCL_DEBUG": "INFO", "CUDA_VISIBLE_DEVICES": "0", "TORCH_AUTH_TOKEN": "x", "AWS_SECRET": "y", "HOME": "/h"}
    )
    assert found == {"CUDA_VISIBLE_DEVICES": "0", "NCCL_DEBUG": "INFO", "TORCH_AUTH_TOKEN": "***"}


def test_commit_and_dirty_flag_are_gits_own(tmp_path: Path) -> None:
    """A clean checkout, then an edited one; an untracked file does not make it dirty."""

    def run(*arguments: str) -> str:
        command = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e@x", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    run("init", "-q")
    (tmp_path / "file").write_text("one")
    run("add", "file")
    run("commit", "-q", "-m", "first")
    (tmp_path / "untracked").write_text("x")
    inside = tmp_path / "deeper"
    inside.mkdir()
    found = environment.git(inside)
    assert (found["commit"], found["dirty"]) == (run("rev-parse", "HEAD"), False)
    (tmp_path / "file").write_text("two")
    assert environment.git(inside)["dirty"] is True


def test_without_a_checkout_there_is_no_commit(tmp_path: Path) -> None:
    """Nothing, rather than an empty string."""
    assert environment.git(tmp_path) == {}


def test_the_description_names_versions_and_command() -> None:
    """What a person needs to run it again."""
    found = environment.describe()
    assert found["torch"] == torch.__version__
    assert found["command"]
    assert found["num_cpus"] >= 1
    assert all(value not in (None, "") for value in found.values())


def test_the_host_is_a_device_with_a_name() -> None:
    """CPU runs say what they ran on."""
    found = environment.device(torch.device("cpu"))
    assert found["type"] == "cpu"
    assert found["name"]
