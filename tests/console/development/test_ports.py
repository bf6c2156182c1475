"""Ports that are given out belong to whoever asked until its server listens."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from barnabas.console.development import ports
from barnabas.console.development.ports import LOOPBACK, adjacent_free_ports, free_ports, is_free

_ASK = (
    "from barnabas.console.development import ports; "
    "ports._LOWEST = ports._HIGHEST = {}; ports.free_ports(1)"
)


@pytest.mark.skipif(sys.platform != "linux", reason="ports are held on Linux only")
def test_no_other_process_is_given_a_port_before_its_server_has_started() -> None:
    (port,) = free_ports(1)
    asked = subprocess.run([sys.executable, "-c", _ASK.format(port)], stderr=subprocess.PIPE)
    assert asked.returncode == 1
    assert b"no 1 free ports" in asked.stderr


def test_the_server_for_which_it_was_asked_starts_stops_and_starts_again() -> None:
    (port,) = free_ports(1)
    for _ in range(2):
        assert is_free(port)
        with socket.create_server((LOOPBACK, port)):
            assert not is_free(port)
        with socket.create_server(("", port)):
            assert not is_free(port)


def test_no_port_is_given_twice_while_it_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_HIGHEST", ports._LOWEST + 60)
    first = free_ports(8)
    assert not set(first) & set(free_ports(8))


def test_ports_in_a_row_are_held_like_others(monkeypatch: pytest.MonkeyPatch) -> None:
    first = adjacent_free_ports(3)
    held = [one.getsockname()[1] for one in list(ports._held)[-3:]]
    assert held == [first, first + 1, first + 2]
    monkeypatch.setattr(ports, "_LOWEST", first)
    monkeypatch.setattr(ports, "_HIGHEST", first + 3)
    with pytest.raises(OSError, match="no 3 free ports in a row"):
        adjacent_free_ports(3)


def test_a_process_that_asks_for_ever_holds_a_bounded_number() -> None:
    for _ in range(300):
        free_ports(1)
    assert len(ports._held) == ports._HELD_MAX


def test_nobody_is_warned_of_held_ports_at_the_end() -> None:
    ask = "from barnabas.console.development.ports import free_ports; free_ports(3)"
    ended = subprocess.run([sys.executable, "-X", "dev", "-c", ask], capture_output=True)
    assert (ended.returncode, ended.stderr) == (0, b"")
