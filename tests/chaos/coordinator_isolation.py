"""A coordinator cut off from its peers and from ZooKeeper, not from its clients; prints JSON.

    unshare -n python -m tests.chaos.coordinator_isolation [SETTING=VALUE ...]

Runs in a network namespace of its own, where it alone may set packet filters. Node 1 runs under a
group id of its own, by which its packets are told from those of others on the same loopback.
Source: docs/spec/reliability.md §3.1 (proof obligations) and §4 (iptables DROP).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from barnabas.console.development.cluster import Cluster
from barnabas.console.development.ports import LOOPBACK
from barnabas.protocol.hashing import group_partition
from benchmarks.cluster_view import OFFSETS_TOPIC, ClusterView
from tests.chaos.offset_history_checks import falls
from tests.chaos.offset_load import Committer, OffsetReader, histories
from tests.harness.confluent_client import Confluent
from tests.harness.node_ports import internal_ports
from tests.harness.patience import be_patient
from tests.harness.raw_connection import Address
from tests.harness.waiting import eventually

TOPIC: Final = "t"
GROUPS: Final = [f"group-{number}" for number in range(12)]
PARTITIONS: Final = 6
VICTIM: Final = 1
VICTIMS_GROUP_ID: Final = 47_001
WAIT_S: Final = 120.0
LONGER_S: Final = 1.0
"""How long it stays cut off when others have taken over."""
SETTINGS: Final = {
    "offsets.topic.num.partitions": str(PARTITIONS),
    "leader.imbalance.check.interval.seconds": "1",
    "leader.imbalance.per.broker.percentage": "0",
}


def filtered(*rule: str) -> None:
    """Change this namespace's filter of what is sent."""
    subprocess.run(["iptables", "-w", *rule], check=True)


@contextmanager
def cut_off(pid: int, own_port: int, others: Sequence[int]) -> Iterator[None]:
    """Nothing passes between the process and the ``others``, in either direction.

    ``own_port`` is where peers reach it, ``others`` where it reaches peers and ZooKeeper. What it
    sends there it is known by; what they send on connections that stand, by the port at its end.
    """
    mine = ["-m", "owner", "--gid-owner", str(VICTIMS_GROUP_ID)]
    for protocol in ("tcp", "udp"):
        filtered("-A", "OUTPUT", "-p", protocol, "--dport", str(own_port), "-j", "DROP")
        filtered("-A", "OUTPUT", "-p", protocol, "--sport", str(own_port), "-j", "DROP")
        for port in others:
            filtered("-A", "OUTPUT", "-p", protocol, "--dport", str(port), *mine, "-j", "DROP")
    for local, remote in connections(pid):
        if remote in others:
            ends = ["--sport", str(remote), "--dport", str(local)]
            filtered("-A", "OUTPUT", "-p", "tcp", *ends, "-j", "DROP")
    try:
        yield
    finally:
        filtered("-F", "OUTPUT")


def connections(pid: int) -> list[tuple[int, int]]:
    """Local and remote ports of the process's TCP connections (proc(5))."""
    sockets = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            sockets.add(str(descriptor.readlink()))
        except FileNotFoundError:
            continue
    found = []
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if f"socket:[{fields[9]}]" in sockets:
            local, remote = (int(fields[at].rpartition(":")[2], 16) for at in (1, 2))
            found.append((local, remote))
    return found


def restart_as_victim(cluster: Cluster) -> None:
    """Start the node again under a group id of its own; files are no obstacle to root."""
    former = os.getegid()
    os.setegid(VICTIMS_GROUP_ID)
    try:
        cluster.restart(VICTIM)
    finally:
        os.setegid(former)


def story(settings: dict[str, str]) -> dict[str, object]:
    """Cut node 1 off while it coordinates; what its clients were told meanwhile."""
    with (
        Cluster(3, settings={**SETTINGS, **settings}) as cluster,
        ClusterView(cluster.zookeeper) as view,
    ):
        restart_as_victim(cluster)
        addresses = [(LOOPBACK, node.port) for node in cluster.nodes]
        Confluent().create_topic(cluster.bootstrap, TOPIC, 1, 3)
        committers = [Committer(addresses[1:], TOPIC, group) for group in GROUPS]
        victim = addresses[VICTIM - 1]
        readers = [OffsetReader(victim, TOPIC, GROUPS, is_fresh=fresh) for fresh in (False, True)]
        with ExitStack() as stack:
            for activity in (*committers, *readers):
                stack.enter_context(activity)
            eventually(lambda: all(one.answered for one in committers), within_s=WAIT_S)
            await_rest(view, preferred=True)
            # A node that gets no processor for a moment is replaced, and leads again soon after.
            lost = eventually(
                lambda: coordinated_by_victim(view, committers), what="node 1 coordinates groups"
            )
            before = codes(readers)
            with cut_off(cluster.node(VICTIM).pid, *ends(cluster.zookeeper)):
                eventually(lambda: all(is_elsewhere(one, victim) for one in lost))
                time.sleep(LONGER_S)
            after = codes(readers)
            await_rest(view)
    found = histories(committers, [one.reads for one in readers])
    fallen = [problem for history in found.values() for problem in falls(history)]
    return {"codes": dict(after - before), "stale": len(fallen), "some": fallen[:3]}


def ends(zookeeper: str) -> tuple[int, list[int]]:
    """Where peers reach node 1, and where it reaches them and ZooKeeper."""
    ports = internal_ports(zookeeper)
    own = ports.pop(VICTIM)
    return own, [int(zookeeper.rpartition(":")[2].partition("/")[0]), *ports.values()]


def await_rest(view: ClusterView, *, preferred: bool = False) -> None:
    """All replicas in sync, and led by the first of them."""
    topics = [TOPIC, OFFSETS_TOPIC]
    eventually(lambda: not view.wants(topics, preferred=preferred), within_s=WAIT_S)


def coordinated_by_victim(view: ClusterView, committers: Sequence[Committer]) -> list[Committer]:
    """Those whose groups node 1 coordinates now."""
    led = [index for index, node in view.leaders(OFFSETS_TOPIC).items() if node == VICTIM]
    return [one for one in committers if group_partition(one.group, PARTITIONS) in led]


def codes(readers: Sequence[OffsetReader]) -> Counter[int]:
    """How often each code came until now; copied, since threads add to them."""
    return sum((one.codes.copy() for one in readers), Counter[int]())


def is_elsewhere(committer: Committer, victim: Address) -> bool:
    """Another node has acknowledged the last commit."""
    return committer.answered[-1][1] != victim


if __name__ == "__main__":
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    be_patient()
    found = story(dict(text.split("=", 1) for text in sys.argv[1:]))
    sys.stdout.write(json.dumps(found) + "\n")
