"""ship(): journals to a server. The sender process, `halfscope sync` and the end of a run all use it.

Everything here is looked up when first used, so that a training that ships nothing loads no sockets. Must not import
torch or numpy.

    ensure_sender(directory=, server=)     the node's one sender process, started where none runs
    keep_sender(directory=, server=)       the same from time to time, in case it was killed
    status(directory)                      what it says of itself
    drain(run_id, stream, timeout_s)       wait until an ended stream is acknowledged
    sync(directory, server, token, progress)     ship a directory now, from this process
    remove_shipped(directory, ...)         drop journals that are safe on a server
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from halfscope.send.cleanup import remove_shipped as remove_shipped
    from halfscope.send.once import SyncError as SyncError
    from halfscope.send.once import SyncProgress as SyncProgress
    from halfscope.send.once import sync as sync
    from halfscope.send.process import Sender as Sender
    from halfscope.send.process import SenderStatus as SenderStatus
    from halfscope.send.process import drain as drain
    from halfscope.send.process import ensure_sender as ensure_sender
    from halfscope.send.process import keep_sender as keep_sender
    from halfscope.send.process import status as status

_HOMES = {
    "Sender": "process",
    "SenderStatus": "process",
    "SyncError": "once",
    "SyncProgress": "once",
    "drain": "process",
    "ensure_sender": "process",
    "keep_sender": "process",
    "remove_shipped": "cleanup",
    "status": "process",
    "sync": "once",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
