"""Real frameworks, imported by the first test that needs one: not while tests are collected, in every worker."""

from __future__ import annotations

import gc
import importlib
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import ModuleType

import pytest
from halfscope.launch.start import AutoWatch

from tests.agent.instrument.conftest import Recorded, Watching, read_journal
from tests.helpers.threads import on_one_thread


@pytest.fixture(scope="module")
def framework() -> Iterator[Callable[[str], ModuleType]]:
    """Imports a module of tests/helpers/frameworks."""

    def load(name: str) -> ModuleType:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of deprecations of torch's that are the frameworks' to mend
            module = importlib.import_module(f"tests.helpers.frameworks.{name}")
        gc.freeze()  # Accelerate collects garbage at each training: not all that was imported, every time
        return module

    yield load
    gc.unfreeze()


@pytest.fixture
def journals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where every run of the test is written, and nothing is sent."""
    monkeypatch.setenv("HALFSCOPE_MODE", "offline")
    monkeypatch.setenv("HALFSCOPE_DIR", str(tmp_path / "journals"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "journals"


@pytest.fixture
def read(journals: Path) -> Callable[[], list[Recorded]]:
    """Every run that was written, oldest first."""
    return lambda: read_journal(journals)


Launching = Callable[[], AbstractContextManager[AutoWatch]]


@pytest.fixture
def launching(journals: Path) -> Launching:
    """`halfscope run` within the test's own process, for as long as it is entered."""

    @contextmanager
    def launch() -> Iterator[AutoWatch]:
        watch = AutoWatch({}, "program")
        watch.start()
        try:
            yield watch
        finally:
            watch.stop()

    return launch


@pytest.fixture
def launched(launching: Launching) -> Iterator[AutoWatch]:
    """The same from the test's beginning."""
    with launching() as watch:
        yield watch


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[Watching]:
    """Starts runs that write into a directory of the test."""
    made = Watching(tmp_path / "watched")
    yield made
    for run in made.runs:
        run.finish()


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    yield from on_one_thread()
