"""The parts of one node, put together: what is made in which order, and who is told of what.

No rule lives here; each is in the part that it belongs to. One idea, though long: whoever looks for
what is made of what, and in which order, finds all of it in one place.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from barnabas.broker.storage.compaction.cleaner import LogCleaner
from barnabas.broker.storage.log_manager import LogManager
from barnabas.client.zookeeper.interface import ZooKeeper
from barnabas.coordinator.ports import TRANSACTION_TOPIC, Caller
from barnabas.protocol.events_topic import EventKind
from barnabas.protocol.hashing import group_partition
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)

from .authorizer.access_control import AccessControl
from .authorizer.authorizer import AuthorizedPeer
from .controller.auto_topic_creation import AutoTopicCreation
from .controller.control_request_latency import timed
from .controller.controller import Controller
from .controller.create_topics import TopicCreator
from .controller.failovers import Failovers
from .controller.term import ControllerDependencies
from .coordination.event_topics import EventSources, EventTopics
from .coordination.group_coordinator_host import GroupCoordinatorHost
from .coordination.producer_id_manager import ProducerIdManager
from .coordination.producer_id_pool import ProducerIdPool
from .coordination.transaction_coordinator_host import TransactionCoordinatorHost
from .handlers.conversion_process import ConversionProcess
from .handlers.fetch_sessions import FetchSessionCache
from .handlers.registry import HandlerDependencies, register_handlers
from .lifecycle.cluster_id_check import ClusterIdCheck
from .lifecycle.controlled_shutdown_client import ControlledShutdownClient
from .lifecycle.log_dir_events import LogDirEvents
from .lifecycle.node_identity import NodeIdentity
from .lifecycle.peer_compatibility import Peers
from .lifecycle.registration import Registration, SessionRenewal
from .liveness.liveness import Liveness
from .markers.receiver import MarkerWriter
from .markers.sender import MarkerSender
from .markers.topic_partitions import TopicPartitions
from .metadata.metadata_cache import MetadataCache
from .metrics.node_metrics import MetricsSources, NodeMetrics
from .metrics.process_families import release
from .metrics.readiness import ServingState
from .net.dispatch import Dispatcher
from .net.limits import Limits
from .net.listener_reconfiguration import ListenerReconfiguration
from .net.listeners import Listeners
from .net.throttle import RequestThrottling
from .net.watchdog import Watchdog
from .quota.quotas import Quotas
from .replication.damaged_replicas import DamagedReplicas
from .replication.isr import IsrManager
from .replication.replica_fetcher import ReplicaFetcher
from .replication.replica_fetcher_manager import ReplicaFetcherManager
from .replication.replica_manager import ReplicaManager
from .replication.stray_replicas import StrayReplicas
from .runtime.latency import Latency
from .security.audit_file import AuditFile
from .security.audit_log import AuditLog
from .security.node_security import NodeSecurity
from .settings.dynamic_node_config import DynamicNodeConfig
from .settings.group_configs import GroupConfigs
from .settings.node_config import NodeConfig
from .settings.topic_configs import TopicConfigs
from .storage.files import Files
from .verification.offsets_port import OffsetsVerification
from .verification.verifier import TransactionVerifier

log = logging.getLogger(__name__)

METADATA_WAIT_S: Final = 10.0
"""How long a node that serves is not called ready because it does not know the cluster yet."""

Work = Callable[[], Coroutine[Any, Any, None]]


class Node:
    """One node's parts.

    Life: ``open``, run ``background``, ``start_serving``; later ``hand_over`` and ``close``.
    """

    def __init__(
        self,
        config: NodeConfig,
        identity: NodeIdentity,
        zookeeper: ZooKeeper,
        logs: LogManager,
        topic_configs: TopicConfigs,
        group_configs: GroupConfigs,
        node_configs: DynamicNodeConfig,
        files: Files,
        now_ms: Callable[[], int],
        rng: random.Random,
        lease_clock: Callable[[], float],
        renew: asyncio.Event | None = None,
    ) -> None:
        """``renew``: set when certificates are to be read again."""
        self.config = config
        self.identity = identity
        self._zookeeper = zookeeper
        self._logs = logs
        self._topic_configs = topic_configs
        self._group_configs = group_configs
        self._node_configs = node_configs
        self._files = files
        self._now_ms = now_ms
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self._registration: Registration | None = None
        ids = identity.node_id, identity.cluster_id
        self.audit_file: AuditFile | None = None
        """Where the audit log goes; None for the node's own log."""
        self._audit = AuditLog(now=self._loop.time, now_ms=now_ms, later=self._loop.call_later)
        parts = (*ids, zookeeper, now_ms, renew, self._audit)
        security = self._security = NodeSecurity(config, *parts)
        self._dial = security.dial
        self._cluster_id_check = ClusterIdCheck(zookeeper, identity.cluster_id)
        self._metadata = MetadataCache()
        self._limits = Limits(config.network, config.listener_quotas, self._audit)
        self._quotas = self._build_quotas()
        self._log_dir_events = LogDirEvents(zookeeper, identity.node_id)
        self._replicas = self._build_replicas()
        self._acls = self._build_access_control()
        self._damaged_replicas = DamagedReplicas(self._replicas, self._log_dir_events.notify)
        self._stray_replicas = self._build_stray_replicas()
        self._liveness = self._build_liveness(lease_clock)
        self._listeners = Listeners(config, self._limits, self._liveness, security)
        self._listener_reconfiguration = self._build_listener_reconfiguration()
        self._topic_creator = self._build_topic_creator()
        self._auto_topic_creation = AutoTopicCreation(
            self._topic_creator, config.coordinator, config.transactions
        )
        self._build_for_transactions()
        self._transaction_host = self._build_transaction_host()
        self._coordinator_host = self._build_coordinator_host()
        self._cleaner = self._build_cleaner()
        self._controlled_shutdown = self._build_controlled_shutdown()
        self._metrics = NodeMetrics(config.metrics)
        self._serving = ServingState(self._is_registered)
        self._connect_callbacks()

    def _is_registered(self) -> bool:
        return self._registration is not None and self._registration.is_held

    def _build_stray_replicas(self) -> StrayReplicas:
        return StrayReplicas(
            self.identity.node_id, self._logs, self._replicas, self._metadata, self._zookeeper
        )

    def _build_access_control(self) -> AccessControl | None:
        """None where no authorizer is configured: then nothing is asked for any request."""
        settings = self.config.authorizer
        if not settings.is_on:
            return None
        return AccessControl(
            settings,
            self._zookeeper,
            now=self._loop.time,
            now_ms=self._now_ms,
            rng=self._rng,
            audit=self._audit_denial,
        )

    def _audit_denial(self, peer: AuthorizedPeer, operation: str, resource: str, api: str) -> None:
        self._audit.denied(
            listener=peer.listener,
            host=peer.host,
            principal=peer.principal,
            operation=operation,
            resource=resource,
            api=api,
        )

    def _build_topic_creator(self) -> TopicCreator:
        return TopicCreator(
            self._zookeeper,
            self._rng,
            partitions=self.config.topics.num_partitions,
            factor=self.config.topics.default_replication_factor,
            log_defaults=lambda: self._node_configs.log_defaults,
        )

    def _build_quotas(self) -> Quotas:
        quotas = Quotas(self.config.quotas, self._zookeeper, self.identity.node_id, self._loop.time)
        self._limits.connection_quotas.address_rates = quotas.addresses
        self._fetch_sessions = FetchSessionCache(
            self.config.replication.fetch_session_slots, now=self._loop.time, rng=self._rng
        )
        return quotas

    def _build_liveness(self, clock: Callable[[], float]) -> Liveness:
        return Liveness(
            self.config.liveness,
            self._zookeeper,
            node_id=self.identity.node_id,
            cluster_id=self.identity.cluster_id,
            secret=self.config.node.cluster_secret,
            previous_secret=self.config.node.cluster_secret_previous,
            clock=clock,
            rng=self._rng,
            peers=self._peers,
            is_candidate="coordinator" in self.config.node.node_roles,
        )

    def _build_controlled_shutdown(self) -> ControlledShutdownClient:
        """A node that shares no replica leaves without a word."""
        return ControlledShutdownClient(
            self.identity.node_id,
            self._metadata,
            self._dial,
            self._zookeeper,
            self.config.controller,
            self.config.inter_broker_listener,
            shares_replicas=lambda: any(
                len(partition.replicas) > 1 for partition in self._replicas
            ),
        )

    def _build_for_transactions(self) -> None:
        """What transactions need of a node besides their coordinator."""
        blocks = ProducerIdManager(self._zookeeper, self.identity.node_id)
        self._producer_ids = ProducerIdPool(blocks.take, self._loop)
        self._marker_writer = self._build_marker_writer()
        self._marker_sender = self._build_marker_sender()
        self._verifier = TransactionVerifier(
            self.identity.node_id,
            coordinator_of=self._transaction_coordinator_of,
            ask_here=self._ask_own_coordinator,
            dial=self._dial,
            locate=self._internal_address,
            timeout_ms=self.config.transactions.request_timeout_ms,
            now=self._loop.time,
        )

    def _build_coordinator_host(self) -> GroupCoordinatorHost:
        verification = OffsetsVerification(
            self._replicas,
            self._verifier,
            is_enabled=self._verifies_transactions,
            now_ms=self._now_ms,
        )
        return GroupCoordinatorHost(
            self.config,
            self.identity.node_id,
            zookeeper=self._zookeeper,
            replicas=self._replicas,
            liveness=self._liveness,
            metadata=self._metadata,
            creation=self._auto_topic_creation,
            files=self._files,
            now_ms=self._now_ms,
            rng=self._rng,
            dial=self._dial,
            locate=self._internal_address,
            verification=verification,
            transaction_lookup=self._transaction_host.topics,
            settings_of=self._group_configs.settings_of,
        )

    def _build_event_topics(self) -> EventTopics | None:
        """None where events are not asked for."""
        if not self.config.audit.events_topic_enable:
            return None
        topics = EventTopics(
            self.identity.node_id,
            self._metadata,
            self._auto_topic_creation,
            dial=self._dial,
            locate=self._internal_address,
            now_ms=self._now_ms,
            rng=self._rng,
        )
        sources = EventSources(
            replicas=self._replicas,
            isr_manager=self._isr_manager,
            logs=self._logs,
            topic_configs=self._topic_configs,
            group_configs=self._group_configs,
            node_configs=self._node_configs,
            groups=self._coordinator_host.groups,
            liveness=self._liveness,
            failovers=self._failovers,
            audit=self._audit,
        )
        topics.listen(sources)
        return topics

    def _verifies_transactions(self) -> bool:
        return self._node_configs.current.transactions.verification_enable

    def _build_transaction_host(self) -> TransactionCoordinatorHost:
        return TransactionCoordinatorHost(
            self.config,
            self.identity.node_id,
            zookeeper=self._zookeeper,
            replicas=self._replicas,
            liveness=self._liveness,
            metadata=self._metadata,
            creation=self._auto_topic_creation,
            files=self._files,
            now_ms=self._now_ms,
            markers=self._marker_sender,
            producer_ids=self._producer_ids,
            offsets_partitions=lambda: self._coordinator_host.topic.partition_count,
        )

    def _build_marker_writer(self) -> MarkerWriter:
        return MarkerWriter(
            self._replicas,
            transaction_ended=self._transaction_ended,
            loop=self._loop,
            now_ms=self._now_ms,
            timeout_ms=self.config.transactions.request_timeout_ms,
        )

    def _transaction_ended(
        self, partition: int, producer_id: int, *, is_commit: bool, marker_offset: int
    ) -> None:
        self._coordinator_host.groups.transaction_ended(
            partition, producer_id, is_commit=is_commit, marker_offset=marker_offset
        )

    def _build_marker_sender(self) -> MarkerSender:
        return MarkerSender(
            self.identity.node_id,
            self._metadata,
            indexes=TopicPartitions(self._zookeeper).indexes,
            write_here=self._marker_writer.write,
            dial=self._dial,
            locate=self._internal_address,
            loop=self._loop,
            holds_lease=self._liveness.lease.holds,
            timeout_ms=self.config.transactions.request_timeout_ms,
        )

    def _transaction_coordinator_of(self, transactional_id: str) -> int | None:
        """The node that leads the id's partition of the transaction log, as far as is known."""
        count = self._transaction_host.topic.partition_count
        if count is None:
            return None
        partition = group_partition(transactional_id, count)
        return self._metadata.snapshot.leader(TRANSACTION_TOPIC, partition)

    def _ask_own_coordinator(
        self,
        request: AddPartitionsToTxnRequest,
        version: int,
        respond: Callable[[AddPartitionsToTxnResponse], None],
    ) -> None:
        """Verify at the coordinator of this node, without a connection."""
        caller = Caller(client_id="", host="")
        serve = self._transaction_host.transactions
        serve.add_partitions_to_txn(request, version, caller, respond)

    def _build_cleaner(self) -> LogCleaner:
        committed = self._replicas.high_watermark
        return LogCleaner(self._files, self._logs, self.config.cleaner, committed, self._now_ms)

    def _build_listener_reconfiguration(self) -> ListenerReconfiguration:
        return ListenerReconfiguration(
            self._zookeeper,
            self._node_configs,
            self._listeners,
            self._limits.connection_quotas,
            self._now_ms,
        )

    def _build_replicas(self) -> ReplicaManager:
        """Replicas need who fetches for them and who writes their in-sync sets."""
        self._isr_manager = IsrManager(
            self._zookeeper,
            self.identity.node_id,
            self._loop,
            lag_max_ms=self.config.replication.lag_time_max_ms,
            live_nodes=lambda: self._metadata.snapshot.brokers.keys(),
        )
        self._replica_fetchers = ReplicaFetcherManager(
            lambda leader: ReplicaFetcher(
                leader,
                self.identity.node_id,
                self.config.replication,
                dial=self._dial,
                locate=self._internal_address,
                write_recovery_points=self._logs.write_recovery_points,
                quota=self._quotas.replication.follower,
            )
        )
        return ReplicaManager(
            self.identity.node_id,
            self._logs,
            knows=lambda topic, index: self._metadata.snapshot.partition(topic, index) is not None,
            context=self._isr_manager,
            fetchers=self._replica_fetchers,
        )

    async def open(self, tasks: asyncio.TaskGroup) -> None:
        """Bind every port, then take the place in ZooKeeper; nothing is served yet."""
        self._control_request_latency = Latency()
        self._failovers = Failovers()
        self._events = self._build_event_topics()
        self._dispatcher = dispatcher = self._metrics.dispatcher(tasks)
        self._throttle_clients(dispatcher)
        await self._quotas.store.load()
        await self._limits.connection_quotas.resolve()
        await self._security.load()
        await self._listeners.bind(dispatcher)
        self._registration = registration = Registration(
            self._zookeeper,
            self.identity.node_id,
            self._listeners.registration(self._now_ms()),
            Peers.of_node(self._zookeeper, self.identity, self.config, self._security),
            files=self._files,
            session_directory=self._logs.locked_directory,
        )
        self._controller = Controller(
            self._dependencies(),
            is_candidate="coordinator" in self.config.node.node_roles,
            former_session=registration.former_session,
        )
        self._conversions = ConversionProcess()
        register_handlers(dispatcher.register, self._handler_dependencies(dispatcher, registration))
        self._renewal = SessionRenewal(
            self._zookeeper,
            [
                self._forget_former_session,
                self._cluster_id_check.confirm,
                self._register,
                self._topic_configs.load,
                self._group_configs.load,
                self._node_configs.load,
                self._quotas.store.load,
                self._security.load,
                *([self._acls.load] if self._acls else []),
                self._campaign,
            ],
        )
        if self._acls:
            await self._acls.load()
        await self._register()
        await self._coordinator_host.topic.look()
        await self._transaction_host.topic.look()
        await self._metrics.open(self._metrics_sources())

    def _throttle_clients(self, dispatcher: Dispatcher) -> None:
        """Have requests counted from the first quota on, until the last one goes."""
        throttling = RequestThrottling(
            self._quotas.clients,
            now=self._loop.time,
            forget_told=self._fetch_sessions.forget_told,
        )
        self._quotas.clients.on_first.append(lambda: dispatcher.throttle(throttling))
        self._quotas.clients.on_none.append(lambda: dispatcher.throttle(None))

    async def _forget_former_session(self) -> None:
        assert self._registration is not None, "opened"
        self._coordinator_host.forget_former_session(self._registration.broker_epoch)
        self._transaction_host.forget_former_session()

    def background(self) -> Mapping[str, Work]:
        """What runs as long as the node does; the end of any of it ends the node."""
        registration = self._registration
        assert registration is not None, "opened"
        return {
            "logs": self._logs.run,
            "log compaction": self._cleaner.run,
            "listeners": lambda: self._listener_reconfiguration.run(registration),
            "topic settings": self._topic_configs.run,
            "group settings": self._group_configs.run,
            **({"access control": self._acls.run} if self._acls else {}),
            **({"events": self._events.run} if self._events else {}),
            "topic creation": self._auto_topic_creation.run,
            "groups": self._coordinator_host.groups.run,
            "offsets topic": self._coordinator_host.topic.run,
            "transactions": self._transaction_host.transactions.run,
            "transaction log": self._transaction_host.topic.run,
            "controller": self._controller.run,
            "session renewal": self._renewal.run,
            "zookeeper's content": self._cluster_id_check.run,
            "log directory events": self._log_dir_events.run,
            "damaged replicas": self._damaged_replicas.run,
            "stray replicas": self._stray_replicas.run,
            "liveness": self._liveness.run,
            "ISR": lambda: self._isr_manager.run(self._replicas),
            "replica fetchers": self._replica_fetchers.run,
            "metrics": self._metrics.run,
            "producer ids": self._producer_ids.run,
            "transaction markers": self._marker_sender.run,
            "transaction verification": self._verifier.run,
            "certificates": self._security.tls.run,
            **self._security.background(lambda: self._controller.is_active),
            "watchdog": Watchdog(self._listeners.open_connections, self._loop.time).run,
        }

    async def start_serving(self) -> Mapping[str, int]:
        """Stand for election and serve; the bound port of each listener.

        Returns once a controller has sent the metadata, or after METADATA_WAIT_S without.
        """
        self._controller.campaign()
        ports = self._listeners.serve()
        log.info("serving node=%d ports=%s", self.identity.node_id, ports)
        if not await self._metadata.wait_until_informed(METADATA_WAIT_S):
            log.warning("heard of no controller yet node=%d", self.identity.node_id)
        self._serving.is_serving = True
        if self._events is not None:
            roles = list(self.config.node.node_roles)
            self._events.events.note(EventKind.NODE_STARTED, release=release(), roles=roles)
        return ports

    async def hand_over(self) -> None:
        """Hand over what others can take."""
        assert self._registration is not None, "opened"
        self._serving.is_serving = False
        if self._events is not None:
            await self._events.stop()
        self._replica_fetchers.take_no_more()
        await self._controlled_shutdown.hand_over(self._registration.broker_epoch)
        await self._liveness.leave()
        await self._controller.retire()

    async def close(self) -> None:
        """Stop serving, then stop the coordinator; logs and session are closed by the daemon."""
        await self._listeners.close()
        await self._metrics.close()
        self._dispatcher.stop()
        self._conversions.close()
        self._security.terms.close()
        self._transaction_host.close()
        await self._coordinator_host.close()
        if self._events is not None:
            await self._events.close()
        self._liveness.close()
        self._audit.flush()

    async def _register(self) -> None:
        """Take the place in ZooKeeper, at the start and after a lost session."""
        assert self._registration is not None, "opened"
        await self._registration.register()
        self._liveness.registered(self._registration.broker_epoch)

    def _peers(self) -> dict[int, tuple[str, int]]:
        """Where the other nodes' beacons go: to their INTERNAL listeners, by UDP."""
        found = {}
        for node in self._metadata.snapshot.brokers:
            address = self._internal_address(node)
            if node != self.identity.node_id and address is not None:
                found[node] = address
        return found

    def _metrics_sources(self) -> MetricsSources:
        return MetricsSources(
            config=self.config,
            node_id=self.identity.node_id,
            cluster_id=self.identity.cluster_id,
            zookeeper=self._zookeeper,
            serving=self._serving,
            listeners=self._listeners,
            replicas=self._replicas,
            isr_manager=self._isr_manager,
            logs=self._logs,
            controller=self._controller,
            failovers=self._failovers,
            cleaner=self._cleaner,
            groups=self._coordinator_host.groups,
            now_ms=self._now_ms,
            liveness=self._liveness,
            duties=self._duties(),
            verifier=self._verifier,
            marker_sender=self._marker_sender,
            transactions=self._transaction_host.transactions,
            login=self._security.login,
            logins=self._security.terms.counts,
            acls=self._acls,
            audited=self._audit.counts,
            journals=self._events.journals if self._events else {},
            audit_file=self.audit_file,
        )

    def _duties(self) -> dict[str, Latency]:
        """What this node does for itself and for others, by the names that metrics tell."""
        beacons, proofs = self._liveness.beacons, self._liveness.proofs
        return {
            "authority_check": self._controller.checks,
            "control_request": self._control_request_latency,
            **({"beacon_echo": beacons.echoes} if beacons else {}),
            **({"session_proof": proofs} if proofs else {}),
        }

    async def _campaign(self) -> None:
        self._controller.campaign()

    def _dependencies(self) -> ControllerDependencies:
        return ControllerDependencies(
            zookeeper=self._zookeeper,
            node_id=self.identity.node_id,
            internal_listener=self.config.inter_broker_listener,
            settings=self.config.controller,
            dial=timed(self._dial, self._control_request_latency, self._loop.time),
            now_ms=self._now_ms,
            rng=self._rng,
            may_be_unclean=self._may_be_unclean,
            may_delete_topics=self.config.topics.delete_topic_enable,
            failure_detector=self._liveness.beacons.failure_detector
            if self._liveness.beacons
            else None,
            controller_seen=self._liveness.controller_seen,
            is_controller_silent=self._liveness.is_controller_silent,
            controller_silent_in=self._liveness.controller_silent_in,
            is_registered=lambda: self._registration is None or self._registration.is_held,
            failovers=self._failovers,
        )

    def _may_be_unclean(self, topic: str) -> bool:
        overrides = self._topic_configs.overrides(topic)
        default = self._node_configs.log_defaults.unclean_leader_election_enable
        return overrides.get("unclean.leader.election.enable", str(default)).lower() == "true"

    def _internal_address(self, node: int) -> tuple[str, int] | None:
        return self._metadata.snapshot.endpoint(node, self.config.inter_broker_listener)

    def _handler_dependencies(
        self, dispatcher: Dispatcher, registration: Registration
    ) -> HandlerDependencies:
        return HandlerDependencies(
            config=self.config,
            node_id=self.identity.node_id,
            cluster_id=self.identity.cluster_id,
            loop=self._loop,
            now_ms=self._now_ms,
            rng=self._rng,
            zookeeper=self._zookeeper,
            files=self._files,
            logs=self._logs,
            replicas=self._replicas,
            metadata=self._metadata,
            controller=self._controller,
            groups=self._coordinator_host.groups,
            topic_configs=self._topic_configs,
            group_configs=self._group_configs,
            node_configs=self._node_configs,
            credentials=self._security.credentials,
            tokens=self._security.tokens,
            topic_creator=self._topic_creator,
            conversions=self._conversions,
            supported_versions=dispatcher.supported_versions,
            offers_consumer_groups=lambda: self._coordinator_host.topic_catalog.is_offered,
            auto_create=(
                self._auto_topic_creation.ask
                if self.config.topics.auto_create_topics_enable
                else None
            ),
            auto_create_answer=self._auto_topic_creation.answer,
            transactions=self._transaction_host.transactions,
            marker_writer=self._marker_writer,
            verifier=self._verifier,
            verifies_transactions=self._verifies_transactions,
            answer_bytes_left=lambda: self._limits.answers.room,
            holds_lease=self._liveness.lease.holds,
            broker_epoch=lambda: registration.broker_epoch,
            check_listeners=self._check_listeners,
            fetch_sessions=self._fetch_sessions,
            quotas=self._quotas,
            acls=self._acls,
            audit=self._audit,
        )

    async def _check_listeners(self, config: NodeConfig) -> None:
        assert self._registration is not None, "opened"
        await self._listener_reconfiguration.check(config, self._registration)

    def _connect_callbacks(self) -> None:
        """Settings reach the logs, deletions the offsets, full disks the controller."""
        self._topic_configs.on_change.append(self._logs.reconfigure)
        self._topic_configs.on_change.append(lambda topic: self._controller.settings_changed())
        self._topic_configs.on_nodes.append(self._node_configs.load)
        self._quotas.follow(self._topic_configs)
        self._security.follow(self._topic_configs)
        self._node_configs.on_change.append(self._node_settings_changed)
        self._metadata.on_change.append(self._forget_deleted_topics)
        self._transaction_host.on_found = self._coordinator_host.groups.topics_changed
        self._metadata.on_change.append(self._replica_fetchers.wake)
        self._metadata.on_change.append(self._verifier.metadata_changed)
        self._metadata.on_change.append(self._marker_sender.metadata_changed)
        self._logs.offline.append(self._replicas.directory_failed)
        self._logs.offline.append(lambda path, failed: self._log_dir_events.notify())
        self._logs.on_space_available.append(self._log_dir_events.notify)
        self._logs.damaged.append(self._damaged_replicas.notice)
        self._logs.record_high_watermarks(self._replicas.high_watermarks)
        self._logs.bound_deletion(self._replicas.high_watermark)

    def _node_settings_changed(self) -> None:
        """Listeners follow by themselves, since binding takes time."""
        current = self._node_configs.current
        self._logs.use_defaults(current.log_defaults)
        self._logs.use_intervals(current.storage)
        self._cleaner.reconfigure(current.cleaner)
        self._quotas.use_rates(current.quotas)
        self._limits.connection_quotas.reconfigure(current.network, current.listener_quotas)
        self._listeners.close_excess()
        self._controller.settings_changed()

    def _forget_deleted_topics(self) -> None:
        gone = self._coordinator_host.forget_deleted_topics()
        if gone:
            self._topic_configs.topics_deleted(gone)
            self._replicas.traffic.forget(gone)
