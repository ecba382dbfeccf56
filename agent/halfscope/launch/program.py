"""Running someone's program as Python itself would: as `__main__`, from a file, a folder or a module.

Must not import torch, nor anything else that the program might want to set up before it is imported.
Invariant: the program sees the arguments, the import path, the `__main__` module and the exit that plain `python` gives
it; of a traceback, it sees its own frames only.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import pkgutil
import sys
import types
from collections.abc import Sequence
from dataclasses import dataclass
from types import CodeType, TracebackType


class ProgramError(Exception):
    """There is no such program; the text says what was looked for."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """What to run and how it wants to be called."""

    code: CodeType
    file: str
    argv0: str
    path0: str
    """What Python puts first on the import path for it."""
    spec: importlib.machinery.ModuleSpec | None
    """None for a file, as Python has it: `multiprocessing` tells modules from files by this."""
    package: str | None
    loader: object
    default_name: str
    """What its runs are called where nobody gives a name."""


def from_file(path: str) -> Program:
    """The program in a Python file, or in a folder or archive with a `__main__.py`.

    Raises:
        ProgramError: nothing there that can be run.
    """
    full = os.path.realpath(path)
    name = os.path.splitext(os.path.basename(full))[0]
    finder = pkgutil.get_importer(full) if os.path.exists(full) else None
    if finder is not None and (os.path.isdir(full) or _is_archive(finder)):
        return _from_folder(path, full, name, finder)
    file = os.path.abspath(path)
    loader = importlib.machinery.SourceFileLoader("__main__", file)
    try:
        source = loader.get_data(file)
    except OSError as error:
        raise ProgramError(f"can't open file {file!r}: [Errno {error.errno}] {error.strerror}", 2) from error
    return Program(
        code=loader.source_to_code(source, file), file=file, argv0=path, path0=os.path.dirname(full), spec=None,
        package=None, loader=loader, default_name=name,
    )  # fmt: skip


def _is_archive(finder: object) -> bool:
    return type(finder).__name__ == "zipimporter"


def _from_folder(path: str, full: str, name: str, finder: object) -> Program:
    spec = finder.find_spec("__main__")  # type: ignore[attr-defined]
    if spec is None or spec.loader is None:
        raise ProgramError(f"can't find '__main__' module in {os.path.abspath(path)!r}", 1)
    code = spec.loader.get_code("__main__")
    return Program(
        code=code, file=spec.origin or code.co_filename, argv0=path, path0=path, spec=spec, package="",
        loader=spec.loader, default_name=name,
    )  # fmt: skip


def from_module(name: str) -> Program:
    """The program that `python -m name` runs. Imports the packages it lies in, and puts the folder of now first.

    Raises:
        ProgramError: no such module, or one without code.
    """
    if not sys.flags.safe_path:
        sys.path[0] = os.getcwd()
    spec = _find(name)
    if spec.submodule_search_locations is not None:
        try:
            spec = _find(f"{name}.__main__")
        except ProgramError as error:
            raise ProgramError(f"{error}; {name!r} is a package and cannot be directly executed", 1) from error
    code = spec.loader.get_code(spec.name) if isinstance(spec.loader, importlib.abc.InspectLoader) else None
    if code is None:
        raise ProgramError(f"no code object available for {name}", 1)
    return Program(
        code=code, file=spec.origin or code.co_filename, argv0=spec.origin or name, path0=os.getcwd(), spec=spec,
        package=spec.parent, loader=spec.loader, default_name=name.rpartition(".")[2],
    )  # fmt: skip


def _find(name: str) -> importlib.machinery.ModuleSpec:
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise
        text = f"Error while finding module specification for {name!r} ({type(error).__name__}: {error})"
        raise ProgramError(text, 1) from error
    if spec is None:
        raise ProgramError(f"No module named {name}", 1)
    return spec


def run(program: Program, arguments: Sequence[str]) -> None:
    """Runs it in a fresh `__main__`, which stays: what runs at exit and what is pickled later needs it.

    Exceptions, SystemExit among them, are the caller's to let through; `sys.excepthook` shows the program's frames.
    """
    module = types.ModuleType("__main__")
    module.__dict__.update(
        __file__=program.file,
        __cached__=None,
        __loader__=program.loader,
        __spec__=program.spec,
        __package__=program.package,
        __builtins__=__builtins__,
        __annotations__={},
    )
    sys.argv[:] = [program.argv0, *arguments]
    if not sys.flags.safe_path:
        sys.path[0] = program.path0
    ours = sys.modules["__main__"]  # its globals are those of functions that are running: it must outlive its place
    sys.modules["__main__"] = module
    try:
        exec(program.code, module.__dict__)
    finally:
        del ours


def shorten_tracebacks() -> None:
    """Leaves out of an uncaught exception's traceback the frames that lie before the program's own."""
    previous = sys.excepthook

    def halfscope_excepthook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        error.__traceback__ = traceback = _after_ours(traceback)
        previous(kind, error, traceback)

    sys.excepthook = halfscope_excepthook


def _after_ours(traceback: TracebackType | None) -> TracebackType | None:
    """What follows the last frame of this file, and of the import machinery that it calls."""
    rest = at = traceback
    while at is not None:
        if at.tb_frame.f_code.co_filename == __file__:
            rest = at.tb_next
        at = at.tb_next
    while rest is not None and rest.tb_frame.f_code.co_filename.startswith("<frozen importlib"):
        rest = rest.tb_next
    return rest
