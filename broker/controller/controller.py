"""The controller of a node: waits to be elected, handles events while it is, and resigns.

Source: docs/spec/cluster.md §2.1 to §2.3. Every node has one; only coordinators are candidates.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from barnabas.broker.liveness.failure_detector import FailureDetector
from barnabas.broker.runtime.latency import Latency
from barnabas.client.zookeeper.interface import NoAuth, SessionState, ZooKeeperError
from barnabas.protocol.errors import ErrorCode, Refused

from .components import ControllerComponents
from .context import ControllerContext, Partition, Replica
from .controller_election import ControllerElection, ControllerMoved
from .event_manager import ControllerEvent, ControllerEventManager
from .request_batch import ResponseCallbacks
from .term import ControllerDependencies, ControllerTerm
from .voters_znode import VotersZnode

log = logging.getLogger(__name__)

CHECKS_MAX: Final = 16
"""How many questions whether the role is still ours may be under way."""
FIRST_BALANCE_S: Final = 5.0
"""How long after a takeover leadership is first balanced."""
HANDOVER_S: Final = 1.0
"""How long a node that stops is made to wait for others to hear what they lead now."""
RECONCILIATION_S: Final = 10.0
"""How often a part of what is known is compared with ZooKeeper."""
RETRY_S: Final = 1.0
"""How long a controller that failed waits before it stands again."""
SILENCE_SLACK_S: Final = 0.002
"""Timers of the loop are as exact as a millisecond: silence is looked for just after its time."""
REFUSED_S: Final = 60.0
"""The same for one that ZooKeeper does not let write: others may be who they should be."""
VACANCY_S: Final = 10.0
"""How often a node that cannot be elected says that nobody is controller."""

T = TypeVar("T")

Prepared = Callable[[ErrorCode, list[Partition]], None]
"""Told how a controlled shutdown went: the code, and what the node leads still."""


class Controller:
    """One task handles all that happens, one event at a time; whatever fails ends the term.

    A lost connection is no failure: reads and writes wait for the next one inside the session.

    A new term reads everything again, so no half-done work has to be remembered.
    """

    def __init__(
        self,
        dependencies: ControllerDependencies,
        *,
        is_candidate: bool,
        former_session: int | None = None,
    ) -> None:
        self._dependencies = dependencies
        self._is_candidate = is_candidate
        self._is_retired = False
        self._events = ControllerEventManager()
        self._election = ControllerElection(
            dependencies.zookeeper,
            dependencies.node_id,
            now_ms=dependencies.now_ms,
            former_session=former_session,
            seen=dependencies.controller_seen,
            is_silent=dependencies.is_controller_silent,
            voters=VotersZnode(dependencies.zookeeper)
            if dependencies.failure_detector is not None
            else None,
        )
        self._failure_detector = dependencies.failure_detector
        self._look_now = asyncio.Event()
        """Something changed that :meth:`_watch_liveness` looks at."""
        if self._failure_detector is not None:
            self._failure_detector.on_round.append(self._look_now.set)
        self._judged_at = -math.inf
        self._has_authority = False
        self.losses = 0
        """How often this node lost its authority while it was controller."""
        self._last_problem = ""
        """Why the last term ended, or none began; told again only after a term that did."""
        self._term: ControllerTerm | None = None
        self._components: ControllerComponents | None = None
        self._loop = asyncio.get_running_loop()
        self._tasks: asyncio.TaskGroup | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._next_campaign: asyncio.TimerHandle | None = None
        self.checks = Latency()
        """From the question whether the role is still ours until the answer is here."""
        self.on_idle: list[Callable[[], None]] = []
        """Called when the queue has run empty; for tests and metrics."""
        dependencies.zookeeper.on_state.append(self._session_changed)

    @property
    def is_active(self) -> bool:
        """This node is the controller, as far as it knows."""
        return self._term is not None and self._election.is_won

    @property
    def context(self) -> ControllerContext | None:
        """What the controller knows, to be read only; None when this node is not the controller."""
        return self._components.context if self._components is not None and self.is_active else None

    @property
    def epoch(self) -> int:
        """The controller epoch of this node's term; 0 when it is not controller."""
        return self._election.epoch

    @property
    def voters_version(self) -> int:
        """Of ``/barnabas/voters`` as this node last knew it; -1 when it does not."""
        return -1 if self._election.voters is None else self._election.voters.version

    @property
    def controller_id(self) -> int | None:
        """The controller last read from ZooKeeper, None when there was none."""
        return self._election.controller_id

    def campaign(self) -> None:
        """Stand for election, or see who is controller; call it once the node is registered."""
        self._events.signal("campaign", self._campaign)

    def prepare_shutdown(self, node: int, epoch: int, prepared: Prepared) -> None:
        """Take leadership from a node that wants to stop; answers once, perhaps much later."""

        def refuse() -> None:
            prepared(ErrorCode.STALE_CONTROLLER_EPOCH, [])

        async def prepare() -> None:
            if self._components is None or not self.is_active:
                refuse()
                return
            outcome = await self._components.shutdowns.prepare(node, epoch)
            assert self._tasks is not None, "the controller runs"
            self._tasks.create_task(answer(*outcome), name="answer to a node that stops")

        async def answer(code: ErrorCode, left: list[Partition]) -> None:
            """The node goes on serving until those that take over know that they do."""
            await self.heard(HANDOVER_S)
            prepared(code, left)

        if not self.is_active:
            refuse()
            return
        self._events.put(ControllerEvent("controlled shutdown", prepare, dropped=refuse))

    async def ask(self, name: str, work: Callable[[ControllerComponents], Awaitable[T]]) -> T:
        """Have something done in the controller's turn; raises Refused(NOT_CONTROLLER).

        Also when the term ends first: then part of it may be done, and the next term goes on.
        """
        done: asyncio.Future[T] = self._loop.create_future()

        def refuse() -> None:
            if not done.done():
                done.set_exception(Refused(ErrorCode.NOT_CONTROLLER, "this is not the controller"))

        async def perform() -> None:
            if self._components is None or not self.is_active:
                refuse()
                return
            result = await work(self._components)
            if not done.done():
                done.set_result(result)

        if self.is_active:
            self._events.put(ControllerEvent(name, perform, dropped=refuse))
        else:
            refuse()
        return await done

    def settings_changed(self) -> None:
        """Settings may allow an election that they did not allow before: look again."""

        async def elect() -> None:
            if self._term is not None and self.is_active:
                await self._term.elect_missing_leaders()

        if self.is_active:
            self._events.signal("settings changed", elect)

    async def retire(self) -> None:
        """Give the role up for good, so that another rules while this node stops."""
        over = asyncio.Event()

        async def give_up() -> None:
            self._end_term()
            try:
                await self._election.resign()
            finally:
                over.set()

        self._is_retired = True
        if self.is_active:
            self._events.put(ControllerEvent("retirement", give_up, dropped=over.set))
            with contextlib.suppress(TimeoutError):  # then the role ends with the session
                async with asyncio.timeout(HANDOVER_S):
                    await over.wait()

    async def heard(self, timeout_s: float) -> bool:
        """True once every node that answers has obeyed all that is ordered now; False if late."""
        return self._term is None or await self._term.channels.heard(timeout_s)

    async def run(self) -> None:
        """Handle events until cancelled; the tasks of a term are children of this one."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                if self._failure_detector is not None:
                    self._tasks.create_task(
                        self._watch_liveness(self._failure_detector), name="failure detector"
                    )
                while True:
                    await self._handle(await self._events.next())
                    if not self._events:
                        for idle in self.on_idle:
                            idle()
        finally:
            self._end_term()

    async def _watch_liveness(self, failure_detector: FailureDetector) -> None:
        """As controller, make sure of the role and judge who is silent; else mind its silence."""
        assert self._tasks is not None, "the controller runs"
        checks: set[asyncio.Task[None]] = set()
        while True:
            if self._term is not None and failure_detector.epoch:
                self._report_authority(failure_detector)
                # None waits for another: each may take long.
                if self._need_not_check(failure_detector):
                    self._judge_at_rest(failure_detector)
                elif len(checks) < CHECKS_MAX:
                    check = self._tasks.create_task(
                        self._make_sure(failure_detector), name="authority"
                    )
                    checks.add(check)
                    check.add_done_callback(checks.discard)
            elif self._is_candidate and self._dependencies.is_controller_silent():
                self.campaign()
            await self._until_next_look(failure_detector)

    def _judge_at_rest(self, failure_detector: FailureDetector) -> None:
        """Where ZooKeeper is asked less often than once in T, voters are kept as soon as ever."""
        now = failure_detector.clock()
        if now - self._judged_at >= failure_detector.times.timeout:
            self._judged_at = now
            self._events.signal("silence", self._judge_silence)

    async def _until_next_look(self, failure_detector: FailureDetector) -> None:
        """Sleep for T/8, or as much longer as nothing can happen; a new term ends the sleep.

        A controller at rest looks when a round has been sent, since it is awake then.
        """
        look_s = failure_detector.times.check_every
        is_controller = self._term is not None and bool(failure_detector.epoch)
        if not is_controller:
            look_s = max(look_s, self._dependencies.controller_silent_in() + SILENCE_SLACK_S)
        elif not self._need_not_check(failure_detector):
            await asyncio.sleep(look_s)
            return
        self._look_now.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(look_s):
                await self._look_now.wait()

    def _session_s(self) -> float:
        return self._dependencies.zookeeper.session_timeout_ms / 1000

    def _report_authority(self, failure_detector: FailureDetector) -> None:
        has_authority = failure_detector.authority_claim().left_us > 0
        if self._has_authority and not has_authority:
            self.losses += 1
            log.warning("lost authority: no lease is extended until ZooKeeper and voters answer")
        elif has_authority and not self._has_authority:
            log.info("has authority epoch=%d", failure_detector.epoch)
        self._has_authority = has_authority

    async def _make_sure(self, failure_detector: FailureDetector) -> None:
        sent, epoch = failure_detector.clock(), failure_detector.epoch
        try:
            await self._election.fenced_once()  # a late answer would prove nothing
        except ControllerMoved:
            if failure_detector.epoch != epoch:
                return
            self._controller_changed()
            return
        except ZooKeeperError as error:
            log.info("could not make sure of being controller: %r", error)
            return
        if self._term is None or failure_detector.epoch != epoch:
            return
        failure_detector.checked(sent)
        self._judged_at = failure_detector.clock()
        self.checks.observe(failure_detector.clock() - sent)
        self._events.signal("silence", self._judge_silence)

    async def _judge_silence(self) -> None:
        failure_detector, components = self._failure_detector, self._components
        if failure_detector is None or components is None or not self.is_active:
            return
        await components.nodes.suspect(failure_detector.silent(self._beaconing(components)))
        await components.nodes.readmit_suspects()
        await components.act_when_settled()
        await components.voters.keep()

    def _need_not_check(self, failure_detector: FailureDetector) -> bool:
        """Whether all is as it was: then ZooKeeper is asked once in T, not every T/8.

        Whatever changes that has checks go on with the next look: a node that was not heard for
        half of T is judged by checks as often as ever before it is silent for T.
        """
        components = self._components
        if components is None or not self.is_active or components.context.suspected:
            return False
        if not components.is_settled:
            return False
        return failure_detector.need_not_check(self._beaconing(components))

    def _beaconing(self, components: ControllerComponents) -> dict[int, int]:
        """The other nodes that are judged by their beacons, with their broker epochs."""
        return {
            node.id: node.epoch
            for node in components.context.nodes.values()
            if node.registration.sends_beacons and node.id != self._dependencies.node_id
        }

    async def _handle(self, event: ControllerEvent) -> None:
        try:
            await event.handle()
        except ControllerMoved as moved:
            log.warning("stopped ruling event=%s: %s", event.name, moved)
            await self._resign(event)
            self.campaign()
        except NoAuth as error:
            log.error("gave up being controller event=%s: %s", event.name, error)
            await self._resign(event)
            self._campaign_later(REFUSED_S)
        except ZooKeeperError as error:
            level = logging.WARNING if repr(error) != self._last_problem else logging.DEBUG
            self._last_problem = repr(error)
            log.log(level, "gave up a term event=%s: %r", event.name, error)
            await self._fail(event)
        except Exception:
            log.exception("gave up a term event=%s", event.name)
            await self._fail(event)

    async def _fail(self, event: ControllerEvent) -> None:
        await self._resign(event)
        self._campaign_later(RETRY_S)

    async def _campaign(self) -> None:
        is_lost = self._dependencies.zookeeper.state is SessionState.LOST
        if self.is_active or self._is_retired or is_lost or not self._dependencies.is_registered():
            return  # it is called again once the node is registered anew
        if not self._is_candidate:
            await self._look()
            return
        sent = self._failure_detector.clock() if self._failure_detector is not None else 0.0
        if await self._election.campaign(self._controller_changed):
            await self._take_over(sent)

    async def _look(self) -> None:
        if await self._election.look(self._controller_changed):
            log.warning("nobody is controller: no node with the role coordinator was elected")
            self._campaign_later(VACANCY_S)

    def _campaign_later(self, delay_s: float) -> None:
        """One timer: each change that is seen while nobody rules would begin another."""
        if self._next_campaign is not None:
            self._next_campaign.cancel()
        self._next_campaign = self._loop.call_later(delay_s, self.campaign)

    def _controller_changed(self) -> None:
        self._events.signal("controller changed", self._see_controller)

    async def _see_controller(self) -> None:
        """``/controller`` changed: find out whether it is still ours."""
        if not self.is_active:
            await self._campaign()
            return
        await self._election.look(self._controller_changed)
        if self._election.controller_id != self._dependencies.node_id:
            raise ControllerMoved(f"controller is {self._election.controller_id}")

    async def _take_over(self, sent: float) -> None:
        """``sent``: when the election was not won yet; it was as good as a check of the role."""
        assert self._tasks is not None, "the controller runs"
        if self._failure_detector is not None:
            assert self._election.voters is not None, "who sends beacons claims the voters"
            inherited = self._election.voters.inherited
            self._failure_detector.begin(self._election.epoch, inherited, self._session_s())
            self._failure_detector.checked(sent)
        term = ControllerTerm(self._dependencies, self._election, self._events, self._tasks)
        components = ControllerComponents(term)
        term.replies = _replies(term, components)
        self._term = term
        self._components = components
        self._look_now.set()  # the first check is due, however long the silence would have lasted
        await components.takeover.run()
        self._last_problem = ""
        settings = self._dependencies.settings
        reconcile = components.reconciliation.step
        self._every(term, "reconcile", RECONCILIATION_S, reconcile, first_s=RECONCILIATION_S)
        if settings.auto_leader_rebalance_enable:
            interval_s = float(settings.leader_imbalance_check_interval_s)
            balance = components.preferred_leaders.balance
            self._every(term, "balance", interval_s, balance, first_s=FIRST_BALANCE_S)

    def _every(
        self,
        term: ControllerTerm,
        name: str,
        interval_s: float,
        work: Callable[[], Awaitable[None]],
        *,
        first_s: float,
    ) -> None:
        """Queue ``work`` again and again; the next time counts from the end of the last."""
        if term.is_over:  # the session ended while the work was done
            return

        async def perform() -> None:
            await work()
            self._every(term, name, interval_s, work, first_s=interval_s)

        self._timers[name] = self._loop.call_later(first_s, lambda: term.later(name, perform))

    async def _resign(self, event: ControllerEvent) -> None:
        if event.dropped is not None:
            event.dropped()
        self._end_term()
        try:
            await self._election.resign()
        except ZooKeeperError as error:
            log.warning("could not take the controller znode away: %r", error)

    def _session_changed(self, state: SessionState) -> None:
        """The session is over, and the office with it: nothing may be done in its name."""
        if state is SessionState.LOST:
            self._end_term()
            self._election.step_down()

    def _end_term(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._failure_detector is not None:
            self._failure_detector.end()
        if self._term is not None:
            self._term.end()
            self._term = None
            self._components = None
        self._events.clear()


def _replies(term: ControllerTerm, components: ControllerComponents) -> ResponseCallbacks:
    """Answers of nodes come back as events, in their turn."""

    def failed(replicas: list[Replica]) -> None:
        term.later("replicas failed", lambda: components.nodes.replicas_failed(replicas))

    def deleted(gone: list[Replica], refused: list[Replica]) -> None:
        term.later("replicas deleted", lambda: components.deletion.answered(gone, refused))

    return ResponseCallbacks(
        replicas_failed=failed, replicas_deleted=deleted, informed=term.informed
    )
