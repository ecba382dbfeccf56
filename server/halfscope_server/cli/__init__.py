"""The command line of the server package: serve, open, runs, export, token, demo, openapi.

Owns arguments, exit codes and what goes to which stream: results to stdout, everything else to stderr. Must not hold
logic of its own.
Invariant: a mistake of the user ends with exit code 2 (wrong arguments) or 1 (it did not work), one line that says what
to do, and no traceback.
"""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from halfscope_server.cli import client
from halfscope_server.errors import ServerError
from halfscope_server.settings import from_environment, has_desktop

if TYPE_CHECKING:
    from halfscope_server.cli.checks import Found

app = typer.Typer(
    name="halfscope",
    help="Live dashboard for the numerical health of mixed-precision training.",
    no_args_is_help=True,
    add_completion=False,
    # Plain help: the same words on a terminal, in a pipe and in the documentation.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

token_app = typer.Typer(
    help="Make, list and revoke the tokens that trainings and scripts present.", no_args_is_help=True
)
app.add_typer(token_app, name="token")

Host = Annotated[
    str | None, typer.Option("--host", help="Address to listen on. [default: 127.0.0.1]", show_default=False)
]
Port = Annotated[int | None, typer.Option("--port", help="Port to listen on. [default: 65504]", show_default=False)]
DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        help="sqlite:////absolute/path.db or postgresql://user:password@host/name. "
        "[default: halfscope.db in HALFSCOPE_HOME]",
        show_default=False,
    ),
]
Server = Annotated[
    str,
    typer.Option("--server", help="Address of the server to ask. [default: the one running here]", show_default=False),
]
NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Print the sign-in link, but open no browser.")]


TokenName = Annotated[str, typer.Argument(metavar="NAME", help="Who has it, for example a cluster or a colleague.")]


class Kind(StrEnum):
    """Kinds of exported rows."""

    points = "points"
    events = "events"
    sketches = "sketches"


class Format(StrEnum):
    """Formats of exported rows."""

    jsonl = "jsonl"
    csv = "csv"


@app.command("serve")
def serve_command(
    host: Host = None,
    port: Port = None,
    database_url: DatabaseUrl = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", help="Host name under which browsers and agents may ask; again for more."),
    ] = None,
    root_path: Annotated[
        str | None, typer.Option("--root-path", help="Path under which a reverse proxy publishes the server.")
    ] = None,
    no_browser: NoBrowser = False,
) -> None:
    """Start the server: take in trainings, serve the web app."""
    with _reported():
        from halfscope_server.cli import serve

        settings = from_environment(
            host=host,
            port=port,
            database_url=database_url,
            allow_hosts=tuple(name.lower() for name in allow_host) if allow_host else None,
            root_path=None if root_path is None else "/" + root_path.strip("/") if root_path.strip("/") else "",
        )
        serve.run(settings, say=_say, open_browser=not no_browser)


@app.command("demo")
def demo_command(
    headless: Annotated[
        bool, typer.Option("--headless", help="End when the trainings have, and print what was recorded.")
    ] = False,
    no_browser: NoBrowser = False,
    temporary: Annotated[
        bool, typer.Option("--temporary", help="Keep everything in a folder that is deleted in the end.")
    ] = False,
    steps: Annotated[
        int | None, typer.Option("--steps", min=1, help="Steps per training instead of their own number.")
    ] = None,
    ranks: Annotated[
        bool, typer.Option("--ranks", help="One training of two ranks instead, of which one overflows now and then.")
    ] = False,
    port: Port = None,
) -> None:
    """Start the server and watch real trainings live."""
    with _reported():
        from halfscope_server.cli import demo

        demo.run(
            from_environment(port=port),
            say=_say,
            headless=headless,
            open_browser=not no_browser and sys.stdout.isatty() and has_desktop(),
            temporary=temporary,
            steps=steps,
            ranks=ranks,
        )


@app.command("open")
def open_command(server: Server = "", no_browser: NoBrowser = False) -> None:
    """Print a new sign-in link for the running server, and open it."""
    with _reported():
        target = client.find(from_environment(), server)
        link = client.get_json(target, "/api/v1/session/links", method="POST")["url"]
        _say(link)
        if not no_browser and sys.stdout.isatty() and has_desktop():
            webbrowser.open(link)


@app.command("runs")
def runs_command(
    as_json: Annotated[bool, typer.Option("--json", help="As a JSON list.")] = False,
    server: Server = "",
    database_url: DatabaseUrl = None,
) -> None:
    """List the runs."""
    with _reported():
        from halfscope_server.cli import runs

        found = runs.list_runs(
            from_environment(database_url=database_url), server=server, direct=database_url is not None
        )
        _say(runs.as_json(found) if as_json else runs.as_table(found))


@app.command("export")
def export_command(
    run: Annotated[str, typer.Argument(help="Id of a run, the beginning of one, or a name that only one run has.")],
    series: Annotated[
        str, typer.Option("--series", help="Only points of series whose name fits this glob, for example 'amp.*'.")
    ] = "",
    kind: Annotated[list[Kind] | None, typer.Option("--kind", help="Only rows of this kind; again for more.")] = None,
    format: Annotated[
        Format, typer.Option("--format", help="CSV holds one kind, points unless told otherwise.")
    ] = Format.jsonl,
    server: Server = "",
    database_url: DatabaseUrl = None,
) -> None:
    """Write a run's rows to standard output."""
    with _reported():
        from halfscope_server.cli import runs

        runs.export(
            from_environment(database_url=database_url),
            run,
            kinds=[each.value for each in kind or ()],
            series=series,
            format=format.value,
            server=server,
            direct=database_url is not None,
            out=sys.stdout.buffer,
        )


@token_app.command("create")
def token_create_command(name: TokenName, server: Server = "", database_url: DatabaseUrl = None) -> None:
    """Make a token and print it, this once."""
    with _reported():
        from halfscope_server.cli import tokens

        settings = from_environment(database_url=database_url)
        _say(tokens.create(settings, name, server=server, direct=database_url is not None))
        print(
            "Shown this once; only a hash of it is kept. On the machine that will use it: halfscope login URL",
            file=sys.stderr,
        )


@token_app.command("list")
def token_list_command(
    as_json: Annotated[bool, typer.Option("--json", help="As a JSON list.")] = False,
    server: Server = "",
    database_url: DatabaseUrl = None,
) -> None:
    """List the tokens by name."""
    with _reported():
        from halfscope_server.cli import tokens

        settings = from_environment(database_url=database_url)
        found = tokens.list_tokens(settings, server=server, direct=database_url is not None)
        _say(tokens.as_json(found) if as_json else tokens.as_table(found))


@token_app.command("revoke")
def token_revoke_command(name: TokenName, server: Server = "", database_url: DatabaseUrl = None) -> None:
    """Revoke a token: from now on nobody gets in with it."""
    with _reported():
        from halfscope_server.cli import tokens

        settings = from_environment(database_url=database_url)
        num_revoked = tokens.revoke(settings, name, server=server, direct=database_url is not None)
        _say(f"Revoked {num_revoked} token{'' if num_revoked == 1 else 's'} called {name!r}.")


@app.command("openapi", hidden=True)
def openapi_command(path: Annotated[Path, typer.Argument(help="File to write.")] = Path("web/openapi.json")) -> None:
    """Write the OpenAPI document of this version."""
    with _reported():
        from halfscope_server.openapi import write

        _say(f"{path}: {'written' if write(path) else 'unchanged'}")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    try:
        app(list(argv) if argv is not None else None, prog_name="halfscope")
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    return 0


def examine() -> list[Found]:
    """What `halfscope doctor` asks of this package: (state, topic, found, mend) of each check."""
    from halfscope_server.cli import checks

    try:
        return checks.examine(from_environment())
    except ValueError as error:
        return [("problem", "settings", str(error), "correct or unset the variable")]


def _say(line: str) -> None:
    print(line, flush=True)


@contextmanager
def _reported() -> Iterator[None]:
    """Turns what a person can mend into one line on stderr and exit code 1."""
    from halfscope_server.cli.demo import DemoError

    try:
        yield
    except BrokenPipeError:
        # `halfscope export | head`: nobody reads on, which is no failure; stdout must not be flushed once more at exit.
        sys.stdout = None
        raise typer.Exit(0) from None
    except (client.ClientError, DemoError, ServerError, ValueError, OSError) as error:
        said = error.strerror if isinstance(error, OSError) and error.strerror and not error.filename else error
        print(f"halfscope: {said}", file=sys.stderr)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
