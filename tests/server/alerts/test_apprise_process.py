"""What the process that sends through Apprise refuses; its hook is asked here without being set."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any

import certifi
import pytest
from halfscope_server.alerts.addresses import Policy
from halfscope_server.alerts.apprise_process import Watch, _said


def asked(event: str, *args: Any, allow_private: bool = False) -> bool:
    """Whether an audit event is let through."""
    watch = Watch(Policy(allow_private=allow_private))
    try:
        watch.audit(event, args)
    except PermissionError:
        return False
    return True


@pytest.mark.parametrize(
    ("event", "args"),
    [
        ("socket.connect", (None, ("127.0.0.1", 25))),
        ("socket.connect", (None, ("8.8.8.8", 443))),
        ("socket.connect", (None, ("::1", 25, 0, 0))),
        ("socket.connect", (None, "/var/run/docker.sock")),
        ("socket.connect", (None, b"\0abstract")),
        ("socket.sendto", (None, ("10.0.0.1", 514))),
        ("socket.sendmsg", (None, ("10.0.0.1", 514))),
        ("socket.bind", (None, ("0.0.0.0", 0))),
        ("subprocess.Popen", ("sh", ["sh", "-c", "id"], None, None)),
        ("os.system", (b"id",)),
        ("os.posix_spawn", ("/bin/sh", [], {})),
        ("os.exec", ("/bin/sh", [], {})),
        ("os.fork", ()),
        ("ctypes.dlopen", ("libc.so.6",)),
        ("os.remove", ("/tmp/x", -1)),
        ("syslog.syslog", (1, "x")),
        ("open", ("/etc/passwd", "r", os.O_RDONLY)),
        ("open", (b"/etc/shadow", "rb", os.O_RDONLY)),
        ("open", (os.path.join(sys.prefix, "..", "..", "etc", "passwd"), "r", os.O_RDONLY)),
        ("open", ("/proc/self/environ", None, os.O_RDONLY)),
        ("open", (os.path.join(sys.prefix, "new.py"), "w", os.O_WRONLY | os.O_CREAT)),
        ("open", (os.path.join(sys.prefix, "new.py"), None, os.O_RDWR)),
        ("open", ("/tmp/halfscope-new", "x", os.O_WRONLY | os.O_CREAT)),
    ],
)
def test_what_a_message_needs_not_is_refused(event: str, args: tuple[Any, ...]) -> None:
    """Connections nobody looked up, programs, sockets of the machine, writing, and reading what is no code."""
    assert not asked(event, *args)
    assert not asked(event, *args, allow_private=True)


@pytest.mark.parametrize(
    ("event", "args"),
    [
        ("open", (os.__file__, "rb", os.O_RDONLY)),
        ("open", (certifi.where(), "r", os.O_RDONLY)),
        ("open", (3, "r", os.O_RDONLY)),
        ("import", ("json", None, None, None, None)),
        ("socket.__new__", (None, socket.AF_INET, socket.SOCK_STREAM, 0)),
        ("socket.getaddrinfo", ("example.org", 443, 0, 0, 0)),
    ],
)
def test_what_a_message_needs_is_let_through(event: str, args: tuple[Any, ...]) -> None:
    """Code, certificates and open files can be read, and sockets made."""
    assert asked(event, *args)


def test_a_link_out_of_the_code_is_no_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path is judged by where it leads."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "code.py").write_text("x = 1\n", encoding="utf-8")
    (tmp_path / "link.py").symlink_to("/etc/passwd")
    assert asked("open", str(tmp_path / "code.py"), "r", os.O_RDONLY)
    assert not asked("open", str(tmp_path / "link.py"), "r", os.O_RDONLY)


def test_only_what_was_looked_up_and_allowed_is_connected_to() -> None:
    """A look-up through the guard opens the way to its own addresses, a refused one to none."""
    watch = Watch(Policy(allow_private=True))
    found = watch.look_up("127.0.0.1", 25, 0, socket.SOCK_STREAM)
    assert found[0][4] == ("127.0.0.1", 25)
    watch.audit("socket.connect", (None, ("127.0.0.1", 25)))
    assert watch.num_sendings == 1
    with pytest.raises(PermissionError):
        watch.audit("socket.connect", (None, ("127.0.0.2", 25)))
    strict = Watch(Policy())
    with pytest.raises(socket.gaierror):
        strict.look_up("127.0.0.1", 25)
    with pytest.raises(PermissionError):
        strict.audit("socket.connect", (None, ("127.0.0.1", 25)))
    assert "private or reserved network" in strict.refused


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'{"errcode": 310000, "errmsg": "keywords not in content"}', "310000: keywords not in content"),
        (b'{"code": 19024, "msg": "Key Words Not Found"}', "19024: Key Words Not Found"),
        (b'{"errcode": 0, "errmsg": "ok"}', ""),
        (b'{"code": "token-hunter2"}', ""),
        (b"<html>hunter2</html>", ""),
        (b"[1]", ""),
        (b"\xff", ""),
    ],
)
def test_errors_in_answers_of_200_are_read(content: bytes, expected: str) -> None:
    """DingTalk, WeCom and Feishu refuse with a code in the JSON; nothing else of an answer is told."""
    assert _said(content) == expected
