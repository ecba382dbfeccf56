"""The `halfscope` command.

`run`, `sync`, `login`, `compare` and `doctor` need nothing but the agent; every other command is the server package's,
which is looked for only when one of them is asked for. Must not import torch. Invariant: without the server extra the
agent's commands work, and the others say in one line how to get it.
"""

from __future__ import annotations

import argparse
import getpass
import importlib.util
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from halfscope import doctor, login
from halfscope._version import __version__
from halfscope.config import halfscope_home, journal_directory
from halfscope.launch import command

if TYPE_CHECKING:
    from halfscope.send import SyncProgress

SERVER_COMMANDS = {
    "serve": "start the server on this machine",
    "demo": "start the server and watch real trainings live",
    "open": "a new sign-in link for the running server",
    "runs": "list the runs of the running server",
    "export": "write a run's rows as JSONL or CSV",
    "token": "make, list and revoke tokens for other machines",
    "openapi": "write the OpenAPI document",
}
INSTALL_SERVER = "pip install 'halfscope[server]'"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code: 0 done, 1 it did not work, 2 wrong arguments."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and arguments[0] in SERVER_COMMANDS:
        return _serve_side(arguments)
    if arguments and arguments[0] == "run":
        return _run(arguments[1:])  # outside of any try: its exceptions and its exit are the program's
    parsed = _parser().parse_args(arguments)
    try:
        code: int = parsed.run(parsed)
    except KeyboardInterrupt:
        return 130
    return code


def _run(arguments: list[str]) -> int:
    parser = command.describe(argparse.ArgumentParser(prog="halfscope run", usage=command.USAGE))
    return command.run(parser, arguments)


def _serve_side(arguments: list[str]) -> int:
    if not _has_server():
        print(
            f"halfscope {arguments[0]} needs the server, which is not installed here: {INSTALL_SERVER}", file=sys.stderr
        )
        return 1
    from halfscope_server.cli import main as server_main

    return server_main(arguments)


def _has_server() -> bool:
    return importlib.util.find_spec("halfscope_server") is not None and importlib.util.find_spec("fastapi") is not None


def _parser() -> argparse.ArgumentParser:
    lines = "\n".join(f"  {name:<10}{text}" for name, text in SERVER_COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="halfscope",
        description="Numerical health of mixed-precision training, live.",
        epilog=f"commands of the server ({INSTALL_SERVER}):\n{lines}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"halfscope {__version__}")
    commands = parser.add_subparsers(title="commands of the agent", metavar="COMMAND", required=True)

    command.describe(
        commands.add_parser(
            "run",
            help="run a training program and watch it, without a change to it",
            description="Runs a program as `python` would, and watches whatever it trains.",
            usage=command.USAGE,
        )
    )

    sync = commands.add_parser(
        "sync", help="ship journals to a server", description="Ships journals that nobody ships."
    )
    sync.add_argument("directory", nargs="?", type=Path, help="folder of journals; HALFSCOPE_DIR without it")
    sync.add_argument("--server", help="address of the server; by default the one that agents find")
    sync.add_argument(
        "--local", action="store_true", help="only to a server on this machine, and quietly: what `serve` starts"
    )
    sync.set_defaults(run=_sync)

    log_in = commands.add_parser(
        "login",
        help="keep the token of a server elsewhere",
        description="Asks for a token, checks it with the server and keeps it in HALFSCOPE_HOME, mode 0600.",
    )
    log_in.add_argument("url", help="address of the server, for example https://halfscope.example.org")
    log_in.add_argument("--token-file", type=Path, help="file that holds the token; `-` for standard input")
    log_in.set_defaults(run=_log_in)

    _describe_compare(
        commands.add_parser(
            "compare",
            help="say how runs on the server compare, the first as the baseline",
            description="Prints the verdict on two to eight runs with its reasons and limits.",
        )
    )

    examine = commands.add_parser("doctor", help="say what is there, what is wrong and how to mend it")
    examine.add_argument("--json", action="store_true", help="the findings as a JSON list")
    examine.set_defaults(run=_doctor)
    return parser


def _describe_compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="id, beginning of one, or a name that only one run has")
    parser.add_argument("--metric", default="loss", help="series that stands for quality (loss)")
    parser.add_argument(
        "--align",
        default="attempts",
        choices=["attempts", "applied", "samples", "tokens", "time"],
        help="what one step of a run is set beside in another (attempts)",
    )
    parser.add_argument(
        "--tolerance", type=float, default=0.005, help="relative difference that is never called one (0.005)"
    )
    parser.add_argument("--json", action="store_true", help="the whole report as JSON instead")
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write the report as one HTML file")
    parser.add_argument("--server", help="address of the server; by default the one that agents find")
    parser.set_defaults(run=_compare)


def _compare(parsed: argparse.Namespace) -> int:
    from halfscope.comparing import CompareError, compare

    try:
        found = compare(
            parsed.runs, metric=parsed.metric, align=parsed.align, tolerance=parsed.tolerance, server=parsed.server
        )
        if parsed.html is not None:
            parsed.html.write_text(found.html, encoding="utf-8")
    except (CompareError, ValueError, OSError) as error:
        print(f"halfscope compare: {error}", file=sys.stderr)
        return 1
    print(json.dumps(found.report, indent=2) if parsed.json else found.text())
    return 0


def _log_in(parsed: argparse.Namespace) -> int:
    try:
        url = login.normalised(parsed.url)
        if login.travels_in_clear(url):
            print(f"Warning: {url} is not https: the token can be read on the way.", file=sys.stderr)
        version = login.log_in(
            url, _read_token(parsed.token_file, url), credentials=halfscope_home() / "credentials.json"
        )
    except (login.LoginError, OSError) as error:
        print(f"halfscope login: {error}", file=sys.stderr)
        return 1
    print(f"Logged in to {url} (halfscope {version}). Trainings on this machine send there now.")
    return 0


def _read_token(file: Path | None, url: str) -> str:
    """The token from a file, from a pipe, or typed without being shown."""
    if file is not None and str(file) != "-":
        return file.read_text(encoding="utf-8").strip()
    if file is not None or not sys.stdin.isatty():
        return sys.stdin.readline().strip()
    return getpass.getpass(f"Token of {url}: ").strip()


def _sync(parsed: argparse.Namespace) -> int:
    from halfscope.send import SyncError, sync

    shows = sys.stderr.isatty() and not parsed.local

    def show(progress: SyncProgress) -> None:
        print(f"\r{_sync_words(progress)}\x1b[K", end="", file=sys.stderr, flush=True)

    try:
        done = sync(
            parsed.directory or journal_directory(),
            parsed.server,
            progress=show if shows else None,
            # A run recorded offline goes to a server when its owner says so, not because one happens to start.
            include_offline=not parsed.local,
            is_patient=parsed.local,  # until the server ends it
        )
    except (SyncError, ValueError) as error:
        print(f"halfscope sync: {error}", file=sys.stderr)
        return 1
    if shows:
        print(file=sys.stderr)
    if not parsed.local:
        print(f"{_sync_words(done)} to {done.url}")
    return 0 if done.num_shipped + done.num_gone == done.num_streams else 1


def _sync_words(progress: SyncProgress) -> str:
    words = f"{progress.num_shipped} of {progress.num_streams} streams shipped, {progress.num_records:,} records"
    if progress.num_busy:
        words += f"; {progress.num_busy} left to their own sender"
    if progress.num_gone:
        words += f"; {progress.num_gone} of runs that were deleted there"
    return words


def _doctor(parsed: argparse.Namespace) -> int:
    from halfscope.send.endpoint import resolve

    directory = journal_directory()
    checks: list[doctor.Check] = [
        doctor.check_python,
        doctor.check_versions,
        doctor.check_torch,
        doctor.check_helper,
        partial(doctor.check_directory, directory),
        partial(doctor.check_sender, directory),
    ]
    try:
        endpoint = resolve()
        checks += [
            partial(doctor.check_server, endpoint.url, endpoint.token),
            partial(doctor.check_secrets, halfscope_home()),
        ]
    except ValueError as error:
        text = str(error)
        checks.append(
            lambda: doctor.Finding(
                state="problem", topic="server", found=text, mend="correct or unset HALFSCOPE_SERVER"
            )
        )
    findings = doctor.examine(checks) + _server_findings()
    if parsed.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2, ensure_ascii=False))
    else:
        print(doctor.render(findings))
    return int(any(finding.state == "problem" for finding in findings))


def _server_findings() -> list[doctor.Finding]:
    """What the server package finds about a server on this machine; one line when it is not installed."""
    if not _has_server():
        return [
            doctor.Finding(
                state="info", topic="server package", found=f"not installed; to serve on this machine: {INSTALL_SERVER}"
            )
        ]
    from halfscope_server.cli import examine

    return [doctor.Finding(state=state, topic=topic, found=found, mend=mend) for state, topic, found, mend in examine()]


if __name__ == "__main__":
    raise SystemExit(main())
