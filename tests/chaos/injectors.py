"""How each kind of fault is done to a node, and undone.

Source: docs/spec/reliability.md §4.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from barnabas.protocol.zookeeper.znodes import broker_path
from tests.crash.powered_disk import Cut
from tests.harness.waiting import eventually
from tests.harness.znodes import session

from .fault_kinds import FaultKind, Planned
from .load import OFFSETS
from .networked_cluster import DAY_NS, NetworkedCluster
from .offset_load import LateQuestions
from .trial import Trial

END_S: Final = 60.0
"""A node whose disk fails has ended by then."""
FULL: Final = b"the disk is full"
"""What a node says when it takes no more records."""
_JAVA_MULTIPLIER: Final = 0x5DEECE66D
_JAVA_MASK: Final = (1 << 48) - 1
_ZOOKEEPER_SALT: Final = 0xB3415C00
_PASSWORD_BYTES: Final = 16

Injector = Callable[[int], AbstractContextManager[None]]


class Injectors:
    """One for each kind: a ``with`` whose block runs while the fault lasts."""

    def __init__(self, cluster: NetworkedCluster, trial: Trial) -> None:
        self._cluster = cluster
        self._trial = trial
        self._groups: Sequence[str] = ()
        self._luck = random.Random(0)
        network, port = cluster.network, cluster.zookeeper_port

        def cut(*, peers: bool = True, hears: bool = False, is_heard: bool = False) -> Injector:
            def inject(node: int) -> AbstractContextManager[None]:
                return network.filtered(
                    node, zookeeper=port, peers=peers, hears=hears, is_heard=is_heard
                )

            return inject

        self._injectors: Mapping[FaultKind, Injector] = {
            FaultKind.KILL: self._killed,
            FaultKind.STOP: self._paused,
            FaultKind.TERM: self._stopped,
            FaultKind.UNPLUGGED: network.unplugged,
            FaultKind.CUT_OFF: cut(),
            FaultKind.DEAF: cut(is_heard=True),
            FaultKind.MUTE: cut(hears=True),
            FaultKind.WITHOUT_ZOOKEEPER: cut(peers=False),
            FaultKind.LOSSY_LINK: network.lossy,
            FaultKind.SLOW_LINK: network.slow,
            FaultKind.EXPIRED: self._expired,
            FaultKind.ZOOKEEPER_STOPPED: self._without_zookeeper,
            FaultKind.POWER: self._without_power,
            FaultKind.DISK_FULL: self._full,
            FaultKind.DISK_ERROR: self._failing,
            FaultKind.CLOCK: self._mistaken,
        }
        assert set(self._injectors) == set(FaultKind), "a kind without an injector"

    def fault(
        self, victim: int, planned: Planned, groups: Sequence[str]
    ) -> AbstractContextManager[None]:
        """What was planned, done to this node, which coordinates these groups."""
        self._groups = groups
        self._luck.seed(planned.luck)
        return self._injectors[planned.kind](victim)

    @contextmanager
    def _killed(self, victim: int) -> Iterator[None]:
        self._cluster.kill(victim)
        yield
        self._cluster.restart(victim)

    @contextmanager
    def _stopped(self, victim: int) -> Iterator[None]:
        node = self._cluster.node(victim)
        node.ask_to_stop()
        node.wait_stopped()
        assert node.exit_code == 0, f"node {victim} ended with {node.exit_code}"
        yield
        self._cluster.restart(victim)

    @contextmanager
    def _paused(self, victim: int) -> Iterator[None]:
        """It is sent fetches at the end, which it answers when it wakes up."""
        self._cluster.pause(victim)
        try:
            yield
            late: LateQuestions | None = None
            if self._groups:
                late = LateQuestions(self._trial.addresses[victim - 1], OFFSETS, self._groups)
        finally:
            self._cluster.resume(victim)
        if late is not None:
            reads, codes = late.answers()
            self._trial.load.late.append(reads)
            self._trial.load.late_codes += codes

    @contextmanager
    def _without_power(self, victim: int) -> Iterator[None]:
        """What it had not synced is gone; others have it."""
        node = self._cluster.networked(victim)
        node.fail(Cut.NO_LOG_FLUSH)
        node.kill()
        yield
        self._replace_disk(victim)

    @contextmanager
    def _failing(self, victim: int) -> Iterator[None]:
        """Every write and sync ends with EIO: a node that has no other disk ends."""
        node = self._cluster.networked(victim)
        node.fail(Cut.FREEZE)
        eventually(lambda: not node.is_running, within_s=END_S, what="it ends without a disk")
        yield
        self._replace_disk(victim)

    def _replace_disk(self, victim: int) -> None:
        disk = self._cluster.networked(victim).disk
        assert disk is not None
        disk.replace()
        self._cluster.restart(victim)

    @contextmanager
    def _full(self, victim: int) -> Iterator[None]:
        node = self._cluster.networked(victim)
        assert node.disk is not None
        said = count_in(node.log, FULL)
        with node.disk.filled():
            eventually(
                lambda: count_in(node.log, FULL) > said or not node.is_running,
                within_s=END_S,
                what="its disk is full",
            )
            yield
        assert node.is_running, f"node {victim} ended on a full disk"

    @contextmanager
    def _mistaken(self, victim: int) -> Iterator[None]:
        """Its time of day is that of yesterday or of tomorrow, then right again."""
        node = self._cluster.networked(victim)
        clock, used = node.clock, Path(f"/proc/{node.pid}/maps").read_text()
        assert str(clock.path) in used, f"node {victim} goes by another clock"
        clock.set(DAY_NS * self._luck.choice((-1, 1)))
        try:
            yield
        finally:
            clock.set(0)

    @contextmanager
    def _without_zookeeper(self, _victim: int) -> Iterator[None]:
        server = self._cluster.zookeeper_server
        server.pause()
        try:
            yield
        finally:
            server.resume()

    @contextmanager
    def _expired(self, victim: int) -> Iterator[None]:
        expire(self._cluster.zookeeper, broker_path(victim))
        yield


def expire(hosts: str, path: str) -> None:
    """End the session that owns a znode: somebody else takes it over, and closes it."""
    with session(hosts) as client:
        found = eventually(lambda: client.exists(path), what=f"{path} is there")
        assert found is not None
        owner = found.ephemeralOwner

        def is_over() -> bool:
            thief = KazooClient(hosts, client_id=(owner, session_password(owner)))
            try:
                thief.start(timeout=10)
            except KazooTimeoutError:
                pass  # its owner was quicker
            finally:
                thief.stop()
                thief.close()
            try:
                now = client.exists(path)
            except KazooException:  # this session was disturbed: it is asked for again
                return False
            return now is None or now.ephemeralOwner != owner

        eventually(is_over, within_s=180, what=f"the session that owns {path} is over")


def session_password(session_id: int) -> bytes:
    """What ZooKeeper makes of a session's id: ZooKeeperServer.generatePasswd, java.util.Random."""
    state = (session_id ^ _ZOOKEEPER_SALT ^ _JAVA_MULTIPLIER) & _JAVA_MASK
    password = bytearray()
    while len(password) < _PASSWORD_BYTES:
        state = (state * _JAVA_MULTIPLIER + 0xB) & _JAVA_MASK
        password += (state >> 16).to_bytes(4, "little")
    return bytes(password)


def count_in(log: Path, words: bytes) -> int:
    """How often a node said it."""
    return log.read_bytes().count(words)
