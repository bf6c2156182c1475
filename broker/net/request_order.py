"""In which order the requests of one connection start, and which may be under way together.

Kafka serves one request of a connection at a time. Here a request starts when all before it on
its connection have had their effect, so that no client can tell the difference but by the time
that it takes. The exceptions below are what makes pipelined commits and produces fast:

    sent        Commit 1 | Commit 2 | OffsetFetch | Heartbeat
    under way   [1 and 2 together ]   [after both]   [after OffsetFetch]

An OffsetFetch that overtook Commit 2 would tell the client an offset that it has moved past: it
would read records twice that it had committed. A Produce that overtook another one would break
the order of a partition, and the sequence numbers of an idempotent producer.

What a handler returns says whether its request has had its effect (handlers/call.py). It has where
that is a PendingResponse: then the table below holds. It may not where that is a coroutine: then
nothing passes it, whatever its row says, but on the nodes' own listener (net/dispatch.py).

The table stands in docs/wire.md, where it is generated from here; every pair is compared with Kafka
by tests/interop/test_request_order.py. Source: KafkaChannel.mute and RequestChannel (3.9);
docs/spec/reliability.md §3 promise P4.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from barnabas.protocol.api import INTER_BROKER, ApiKey

ALL_KEYS: Final = range(-(1 << 15), 1 << 15)
"""Every key there can be, known or not: it is an int16 in the header of a request."""
NO_KEYS: Final = frozenset[int]()
"""Kafka's own order: the next request starts when this one has been answered."""

ApiKeys = range | frozenset[int]
"""Keys of the requests that may start."""

MEMBERSHIP: Final = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
"""Behind each other only where they come from different members."""


@dataclass(frozen=True, slots=True)
class RequestClass:
    """Requests that are alike in what may start while one of them waits for its answer."""

    name: str
    keys: tuple[ApiKey, ...]
    allowed_behind: ApiKeys = NO_KEYS
    """What may start behind one that has had its effect and is not answered yet."""
    reason: str = "as in Kafka"
    """Why nobody can tell, or what is different from Kafka."""
    version_min: int = 0
    """Behind older versions nothing may start."""


CLASSES: Final = (
    RequestClass(
        "Produce",
        (ApiKey.PRODUCE,),
        frozenset({ApiKey.PRODUCE}),
        "once appended, waiting for replicas: the order in the log is settled. One that is not"
        " appended yet (a large batch that is being checked, the first of a transaction while its"
        " coordinator is asked) lets nothing pass",
    ),
    # Each continues its session where the one before left it (KIP-227). Two at once would both be
    # told the same news, and the session would forget that the first answer may not have arrived.
    RequestClass("Fetch", (ApiKey.FETCH,)),
    RequestClass(
        "OffsetCommit",
        (ApiKey.OFFSET_COMMIT,),
        frozenset({ApiKey.OFFSET_COMMIT, ApiKey.HEARTBEAT}),
        "which commit is newer is settled when it is staged, and a heartbeat changes no offset."
        " Version 0 asks ZooKeeper and lets nothing pass",
        version_min=1,
    ),
    # Behind a commit of its own connection it waits for the answer, or it would not see it
    # (docs/spec/reliability.md §3 promise P4).
    RequestClass("OffsetFetch", (ApiKey.OFFSET_FETCH,)),
    RequestClass(
        "Heartbeat",
        (ApiKey.HEARTBEAT,),
        frozenset({ApiKey.HEARTBEAT}),
        "answered at once, so nothing ever waits behind one",
    ),
    # A join waits for the slowest member of its group. Members that share a connection would wait
    # for each other until the rebalance timeout if theirs could not start.
    RequestClass(
        "JoinGroup",
        (ApiKey.JOIN_GROUP,),
        MEMBERSHIP | {ApiKey.LEAVE_GROUP},
        "earlier than Kafka: other members join and sync meanwhile, and whoever leaves is heard"
        " at once (a waiting join of its own is answered 25); in Kafka they wait for the rebalance",
    ),
    RequestClass(
        "SyncGroup",
        (ApiKey.SYNC_GROUP,),
        MEMBERSHIP | {ApiKey.LEAVE_GROUP},
        "earlier than Kafka: as for JoinGroup",
    ),
    # The epoch that it is answered is what its member commits and fetches with.
    RequestClass("ConsumerGroupHeartbeat", (ApiKey.CONSUMER_GROUP_HEARTBEAT,)),
    # Changes the group for whatever comes behind it, which has to see the group without the member.
    RequestClass("LeaveGroup", (ApiKey.LEAVE_GROUP,)),
    # They change nothing, and still nothing may pass them: one that waits may not have read all
    # that it will tell. A change that passed it could show in an answer that was asked for before.
    RequestClass(
        "Queries",
        (
            ApiKey.LIST_OFFSETS,
            ApiKey.METADATA,
            ApiKey.FIND_COORDINATOR,
            ApiKey.DESCRIBE_GROUPS,
            ApiKey.CONSUMER_GROUP_DESCRIBE,
            ApiKey.LIST_GROUPS,
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            ApiKey.DESCRIBE_ACLS,
            ApiKey.DESCRIBE_CONFIGS,
            ApiKey.LIST_CONFIG_RESOURCES,
            ApiKey.DESCRIBE_LOG_DIRS,
            ApiKey.DESCRIBE_DELEGATION_TOKEN,
            ApiKey.LIST_PARTITION_REASSIGNMENTS,
            ApiKey.DESCRIBE_CLIENT_QUOTAS,
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
            ApiKey.DESCRIBE_CLUSTER,
            ApiKey.DESCRIBE_PRODUCERS,
            ApiKey.DESCRIBE_TRANSACTIONS,
            ApiKey.LIST_TRANSACTIONS,
        ),
    ),
    # Answered when the node has seen the change itself: a client that creates a topic and asks
    # about it in the next request finds it.
    RequestClass(
        "Changes",
        (
            ApiKey.CREATE_TOPICS,
            ApiKey.DELETE_TOPICS,
            ApiKey.DELETE_RECORDS,
            ApiKey.CREATE_PARTITIONS,
            ApiKey.CREATE_DELEGATION_TOKEN,
            ApiKey.RENEW_DELEGATION_TOKEN,
            ApiKey.EXPIRE_DELEGATION_TOKEN,
            ApiKey.CREATE_ACLS,
            ApiKey.DELETE_ACLS,
            ApiKey.ALTER_CONFIGS,
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            ApiKey.ALTER_REPLICA_LOG_DIRS,
            ApiKey.DELETE_GROUPS,
            ApiKey.OFFSET_DELETE,
            ApiKey.ELECT_LEADERS,
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            ApiKey.ALTER_CLIENT_QUOTAS,
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
            ApiKey.UPDATE_FEATURES,
        ),
    ),
    RequestClass(
        "Producer ids and transactions",
        (
            ApiKey.INIT_PRODUCER_ID,
            ApiKey.ADD_PARTITIONS_TO_TXN,
            ApiKey.ADD_OFFSETS_TO_TXN,
            ApiKey.END_TXN,
            ApiKey.WRITE_TXN_MARKERS,
            ApiKey.TXN_OFFSET_COMMIT,
        ),
    ),
    RequestClass(
        "Handshakes",
        (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE),
        reason="as in Kafka: what comes behind is served with the rights that they gave",
    ),
)

INTER_BROKER_REQUESTS: Final = RequestClass(
    "Inter-broker requests",
    tuple(sorted(INTER_BROKER)),
    INTER_BROKER,
    "ordered by their own epochs; news must not wait for a long request",
)
"""Served on the inter-broker listener only, so no row of the clients' table.

A LeaderAndIsr may take long: it reads settings from ZooKeeper and opens logs. What is behind it
starts meanwhile. LeaderAndIsr and StopReplica take a lock, and are judged by their epochs once they
have it (handlers/control_plane.py).
"""

QUERIES: Final = frozenset(
    key
    for request_class in CLASSES
    if request_class.name == "Queries"
    for key in request_class.keys
)
"""They change nothing."""

WAITS_FOR_OTHERS: Final = frozenset(
    {
        ApiKey.LIST_OFFSETS,  # the process of conversions
        ApiKey.FIND_COORDINATOR,  # a coordinator; where there are rights, within a coroutine
        ApiKey.CONSUMER_GROUP_DESCRIBE,  # commits of what is told
        ApiKey.DESCRIBE_CONFIGS,  # ZooKeeper, as what follows
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,  # the controller
    }
)
"""Those of them whose handlers wait for more than their turn: no lock is held meanwhile that
other APIs need (net/dispatch.py)."""

_BY_KEY: Final = {
    int(key): request_class
    for request_class in (*CLASSES, INTER_BROKER_REQUESTS)
    for key in request_class.keys
}


def allowed_behind(key: int, version: int) -> ApiKeys:
    """What may start behind a request of this kind that has had its effect but no answer.

    The version counts because of OffsetCommit 0, which a task of its own writes to ZooKeeper. Of
    two such commits of one partition the older could be written last, and be what is read from then
    on (test_nothing_passes_what_zookeeper_is_asked_for).
    """
    found = _BY_KEY.get(key)
    if found is None or version < found.version_min:
        # Unknown is not harmless: an API that nobody sorted into a class lets nothing pass.
        return NO_KEYS
    return found.allowed_behind


def members(request: Any) -> frozenset[tuple[str, ...]]:
    """Who sends a JoinGroup or SyncGroup: by member id and by instance id, so far as known.

    The group is part of it: a member id of one group says nothing in another. So is the kind of the
    id, or an instance id that reads like the member id of somebody else would hold that one up.
    """
    group, instance_id = request.group_id, request.group_instance_id
    known = set()
    # Both, because a static member that comes back has its instance id and no member id yet
    # (KIP-345); a new dynamic member has neither, and is nobody else.
    if request.member_id:
        known.add(("member", group, request.member_id))
    if instance_id is not None:
        known.add(("instance", group, instance_id))
    return frozenset(known)


def intersection(several: Iterable[ApiKeys]) -> ApiKeys:
    """What may start behind all of them; anything behind none.

    A request has to be allowed by each one that it would pass
    (test_what_may_pass_several_is_what_may_pass_each).
    """
    result: ApiKeys = ALL_KEYS
    for keys in several:
        # The first replaces ALL_KEYS, which as a set would have 65,536 members.
        result = keys if result is ALL_KEYS else frozenset(result).intersection(keys)
    return result
