"""A network for each node: namespaces, a bridge between them, and the ways in which it is cut.

The bridge stands in a namespace of this process's own, where clients and ZooKeeper are; each node
has another one, held by a descriptor. None of them has a name: all go with the last process in
them, however it ends. Source: docs/spec/reliability.md §4 (netns, packet filters, finding 6).
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Final, Self

HUB: Final = "10.47.0.1"
"""Where ZooKeeper listens, and clients come from."""
LOSS: Final = 0.05
DELAY_MS: Final = 100
"""Each way."""
REMEDY_OF_NONE: Final = "apt-get install iproute2 iptables, and run as root"
_NODE: Final = "10.47.0.{}"
_FIRST: Final = 11
_BRIDGE: Final = "hub"
_NEW_NETWORK: Final = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


@cache
def why_not() -> str:
    """Why there can be no such network here; empty when there can."""
    if os.geteuid() != 0:
        return "needs root for network namespaces"
    for tool in ("unshare", "ip", "iptables"):
        if shutil.which(tool) is None:
            return f"needs {tool}"
    trials = (
        "ip link add name hub type bridge",
        "ip link add name node1 type veth peer name far",
        f"iptables -A INPUT -m statistic --mode random --probability {LOSS} -j DROP",
    )
    return next(filter(None, map(_failure_of, trials)), "")


@cache
def why_no_delay() -> str:
    """Why links cannot be made slow here; empty when they can."""
    if shutil.which("tc") is None:
        return "needs tc"
    failure = _failure_of(f"tc qdisc add dev lo root netem delay {DELAY_MS}ms")
    return failure and f"the kernel has no sch_netem ({failure})"


def _failure_of(command: str) -> str:
    """What the command says against being run in a new namespace; empty when it ran."""
    tried = subprocess.run(
        ["unshare", "-n", *command.split()], capture_output=True, text=True, check=False
    )
    said = tried.stderr.strip().splitlines() or [f"exit code {tried.returncode}"]
    return "" if tried.returncode == 0 else said[0]


class Namespace:
    """Another network namespace than that of the main thread, which can go there and come back."""

    def __init__(self) -> None:
        home = _current()
        try:
            _check(_libc.unshare(_NEW_NETWORK), "unshare")
            self.descriptor = _current()
        finally:
            _enter(home)
            os.close(home)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """What this thread starts meanwhile is in there, and stays."""
        home = _current()
        _enter(self.descriptor)
        try:
            yield
        finally:
            _enter(home)
            os.close(home)

    def run(self, *command: str) -> None:
        """A command in there; raises CalledProcessError."""
        with self.entered():
            _run(*command)


class Network:
    """A hub and ``count`` nodes, numbered from 1; use it in a ``with``, before any thread runs."""

    def __init__(self, count: int) -> None:
        self.hosts: Sequence[str] = [_NODE.format(_FIRST + index) for index in range(count)]
        """The nodes' addresses."""
        self._nodes: list[Namespace] = []

    def __enter__(self) -> Self:
        assert threading.active_count() == 1, "threads would stay behind in the old network"
        _check(_libc.unshare(_NEW_NETWORK), "unshare")
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "link", "add", _BRIDGE, "type", "bridge")
        _run("ip", "address", "add", f"{HUB}/24", "dev", _BRIDGE)
        _run("ip", "link", "set", _BRIDGE, "up")
        for number, host in enumerate(self.hosts, 1):
            self._nodes.append(_connected(f"node{number}", host))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for node in self._nodes:
            os.close(node.descriptor)
        self._nodes.clear()

    def namespace(self, node: int) -> Namespace:
        """Where a node is to be started."""
        return self._nodes[node - 1]

    @contextmanager
    def unplugged(self, node: int) -> Iterator[None]:
        """Nothing reaches the node, nothing leaves it: neither peers nor clients nor ZooKeeper."""
        _run("ip", "link", "set", f"node{node}", "down")
        try:
            yield
        finally:
            _run("ip", "link", "set", f"node{node}", "up")

    @contextmanager
    def filtered(
        self, node: int, *, zookeeper: int, peers: bool = True, hears: bool, is_heard: bool
    ) -> Iterator[None]:
        """Clients reach the node, and ZooKeeper at this port does not, nor do its peers.

        Unless it ``hears`` them, or ``is_heard`` by them.
        """
        others = [host for host in self.hosts if host != self.hosts[node - 1]] if peers else []
        rules: list[list[str]] = []
        if not hears:
            rules += [["INPUT", "-s", host] for host in others]
            rules.append(["INPUT", "-s", HUB, "-p", "tcp", "--sport", str(zookeeper)])
        if not is_heard:
            rules += [["OUTPUT", "-d", host] for host in others]
            rules.append(["OUTPUT", "-d", HUB, "-p", "tcp", "--dport", str(zookeeper)])
        with self._dropped(node, rules):
            yield

    @contextmanager
    def lossy(self, node: int) -> Iterator[None]:
        """Every twentieth packet from and to the node is lost."""
        rng = ["-m", "statistic", "--mode", "random", "--probability", str(LOSS)]
        with self._dropped(node, [["INPUT", *rng], ["OUTPUT", *rng]]):
            yield

    @contextmanager
    def slow(self, node: int) -> Iterator[None]:
        """A round trip takes 200 ms, and every twentieth packet is lost."""
        discipline = ["root", "netem", "delay", f"{DELAY_MS}ms", "loss", f"{LOSS:.0%}"]
        with ExitStack() as stack:
            _run("tc", "qdisc", "add", "dev", f"node{node}", *discipline)
            stack.callback(_run, "tc", "qdisc", "del", "dev", f"node{node}", "root")
            inside = self.namespace(node)
            inside.run("tc", "qdisc", "add", "dev", "eth0", *discipline)
            stack.callback(inside.run, "tc", "qdisc", "del", "dev", "eth0", "root")
            yield

    @contextmanager
    def _dropped(self, node: int, rules: Sequence[Sequence[str]]) -> Iterator[None]:
        inside = self.namespace(node)
        try:
            for rule in rules:
                inside.run("iptables", "-w", "-A", *rule, "-j", "DROP")
            yield
        finally:
            inside.run("iptables", "-w", "-F")


def _connected(name: str, host: str) -> Namespace:
    """A namespace with one wire to the bridge, which ends there under ``name``."""
    namespace = Namespace()
    far = f"/proc/{os.getpid()}/fd/{namespace.descriptor}"
    _run("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", far)
    _run("ip", "link", "set", name, "master", _BRIDGE, "up")
    namespace.run("ip", "link", "set", "lo", "up")
    namespace.run("ip", "address", "add", f"{host}/24", "dev", "eth0")
    namespace.run("ip", "link", "set", "eth0", "up")
    return namespace


def _current() -> int:
    """A descriptor of this thread's network namespace; kept from children."""
    return os.open(Path("/proc/thread-self/ns/net"), os.O_RDONLY | os.O_CLOEXEC)


def _enter(descriptor: int) -> None:
    _check(_libc.setns(descriptor, _NEW_NETWORK), "setns")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}"
