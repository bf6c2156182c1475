"""Registration and identity of nodes against a real ZooKeeper.

Source: docs/spec/cluster.md §1.11 checks Z1 to Z6, L4.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import shutil
import threading
from pathlib import Path

import pytest

from barnabas.broker.lifecycle.node_identity import (
    SESSION_FILE,
    NodeIdentity,
    create_persistent_znodes,
    establish_identity,
    read_note,
    read_session,
    write_session,
)
from barnabas.broker.lifecycle.peer_compatibility import PeerRefused, PeerVerdict
from barnabas.broker.lifecycle.registration import (
    GRACE_MS,
    AlreadyRegistered,
    Registration,
    SessionRenewal,
)
from barnabas.broker.storage.files import DiskFiles, StorageError
from barnabas.client.zookeeper.interface import ConnectionLost, SessionExpired, ZooKeeper
from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from barnabas.protocol.settings import ConfigError
from barnabas.protocol.zookeeper import znodes
from tests.harness.fixed_peers import FixedPeers
from tests.zookeeper.conftest import Connect, expire

PATIENT_MS = 60_000
"""How long a former life is waited for where the test ends its session in the meantime."""


def registration(
    zookeeper: ZooKeeper,
    node_id: int,
    directory: Path,
    *,
    port: int | None = None,
    grace_ms: int = GRACE_MS,
    others: PeerVerdict = PeerVerdict.SILENT,
) -> Registration:
    directory.mkdir(exist_ok=True)
    return Registration(
        zookeeper,
        node_id,
        znodes.BrokerRegistration(
            endpoints={"PLAINTEXT": ("127.0.0.1", port or 9000 + node_id)}, timestamp=1234
        ),
        FixedPeers(zookeeper, node_id, others),
        files=DiskFiles(),
        session_directory=directory,
        grace_ms=grace_ms,
    )


async def identity(
    zookeeper: ZooKeeper, *directories: Path, configured_id: int = -1, may_generate: bool = True
) -> NodeIdentity:
    await create_persistent_znodes(zookeeper)
    for directory in directories:
        directory.mkdir(exist_ok=True)
    return await establish_identity(
        zookeeper,
        DiskFiles(),
        directories,
        configured_id=configured_id,
        may_generate_id=may_generate,
        reserved_id_max=1000,
        rng=random.Random(),
    )


async def test_the_broker_epoch_is_the_creation_of_the_znode(
    session: ZooKeeper, tmp_path: Path
) -> None:
    await create_persistent_znodes(session)
    node = registration(session, 1, tmp_path / "a")
    await node.register()
    stat = await session.exists("/brokers/ids/1")
    assert stat is not None
    assert (node.broker_epoch, stat.version) == (stat.czxid, 1)
    assert stat.ephemeral_owner == session.session_id
    await node.register()
    assert await session.exists("/brokers/ids/1") == stat


async def test_the_payload_has_the_types_that_others_expect(
    session: ZooKeeper, tmp_path: Path
) -> None:
    """docs/spec/cluster.md §1.11 check Z6."""
    await create_persistent_znodes(session)
    await registration(session, 1, tmp_path / "a").register()
    await identity(session, tmp_path / "a", configured_id=1)
    record = json.loads((await session.get("/brokers/ids/1"))[0])
    assert record["timestamp"] == "1234"
    assert record["version"] in (4, 5)
    assert record["endpoints"] == ["PLAINTEXT://127.0.0.1:9001"]
    assert (record["host"], record["port"], record["jmx_port"]) == ("127.0.0.1", 9001, -1)
    assert record["roles"] == ["broker", "coordinator"]
    assert json.loads((await session.get("/cluster/id"))[0])["version"] == "1"


async def test_a_second_node_with_the_same_id_is_refused(sessions: Connect, tmp_path: Path) -> None:
    """docs/spec/cluster.md §1.11 check Z1."""
    first, second = await sessions(), await sessions()
    await create_persistent_znodes(first)
    await registration(first, 1, tmp_path / "a").register()
    before = await first.get("/brokers/ids/1")
    twin = registration(
        second, 1, tmp_path / "b", port=9999, grace_ms=100 - second.session_timeout_ms
    )
    with pytest.raises(AlreadyRegistered, match=r"another node runs.*or this node was restarted"):
        await twin.register()
    assert await first.get("/brokers/ids/1") == before


async def test_the_id_of_a_node_that_answers_is_refused_at_once_and_its_holder_named(
    sessions: Connect, tmp_path: Path
) -> None:
    first, second = await sessions(), await sessions()
    await create_persistent_znodes(first)
    await registration(first, 1, tmp_path / "a").register()
    twin = registration(second, 1, tmp_path / "b", port=9999, others=PeerVerdict.REFUSED)
    with pytest.raises(
        AlreadyRegistered, match=r"another node's.*127\.0\.0\.1:9001, registered at"
    ):
        await twin.register()


async def test_who_holds_the_id_is_told_before_its_session_is_waited_for(
    sessions: Connect,
    server: EmbeddedZooKeeper,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    former, session = await sessions(), await sessions()
    await create_persistent_znodes(session)
    await registration(former, 1, tmp_path / "a").register()
    node = registration(session, 1, tmp_path / "b", port=9999, grace_ms=PATIENT_MS)
    registered = asyncio.create_task(node.register())
    while "node 1 at 127.0.0.1:9001" not in caplog.text:
        assert not registered.done()
        await asyncio.sleep(0)
    await asyncio.to_thread(expire, former, server)
    await registered


async def test_who_a_registered_node_refuses_is_not_registered(
    sessions: Connect, tmp_path: Path
) -> None:
    first, second = await sessions(), await sessions()
    await create_persistent_znodes(first)
    await registration(first, 1, tmp_path / "a").register()
    stranger = registration(second, 2, tmp_path / "b", others=PeerVerdict.REFUSED)
    with pytest.raises(PeerRefused, match=r"node 1 at 127\.0\.0\.1:9001"):
        await stranger.register()
    assert await first.children("/brokers/ids") == ["1"]


async def test_a_node_waits_for_the_sessions_of_registered_nodes_that_do_not_answer(
    sessions: Connect,
    server: EmbeddedZooKeeper,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """They may be dead, and they may know another secret."""
    silent, session = await sessions(), await sessions()
    await create_persistent_znodes(session)
    await registration(silent, 1, tmp_path / "a").register()
    node = registration(session, 2, tmp_path / "b", others=PeerVerdict.SILENT)
    registered = asyncio.create_task(node.register())
    while "waiting for a registered node" not in caplog.text:
        assert not registered.done()
        await asyncio.sleep(0)
    assert await session.children("/brokers/ids") == ["1"]
    await asyncio.to_thread(expire, silent, server)
    await registered
    assert await session.children("/brokers/ids") == ["2"]


async def test_nodes_that_were_killed_together_do_not_wait_for_the_sessions_of_each_other(
    sessions: Connect, tmp_path: Path
) -> None:
    """Each takes its own former registration away before it looks for those of others."""
    former, one, two = [await sessions() for _ in range(3)]
    await create_persistent_znodes(former)
    await registration(former, 1, tmp_path / "a").register()
    await registration(former, 2, tmp_path / "b", others=PeerVerdict.ACCEPTED).register()
    peers = FixedPeers(one, 1, PeerVerdict.SILENT)
    first = registration(one, 1, tmp_path / "a")
    first._peers = peers
    registered = asyncio.create_task(first.register())
    await registration(two, 2, tmp_path / "b", others=PeerVerdict.ACCEPTED).register()
    peers.verdict = PeerVerdict.ACCEPTED
    await registered
    owners = [await former.exists(f"/brokers/ids/{node}") for node in (1, 2)]
    assert [stat.ephemeral_owner for stat in owners if stat] == [one.session_id, two.session_id]


async def test_of_two_that_register_at_the_same_moment_the_later_asks_the_earlier(
    sessions: Connect, tmp_path: Path
) -> None:
    """Neither saw the other before: so the later must ask again before it serves."""
    first, second = await sessions(), await sessions()
    await create_persistent_znodes(first)
    late = registration(second, 2, tmp_path / "b", others=PeerVerdict.REFUSED)
    attempt = late._attempt

    async def overtaken() -> bool:
        await registration(first, 1, tmp_path / "a").register()
        return await attempt()

    late._attempt = overtaken  # type: ignore[method-assign]
    with pytest.raises(PeerRefused):
        await late.register()


async def test_a_node_that_comes_back_from_a_lost_session_waits_for_nobody_but_hears_a_refusal(
    session: ZooKeeper, sessions: Connect, server: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    await create_persistent_znodes(session)
    node = registration(session, 1, tmp_path / "a")
    await node.register()
    await registration(await sessions(), 2, tmp_path / "b", others=PeerVerdict.ACCEPTED).register()
    await asyncio.to_thread(expire, session, server)
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(SessionExpired, ConnectionLost):
                await node.register()
                break
    node._peers.verdict = PeerVerdict.REFUSED  # type: ignore[attr-defined]
    with pytest.raises(PeerRefused):
        await node.register()


async def test_two_nodes_cannot_be_known_by_one_address(sessions: Connect, tmp_path: Path) -> None:
    """docs/spec/cluster.md §1.11 check Z2."""
    first, second = await sessions(), await sessions()
    await create_persistent_znodes(first)
    await registration(first, 1, tmp_path / "a", port=9092).register()
    with pytest.raises(AlreadyRegistered, match=r"127.0.0.1:9092 is already registered by node 1"):
        await registration(second, 2, tmp_path / "b", port=9092).register()
    assert await first.exists("/brokers/ids/2") is None


async def test_a_former_life_that_has_not_timed_out_is_waited_for(
    sessions: Connect, server: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    former, session = await sessions(), await sessions()
    await create_persistent_znodes(session)
    await registration(former, 1, tmp_path / "a").register()
    node = registration(session, 1, tmp_path / "elsewhere", grace_ms=PATIENT_MS)
    registered = asyncio.create_task(node.register())
    await asyncio.to_thread(expire, former, server)
    await registered
    stat = await session.exists("/brokers/ids/1")
    assert stat is not None
    assert stat.ephemeral_owner == session.session_id


async def test_a_former_life_in_the_same_directory_is_buried_at_once(
    sessions: Connect, tmp_path: Path
) -> None:
    former, session = await sessions(), await sessions()
    await create_persistent_znodes(session)
    first = registration(former, 1, tmp_path / "a")
    await first.register()
    second = registration(session, 1, tmp_path / "a")
    assert second.former_session == former.session_id
    await second.register()
    assert second.broker_epoch > first.broker_epoch


async def test_the_loop_does_not_wait_for_the_disk_that_notes_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node serves meanwhile; and the note outlasts a power cut, however soon it boots."""
    threads = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        threads.append(threading.current_thread())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    await write_session(DiskFiles(), tmp_path, 17)
    assert read_session(DiskFiles(), tmp_path) == 17
    assert len(threads) == 2, "the file and its directory"
    assert threading.main_thread() not in threads


@pytest.mark.parametrize("left", [b"", bytes(40), b"17 "])
def test_a_session_note_that_a_power_cut_left_torn_counts_for_nothing(
    tmp_path: Path, left: bytes
) -> None:
    (tmp_path / SESSION_FILE).write_bytes(left)
    assert read_session(DiskFiles(), tmp_path) is None


async def test_a_copied_data_directory_buries_nobody(sessions: Connect, tmp_path: Path) -> None:
    first, second = await sessions(), await sessions()
    await create_persistent_znodes(first)
    await registration(first, 1, tmp_path / "a").register()
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    assert registration(second, 1, tmp_path / "copy").former_session is None
    assert registration(second, 1, tmp_path / "a").former_session == first.session_id


@pytest.mark.parametrize("answer", [PeerVerdict.ACCEPTED, PeerVerdict.REFUSED])
async def test_a_cloned_volume_buries_no_node_that_answers(
    sessions: Connect, tmp_path: Path, answer: PeerVerdict
) -> None:
    """The clone is mounted at the same path elsewhere: only the network tells it from a restart."""
    first, second = await sessions(), await sessions()
    await create_persistent_znodes(first)
    await registration(first, 1, tmp_path / "a").register()
    before = await first.get("/brokers/ids/1")
    clone = registration(second, 1, tmp_path / "a", port=9999, others=answer)
    assert clone.former_session == first.session_id
    with pytest.raises(AlreadyRegistered, match=r"copy of the directory.*127\.0\.0\.1:9001"):
        await clone.register()
    assert await first.get("/brokers/ids/1") == before


async def test_a_node_that_comes_back_at_another_address_buries_its_silent_former_life(
    sessions: Connect, tmp_path: Path
) -> None:
    former, session = await sessions(), await sessions()
    await create_persistent_znodes(session)
    await registration(former, 1, tmp_path / "a").register()
    node = registration(session, 1, tmp_path / "a", port=9999)
    await node.register()
    assert node.broker_epoch > 0


async def test_who_answers_at_the_former_address_and_is_another_node_refuses_nothing(
    sessions: Connect, tmp_path: Path
) -> None:
    former, other, session = await sessions(), await sessions(), await sessions()
    await create_persistent_znodes(session)
    await registration(former, 1, tmp_path / "a", port=9500).register()
    stranger = registration(other, 2, tmp_path / "b", port=9600, others=PeerVerdict.ACCEPTED)
    await stranger.register()
    data, stat = await other.get("/brokers/ids/2")
    await other.set("/brokers/ids/2", data.replace(b"9600", b"9500"), stat.version)
    node = registration(session, 1, tmp_path / "a", port=9999, others=PeerVerdict.ACCEPTED)
    await node.register()
    assert node.broker_epoch > 0


async def test_an_expired_registration_comes_back_with_a_larger_epoch(
    session: ZooKeeper, server: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    """docs/spec/cluster.md §1.11 check Z5."""
    await create_persistent_znodes(session)
    node = registration(session, 1, tmp_path / "a")
    await node.register()
    before = node.broker_epoch
    renewed = asyncio.Event()

    async def told() -> None:
        renewed.set()

    renewal = asyncio.create_task(SessionRenewal(session, [node.register, told]).run())
    await asyncio.to_thread(expire, session, server)
    async with asyncio.timeout(60):
        await renewed.wait()
    assert node.broker_epoch > before
    renewal.cancel()


async def test_all_nodes_agree_on_one_cluster_id(sessions: Connect, tmp_path: Path) -> None:
    """docs/spec/cluster.md §1.11 check Z3."""
    three = [await sessions() for _ in range(3)]
    found = await asyncio.gather(
        *(
            identity(session, tmp_path / str(number), configured_id=number)
            for number, session in enumerate(three)
        )
    )
    ids = {one.cluster_id for one in found}
    assert len(ids) == 1
    assert re.fullmatch(r"[A-Za-z0-9_-]{22}", ids.pop())


async def test_generated_ids_are_counted_and_kept(sessions: Connect, tmp_path: Path) -> None:
    """docs/spec/cluster.md §1.11 check Z4."""
    session = await sessions()
    first = await identity(session, tmp_path / "a", tmp_path / "a2")
    second = await identity(session, tmp_path / "b")
    assert (first.node_id, second.node_id) == (1001, 1002)
    assert await identity(session, tmp_path / "a", tmp_path / "a2") == first
    note = read_note(DiskFiles(), tmp_path / "a2")
    assert note == {"version": "0", "broker.id": "1001", "cluster.id": first.cluster_id}
    text = (tmp_path / "a2" / "meta.properties").read_text()
    assert text.startswith("version=0\nbroker.id=1001\n")


async def test_directories_of_another_node_or_cluster_are_refused(
    session: ZooKeeper, tmp_path: Path
) -> None:
    """docs/spec/cluster.md §7.1 check L4."""
    mine = await identity(session, tmp_path / "a", configured_id=1)
    with pytest.raises(ConfigError, match="belong to node 1"):
        await identity(session, tmp_path / "a", configured_id=2)
    await identity(session, tmp_path / "b", configured_id=2)
    with pytest.raises(ConfigError, match="different nodes"):
        await identity(session, tmp_path / "a", tmp_path / "b", configured_id=1)
    (tmp_path / "c").mkdir()
    foreign = f"version=0\nbroker.id=1\ncluster.id={'x' * 22}\n"
    (tmp_path / "c" / "meta.properties").write_text(foreign)
    with pytest.raises(ConfigError, match=f"cluster {mine.cluster_id}"):
        await identity(session, tmp_path / "c", configured_id=1)
    with pytest.raises(ConfigError, match="must be set"):
        await identity(session, tmp_path / "d", may_generate=False)


async def test_a_note_that_is_nonsense_is_named(session: ZooKeeper, tmp_path: Path) -> None:
    for nonsense in (b"broker.id=first\n", b"\xff\xfe"):
        (tmp_path / "meta.properties").write_bytes(nonsense)
        with pytest.raises(ConfigError, match=r"meta\.properties: cannot be read"):
            await identity(session, tmp_path)


async def test_a_directory_that_fails_leaves_the_others(session: ZooKeeper, tmp_path: Path) -> None:
    broken, sound = tmp_path / "a file" / "logs", tmp_path / "b"
    broken.parent.touch()
    await create_persistent_znodes(session)
    for _ in range(2):
        found = await establish_identity(
            session,
            DiskFiles(),
            [broken, sound],
            configured_id=7,
            may_generate_id=False,
            reserved_id_max=1000,
            rng=random.Random(),
        )
        assert found.node_id == 7
    with pytest.raises(StorageError):
        await establish_identity(
            session,
            DiskFiles(),
            [broken],
            configured_id=7,
            may_generate_id=False,
            reserved_id_max=1000,
            rng=random.Random(),
        )


async def test_a_session_note_is_a_help_and_no_condition(
    session: ZooKeeper, tmp_path: Path
) -> None:
    (tmp_path / SESSION_FILE).write_bytes(b"\xff\xfe")
    gone = tmp_path / "gone"
    assert registration(session, 1, tmp_path).former_session is None
    await create_persistent_znodes(session)
    registering = registration(session, 1, gone)
    gone.rmdir()
    await registering.register()
    assert registering.broker_epoch > 0
