"""Clients on three nodes, how all of them are seen to go on, and the verdict at the end.

Source: docs/spec/reliability.md §3 and §4.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kazoo.exceptions import KazooException

from barnabas.console.development.ports import LOOPBACK
from barnabas.protocol.hashing import group_partition
from benchmarks.cluster_view import OFFSETS_TOPIC, ClusterView
from tests.chaos.offset_history_checks import Read
from tests.harness.confluent_client import Confluent
from tests.harness.coordinators import coordinator
from tests.harness.raw_calls import NO_ERROR, fetch_offsets, find_coordinator
from tests.harness.raw_connection import Address, Closed, RawConnection
from tests.harness.waiting import TooLate, eventually

from .load import OFFSETS, PARTITIONS, RECORDS, Load
from .record_checks import RecordId, differences

NODES: Final = 3
OFFSETS_PARTITIONS: Final = 6
"""Of the offsets topic, in the settings of every cluster that is tried."""
RECOVERY_S: Final = 180.0
LAST_LINES: Final = 40


class Trial:
    """The load in a ``with``; then :meth:`findings`. ``directories`` are the nodes' logs.

    ``hosts`` are where the nodes listen, on this machine's loopback where nothing is said.
    """

    patience_s = RECOVERY_S
    """By then every client has got on."""

    def __init__(
        self,
        ports: Sequence[int],
        directories: Sequence[Path],
        view: ClusterView,
        seed: int,
        *,
        hosts: Sequence[str] = (),
        clients: type[Load] = Load,
    ) -> None:
        places = hosts or [LOOPBACK] * len(ports)
        self.addresses: list[Address] = list(zip(places, ports, strict=True))
        self.bootstrap = ",".join(f"{host}:{port}" for host, port in self.addresses)
        self._directories = list(directories)
        self._view = view
        self._create_topics()
        self.load = clients(self.addresses, self.bootstrap, random.Random(seed))
        self.records = 0
        """In the log at the end."""

    def __enter__(self) -> Self:
        self.load.__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.load.__exit__(*exc_info)

    def await_progress(self) -> None:
        """Every client has done something since now."""
        before = self.load.progress()

        def waiting() -> list[str]:
            now = self.load.progress()
            return [name for name, done in before.items() if now[name] <= done]

        await_none(waiting, "every client goes on", self.patience_s)

    def await_rest(self, what: str) -> None:
        """All nodes are there and all replicas in sync."""
        await_none(self._wants, what)

    def groups_of(self, node: int) -> list[str]:
        """The load's groups that a node coordinates; ZooKeeper is asked again until it knows."""

        def all_leaders() -> Mapping[int, int]:
            found = self._view.leaders(OFFSETS_TOPIC)
            return found if len(found) == OFFSETS_PARTITIONS else {}

        leaders = eventually(all_leaders, within_s=60.0, what="who coordinates")
        groups = self.load.groups
        return [one for one in groups if leaders[group_partition(one, len(leaders))] == node]

    def outage_s(self, groups: Sequence[str], moment: float) -> float:
        """The longest that one of the groups was without an acknowledged commit since."""
        longest = 0.0
        for one in self.load.committers:
            if one.group in groups:
                moments = [moment, *(at for at, _ in one.answered[-5_000:] if at > moment)]
                gaps = (later - earlier for earlier, later in itertools.pairwise(moments))
                longest = max(longest, *gaps)
        return longest

    def findings(self) -> list[str]:
        """Everything that must not be, which is nothing; asked when the load has ended."""
        everything = dict.fromkeys(range(PARTITIONS), "beginning")
        rows = Confluent().read(self.bootstrap, RECORDS, everything)
        log: dict[RecordId, bytes] = {(one.partition, one.offset): one.value or b"" for one in rows}
        self.records = len(log)
        groups = self.load.groups
        final = {group: self._committed(group, OFFSETS, [0])[0] for group in groups}
        every = list(range(PARTITIONS))
        members = {group: self._committed(group, RECORDS, every) for group in self.load.members}
        return self.load.findings(final, members, log) + self._differences()

    def _wants(self) -> list[str]:
        return self._view.wants([OFFSETS, RECORDS, OFFSETS_TOPIC]) + self._missing_nodes()

    def _create_topics(self) -> None:
        """While all nodes are there, that of the offsets too.

        Where a busy node was away for a moment when the load begins, the controller would say in
        its log that there are too few nodes for it, which is a finding.
        """
        await_none(self._missing_nodes, "all nodes are there")
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        wanted = [NewTopic(OFFSETS, 1, NODES)]
        wanted.append(NewTopic(RECORDS, PARTITIONS, NODES, config={"retention.ms": "-1"}))
        for created in admin.create_topics(wanted).values():
            created.result(RECOVERY_S)
        coordinator(self.addresses, "any")

    def _missing_nodes(self) -> list[str]:
        try:
            return [f"{NODES} nodes"] * (len(self._view.brokers()) < NODES)
        except KazooException as problem:  # ZooKeeper was hurt: asked again
            return [repr(problem)]

    def _committed(self, group: str, topic: str, partitions: list[int]) -> dict[int, Read]:
        def ask() -> dict[int, Read] | None:
            began = time.monotonic()
            try:
                with RawConnection(self.addresses[0]) as link:
                    at = find_coordinator(link, group)
                with RawConnection((at.host, at.port)) as link:
                    found, code = fetch_offsets(link, group, topic, partitions)
            except (OSError, Closed):
                return None
            if code != NO_ERROR:
                return None
            ended = time.monotonic()
            return {index: Read(one.offset, began, ended, "last") for index, one in found.items()}

        return eventually(ask, what=f"what {group} committed") or {}

    def _differences(self) -> list[str]:
        """Between replicas, once they have fetched what their leader took last.

        A record whose producer waits no more may reach them after all others.
        """
        with contextlib.suppress(TooLate):
            eventually(lambda: not differences(self._copies()), what="all replicas are equal")
        return differences(self._copies())

    def _copies(self) -> dict[str, dict[int, bytes]]:
        """The bytes of every replica; nobody writes any more."""
        return {
            str(directory): {
                index: log_bytes(directory / f"{RECORDS}-{index}") for index in range(PARTITIONS)
            }
            for directory in self._directories
        }


def log_bytes(directory: Path) -> bytes:
    """All segments of a log, one after the other."""
    return b"".join(file.read_bytes() for file in sorted(directory.glob("*.log")))


def await_none(
    missing: Callable[[], Sequence[str]], what: str, within_s: float = RECOVERY_S
) -> None:
    """Wait until nothing is missing; the failure says what was."""
    last: Sequence[str] = ()

    def is_there() -> bool:
        nonlocal last
        last = missing()
        return not last

    try:
        eventually(is_there, within_s=within_s, what=what)
    except TooLate as late:
        raise TooLate(f"{late}; missing: {last}") from late


def serious(logs: Iterable[Path]) -> list[str]:
    """Errors and tracebacks in nodes' logs, behind the name of the node's directory."""
    return [
        f"{log.parent.name}: {line}"
        for log in logs
        for line in serious_in(log.read_text(errors="replace"))
    ]


def serious_in(text: str) -> list[str]:
    """Errors and first lines of tracebacks."""
    return [
        line for line in text.splitlines() if " E barnabas" in line or line.startswith("Traceback")
    ]


def last_words(logs: Iterable[Path]) -> list[str]:
    """The last lines of each log, behind its name."""
    return [
        line
        for log in logs
        for line in (
            "",
            f"{log.parent.name} {log.name}",
            *log.read_text(errors="replace").splitlines()[-LAST_LINES:],
        )
    ]
