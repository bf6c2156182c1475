"""CreateTopics and DeleteTopics: served by the controller's node, answered when all know of it.

Source: docs/spec/cluster.md §2.9 and §2.11.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

from barnabas.broker.controller.create_topics import (
    PARTITIONS_MAX,
    KnownCluster,
    PlannedTopic,
    RequestedTopic,
    TopicCreator,
)
from barnabas.broker.metadata.metadata_cache import MetadataCache, Snapshot
from barnabas.broker.quota.controller_mutation import ControllerMutationQuotas, MutationQuota
from barnabas.broker.settings.log_config import LogConfig
from barnabas.client.zookeeper.interface import ZooKeeperError
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages import create_topics, delete_topics
from barnabas.protocol.names import FORCE_INTERNAL_CLIENT, is_internal
from barnabas.protocol.settings import declared

from .call import Call, Handler
from .cooperative import Turn, map_in_turns, shortened
from .describe_configs import DEFAULT_SETTING, OWN_SETTING, SETTINGS_MAX, as_text
from .throttled_calls import mutation_quota, throttled
from .zookeeper_failures import unreachable

log = logging.getLogger(__name__)

DELETION_DISABLED_SINCE: Final = 3
STRICT_CREATION_SINCE: Final = 6
STRICT_DELETION_SINCE: Final = 5
"""From here a client knows that it is over its quota (89, KIP-599)."""
OTHERS_S: Final = 2.0
"""How long the other nodes are given to hear of a new topic before the answer goes out."""
NAME_FREE_S_MAX: Final = 5.0
"""How long a deletion that nobody can see any more is waited for, so that its name is free."""
MARKED_AT_ONCE: Final = 200
"""How many topics are marked for deletion together: the controller finds them together, too."""


class TopicsHandler:
    """Judges each topic by itself, writes what can be, and waits for the node to hear of it."""

    def __init__(
        self,
        writer: TopicCreator,
        cache: MetadataCache,
        *,
        is_controller: Callable[[], bool],
        heard: Callable[[float], Awaitable[bool]],
        may_delete: bool,
        mutations: ControllerMutationQuotas | None = None,
        inherited: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        """``heard`` waits, so many seconds at most, until every node obeyed the controller.

        ``mutations`` None: nobody's changes are bound. ``inherited``: where settings come from that
        a topic has not itself, in Kafka's numbers; those that are not named are defaults.
        """
        self._inherited = inherited
        self._mutations = mutations
        self._writer = writer
        self._cache = cache
        self._is_controller = is_controller
        self._heard = heard
        self._may_delete = may_delete

    def handlers(self) -> Mapping[int, Handler]:
        """What to register with the dispatcher."""
        return {
            ApiKey.CREATE_TOPICS: self.create,
            ApiKey.DELETE_TOPICS: self.delete,
        }

    async def create(self, call: Call) -> create_topics.CreateTopicsResponse:
        """Create what can be created; each topic has its own code."""
        request: create_topics.CreateTopicsRequest = call.request
        deadline = asyncio.get_running_loop().time() + request.timeout_ms / 1000
        quota = mutation_quota(self._mutations, call, strict_since=STRICT_CREATION_SINCE)
        counts, turn = await counted(topic.name for topic in request.topics), Turn()
        results, known, inherited = {}, self._writer.known_cluster(), self._inherited()
        made: dict[str, PlannedTopic] = {}
        for topic in request.topics:
            await turn.step()
            if topic.name in results:
                continue
            try:
                if counts[topic.name] > 1:
                    raise Refused(ErrorCode.INVALID_REQUEST, f"{topic.name} is named twice")
                plan = await self._create_one(topic, known, quota, is_dry=request.validate_only)
            except Refused as refusal:
                results[topic.name] = _refused(topic.name, refusal)
                continue
            results[topic.name] = _created(plan, inherited)
            made[topic.name] = plan
            await turn.step(len(plan.assignment))
        if not request.validate_only:
            for name in await self._unled(made, deadline):
                results[name] = _refused(name, late(request.timeout_ms))
        topic_results = await map_in_turns(lambda topic: results[topic.name], request.topics)
        answer = create_topics.CreateTopicsResponse(topics=topic_results)
        throttled(call, answer, quota.throttle_ms)
        return answer

    async def delete(self, call: Call) -> delete_topics.DeleteTopicsResponse:
        """Have topics deleted; each has its own code."""
        request: delete_topics.DeleteTopicsRequest = call.request
        loop = asyncio.get_running_loop()
        deadline = loop.time() + request.timeout_ms / 1000
        quota = mutation_quota(self._mutations, call, strict_since=STRICT_DELETION_SINCE)
        asked = request.topics or await map_in_turns(_by_name, request.topic_names)
        results, turn = [], Turn()
        deletable: list[delete_topics.TopicResult] = []
        for topic in asked:
            await turn.step()
            result = delete_topics.TopicResult(name=topic.name, topic_id=topic.topic_id)
            results.append(result)
            try:
                if not self._is_controller():  # first: nobody was asked what the peer may know
                    raise elsewhere()
                name = self._named(topic)
                result.name = name
                result.topic_id = self._cache.snapshot.topic_ids.get(name, bytes(16))
                await self._refuse_deletion(name, call, quota)
            except Refused as refusal:
                result.error_code, result.error_message = refusal.code, refusal.message
                continue
            deletable.append(result)
        marked = await self._mark(deletable)
        for name in await self._remaining(marked, deadline):
            delay = late(request.timeout_ms)
            marked[name].error_code, marked[name].error_message = delay.code, delay.message
        answer = delete_topics.DeleteTopicsResponse(responses=results)
        throttled(call, answer, quota.throttle_ms)
        return answer

    async def _create_one(
        self,
        topic: create_topics.Topic,
        known: KnownCluster,
        quota: MutationQuota,
        *,
        is_dry: bool,
    ) -> PlannedTopic:
        if not self._is_controller():
            raise elsewhere()
        if len(topic.assignments) > PARTITIONS_MAX:
            reason = f"at most {PARTITIONS_MAX} partitions fit into a topic's znode"
            raise Refused(ErrorCode.INVALID_PARTITIONS, reason)
        if len(topic.configs) > SETTINGS_MAX:
            reason = f"{len(topic.configs)} settings are named, {SETTINGS_MAX} may be"
            raise Refused(ErrorCode.INVALID_CONFIG, reason)
        wish = RequestedTopic(
            name=topic.name,
            partitions=topic.num_partitions,
            factor=topic.replication_factor,
            assignment={item.partition_index: item.broker_ids for item in topic.assignments},
            configs={item.name: item.value for item in topic.configs},
        )
        try:
            plan = await self._writer.plan(wish, known)
            if not is_dry:
                quota.record(len(plan.assignment))
                await self._writer.create(plan, known)
        except ZooKeeperError as error:
            raise unreachable(error) from error
        return plan

    async def _unled(self, made: Mapping[str, PlannedTopic], deadline: float) -> list[str]:
        """The topics that this node did not hear of, with all their leaders, in time."""

        counts = {name: len(plan.assignment) for name, plan in made.items()}
        left_s = deadline - asyncio.get_running_loop().time()
        if left_s <= 0:
            return list(made)
        await self._cache.wait_until(LedTopics(counts).are_all_in, left_s)
        await self._await_others(deadline)
        return [name for name in counts if not is_led(self._cache.snapshot, name, counts[name])]

    async def _await_others(self, deadline: float) -> None:
        """Let the other nodes hear of it, too: the client may ask any of them next.

        Kafka does not wait for them, so nothing fails when one of them is slow.
        """
        left_s = deadline - asyncio.get_running_loop().time()
        if left_s > 0:
            await self._heard(min(left_s, OTHERS_S))

    def _named(self, topic: delete_topics.Topic) -> str:
        has_id = topic.topic_id != bytes(16)
        if topic.name is not None and has_id:
            raise Refused(ErrorCode.INVALID_REQUEST, "a topic goes by name or by id, not by both")
        if topic.name is not None:
            return topic.name
        name = self._cache.snapshot.names.get(topic.topic_id)
        if name is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
        return name

    async def _refuse_deletion(self, name: str, call: Call, quota: MutationQuota) -> None:
        """Raise Refused where a topic may not be deleted now; else it counts for the quota."""
        if is_internal(name) and call.client_id != FORCE_INTERNAL_CLIENT:
            # Kafka deletes it, and with it every offset of every group.
            raise Refused(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"{name} is internal: what groups committed would be gone with it. "
                "`barnabas topics delete --force-internal` does it",
            )
        if not self._may_delete:
            has_code = call.version >= DELETION_DISABLED_SINCE
            raise Refused(
                ErrorCode.TOPIC_DELETION_DISABLED if has_code else ErrorCode.INVALID_REQUEST,
                "delete.topic.enable=false",
            )
        partitions = self._cache.snapshot.topics.get(name, ())
        try:
            # A topic of this moment may be known to others, and not yet to this node.
            if not partitions and not await self._writer.exists(name):
                raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        except ZooKeeperError as error:
            raise unreachable(error) from error
        quota.record(len(partitions) or 1)

    async def _mark(
        self, deletable: Sequence[delete_topics.TopicResult]
    ) -> dict[str, delete_topics.TopicResult]:
        """Mark the topics of the results for deletion; returns those that could be, by name."""
        marked = {}
        lost: Refused | None = None
        for start in range(0, len(deletable), MARKED_AT_ONCE):
            chunk = deletable[start : start + MARKED_AT_ONCE]
            for result, refusal in zip(
                chunk, await asyncio.gather(*map(self._mark_one, chunk)), strict=True
            ):
                if refusal is None:
                    assert result.name is not None, "it was found by its name"
                    marked[result.name] = result
                else:
                    result.error_code, result.error_message = refusal.code, refusal.message
                    if refusal.code is not ErrorCode.UNKNOWN_SERVER_ERROR:
                        lost = refusal
            if lost is not None:
                # Whoever does not answer now would be asked in vain for each chunk, 18 s long.
                for result in deletable[start + MARKED_AT_ONCE :]:
                    result.error_code, result.error_message = lost.code, lost.message
                break
        return marked

    async def _mark_one(self, result: delete_topics.TopicResult) -> Refused | None:
        """Why the topic could not be marked; None when it is."""
        assert result.name is not None, "it was found by its name"
        if not self._is_controller():
            return elsewhere()
        try:
            await self._writer.mark_for_deletion(result.name)
        except ZooKeeperError as error:
            return unreachable(error)
        return None

    async def _remaining(self, marked: Iterable[str], deadline: float) -> list[str]:
        """The topics that this node did not see vanish in time; the others' names are free."""
        names = list(marked)
        loop = asyncio.get_running_loop()
        left_s = deadline - loop.time()
        if left_s <= 0 or not names:
            return names
        await self._cache.wait_until(
            lambda snapshot: not any(name in snapshot.topics for name in names), left_s
        )
        snapshot = self._cache.snapshot
        remaining = {name: None for name in names if name in snapshot.topics}
        left_s = min(deadline - loop.time(), NAME_FREE_S_MAX)
        try:
            async with asyncio.timeout(left_s):
                for name in names:
                    if name not in remaining:
                        await self._writer.deleted(name)
        except (TimeoutError, ZooKeeperError) as error:
            log.info(
                "answered before a deletion was through topics=%s: %r",
                *(shortened(", ".join(names)), error),
            )
        return list(remaining)


class LedTopics:
    """Topics that are to be led, forgotten one by one as a node hears of their leaders."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        """``counts`` are the partitions of each, numbered from 0."""
        self._missing = dict(counts)

    def are_all_in(self, snapshot: Snapshot) -> bool:
        """Whether a node that knows ``snapshot`` has heard of all; each is looked at once."""
        missing = self._missing
        while missing:
            name, count = missing.popitem()
            if not is_led(snapshot, name, count):
                missing[name] = count
                return False
        return True


def is_led(snapshot: Snapshot, name: str, count: int) -> bool:
    """Whether the first ``count`` partitions of a topic have leaders."""
    return all(snapshot.leader(name, index) is not None for index in range(count))


async def counted(names: Iterable[str]) -> Counter[str]:
    """How often each is named."""
    counts: Counter[str] = Counter()
    turn = Turn()
    for name in names:
        counts[name] += 1
        await turn.step()
    return counts


def _by_name(name: str) -> delete_topics.Topic:
    return delete_topics.Topic(name=name)


def _created(plan: PlannedTopic, inherited: Mapping[str, int]) -> create_topics.TopicResult:
    return create_topics.TopicResult(
        name=plan.name,
        topic_id=plan.topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=len(plan.assignment),
        replication_factor=plan.factor,
        configs=_settings(plan.config, {**inherited, **dict.fromkeys(plan.configs, OWN_SETTING)}),
    )


def _refused(name: str, refusal: Refused) -> create_topics.TopicResult:
    return create_topics.TopicResult(
        name=name,
        error_code=refusal.code,
        error_message=shortened(refusal.message) or None,
        configs=[],
    )


def _settings(config: LogConfig, sources: Mapping[str, int]) -> list[create_topics.ConfigResult]:
    return [
        create_topics.ConfigResult(
            name=name,
            value=as_text(getattr(config, item.field)),
            config_source=sources.get(name, DEFAULT_SETTING),
        )
        for name, item in declared(LogConfig).items()
    ]


def elsewhere() -> Refused:
    """What a node that is not the controller answers."""
    return Refused(ErrorCode.NOT_CONTROLLER, "this is not the controller: ask the one in Metadata")


def late(timeout_ms: int) -> Refused:
    """What is answered when the time of the request is up; what was begun goes on."""
    return Refused(ErrorCode.REQUEST_TIMED_OUT, f"not finished within {timeout_ms} ms, goes on")
