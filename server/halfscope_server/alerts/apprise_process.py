"""A process that sends one message through Apprise, and can do nothing else.

Apprise opens its connections in over a hundred modules. So it runs in a process of its own, which ends when it takes
too long, and which refuses, by Python's own audit events, what a message needs not: connections to addresses that were
not looked up through the guard, other programs, writing files, reading files but code and certificates. Must not import
more of the server than the guard, and nothing imports this. Invariants: what is refused fails closed, also for a plugin
nobody here has heard of; no redirect is followed, no proxy used, and no answer read beyond a limit; stdout gets one
JSON object that holds no secret.

    python -I -m halfscope_server.alerts.apprise_process < request.json > result.json
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import ssl
import sys
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from halfscope_server.alerts.addresses import Policy, Refused, resolve
from halfscope_server.alerts.dialing import Reach, explain

MAX_MEMORY_BYTES = 2 << 30
MAX_ANSWER_BYTES = 64 << 10
REFUSED_EVENTS = frozenset(
    {"os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "pty.spawn", "subprocess.Popen"}
    | {"os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.truncate"}
    | {"shutil.rmtree", "socket.bind", "webbrowser.open", "syslog.syslog", "ctypes.dlopen"}
)
SENDING_EVENTS = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})


class Watch:
    """What went over the wire: for the result, and for the audit hook."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._look_up = socket.getaddrinfo
        self.addresses: set[str] = set()
        """Looked up and allowed."""
        self.num_sendings = 0
        """Connections and datagrams that were let through."""
        self.refused = ""
        self.failure = ""
        """Why there was no answer, in words without addresses."""
        self.answers: list[dict[str, Any]] = []
        """{host, status, retry_after, said} of each."""

    def look_up(self, host: Any, port: Any, *args: Any, **kwargs: Any) -> list[tuple[Any, ...]]:
        """Stands for `socket.getaddrinfo`."""

        def again(name: str, number: Any, **_: Any) -> Any:
            return self._look_up(name, number, *args, **kwargs)

        text = host.decode("ascii") if isinstance(host, bytes) else str(host)
        try:
            found = resolve(text, port, self._policy, again)
        except Refused as error:
            self.refused = str(error)
            raise socket.gaierror(socket.EAI_NONAME, "refused") from error
        except OSError as error:
            self.failure = explain(error, text)
            raise
        self.addresses.update(str(each[4][0]) for each in found)
        return found

    def audit(self, event: str, args: tuple[Any, ...]) -> None:
        """The hook. It cannot be taken out again."""
        if event in SENDING_EVENTS:
            address = args[1]
            if not (isinstance(address, tuple) and address[0] in self.addresses):
                self.refused = self.refused or "it connects to an address that it did not look up"
                raise PermissionError("refused")
            self.num_sendings += 1
        elif event in REFUSED_EVENTS or (event == "open" and not _may_open(*args)):
            raise PermissionError("refused")


def main() -> None:
    """Read the request, send, write the result."""
    request = json.load(sys.stdin.buffer)
    with contextlib.suppress(ValueError, OSError):  # where the system has a lower one, or none
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    reach = Reach.allowed(private=request["allow_private"], networks=request["networks"])
    watch = Watch(reach.policy)
    try:
        import apprise
    except ImportError:
        return _say(error="apprise is not installed; install halfscope[server] or halfscope[alerts]")
    _guard_requests(watch)
    socket.getaddrinfo = watch.look_up
    asset = apprise.AppriseAsset(
        http_redirects=False, async_mode=False, storage_mode=apprise.PersistentStoreMode.MEMORY, app_id="halfscope"
    )
    sys.addaudithook(watch.audit)
    try:
        plugin = apprise.Apprise.instantiate(request["url"], asset=asset)
    except Exception as error:  # noqa: BLE001  (a plugin's own; its text may hold the address)
        return _say(error=f"Apprise cannot read this address ({type(error).__name__})")
    if plugin is None or isinstance(plugin, dict):
        return _say(error="Apprise cannot read this address")
    is_sent, failure = _send(apprise, plugin, asset, request)
    if is_sent and not watch.num_sendings:
        # Some services leave out what is of a lower kind: nobody was told, so it was not sent.
        is_sent, failure = False, f"{plugin.service_name} was not asked: it takes no messages of kind {request['type']}"
    _say(ok=is_sent, error=failure or watch.failure, refused=watch.refused, answers=watch.answers)


def _send(apprise: Any, plugin: Any, asset: Any, request: dict[str, Any]) -> tuple[bool, str]:
    """Whether Apprise calls it sent, and a failure in words where it knows one."""
    plugin.overflow_mode = apprise.OverflowMode.TRUNCATE
    sender = apprise.Apprise(asset=asset)
    sender.add(plugin)
    end = threading.Timer(request["send_s"], _end, (f"no answer within {request['send_s']:g} s",))
    end.daemon = True
    end.start()
    try:
        sent = sender.notify(
            title=request["title"],
            body=request["text"],
            notify_type=request["type"],
            body_format=apprise.NotifyFormat.TEXT,
        )
    except Exception as error:  # noqa: BLE001  (a plugin's own; its text may hold the address)
        return False, f"Apprise failed ({type(error).__name__})"
    finally:
        end.cancel()
    return bool(sent), ""


def _end(error: str) -> None:
    """From another thread than the one that waits, which nothing else would wake."""
    _say(error=error)
    sys.stdout.flush()
    os._exit(0)


def _say(*, ok: bool = False, error: str = "", refused: str = "", answers: Any = ()) -> None:
    json.dump({"ok": ok, "error": error, "refused": refused, "answers": list(answers)}, sys.stdout)


def _guard_requests(watch: Watch) -> None:
    """No proxies, no redirects, no endless answers; and what was answered is kept for the result."""
    import requests
    from requests import sessions
    from requests.adapters import HTTPAdapter
    from urllib3.exceptions import HTTPError

    class Guarded(HTTPAdapter):
        def send(self, request: Any, *args: Any, **kwargs: Any) -> Any:
            kwargs["proxies"] = {}
            kwargs["stream"] = True
            host = urlsplit(request.url).hostname or "the service"
            try:
                response = super().send(request, *args, **kwargs)
                response._content = response.raw.read(MAX_ANSWER_BYTES, decode_content=True) or b""
            except (OSError, HTTPError) as error:  # what requests and urllib3 raise
                watch.failure = watch.failure or f"the connection to {host} failed ({type(error).__name__})"
                raise
            response._content_consumed = True
            after = response.headers.get("Retry-After")
            said = _said(response._content) if response.status_code < 300 else ""
            watch.answers.append({"host": host, "status": response.status_code, "retry_after": after, "said": said})
            if 300 <= response.status_code < 400:
                raise requests.ConnectionError("a redirect")
            return response

    vars(sessions)["HTTPAdapter"] = Guarded  # what every new session mounts


def _said(content: bytes) -> str:
    """The error that services put into an answer of 200; empty: none that is known."""
    try:
        answer = json.loads(content)
    except ValueError:
        return ""
    if not isinstance(answer, dict):
        return ""
    code = next((answer[key] for key in ("errcode", "code", "StatusCode") if answer.get(key)), None)
    text = next((answer[key] for key in ("errmsg", "msg", "StatusMessage") if answer.get(key)), "")
    return f"{code}: {text}"[:200] if isinstance(code, int) else ""


def _roots() -> tuple[str, ...]:
    """Where code and certificates lie."""
    certificates = ssl.get_default_verify_paths()
    given = [os.environ.get(name) for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR")]
    found = [*sys.path, sys.prefix, sys.base_prefix, certificates.cafile, certificates.capath, *given]
    return tuple(os.path.realpath(path) for path in [*found, "/usr/share/zoneinfo", "/dev/null"] if path)


def _may_open(path: Any, mode: Any = None, flags: Any = 0, roots: Callable[[], tuple[str, ...]] = _roots) -> bool:
    if isinstance(path, int):
        return True
    is_writing = any(letter in str(mode or "") for letter in "wax+") or (
        mode is None and isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    )
    real = os.path.realpath(os.fsdecode(path))
    return not is_writing and any(real == root or real.startswith(root + os.sep) for root in roots())


if __name__ == "__main__":
    main()
