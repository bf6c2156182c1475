"""What clients ask that they need not, or should not: Kafka answers, and so do we.

Every test here runs against Apache Kafka as well (BARNABAS_INTEROP_SERVER=kafka).
"""

from __future__ import annotations

import struct

import pytest

from barnabas.console.__main__ import main
from tests.harness.client_libraries import ClientLibrary
from tests.harness.deployments import Deployment, create_topic
from tests.harness.fixtures import LIBRARIES, Deploy
from tests.harness.own_client import Own
from tests.harness.raw_calls import FETCH
from tests.harness.raw_connection import RawConnection, Reader, array, text
from tests.harness.records import Sent

LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH = 2, 23
LATEST, EARLIEST = -1, -2
NOT_LEADER_OR_FOLLOWER, UNKNOWN_LEADER_EPOCH = 6, 75
REPLICA_IDS = (-1, 0, 1, 2, 77)


def only_partition(answer: Reader) -> None:
    """Go to the answer of the only partition of the only topic."""
    assert answer.number("i") == 1
    answer.text()
    assert answer.number("i") == 1


def list_offset(link: RawConnection, topic: str, replica_id: int, timestamp: int) -> int:
    """ListOffsets v1, as kafka-python 3.0.11 sends it with replica id 0."""
    asked = text(topic) + array(struct.pack(">iq", 0, timestamp))
    answer = link.call(LIST_OFFSETS, 1, struct.pack(">i", replica_id) + array(asked))
    only_partition(answer)
    _index, error, _timestamp, offset = answer.take("ihqq")
    assert error == 0
    return offset


def end_of_epoch(link: RawConnection, topic: str, replica_id: int) -> tuple[int, int]:
    """OffsetForLeaderEpoch v3 of epoch 0: code and offset."""
    asked = text(topic) + array(struct.pack(">iii", 0, -1, 0))
    answer = link.call(OFFSET_FOR_LEADER_EPOCH, 3, struct.pack(">i", replica_id) + array(asked))
    answer.number("i")
    only_partition(answer)
    error, _index, _epoch, offset = answer.take("hiiq")
    return error, offset


def fetched(link: RawConnection, topic: str, replica_id: int, epoch: int) -> tuple[int, int]:
    """Fetch v11 without a session: code and number of bytes."""
    asked = text(topic) + array(struct.pack(">iiqqi", 0, epoch, 0, -1, 1 << 20))
    request = struct.pack(">iiiibii", replica_id, 100, 1, 1 << 20, 0, 0, -1)
    answer = link.call(FETCH, 11, request + array(asked) + array() + text(""))
    assert answer.take("ihi") == (0, 0, 0)
    only_partition(answer)
    _index, error, _mark, _stable, _start, _aborted, _preferred = answer.take("ihqqqii")
    return error, len(answer.blob())


def test_a_client_with_a_replica_id_is_answered_as_any_consumer_and_reads_nothing_as_a_follower(
    cluster: Deployment, topic: str
) -> None:
    leader = create_topic(cluster, Own(), topic, 1)[0]
    Own().produce(cluster.bootstrap, topic, [Sent(b"x")] * 10)
    with RawConnection(leader) as link:
        for replica_id in REPLICA_IDS:
            assert list_offset(link, topic, replica_id, LATEST) == 10
            assert list_offset(link, topic, replica_id, EARLIEST) == 0
            assert end_of_epoch(link, topic, replica_id) == (0, 10)
        for replica_id in REPLICA_IDS[-1:]:
            assert fetched(link, topic, replica_id, -1) == (NOT_LEADER_OR_FOLLOWER, 0)
            assert fetched(link, topic, replica_id, 0) == (UNKNOWN_LEADER_EPOCH, 0)
        assert fetched(link, topic, -1, 0)[0] == 0


def test_a_cluster_in_which_no_group_was_ever_used_lists_none(
    deploy_fresh: Deploy, capsys: pytest.CaptureFixture[str]
) -> None:
    running = deploy_fresh(2)
    admins: tuple[ClientLibrary, ...] = LIBRARIES
    assert {admin.name: admin.groups(running.bootstrap) for admin in admins} == {
        admin.name: set() for admin in admins
    }
    at = ("--bootstrap", running.bootstrap, "--timeout-ms", "60000")
    assert main(["groups", "list", *at]) == 0
    assert capsys.readouterr().err == ""
