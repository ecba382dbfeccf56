"""What `halfscope doctor` asks of the server package: is a server here, who has its port, is its database in order.

Plain tuples, because the agent's doctor, which prints them, knows nothing of this package. Invariant: nothing is
created or changed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from halfscope_server.cli import home, ports
from halfscope_server.errors import Unavailable
from halfscope_server.settings import Settings
from halfscope_server.store.store import Store

Found = tuple[Literal["ok", "info", "warning", "problem"], str, str, str]
"""(state, topic, found, mend)"""


def examine(settings: Settings) -> list[Found]:
    """Every check's result."""
    return [check_local_server(settings), check_port(settings), check_database(settings)]


def check_local_server(settings: Settings) -> Found:
    """What server.json says."""
    running = home.running_server(settings)
    if running is not None:
        return ("ok", "local server", f"{running.url} (pid {running.pid})", "")
    left = home.running_server(settings, alive_only=False)
    if left is not None:
        return (
            "info",
            "local server",
            f"none runs; {settings.server_json_path} is left from process {left.pid}",
            "halfscope serve",
        )
    return ("info", "local server", "none runs", "halfscope serve")


def check_port(settings: Settings) -> Found:
    """Whether the port is free, or whose it is."""
    running = home.running_server(settings)
    if running is not None and running.url.endswith(f":{settings.port}"):
        return ("ok", "port", f"{settings.port} is the local server's", "")
    if ports.is_free(settings.host, settings.port):
        return ("ok", "port", f"{settings.port} is free", "")
    owner = ports.describe_owner(settings.port)
    return ("info", "port", f"{settings.port} is taken by {owner}; `halfscope serve` uses the next free one", "")


def check_database(settings: Settings) -> Found:
    """Whether it can be opened and read."""
    where = settings.database.partition("@")[2] or settings.database
    if settings.database.startswith("sqlite:///") and not Path(settings.database.removeprefix("sqlite:///")).exists():
        return ("info", "database", f"{where} is not there yet; `halfscope serve` makes it", "")
    try:
        store = Store.open(settings.database, read_only=True)
    except (Unavailable, ValueError) as error:
        return ("problem", "database", str(error), "see the message; HALFSCOPE_DATABASE_URL names the database")
    try:
        return ("ok", "database", f"{where}, {len(store.list_runs())} runs", "")
    finally:
        store.close()
