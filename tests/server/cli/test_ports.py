"""Finding a port."""

from __future__ import annotations

import os
import socket
from contextlib import closing

import pytest
from halfscope_server.cli.ports import describe_owner, listen

from tests.helpers.ports import free_port


def test_free_port_is_taken_as_asked() -> None:
    """Nothing to tell, and the socket already takes connections."""
    port = free_port()
    bound = listen("127.0.0.1", port)
    with closing(bound.listener), closing(socket.create_connection(("127.0.0.1", port), timeout=5)):
        assert (bound.port, bound.taken_by) == (port, "")


def test_taken_port_gives_the_next_free_one_and_says_who_has_it() -> None:
    """The owner is named by command and pid: here it is this test process."""
    first = listen("127.0.0.1", free_port())
    with closing(first.listener):
        second = listen("127.0.0.1", first.port)
        with closing(second.listener):
            assert first.port < second.port <= first.port + 50
            assert f"(pid {os.getpid()})" in second.taken_by


def test_owner_of_a_free_port_is_nobody_in_particular() -> None:
    """Where the system does not tell, the words stay general instead of wrong."""
    assert describe_owner(free_port()) == "another process"


def test_an_address_of_another_machine_is_an_error() -> None:
    """Only a taken port is worked around; 192.0.2.0/24 is reserved for documentation."""
    with pytest.raises(OSError, match=r"assign|available"):
        listen("192.0.2.1", free_port())


def test_ipv6_loopback_works_where_the_system_has_it() -> None:
    """`--host ::1` is as good as 127.0.0.1."""
    if not socket.has_ipv6:
        pytest.skip("no IPv6")
    try:
        bound = listen("::1", 0)
    except OSError:
        pytest.skip("no IPv6 loopback")
    with closing(bound.listener):
        assert bound.listener.family == socket.AF_INET6
