"""Everything a node tells, put together: who is asked, in which order, and over which listener.

Only a node with ``metrics.listener`` has one. Source: docs/spec/users.md §4.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

from barnabas.broker.authorizer.access_control import AccessControl
from barnabas.broker.controller.controller import Controller
from barnabas.broker.controller.failovers import Failovers
from barnabas.broker.coordination.topic_journal import TopicJournal
from barnabas.broker.liveness.liveness import Liveness
from barnabas.broker.markers.sender import MarkerSender
from barnabas.broker.net.dispatch import Dispatcher
from barnabas.broker.net.listeners import Listeners
from barnabas.broker.replication.isr import IsrManager
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.runtime.gc_tuning import longest_pause_s
from barnabas.broker.runtime.latency import Latency, LoopLag
from barnabas.broker.security.audit_file import AuditFile
from barnabas.broker.settings.metrics_settings import MetricsSettings
from barnabas.broker.settings.node_config import NodeConfig
from barnabas.broker.storage.compaction.cleaner import LogCleaner
from barnabas.broker.storage.log_manager import LogManager
from barnabas.broker.verification.verifier import TransactionVerifier
from barnabas.client.admin.admin import Admin
from barnabas.client.client_config import ClientConfig
from barnabas.client.cluster import Cluster
from barnabas.client.connection.sasl_login import SaslLogin
from barnabas.client.tls.tls_settings import TlsSettings
from barnabas.client.zookeeper.interface import ZooKeeper
from barnabas.coordinator.commit_meter import CommitMeter
from barnabas.coordinator.group_coordinator import GroupCoordinator
from barnabas.coordinator.ports import OFFSETS_TOPIC
from barnabas.coordinator.transactions.service import TransactionCoordinator
from barnabas.protocol.settings import declared

from .access_control_families import access_control_families
from .group_families import coordinator_families, group_families
from .group_lag_monitor import GroupLagMonitor
from .group_status import BadQuery, group_page
from .health_families import (
    directory_families,
    lease_families,
    node_info,
    snapshot_families,
    standby_families,
    zookeeper_families,
)
from .http_answer import HttpAnswer, HttpRequest, json_answer
from .liveness_families import liveness_families
from .metrics_server import MetricsServer, may_read
from .node_families import (
    collector_families,
    connection_families,
    controller_families,
    duty_families,
    log_families,
    replica_families,
    request_families,
)
from .node_sampler import NodeSampler
from .node_status import node_status
from .process_families import process_families
from .readiness import ServingState, reasons_against
from .request_meter import MeteredDispatcher, RequestMeter
from .security_families import audit_families, authentication_families, journal_families
from .slow_request_log import SlowRequestLog
from .tls_families import tls_families
from .traffic_families import commit_families, error_families, topic_families
from .transaction_coordinator_families import transaction_coordinator_families
from .transaction_families import marker_families, producer_families, verification_families
from .upkeep_families import cleaner_families, failover_families


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSources:
    """The parts of a node that have something to tell."""

    config: NodeConfig
    node_id: int
    cluster_id: str
    zookeeper: ZooKeeper
    serving: ServingState
    listeners: Listeners
    replicas: ReplicaManager
    isr_manager: IsrManager
    logs: LogManager
    controller: Controller
    failovers: Failovers
    cleaner: LogCleaner
    groups: GroupCoordinator
    now_ms: Callable[[], int]
    liveness: Liveness
    duties: Mapping[str, Latency]
    verifier: TransactionVerifier
    marker_sender: MarkerSender
    transactions: TransactionCoordinator
    login: SaslLogin | None
    logins: Mapping[tuple[str, str, str], int]
    """Logins by listener, mechanism and result."""
    acls: AccessControl | None
    """None where no authorizer is configured."""
    audited: Mapping[tuple[str, str], int]
    """What the audit log was told, by event and result."""
    journals: Mapping[str, TopicJournal]
    """What this node tells in internal topics, by topic."""
    audit_file: AuditFile | None
    """None where the node's own log has it."""


class NodeMetrics:
    """Tells metrics where the settings ask for it; does nothing otherwise.

    Take its :meth:`dispatcher`, open it, run it, close it.
    """

    def __init__(self, settings: MetricsSettings) -> None:
        self._settings = settings
        pages = {
            "/status": self._status,
            "/status/groups": self._group_status,
            "/healthz": self._health,
            "/readyz": self._readiness,
        }
        self._server = MetricsServer(self.render, pages, settings.token)
        self._meters: Mapping[str, RequestMeter] = {}
        self._metrics_sources: MetricsSources | None = None
        self._lag_monitor: GroupLagMonitor | None = None
        self._sampler: NodeSampler | None = None
        self._started_ms = 0
        self._loop_lag = LoopLag()
        self._commits = CommitMeter(time.perf_counter)
        self._is_asked = asyncio.Event()

    def dispatcher(self, tasks: asyncio.TaskGroup) -> Dispatcher:
        """The node's dispatcher: one that counts, if anybody wants to know."""
        limit_ms = self._settings.slow_request_ms
        if self._settings.address is None and limit_ms is None:
            return Dispatcher(tasks)
        slow = None if limit_ms is None else SlowRequestLog(limit_ms)
        metered = MeteredDispatcher(tasks, slow=slow)
        self._meters = metered.meters
        return metered

    async def open(self, sources: MetricsSources) -> None:
        """Answer scrapes from now on. Raises OSError when the port is taken."""
        if self._settings.address is None:
            return
        self._metrics_sources = sources
        self._commits = sources.groups.measure_commits(time.perf_counter)
        self._started_ms = sources.now_ms()
        self._sampler = NodeSampler(
            sources.zookeeper,
            [directory.path for directory in sources.logs.directories],
            lambda: sources.controller.context is not None,
            sources.now_ms,
            partial(_standby_directories, sources.replicas),
        )
        self._lag_monitor = GroupLagMonitor(
            sources.groups.registry,
            partial(_client, sources),
            interval_ms=self._settings.lag_interval_ms,
            now_ms=sources.now_ms,
        )
        await self._server.bind(*self._settings.address)

    async def run(self) -> None:
        """Look at the loop, and from the first scrape on at groups and their lag."""
        async with asyncio.TaskGroup() as tasks:
            if self._sampler is not None:
                tasks.create_task(self._loop_lag.run(), name="lag of the loop")
                tasks.create_task(self._sampler.run(), name="samples for metrics")
            await self._is_asked.wait()
            assert self._lag_monitor is not None
            await self._lag_monitor.run()

    async def close(self) -> None:
        """Answer nobody any more."""
        await self._server.close()

    async def _status(self, request: HttpRequest) -> HttpAnswer:
        del request
        assert self._metrics_sources is not None, "opened"
        assert self._sampler is not None, "opened"
        return json_answer(
            await node_status(
                self._metrics_sources, self._sampler, self._loop_lag.latency, self._started_ms
            )
        )

    async def _group_status(self, request: HttpRequest) -> HttpAnswer:
        assert self._metrics_sources is not None, "opened"
        assert self._lag_monitor is not None, "opened"
        self._is_asked.set()
        now_ms = self._metrics_sources.now_ms()
        try:
            return json_answer(group_page(self._lag_monitor.result, request.query, now_ms))
        except BadQuery as problem:
            return HttpAnswer(HTTPStatus.BAD_REQUEST, f"{problem}\n")

    async def _health(self, request: HttpRequest) -> HttpAnswer:
        """That it is answered at all is the answer: the loop runs."""
        del request
        return HttpAnswer(HTTPStatus.OK, "ok\n")

    async def _readiness(self, request: HttpRequest) -> HttpAnswer:
        node, sampler = self._metrics_sources, self._sampler
        assert node is not None, "opened"
        assert sampler is not None, "opened"
        found = reasons_against(
            node.serving, sampler, node.liveness, node.groups, node.transactions
        )
        reasons = list(found)
        if not reasons:
            return HttpAnswer(HTTPStatus.OK, "ready\n")
        told = reasons if may_read(request, self._settings.token) else ["not ready"]
        return HttpAnswer(HTTPStatus.SERVICE_UNAVAILABLE, "".join(f"{why}\n" for why in told))

    def render(self) -> Iterator[str]:
        """One scrape, line by line; an empty line is a place to pause."""
        node, lag_monitor, sampler = self._metrics_sources, self._lag_monitor, self._sampler
        assert node is not None, "opened"
        assert lag_monitor is not None, "opened"
        assert sampler is not None, "opened"
        self._is_asked.set()
        result = lag_monitor.result
        yield from node_info(node.node_id, ",".join(node.config.node.node_roles))
        yield from process_families()
        yield from duty_families({"loop": self._loop_lag.latency, **node.duties})
        yield from collector_families(longest_pause_s())
        yield from request_families(self._meters, node.listeners.connections())
        yield from error_families(self._meters)
        yield from connection_families(node.listeners.throttled(), node.listeners.closed())
        yield from tls_families(node.listeners.bound())
        yield from authentication_families(node.logins)
        yield from audit_families(node.audited, node.audit_file)
        yield from journal_families(node.journals)
        yield from replica_families(node.replicas, node.isr_manager)
        yield from topic_families(node.replicas.traffic, self._settings.topics_max)
        yield from log_families(node.logs)
        yield from cleaner_families(node.cleaner)
        yield from access_control_families(node.acls)
        yield from verification_families(node.verifier)
        yield from marker_families(node.marker_sender)
        timeout_max_ms = node.config.transactions.timeout_max_ms
        yield from producer_families(node.replicas, node.now_ms(), timeout_max_ms)
        yield from controller_families(node.controller.context, node.controller.epoch)
        yield from failover_families(node.failovers)
        yield from liveness_families(node.liveness, node.controller)
        yield from lease_families(node.liveness, node.node_id)
        yield from zookeeper_families(sampler)
        yield from directory_families(sampler)
        yield from standby_families(node.groups)
        yield from snapshot_families(sampler, node.now_ms())
        yield from commit_families(self._commits)
        yield from coordinator_families(node.groups, result)
        yield from transaction_coordinator_families(node.transactions, node.now_ms())
        yield from group_families(result, self._settings)


def _standby_directories(replicas: ReplicaManager) -> list[Path]:
    """Where offsets partitions lie that are followed here, with their snapshots."""
    return [
        partition.log.directory
        for partition in replicas
        if partition.topic == OFFSETS_TOPIC and not partition.is_leader
    ]


def _client(sources: MetricsSources) -> Admin:
    """A client with the rights of a node, by the listener that nodes use."""
    config = sources.config
    host, port = sources.listeners.address(config.inter_broker_listener)
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    settings = ClientConfig(
        client_id=f"node-{sources.node_id}-metrics",
        security_protocol=config.inter_broker_protocol,
        **_tls_of_node(config),
    )
    return Admin(Cluster(address, settings, login=sources.login))


def _tls_of_node(config: NodeConfig) -> dict[str, Any]:
    """What a node dials others with, as settings of a client."""
    tls = config.listener_tls.get(config.inter_broker_listener)
    if tls is None:
        return {}
    return {item.field: getattr(tls, item.field) for item in declared(TlsSettings).values()}
