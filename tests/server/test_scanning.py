"""Finding one-file additions."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from halfscope_server.scanning import found_in


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of three modules, one of which brings nothing."""
    package = tmp_path / "additions_under_test"
    package.mkdir()
    (package / "__init__.py").write_text("")
    for name, thing in (("b", "first"), ("a", "second")):
        (package / f"{name}.py").write_text(f"class _Thing:\n    id = {thing!r}\nTHING = _Thing()\n")
    (package / "base.py").write_text("OTHER = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.startswith(package.name)]:
        monkeypatch.delitem(sys.modules, name)
    return package


def test_every_module_with_the_object_is_found(folder: Path) -> None:
    """By id, in the order of the files; modules without one are left out."""
    found = found_in(folder.name, [str(folder)], "THING")
    assert list(found) == ["second", "first"]


def test_one_id_in_two_files_is_refused(folder: Path) -> None:
    """Which of the two would be meant depends on their names."""
    (folder / "c.py").write_text("class _Thing:\n    id = 'first'\nTHING = _Thing()\n")
    with pytest.raises(ValueError, match=r"THING 'first' stands in two files of additions_under_test"):
        found_in(folder.name, [str(folder)], "THING")
