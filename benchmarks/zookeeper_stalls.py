"""What a ZooKeeper in trouble costs clients, beside Kafka if asked.

    python -m benchmarks.zookeeper_stalls [--nodes 1 3] [--only stall-2 ...] [--against kafka]

Clusters with beacons and without, each on a ZooKeeper of one server and of three. Clients commit
and fetch offsets, produce with acks=all and fetch; every answer counts. Sessions last 18 s. The gap
is the longest that one client was without a success, from the fault until three seconds after
ZooKeeper's return; "resumed" is from its return until every client succeeds and goes on to.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.apache_kafka import kafka_jars
from benchmarks.report import machine
from benchmarks.slow_disk import SlowDisk, why_not
from benchmarks.stalled_cluster import (
    ANOTHER,
    FOLLOWER_KILLED,
    LEADER_KILLED,
    RESTART,
    ClusterKind,
    Site,
    ZooKeeperFault,
    frozen_disk,
    frozen_server,
    outage,
    running,
    slow_disk,
)
from benchmarks.zookeeper_servers import ZooKeepers

SETTLED_S: Final = 3.0
ENSEMBLE: Final = 3

ON_ONE: Final[Mapping[str, ZooKeeperFault]] = {
    "none": ANOTHER,
    "stall-0.5": outage(0.5),
    "stall-2": outage(2.0),
    "stall-5": outage(5.0),
    "stall-12": outage(12.0),
    "stall-14": outage(14.0),
    "restart": RESTART,
    "outage-24": outage(24.0),
}
"""By the name that ``--only`` takes. The first is the measure of the others. Stalls of up to 14 s
are never noticed where sessions last 18 s (docs/beacons.md); the last is longer than a session."""
ON_DISK: Final[Mapping[str, Callable[[SlowDisk], ZooKeeperFault]]] = {
    "disk-5": partial(frozen_disk, seconds=5.0),
    "slow-disk": partial(slow_disk, seconds=12),
}
ON_THREE: Final[Mapping[str, ZooKeeperFault]] = {
    "follower": FOLLOWER_KILLED,
    "leader": LEADER_KILLED,
    "follower-frozen": frozen_server(30.0, leads=False),
    "leader-frozen": frozen_server(30.0, leads=True),
}
NAMES: Final = (*ON_ONE, *ON_DISK, *ON_THREE)


@dataclass(frozen=True, slots=True)
class StallRow:
    """One fault on one cluster; times in seconds."""

    fault: str
    server: str
    nodes: int
    answers: int
    others: Mapping[str, int]
    """How often what came that was no success."""
    offsets_gap_s: float
    records_gap_s: float
    resumed_s: float

    def __str__(self) -> str:
        """A row of the table."""
        return (
            f"| {self.fault} | {self.server} | {self.nodes} | {self.answers} | "
            f"{sum(self.others.values())} | {self.offsets_gap_s:.2f} | {self.records_gap_s:.2f} | "
            f"{self.resumed_s:.2f} |"
        )


HEAD: Final = (
    "| fault | server | nodes | answers | other than success | longest gap, offsets s | "
    "records s | resumed s |\n| --- | --- | --- | --- | --- | --- | --- | --- |"
)


def measured(site: Site, fault: ZooKeeperFault) -> StallRow:
    """Strike once, and wait until all is well again."""
    clients = site.clients
    marks = clients.marks()
    began = time.monotonic()
    fault.strike(site)
    back = time.monotonic()
    site.await_progress()
    time.sleep(SETTLED_S)
    ended = time.monotonic()
    others = {f"{api} {code}": count for (api, code), count in clients.others(began).items()}
    row = StallRow(
        fault=fault.name,
        server=str(site.kind),
        nodes=site.kind.nodes,
        answers=sum(now - before for now, before in zip(clients.marks(), marks, strict=True)),
        others=others,
        offsets_gap_s=clients.longest_gap("offsets", began, ended),
        records_gap_s=clients.longest_gap("records", began, ended),
        resumed_s=max(clients.resumption(kind, back) for kind in ("offsets", "records")),
    )
    print(row, *([f"<!-- {others} -->"] if others else []), flush=True)
    site.await_rest()
    return row


@contextmanager
def disk_of(directory: Path) -> Iterator[SlowDisk | None]:
    """A disk for ZooKeeper alone, or None where there can be none."""
    if reason := why_not():
        print(f"# no slow disk: {reason}", flush=True)
        yield None
        return
    with SlowDisk(directory) as disk:
        yield disk


def measure(kind: ClusterKind, wanted: Sequence[str]) -> list[StallRow]:
    """All wanted faults on a cluster of this kind; the second one is on three servers."""
    rows: list[StallRow] = []
    lost: list[str] = []
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stalls-")))
        disk = stack.enter_context(disk_of(directory))
        faults = [fault for name, fault in ON_ONE.items() if name in wanted]
        if disk is not None:
            faults += [make(disk) for name, make in ON_DISK.items() if name in wanted]
        if faults:
            data = None if disk is None else disk.root / "zookeeper"
            with ZooKeepers(data=data) as one, running(kind, one, directory / "on-one") as site:
                rows += [measured(site, fault) for fault in faults]
                lost += site.judge()
        faults = [fault for name, fault in ON_THREE.items() if name in wanted]
        if faults:
            with (
                ZooKeepers(ENSEMBLE) as three,
                running(kind, three, directory / "on-three") as site,
            ):
                rows += [measured(site, fault) for fault in faults]
                lost += site.judge()
    for line in lost:
        print(f"# LOST {kind}: {line}", flush=True)
    return rows


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--only", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument(
        "--servers",
        nargs="*",
        choices=("beacons", "sessions", "kafka"),
        default=["beacons", "sessions"],
    )
    parser.add_argument("--against", choices=("kafka",), help="measure Apache Kafka, too")
    parser.add_argument("--libs", type=Path, help="Kafka's jars, instead of fetching them")
    parser.add_argument("--json", type=Path, help="where to write every row")
    return parser.parse_args()


def main() -> None:
    """Measure, and print a table."""
    given = arguments()
    names = dict.fromkeys([*given.servers, *filter(None, [given.against])])
    jars = kafka_jars(given.libs) if "kafka" in names else None
    rows: list[StallRow] = []
    for nodes in given.nodes:
        for name in names:
            kind = ClusterKind(nodes, name != "sessions", jars if name == "kafka" else None)
            rows += measure(kind, given.only)
    print(machine(), HEAD, *rows, sep="\n")
    if given.json:
        given.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")


if __name__ == "__main__":
    main()
