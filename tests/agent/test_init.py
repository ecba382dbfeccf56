"""`import halfscope` in a fresh process."""

from __future__ import annotations

import subprocess
import sys

import halfscope
import pytest


def loaded(statement: str) -> set[str]:
    """Top-level packages and threads that a statement brings into a fresh process."""
    program = (
        "import sys, threading\n"
        f"{statement}\n"
        "print(*sorted(sys.modules), sep='\\n')\n"
        "print('threads', threading.active_count())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    return set(done.stdout.splitlines())


def test_importing_loads_no_torch_and_starts_nothing() -> None:
    """A training script that turns halfscope off pays nothing for the import."""
    found = loaded("import halfscope")
    assert "halfscope" in found
    assert not found & {"torch", "numpy", "msgspec", "websockets", "zstandard", "halfscope_server"}
    assert "threads 1" in found


def test_loading_more_would_be_noticed() -> None:
    """The check above can fail: what a public name brings is seen, through whatever it comes."""
    assert {"msgspec", "numpy"} <= loaded("import halfscope; halfscope.compare_tensors")


def test_public_names_resolve() -> None:
    """Everything in `__all__`, and nothing that is not there."""
    assert all(getattr(halfscope, name) for name in halfscope.__all__)
    assert set(halfscope.__all__) <= set(dir(halfscope))
    with pytest.raises(AttributeError, match="no attribute 'wach'"):
        halfscope.wach
