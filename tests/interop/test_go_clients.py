"""What franz-go and sarama do beyond the rest: cooperative groups, static members, old versions."""

from __future__ import annotations

import pytest

from tests.harness.deployments import Deployment, create_topic
from tests.harness.go_clients import FRANZ, GO_CLIENTS, GoClient, GoMember
from tests.harness.records import Sent, numbered
from tests.harness.waiting import eventually

PARTITIONS = 6
SHARES_S = 120.0

each_client = pytest.mark.parametrize("client", GO_CLIENTS, ids=lambda client: client.name)


def is_shared(members: list[GoMember]) -> bool:
    """Poll each member once; whether each owns some, and all partitions have one owner."""
    for member in members:
        member.poll()
    owned = [partition for member in members for partition in member.assigned()]
    return all(member.assigned() for member in members) and sorted(owned) == list(range(PARTITIONS))


def test_a_cooperative_group_keeps_what_it_need_not_give_away(
    cluster: Deployment, topic: str, group: str
) -> None:
    create_topic(cluster, FRANZ, topic, PARTITIONS, 3)
    first = FRANZ.join(cluster.bootstrap, group, topic, "cooperative")
    eventually(lambda: is_shared([first]), within_s=SHARES_S, what="one has all")
    second = FRANZ.join(cluster.bootstrap, group, topic, "cooperative")
    seen: list[set[int]] = []

    def settles() -> bool:
        done = is_shared([first, second])
        seen.append(set(first.assigned()))
        return done

    eventually(settles, within_s=SHARES_S, what="two share")
    assert all(seen[-1] <= share for share in seen)
    assert len(seen[-1]) == PARTITIONS // 2
    assert FRANZ.describe_group(cluster.bootstrap, group).protocol == "cooperative-sticky"
    second.close()
    eventually(lambda: is_shared([first]), within_s=SHARES_S, what="one has all again")
    first.close()


@each_client
def test_a_static_member_comes_back_without_a_rebalance(
    cluster: Deployment, client: GoClient, topic: str, group: str
) -> None:
    bootstrap = cluster.bootstrap
    create_topic(cluster, client, topic, PARTITIONS, 3)
    stays = client.join(bootstrap, group, topic, "range", "one")
    goes = client.join(bootstrap, group, topic, "range", "two")
    eventually(lambda: is_shared([stays, goes]), within_s=SHARES_S, what="two share")
    before = goes.assigned()
    goes.close()
    assert client.describe_group(bootstrap, group).state == "Stable"
    assert client.static_members(bootstrap, group) == {"one", "two"}
    again = client.join(bootstrap, group, topic, "range", "two")
    shares: list[set[int]] = []

    def is_back() -> bool:
        stays.poll()
        shares.append(set(stays.assigned()))
        again.poll()
        return again.assigned() == before

    eventually(is_back, within_s=SHARES_S, what="the member has its share again")
    assert all(share == set(range(PARTITIONS)) - before for share in shares)
    again.kill()  # its place stays taken until the session ends, or until somebody throws it out
    FRANZ.remove_static_member(bootstrap, group, "two")
    eventually(lambda: is_shared([stays]), within_s=SHARES_S, what="the other has all")
    stays.close()


@each_client
def test_offsets_are_listed_committed_and_moved_from_outside(
    cluster: Deployment, client: GoClient, topic: str, group: str
) -> None:
    bootstrap = cluster.bootstrap
    create_topic(cluster, client, topic, 1, 3)
    client.produce(bootstrap, topic, [Sent(b"x", timestamp_ms=1_000 * at) for at in range(10)])
    assert client.offsets_at(bootstrap, topic, 0, 4_500) == (0, 10, 5)
    assert client.delete_records(bootstrap, topic, {0: 4}) == {0: 4}
    assert client.offsets_at(bootstrap, topic, 0, 99_000) == (4, 10, None)
    client.commit(bootstrap, group, topic, {0: 7})
    assert client.committed(bootstrap, group) == {0: 7}
    assert client.describe_group(bootstrap, group).state == "Empty"
    member = client.join(bootstrap, group, topic)
    read: list[int] = []

    def has_read_all() -> bool:
        read.extend(one.offset for one in member.poll())
        return len(read) >= 3

    eventually(has_read_all, what="the member reads what is left")
    assert read == [7, 8, 9]
    member.commit()
    member.close()
    assert client.committed(bootstrap, group) == {0: 10}


@pytest.mark.parametrize("version", ["0.8.2.2", "0.9.0.1", "0.10.2.2", "1.0.2", "2.1.1", "3.6.2"])
def test_sarama_speaks_as_to_an_old_kafka(cluster: Deployment, topic: str, version: str) -> None:
    client = GoClient("sarama", "sarama", version)
    codecs = [one for one in client.codecs if one != "zstd" or version >= "2"]
    if version.startswith(("0.8", "0.9")):
        codecs.remove("lz4")
    create_topic(cluster, FRANZ, topic, 2, 3)
    for turn, codec in enumerate(codecs):
        client.produce(cluster.bootstrap, topic, numbered(turn * 100, 100), codec)
    sent = {record.value for record in numbered(0, 100 * len(codecs))}
    everything = dict.fromkeys(range(2), "beginning")
    for reader in (client, FRANZ):
        found = reader.read(cluster.bootstrap, topic, everything)
        assert {record.value for record in found} == sent
        assert len(found) == len(sent)
