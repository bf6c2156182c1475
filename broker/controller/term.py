"""One term of a controller: what lives from an election to the resignation after it.

Source: docs/spec/cluster.md §2.3.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from barnabas.broker.liveness.failure_detector import FailureDetector
from barnabas.broker.settings.node_config import ControllerSettings
from barnabas.client.zookeeper.interface import Watch, ZooKeeper

from .channel_manager import ControllerChannelManager, Dial
from .context import ControllerContext, Partition, Replica
from .control_requests import ControlRequestBuilder
from .controller_election import ControllerElection
from .event_manager import ControllerEvent, ControllerEventManager
from .failovers import Failovers
from .leadership_handover import LeadershipHandovers
from .partition_state_machine import PartitionStateMachine
from .partition_state_znodes import PartitionStateZnodes
from .replica_state_machine import ReplicaStateMachine
from .request_batch import ControlRequestBatch, ResponseCallbacks
from .voter_changes import VoterChanges

log = logging.getLogger(__name__)

TIMER_SLACK_S: Final = 0.005
"""So that what is waited for has surely come when a timer fires."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerDependencies:
    """What the controller of a node works with, term after term."""

    zookeeper: ZooKeeper
    node_id: int
    internal_listener: str
    """Upper-case name of the listener that control requests go to."""
    settings: ControllerSettings
    dial: Dial
    now_ms: Callable[[], int]
    rng: random.Random
    may_be_unclean: Callable[[str], bool]
    """Whether records of a topic may be given up to have a leader again."""
    may_delete_topics: bool = True
    failure_detector: FailureDetector | None = None
    """Who may answer until when; None where no beacons are sent."""
    controller_seen: Callable[[int | None], None] = lambda controller: None
    """Told of every controller that is found, None when there is none."""
    is_controller_silent: Callable[[], bool] = lambda: False
    """The controller seen last gives no sign of life and is to be replaced."""
    controller_silent_in: Callable[[], float] = lambda: 0.0
    """Seconds in which it cannot become silent: it need not be asked about before."""
    is_registered: Callable[[], bool] = lambda: True
    """This node has a registration in its present session; without one it stands for nothing."""
    failovers: Failovers = field(default_factory=Failovers)
    """Told of every node that is lost."""


class ControllerTerm:
    """The tools of one term, made new at each election; useless once it is over."""

    def __init__(
        self,
        dependencies: ControllerDependencies,
        election: ControllerElection,
        events: ControllerEventManager,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self.dependencies = dependencies
        self.election = election
        self.zookeeper = dependencies.zookeeper
        self.is_over = False
        self.context = ControllerContext()
        self.channels = ControllerChannelManager(
            tasks, dependencies.dial, timeout_ms=dependencies.settings.socket_timeout_ms
        )
        self.states = PartitionStateZnodes(dependencies.zookeeper, election)
        self.failure_detector = dependencies.failure_detector
        self.handovers = LeadershipHandovers(
            self.context,
            dependencies.failure_detector,
            asyncio.get_running_loop(),
            self._tell_leader,
        )
        session_s = dependencies.zookeeper.session_timeout_ms / 1000
        self.voters = VoterChanges(self.context, election, dependencies.failure_detector, session_s)
        self.partitions = PartitionStateMachine(
            self.context,
            self.states,
            dependencies.may_be_unclean,
            self.handovers,
            self.may_hold_lease,
        )
        self.replicas = ReplicaStateMachine(self.context, self.states)
        self.replies: ResponseCallbacks | None = None
        self._orders = ControlRequestBuilder(
            context=self.context,
            controller_id=dependencies.node_id,
            controller_epoch=election.epoch,
            internal_listener=dependencies.internal_listener,
        )
        self._events = events

    def batch(self) -> ControlRequestBatch:
        """An empty batch; fill it, then send it."""
        assert self.replies is not None, "nobody listens to replies yet"
        return ControlRequestBatch(
            self.context, self._orders, self.channels, self.replies, self.handovers
        )

    def may_hold_lease(self, node: int) -> bool:
        """Whether a lease of a node that is not registered may still last."""
        return self.failure_detector is not None and self.failure_detector.may_hold_lease(node)

    def informed(self, node: int, broker_epoch: int) -> None:
        """The node knows all that this controller knows, so it may answer for what it leads."""
        known = self.context.nodes.get(node)
        if (
            self.is_over
            or self.failure_detector is None
            or known is None
            or known.epoch != broker_epoch
        ):
            return
        if self.handovers.is_awaited(node):
            self.handovers.admit_later(node)
        else:
            self.failure_detector.admit(node, broker_epoch)

    def _tell_leader(self, node: int, partitions: Collection[Partition]) -> None:
        if self.is_over:
            return
        batch = self.batch()
        for partition in partitions:
            batch.lead([node], partition)
        batch.send()

    def watch(self, name: str, handle: Callable[[], Awaitable[None]]) -> Watch:
        """A watch that queues ``handle``, once however often it fires before it is handled."""

        def fired() -> None:
            if not self.is_over:
                self._events.signal(name, self._while_it_lasts(handle))

        return fired

    def later(self, name: str, handle: Callable[[], Awaitable[None]]) -> None:
        """Queue ``handle`` behind what is queued already."""
        if not self.is_over:
            self._events.put(ControllerEvent(name, self._while_it_lasts(handle)))

    def after(self, delay_s: float, name: str, handle: Callable[[], Awaitable[None]]) -> None:
        """Queue ``handle`` when the time has passed, unless the term is over by then."""
        loop = asyncio.get_running_loop()
        loop.call_later(max(0.0, delay_s) + TIMER_SLACK_S, lambda: self.watch(name, handle)())

    def open_channels(self, nodes: Iterable[int]) -> None:
        """Begin to deliver orders to newly registered nodes."""
        for node in nodes:
            address = self.context.address(node, self.dependencies.internal_listener)
            if address is None:
                log.error(
                    "cannot reach a node: it has no listener of that name node=%d listener=%s",
                    node,
                    self.dependencies.internal_listener,
                )
            else:
                self.channels.open(node, address)

    def end(self) -> None:
        """Stop delivering; whatever is still queued or under way finds the term over."""
        self.is_over = True
        self.handovers.end()
        self.channels.close_all()

    async def elect_missing_leaders(self) -> None:
        """Elect whatever has no leader and may have one now, and tell the nodes."""
        batch = self.batch()
        await self.partitions.elect_missing_leaders(batch)
        batch.send()

    def without_deleting_topics(self, replicas: Iterable[Replica]) -> list[Replica]:
        """Those whose topic is not being deleted."""
        return [replica for replica in replicas if replica[0] not in self.context.deleting]

    def _while_it_lasts(
        self, handle: Callable[[], Awaitable[None]]
    ) -> Callable[[], Awaitable[None]]:
        async def handled() -> None:
            if not self.is_over:
                await handle()

        return handled
