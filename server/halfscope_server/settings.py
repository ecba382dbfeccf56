"""The one table of the server's settings, and the only place on this side that reads the environment.

Every setting is a field of `Settings`: its name carries the unit, its metadata the environment variable and a sentence
for docs/settings.md. Must not import the rest of the server. Invariant: a `Settings` that exists is usable; anything
wrong in the environment or on the command line was refused with the name of the variable, what it held and what was
expected.
"""

# ruff: noqa: RUF009  (_setting gives a dataclass field, which is what may stand there)

from __future__ import annotations

import dataclasses
import ipaddress
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEFAULT_PORT = 65504
"""The largest finite FP16 number."""


def _setting(variable: str, text: str, read: Callable[[str], Any], default: Any) -> Any:
    """A field of the table: where it is read from, how, and what it is for."""
    metadata = {"variable": variable, "text": text, "read": read}
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip().lower() for part in text.split(",") if part.strip())


def _networks(text: str) -> tuple[str, ...]:
    return tuple(str(ipaddress.ip_network(name, strict=False)) for name in _names(text))


def _flag(text: str) -> bool:
    words = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
    if text.strip().lower() not in words:
        raise ValueError(f"{text!r}; expected 1 or 0")
    return words[text.strip().lower()]


def _path(text: str) -> Path:
    return Path(text).expanduser()


def _root_path(text: str) -> str:
    return "" if text.strip("/") == "" else "/" + text.strip("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How one server process is set up. Make it with `from_environment`, tests with the constructor."""

    home: Path = _setting(
        "HALFSCOPE_HOME",
        "Folder of the local token, server.json and, by default, the database and journals.",
        _path,
        lambda: Path("~/.halfscope").expanduser(),
    )
    journals: Path | None = _setting(
        "HALFSCOPE_DIR",
        "Folder of the agents' journals on this machine; by default `journals` in the home.",
        _path,
        None,
    )
    database_url: str = _setting(
        "HALFSCOPE_DATABASE_URL",
        "sqlite:////absolute/path.db or postgresql://user:password@host/name; by default halfscope.db in the home.",
        str,
        "",
    )
    host: str = _setting(
        "HALFSCOPE_HOST", "Address to listen on; 127.0.0.1 keeps it on this machine.", str, "127.0.0.1"
    )
    port: int = _setting(
        "HALFSCOPE_PORT", "Port to listen on; when it is taken the next free one is used.", int, DEFAULT_PORT
    )
    allow_hosts: tuple[str, ...] = _setting(
        "HALFSCOPE_ALLOW_HOST",
        "Host names, separated by commas, under which browsers and agents may ask, besides this machine's own.",
        _names,
        (),
    )
    root_path: str = _setting(
        "HALFSCOPE_ROOT_PATH",
        "Path under which a reverse proxy publishes the server, for example /halfscope.",
        _root_path,
        "",
    )
    public_url: str = _setting(
        "HALFSCOPE_PUBLIC_URL",
        "Address that links and code examples show, where it is not the one listened on.",
        str,
        "",
    )
    server: str = _setting(
        "HALFSCOPE_SERVER",
        "Server that `open`, `runs` and `export` ask, and agents send to; by default the one running here.",
        str,
        "",
    )
    token: str = _setting(
        "HALFSCOPE_TOKEN",
        "Token of at least 20 characters: `serve` accepts it besides the local one, the other commands present it.",
        str,
        "",
    )
    token_file: Path | None = _setting("HALFSCOPE_TOKEN_FILE", "File holding such a token.", _path, None)
    web_directory: Path | None = _setting(
        "HALFSCOPE_WEB_DIR", "Folder of a built web app to serve instead of the packaged one.", _path, None
    )
    sign_in_code_s: int = _setting("HALFSCOPE_SIGN_IN_CODE_S", "How long a sign-in link is good, in seconds.", int, 600)
    session_s: int = _setting("HALFSCOPE_SESSION_S", "How long a browser stays signed in, in seconds.", int, 30 * 86400)
    max_body_bytes: int = _setting(
        "HALFSCOPE_MAX_BODY_BYTES", "Largest body of an ordinary request, in bytes.", int, 1 << 20
    )
    max_ingest_body_bytes: int = _setting(
        "HALFSCOPE_MAX_INGEST_BODY_BYTES", "Largest body of POST /api/v1/ingest, in bytes.", int, 32 << 20
    )
    max_live_clients: int = _setting("HALFSCOPE_MAX_LIVE_CLIENTS", "Browsers that may watch live at once.", int, 500)
    lost_contact_s: int = _setting(
        "HALFSCOPE_LOST_CONTACT_S", "Seconds without a word from a run's agents after which it counts as lost.", int, 90
    )
    stall_s: int = _setting(
        "HALFSCOPE_STALL_S",
        "Seconds without a step, though the agent is there, after which a training counts as stalled; at least three "
        "times its longest pause so far.",
        int,
        600,
    )
    alert_allow_private: bool = _setting(
        "HALFSCOPE_ALERT_ALLOW_PRIVATE",
        "1: notifications may go to private networks and this machine too; otherwise to public addresses only.",
        _flag,
        False,
    )
    alert_allow_networks: tuple[str, ...] = _setting(
        "HALFSCOPE_ALERT_ALLOW_NETWORK",
        "Networks, separated by commas, that notifications may go to besides public ones, for example 10.1.0.0/16.",
        _networks,
        (),
    )
    log_level: str = _setting("HALFSCOPE_LOG_LEVEL", "debug, info, warning or error.", str.lower, "warning")

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ValueError(f"port is {self.port}; expected 1 to 65535, or 0 for any free one")
        for name in (
            "sign_in_code_s",
            "session_s",
            "max_body_bytes",
            "max_ingest_body_bytes",
            "max_live_clients",
            "lost_contact_s",
            "stall_s",
        ):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; expected a number above 0")
        if self.log_level not in ("debug", "info", "warning", "error"):
            raise ValueError(f"log level is {self.log_level!r}; expected debug, info, warning or error")
        if self.token and len(self.token) < 20:
            raise ValueError(
                f"the token has {len(self.token)} characters; expected at least 20, so that nobody guesses it"
            )

    @property
    def database(self) -> str:
        """The database's URL, the default one spelled out."""
        return self.database_url or f"sqlite:///{self.home.absolute() / 'halfscope.db'}"

    @property
    def journals_directory(self) -> Path:
        return self.journals or self.home / "journals"

    @property
    def token_path(self) -> Path:
        """Where the token of this machine's agents lies, mode 0600."""
        return self.home / "token"

    @property
    def credentials_path(self) -> Path:
        """What `halfscope login` keeps: the address of a server elsewhere, and its token."""
        return self.home / "credentials.json"

    @property
    def server_json_path(self) -> Path:
        """Where agents and `halfscope open` look for the running server."""
        return self.home / "server.json"


def table() -> list[tuple[str, str, str]]:
    """(variable, default as text, meaning) of every setting, in order: what docs/settings.md lists."""
    rows = []
    for entry in dataclasses.fields(Settings):
        is_unset = entry.default is False or entry.default in (dataclasses.MISSING, None, "", ())
        default = "" if is_unset else str(entry.default)
        rows.append((entry.metadata["variable"], default, entry.metadata["text"]))
    return rows


def from_environment(environ: Mapping[str, str] | None = None, **given: Any) -> Settings:
    """Settings from the environment, with `given` ones on top.

    Args:
        environ: the process's own when None.
        given: fields as the command line had them; None means: not given.

    Raises:
        ValueError: a variable that cannot be read as what it should be.
    """
    source = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    for entry in dataclasses.fields(Settings):
        variable, text = entry.metadata["variable"], source.get(entry.metadata["variable"], "")
        if text == "":
            continue
        try:
            values[entry.name] = entry.metadata["read"](text)
        except ValueError as error:
            raise ValueError(f"{variable} is {text!r}; expected: {entry.metadata['text']}") from error
    values.update({name: value for name, value in given.items() if value is not None})
    return _with_token_file(Settings(**values))


def _with_token_file(settings: Settings) -> Settings:
    if settings.token or settings.token_file is None:
        return settings
    try:
        token = settings.token_file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ValueError(f"HALFSCOPE_TOKEN_FILE cannot be read: {error}") from error
    return dataclasses.replace(settings, token=token)


def child_environment(settings: Settings, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a process that shall see these settings: this one's, with what was given on the command
    line on top."""
    environment = dict(os.environ if environ is None else environ)
    for entry in dataclasses.fields(Settings):
        value = getattr(settings, entry.name)
        text = ",".join(value) if isinstance(value, tuple) else str(value)
        if value in (None, "", ()):
            environment.pop(entry.metadata["variable"], None)
        else:
            environment[entry.metadata["variable"]] = text
    return environment


def has_desktop(environ: Mapping[str, str] | None = None) -> bool:
    """Whether a browser window could be seen on this machine."""
    source = os.environ if environ is None else environ
    return sys.platform in ("darwin", "win32") or bool(source.get("DISPLAY") or source.get("WAYLAND_DISPLAY"))
