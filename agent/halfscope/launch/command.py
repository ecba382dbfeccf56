"""The options of `halfscope run`, and the way from the command line to the program.

What stands before the program is ours, what stands behind it is the program's own. Must not import torch.
Invariant: a wrong option is told before the program starts; afterwards nothing here keeps an exception.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from halfscope import config
from halfscope.instrument import exits
from halfscope.launch import program as programs
from halfscope.launch.start import AutoWatch

USAGE = "halfscope run [OPTIONS] (PROGRAM | -m MODULE) [ARGUMENTS]"


def describe(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Adds the options of `halfscope run`."""
    parser.add_argument("program", nargs="?", metavar="PROGRAM", help="a Python file, or a folder with a __main__.py")
    parser.add_argument("-m", dest="module", metavar="MODULE", help="a module, as in `python -m`")
    parser.add_argument("--project", help="project of its runs; HALFSCOPE_PROJECT, else `default`")
    parser.add_argument("--name", help="name of its runs; HALFSCOPE_NAME, else the program's")
    parser.add_argument("--tag", action="append", dest="tags", help="a word to find the runs by; again for more")
    parser.add_argument("--precision", choices=config.PRECISIONS, help="where halfscope cannot see it by itself")
    parser.add_argument("--baseline", metavar="RUN", help="id or name of a run to compare with; HALFSCOPE_BASELINE")
    parser.add_argument("--every", type=int, metavar="N", help="as watch(every=)")
    parser.add_argument("--start-step", type=int, metavar="N", help="number of the first step, for one that continues")
    parser.add_argument("--mode", help="online, offline (journal only) or disabled; HALFSCOPE_MODE, else online")
    parser.add_argument("--server", help="address of the server; by default the one that agents find")
    parser.add_argument("--run-id", help="the run to continue; HALFSCOPE_RUN_ID, else a new one")
    return parser


def run(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> int:
    """Runs the program; its exceptions and its SystemExit pass through.

    Returns:
        0 when it ran to its end, 2 for wrong options, else what Python says where there is no such program.
    """
    ours, rest = split(parser, arguments)
    given = vars(parser.parse_args(ours))
    module = given.pop("module")
    path = given.pop("program")
    if module is None and path is None:
        parser.error("no program was given; expected a file, or -m MODULE")
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    programs.shorten_tracebacks()
    try:
        config.resolve(**options)
        found = programs.from_module(module) if module is not None else programs.from_file(path)
    except (ValueError, TypeError) as error:
        parser.error(str(error))
    except programs.ProgramError as error:
        print(f"halfscope run: {error}", file=sys.stderr)
        return error.exit_code
    AutoWatch(options, found.default_name).start()
    try:
        programs.run(found, rest)
    except SystemExit as error:  # of which Python tells no hook
        exits.leaving(error)
        raise
    return 0


def split(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Our options with the program, and the program's own arguments, which begin behind it."""
    takes_value = {option: action.nargs != 0 for action in parser._actions for option in action.option_strings}
    at = 0
    while at < len(arguments):
        word = arguments[at]
        if not word.startswith("-") or word == "-":
            at += 1
            break
        if word == "-m" or (word.startswith("-m") and not word.startswith("--")):
            at += 1 if len(word) > 2 else 2
            break
        at += 2 if takes_value.get(word, False) else 1
    return list(arguments[:at]), list(arguments[at:])
