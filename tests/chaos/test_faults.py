"""Nodes are cut off, out of disk, out of power and out of time; nothing acknowledged is lost.

Source: docs/spec/reliability.md §4.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from benchmarks.barnabas_node import ROOT
from tests.chaos.fault_kinds import FaultKind, plan
from tests.chaos.injectors import expire, session_password
from tests.chaos.networked_cluster import DAY_NS, Disk, WallClock
from tests.chaos.schedule import Aim
from tests.crash import powered_disk
from tests.harness.needs import REMEDY
from tests.harness.znodes import session

from . import network_namespaces as networks

needs_networks = pytest.mark.skipif(
    bool(networks.why_not()),
    reason=f"no networks of our own ({networks.why_not()}){REMEDY}{networks.REMEDY_OF_NONE}",
)
needs_disks = pytest.mark.skipif(
    bool(powered_disk.why_not()),
    reason=f"no disk of our own ({powered_disk.why_not()}){REMEDY}{powered_disk.REMEDY_OF_NONE}",
)
WIRES = """\
import contextlib, json, socket, sys, time
from tests.chaos.network_namespaces import HUB, Network

def answers(place, is_wanted):
    # A link that was down is up again when the kernel gets to it; what is cut is asked once.
    ends = time.monotonic() + (60.0 if is_wanted else 0.0)
    while True:
        with contextlib.suppress(OSError), socket.create_connection(place, 2.0):
            return True
        if time.monotonic() > ends:
            return False
        time.sleep(0.1)

def bound(host):
    server = socket.create_server((host, 9092))
    return server

with Network(2) as network:
    servers = []
    for number, host in enumerate(network.hosts, 1):
        with network.namespace(number).entered():
            servers.append(bound(host))
    servers.append(bound(HUB))
    first, second = ((host, 9092) for host in network.hosts)
    wanted = json.loads(sys.argv[1])
    def seen(when):
        found = {"client": answers(first, wanted[when]["client"])}
        with network.namespace(1).entered():
            for name, place in (("peer", second), ("zookeeper", (HUB, 9092))):
                found[name] = answers(place, wanted[when][name])
        return found
    told = {"before": seen("before")}
    with network.unplugged(1):
        told["unplugged"] = seen("unplugged")
    for name, hears, is_heard, peers in (
        ("cut off", False, False, True), ("deaf", False, True, True), ("mute", True, False, True),
        ("without zookeeper", False, False, False),
    ):
        with network.filtered(1, zookeeper=9092, peers=peers, hears=hears, is_heard=is_heard):
            told[name] = seen(name)
    told["after"] = seen("after")
    for server in servers:
        server.close()
print(json.dumps(told))
"""


def ended(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


@needs_networks
def test_a_cut_reaches_whom_it_should_and_ends() -> None:
    whole = {"client": True, "peer": True, "zookeeper": True}
    alone = {"client": True, "peer": False, "zookeeper": False}
    wanted = {
        "before": whole,
        "unplugged": {"client": False, "peer": False, "zookeeper": False},
        "cut off": alone,
        "deaf": alone,
        "mute": alone,
        "without zookeeper": {"client": True, "peer": True, "zookeeper": False},
        "after": whole,
    }
    done = ended("-c", WIRES, json.dumps(wanted))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == wanted


@needs_disks
def test_a_disk_is_full_to_the_last_byte_until_it_is_not(tmp_path: Path) -> None:
    disk = Disk(tmp_path, image_bytes=16 << 20)
    disk.format()
    disk.mount()
    try:
        with disk.filled(), pytest.raises(OSError, match="No space left"):
            (disk.root / "more").write_bytes(bytes(100))
        (disk.root / "more").write_bytes(bytes(100))
    finally:
        disk.close()


def test_an_interpreter_goes_by_the_clock_that_it_is_given(tmp_path: Path) -> None:
    clock = WallClock(tmp_path / "clock")
    clock.set(-DAY_NS)
    before, monotonic = time.time_ns(), time.monotonic()
    script = "import time; print(time.time_ns(), time.monotonic(), time.time())"
    with clock.inherited():
        done = ended("-P", "-c", script)
    wall_ns, elapsed, wall = done.stdout.split()
    assert before <= int(wall_ns) + DAY_NS
    assert max(int(wall_ns), float(wall) * 1e9) < before
    assert float(elapsed) > monotonic


def test_a_session_that_is_expired_is_over_for_its_owner() -> None:
    # Ticks so long that a session lasts a minute, and is not over by itself on a busy machine.
    with EmbeddedZooKeeper(tick_ms=3_000) as server, session(server.hosts) as owner:
        session_id, password = owner.client_id
        assert session_password(session_id) == password
        owner.create("/mine", ephemeral=True)
        expire(server.hosts, "/mine")
        with session(server.hosts) as somebody:
            assert somebody.exists("/mine") is None


def test_every_kind_comes_equally_often_and_half_hit_controller_and_coordinator() -> None:
    faults = plan(seed=3, count=10 * len(FaultKind))
    assert faults == plan(seed=3, count=10 * len(FaultKind))
    assert {kind: sum(one.kind is kind for one in faults) for kind in FaultKind} == dict.fromkeys(
        FaultKind, 10
    )
    assert sum(one.aim is Aim.BOTH for one in faults) * 2 == len(faults)


def campaign(directory: Path, *options: str) -> Mapping[str, Any]:
    file = directory / "report.json"
    done = ended("-m", "tests.chaos.fault_campaign", f"--json={file}", *options)
    assert file.exists(), done.stdout + done.stderr
    found: Mapping[str, Any] = json.loads(file.read_text())
    assert found["findings"] == [], done.stdout
    return found


@needs_networks
@needs_disks
def test_nothing_is_lost_by_a_node_that_is_cut_off_or_has_a_full_disk(tmp_path: Path) -> None:
    kinds = [FaultKind.CUT_OFF, FaultKind.DISK_FULL]
    named = [f"--kind={kind.name}" for kind in kinds]
    found = campaign(tmp_path, "--rounds=2", "--longest=2", *named)
    assert {one["fault"] for one in found["outcomes"]} == {kind.value for kind in kinds}


@pytest.mark.nightly
@needs_networks
@needs_disks
def test_nothing_is_lost_by_any_kind_of_fault(tmp_path: Path) -> None:
    found = campaign(tmp_path, f"--rounds={2 * len(FaultKind)}", "--seed=2")
    assert sum(one["is_both"] for one in found["outcomes"]) >= len(found["outcomes"]) // 3
