"""`halfscope serve`: one process from the socket to the last journal.

Owns the order of starting and stopping. Must not hold business of the routes. Invariant: whatever ends the server
(Ctrl-C, SIGTERM, an error while starting), server.json is taken back, the shipper of found journals is stopped and the
database is closed.
"""

from __future__ import annotations

import gc
import logging
import signal
import socket
import subprocess
import sys
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import FrameType
from typing import NoReturn

import uvicorn
from halfscope.wire.codec import MAX_FRAME_BYTES

from halfscope_server import app as application
from halfscope_server.api.services import Services
from halfscope_server.cli import home, ports
from halfscope_server.errors import Unavailable
from halfscope_server.settings import Settings, child_environment, has_desktop

WS_MAX_QUEUE_FRAMES = 8
"""Frames a websocket may hold unread: with 8 MiB each, 64 MiB per connection at the worst, where uvicorn's own
defaults allow 512."""
GRACEFUL_SHUTDOWN_S = 3
"""How long open requests and websockets have to end after Ctrl-C."""
GC_THRESHOLDS = (50_000, 20, 20)
"""Records of a thousand streams are many small objects that live for seconds. By Python's own thresholds (700, 10, 10)
the collector took a fifth of the server's processor time under 1,024 ranks, and freed nothing."""


def run(settings: Settings, *, say: Callable[[str], None], open_browser: bool) -> None:
    """Serves until it is told to stop.

    Args:
        settings: where and how.
        say: prints one line.
        open_browser: also opens the sign-in link, where there is a screen.

    Raises:
        OSError: the address cannot be listened on.
        Unavailable: the database cannot be opened.
    """
    _set_up_logging(settings)
    # The database first: where another server has it, the port does not matter.
    with _stops_on_signals(), _parts(settings) as services, _listening(settings, say) as bound:
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        here = replace(settings, port=bound.port)
        services.authenticator.admit_token(home.ensure_token(here), name="local")
        if here.token:
            services.authenticator.admit_token(here.token, name="environment")
        link = sign_in_link(services, here)
        with _announcement(here) as announce:

            def greet() -> None:
                announce()
                say(f"halfscope serves {local_url(here)}")
                say(f"Sign in (one use, ten minutes): {link}")
                say("Another link: halfscope open · Stop: Ctrl-C")
                if open_browser and has_screen():
                    webbrowser.open(link)

            _Server(_configuration(services), on_started=greet).run(sockets=[bound.listener])


@contextmanager
def _parts(settings: Settings) -> Iterator[Services]:
    """The server's parts; where another server of this home has the database, the error says how to get to that one."""
    with ExitStack() as stack:
        try:
            services = stack.enter_context(application.opened(settings))
        except Unavailable as error:
            running = home.running_server(settings)
            if running is None:
                raise
            raise Unavailable(f"{error}. One runs at {running.url}; `halfscope open` gives a link to it") from error
        yield services


@contextmanager
def _listening(settings: Settings, say: Callable[[str], None]) -> Iterator[ports.Bound]:
    """The port asked for, or the next free one and a word about it."""
    bound = ports.listen(settings.host, settings.port)
    with bound.listener:
        if bound.taken_by:
            say(f"Port {settings.port} is taken by {bound.taken_by}; using {bound.port}.")
        yield bound


def _configuration(services: Services) -> uvicorn.Config:
    return uvicorn.Config(
        application.create_app(services),
        log_config=None,
        access_log=False,
        # h11 bounds the size of a request's head, httptools does not.
        http="h11",
        ws="websockets-sansio",
        ws_max_size=MAX_FRAME_BYTES,
        ws_max_queue=WS_MAX_QUEUE_FRAMES,
        # Frames are compressed already.
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=GRACEFUL_SHUTDOWN_S,
        server_header=False,
    )


def _set_up_logging(settings: Settings) -> None:
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    logging.getLogger("uvicorn.error").addFilter(_is_no_refusal)


def _is_no_refusal(record: logging.LogRecord) -> bool:
    """uvicorn calls it an error when a websocket is answered with 401 or 403 in place of the handshake, as ours are."""
    return record.msg != "ASGI callable returned without completing handshake."


def local_url(settings: Settings) -> str:
    """Where agents on this machine find the server: never through a proxy, to which the local token must not go."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(settings.host, settings.host)
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}{settings.root_path}"


def sign_in_link(services: Services, settings: Settings) -> str:
    """One link, good once, at the address that browsers use."""
    code, _ = services.authenticator.issue_code()
    return f"{(settings.public_url or local_url(settings)).rstrip('/')}/#code={code}"


class _Server(uvicorn.Server):
    """uvicorn's server, telling when it is ready."""

    def __init__(self, config: uvicorn.Config, *, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_started()


def has_screen() -> bool:
    """Whether a browser would be seen: a person at a terminal, on a desktop."""
    return sys.stdout.isatty() and has_desktop()


@contextmanager
def _announcement(settings: Settings) -> Iterator[Callable[[], None]]:
    """Gives a function that tells this machine's agents of the server; all of it is taken back in the end."""
    shippers: list[subprocess.Popen[bytes]] = []

    def announce() -> None:
        home.announce(settings, local_url(settings))
        shippers.extend(_ship_found_journals(settings))

    try:
        yield announce
    finally:
        home.withdraw(settings)
        for shipper in shippers:
            shipper.terminate()
            shipper.wait()


def _ship_found_journals(settings: Settings) -> list[subprocess.Popen[bytes]]:
    """Starts shipping what trainings left here while no server ran; live senders find the server by themselves."""
    directory = settings.journals_directory
    if not directory.is_dir():
        return []
    shipper = subprocess.Popen(
        [sys.executable, "-m", "halfscope", "sync", "--local", "--server", local_url(settings), str(directory)],
        env=child_environment(settings),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # Ctrl-C is for the server, which then stops this one.
        start_new_session=True,
    )
    return [shipper]


@contextmanager
def _stops_on_signals() -> Iterator[None]:
    """uvicorn raises the signal that stopped it once more when it is done; that must end in our cleanup, not in
    sudden death."""

    def leave(_number: int, _frame: FrameType | None) -> NoReturn:
        raise SystemExit(0)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
