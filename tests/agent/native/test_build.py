"""Building the helper, and going on without it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from halfscope.native import VERSION, build, load

from tests.helpers.preloaded import Preloaded

HAS_COMPILER = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")
USES_IT = """
import numpy as np
from halfscope import native
from halfscope.sketch import of_array
import halfscope.probes.gradients as gradients
import torch
print(native.helper is not None, int(of_array(np.ones(3, np.float32)).n), gradients.read([torch.ones(4)]).norm)
"""


@HAS_COMPILER
def test_it_is_built_without_a_warning(tmp_path: Path) -> None:
    """And replaces what was there."""
    target = tmp_path / "into" / build.FILE_NAME
    strict = "cc -Wall -Wextra -Wno-unused-parameter -Werror"
    assert build.compile_helper(target, {"CC": strict}) == ""
    assert target.stat().st_size > 0
    assert list(target.parent.iterdir()) == [target]


@HAS_COMPILER
@pytest.mark.parametrize(
    ("environ", "reason"),
    [
        ({"HALFSCOPE_NO_NATIVE": "1"}, "HALFSCOPE_NO_NATIVE=1"),
        ({"CC": "/nonexistent"}, "/nonexistent"),
        ({"CC": "cc -DPy_LIMITED_API_IS=wrong -include nothing.h"}, "nothing.h"),
        ({"CC": 'cc "'}, "quotation"),
    ],
)
def test_without_a_compiler_there_is_a_reason_and_no_helper(
    tmp_path: Path, environ: dict[str, str], reason: str
) -> None:
    """An older one is taken away: it may be of another source."""
    target = tmp_path / build.FILE_NAME
    target.write_bytes(b"older")
    assert reason in build.compile_helper(target, environ)
    assert not target.exists()


def test_a_folder_that_cannot_be_written_is_a_reason(tmp_path: Path) -> None:
    """An installation goes on."""
    (tmp_path / "file").write_text("")
    assert build.compile_helper(tmp_path / "file" / build.FILE_NAME, {}) != ""


def test_switched_off_the_numbers_are_the_same(python: Preloaded) -> None:
    """In a process of its own, as users do it."""
    done = python.run(["-c", USES_IT], env={**os.environ, "HALFSCOPE_NO_NATIVE": "1"})
    assert done.stdout.split() == ["False", "3", "2.0"]
    assert load({"HALFSCOPE_NO_NATIVE": "1"}) == (None, "switched off by HALFSCOPE_NO_NATIVE=1")


def test_a_helper_of_another_interface_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source that was updated without building anew."""
    monkeypatch.setattr("halfscope.native.VERSION", VERSION + 1)
    found, reason = load({})
    assert found is None
    assert "install again" in reason or "not built" in reason
