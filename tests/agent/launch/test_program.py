"""`halfscope run` against plain `python`: the same program must not be able to tell them apart."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Outcome:
    """What a process wrote and how it ended."""

    code: int
    out: str
    err: str


NOTHING_RECORDED = re.compile(r"halfscope: nothing was recorded: .*\n")
RUNPY_FRAMES = re.compile(r'  File "<frozen runpy>".*\n')


def start(folder: Path, command: list[str], given: str) -> Outcome:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HALFSCOPE_")}
    environment |= {"HALFSCOPE_HOME": str(folder / "home"), "HALFSCOPE_MODE": "offline", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        command, cwd=folder, env=environment, input=given, capture_output=True, text=True, timeout=60, check=False
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def both(folder: Path, *arguments: str, given: str = "") -> tuple[Outcome, Outcome]:
    """The outcome under `python` and under `halfscope run`, frames of Python's own launcher and our notice left out."""
    plain = start(folder, [sys.executable, *arguments], given)
    ours = start(folder, [sys.executable, "-m", "halfscope", "run", *arguments], given)
    return (
        Outcome(plain.code, plain.out, RUNPY_FRAMES.sub("", plain.err)),
        Outcome(ours.code, ours.out, NOTHING_RECORDED.sub("", ours.err)),
    )


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return name


LOOKS = """
import os, sys
main = sys.modules["__main__"]
print(sys.argv, sys.path[0], __name__, __file__, __package__, __doc__, __spec__ and __spec__.name)
print(main.__dict__ is globals(), type(__loader__).__name__, sorted(globals()), __builtins__ is main.__builtins__)
print(os.getcwd(), sys.stdin.read(), sorted(set(sys.modules) & {"torch", "numpy", "msgspec"}))
"""


@pytest.mark.parametrize("where", ["program.py", "below/program.py"])
def test_a_file_sees_what_python_gives_it(tmp_path: Path, where: str) -> None:
    """Arguments, import path, names, working directory, standard input; and nothing heavy is loaded before it."""
    plain, ours = both(tmp_path, write(tmp_path, where, LOOKS), "--lr", "3", "-m", "x", given="some text")
    assert ours == plain
    assert plain.code == 0
    assert "some text []" in plain.out


def test_a_link_finds_the_neighbours_of_its_target(tmp_path: Path) -> None:
    """The import path begins with the folder of the file itself, as Python has it."""
    write(tmp_path, "real/neighbour.py", "value = 7")
    write(tmp_path, "real/program.py", "import neighbour; print(neighbour.value, __file__)")
    (tmp_path / "link.py").symlink_to(tmp_path / "real" / "program.py")
    plain, ours = both(tmp_path, "link.py")
    assert ours == plain
    assert plain.out.startswith("7 ")


@pytest.mark.parametrize("name", ["package.inside", "package", "single"])
def test_a_module_sees_what_python_gives_it(tmp_path: Path, name: str) -> None:
    """`-m` with a module in a package, a package with `__main__`, and a module of its own."""
    write(tmp_path, "package/__init__.py", "")
    for file in ("package/inside.py", "package/__main__.py", "single.py"):
        write(tmp_path, file, LOOKS)
    plain, ours = both(tmp_path, "-m", name, "a", "--b=c")
    assert ours == plain
    assert plain.code == 0


def test_a_folder_and_an_archive_run_their_main(tmp_path: Path) -> None:
    """As `python folder` and `python archive.zip` do."""
    write(tmp_path, "folder/__main__.py", "import helper, sys; print(helper.value, sys.argv, __package__)")
    write(tmp_path, "folder/helper.py", "value = 3")
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        for name in ("__main__.py", "helper.py"):
            archive.write(tmp_path / "folder" / name, name)
    for name in ("folder", "archive.zip"):
        plain, ours = both(tmp_path, name, "x")
        assert ours == plain
        assert plain.out == f"3 ['{name}', 'x'] \n"


@pytest.mark.parametrize(
    "ending",
    [
        "raise SystemExit(7)",
        "import sys; sys.exit('a message')",
        "raise SystemExit",
        "import os; os._exit(9)",
        "1 / 0",
        "raise KeyboardInterrupt",
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
        "def f(:",
        "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise ValueError('second') from error",
        "import threading; threading.Thread(target=lambda: print('from a thread')).start()",
        "import atexit; atexit.register(lambda: print('at exit', __name__))",
        "import warnings; warnings.warn('look', stacklevel=1)",
        "import sys; sys.excepthook = lambda *found: print('mine', found[0]); 1 / 0",
    ],
)
def test_a_program_ends_as_under_python(tmp_path: Path, ending: str) -> None:
    """Exit code or signal, and everything printed, the traceback too: it begins with the program's own frame."""
    program = write(tmp_path, "program.py", f"print('started')\n\n\ndef inner():\n    pass\n\n\n{ending}\n")
    plain, ours = both(tmp_path, program)
    assert ours == plain


def test_an_interrupt_from_outside_ends_it_as_under_python(tmp_path: Path) -> None:
    """Ctrl-C kills by SIGINT after the traceback, so that a shell script around it stops too."""
    program = write(
        tmp_path, "program.py", "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(30)\n"
    )
    plain, ours = both(tmp_path, program)
    assert ours.code == plain.code == -signal.SIGINT
    assert "KeyboardInterrupt" in ours.err
    assert "halfscope" not in ours.err


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_child_processes_find_the_program(tmp_path: Path, method: str) -> None:
    """Functions of `__main__` reach the children, and the guard keeps those from running the program again."""
    program = write(
        tmp_path,
        "program.py",
        "import multiprocessing, sys\n"
        "def work(n):\n    print('child', __name__, n, flush=True)\n    return n * 2\n"
        "if __name__ == '__main__':\n"
        f"    with multiprocessing.get_context({method!r}).Pool(1) as pool:\n"
        "        print(pool.map(work, [1, 2]), sys.argv)\n"
        "    print('done')\n",
    )
    plain, ours = both(tmp_path, program, "x")
    assert ours == plain
    assert "[2, 4]" in ours.out


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_children_of_a_module_find_it(tmp_path: Path, method: str) -> None:
    """The same for `-m`, where they look it up by its name."""
    write(tmp_path, "package/__init__.py", "")
    write(
        tmp_path,
        "package/train.py",
        "import multiprocessing\n"
        "def work(n):\n    return n, __name__\n"
        "if __name__ == '__main__':\n"
        f"    with multiprocessing.get_context({method!r}).Pool(1) as pool:\n"
        "        print(pool.map(work, [1]))\n",
    )
    plain, ours = both(tmp_path, "-m", "package.train")
    assert ours == plain
    assert plain.code == 0


def test_functions_of_the_program_can_be_pickled(tmp_path: Path) -> None:
    """They are looked up in `__main__`, which is the program and stays it, in exit handlers too."""
    program = write(
        tmp_path,
        "program.py",
        "import atexit, pickle\nclass Thing:\n    pass\n"
        "print(type(pickle.loads(pickle.dumps(Thing()))) is Thing)\n"
        "atexit.register(lambda: print(type(pickle.loads(pickle.dumps(Thing()))) is Thing))\n",
    )
    plain, ours = both(tmp_path, program)
    assert ours == plain
    assert ours.out == "True\nTrue\n"


def test_what_cannot_be_run_is_said_as_python_says_it(tmp_path: Path) -> None:
    """The same exit codes and words after the program's name; no traceback."""
    (tmp_path / "empty").mkdir()
    write(tmp_path, "package/__init__.py", "")
    for arguments in (["missing.py"], ["empty"], ["-m", "missing"], ["-m", "missing.part"], ["-m", "package"]):
        plain, ours = both(tmp_path, *arguments)
        assert ours.code == plain.code, arguments
        assert ours.out == plain.out == ""
        said = plain.err.split(": ", 1)[1]
        assert ours.err == f"halfscope run: {said}", arguments


def test_an_import_that_fails_inside_the_program_is_its_own(tmp_path: Path) -> None:
    """A missing package of a module's own is a traceback, not "no such module"."""
    write(tmp_path, "package/__init__.py", "import not_there_at_all")
    write(tmp_path, "package/train.py", "")
    plain, ours = both(tmp_path, "-m", "package.train")
    assert ours.code == plain.code == 1
    assert "No module named 'not_there_at_all'" in ours.err
