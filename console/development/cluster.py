"""A whole cluster on this machine: an embedded ZooKeeper and nodes in processes of their own.

Source: docs/spec/users.md §5 and §6; docs/spec/pipeline.md §6.1; docs/spec/cluster.md §5.
"""

from __future__ import annotations

import atexit
import json
import os
import secrets
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from barnabas.broker.settings.node_config import load
from barnabas.console.command_line.failure import Failure
from barnabas.console.command_line.number_arguments import PORT_MAX
from barnabas.protocol.acl import AclBinding
from barnabas.protocol.settings import ConfigError

from .cluster_operations import ClusterOperations, until
from .cluster_rights import add_entries, entries, set_passwords
from .embedded_zookeeper import (
    EmbeddedZooKeeper,
    ExternalZooKeeper,
    ZooKeeperServer,
    make_directory,
    zookeeper_server,
)
from .node import NodeProcess
from .port_holder import port_holder
from .ports import LOOPBACK, free_ports, is_free
from .readiness_probe import wait_until_complete
from .temporary_directory import TemporaryDirectory

if TYPE_CHECKING:
    from .secured_listeners import SecuredListeners
    from .secured_user import SecuredUser

_TICK_MS: Final = 500
_SESSION_MS: Final = 3_000
DEVELOPMENT_SETTINGS: Final = {
    "controlled.shutdown.retry.backoff.ms": "50",
    "group.initial.rebalance.delay.ms": "0",
    "zookeeper.session.timeout.ms": str(_SESSION_MS),
}
"""What differs from Kafka's defaults: groups that form at once, and a dead node that is noticed
within three seconds. A stop of all nodes at once does not wait seconds for a controller that is
stopping, too. And as many copies of everything as :func:`copies` says."""
OWN_SETTINGS: Final = frozenset(
    {"broker.id", "cluster.secret", "listeners", "log.dir", "log.dirs", "zookeeper.connect"}
)
"""What differs from node to node, or is the cluster's own."""
_SAFE_COPIES: Final = 3


def copies(nodes: int) -> dict[str, str]:
    """Three replicas of every topic where there are so many nodes, else one."""
    is_safe = nodes >= _SAFE_COPIES
    factor = str(_SAFE_COPIES if is_safe else 1)
    return {
        "default.replication.factor": factor,
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": "2" if is_safe else "1",
    }


Progress = Callable[[str], None]
"""Told, in a few words, what has just become ready."""


def _check_name(directory: Path) -> None:
    """Raise Failure for a name that no settings file can hold."""
    if "," in str(directory):
        raise Failure(f"{directory}: a comma separates directories in log.dirs, take another name")
    try:
        os.fsencode(directory).decode()
    except UnicodeDecodeError:
        raise Failure(f"{directory}: the name is not in UTF-8, take another one") from None


class PortTaken(Failure):
    """A port that was asked for cannot be had; the text names it and the way out."""


class Cluster(ClusterOperations):
    """A development cluster: use it in a ``with``, or start and stop it yourself.

    ``data`` None keeps everything in a temporary directory that the stop removes. ``port`` 0 takes
    free ports, any other number is the first node's, the following ones come next. ``settings``
    are given to every node, over DEVELOPMENT_SETTINGS and the number of copies. ``with_metrics``
    opens a port for metrics and status on each node. ``secured`` adds listeners of TLS with logins
    and with certificates, for those whom :meth:`user` makes. Blocking, and usable beside a running
    event loop. Start it in the main thread: processes and temporary files then go when this
    process ends, however it does.
    """

    def __init__(
        self,
        brokers: int = 3,
        data: Path | None = None,
        port: int = 0,
        *,
        settings: Mapping[str, str] | None = None,
        with_metrics: bool = False,
        secured: bool = False,
    ) -> None:
        assert brokers > 0, "a cluster has nodes"
        self.nodes: Sequence[NodeProcess] = ()
        self.directory = Path()
        """Where its files are, ``cluster.json`` among them; set by the start."""
        self.secret = ""
        """What nodes prove to each other; new for each new directory."""
        self._brokers = brokers
        self._data = data
        self._temporary: TemporaryDirectory | None = None
        self._port = port
        self._settings = {**DEVELOPMENT_SETTINGS, **copies(brokers), **(settings or {})}
        self._with_metrics = with_metrics
        self._secured = secured
        self._listeners: SecuredListeners | None = None
        self._users: dict[str, SecuredUser] = {}
        self._zookeeper: ZooKeeperServer | None = None
        self._chroot = ""
        self._is_described = False

    @property
    def bootstrap(self) -> str:
        """What clients are given: host and port of every node."""
        return ",".join(node.address for node in self.nodes)

    @property
    def zookeeper(self) -> str:
        """ZooKeeper's connection string."""
        assert self._zookeeper is not None, "not started"
        return self._zookeeper.hosts + self._chroot

    @property
    def zookeeper_pid(self) -> int | None:
        """ZooKeeper's process; None when it is not ours."""
        server = self._zookeeper
        return server.pid if isinstance(server, EmbeddedZooKeeper) else None

    def node(self, node_id: int) -> NodeProcess:
        """The node with this id; the first one is 1."""
        return self.nodes[node_id - 1]

    def start(self, progress: Progress | None = None) -> Self:
        """Start everything side by side; return when every node knows every other one.

        Raises MissingPart, ZooKeeperFailed, NodeFailed or PortTaken, and then nothing is left.
        """
        assert not self.nodes, "started twice"
        report_ready = progress or (lambda what: None)
        atexit.register(self.stop)
        try:
            self._prepare()
            self._start(report_ready)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End every process, nodes first, and remove what was temporary; twice is allowed."""
        atexit.unregister(self.stop)
        for node in self.nodes:
            node.ask_to_stop()
        for node in self.nodes:
            node.wait_stopped()
        self.nodes = ()
        if self._zookeeper is not None:
            self._zookeeper.stop()
            self._zookeeper = None
        if self._temporary is not None:
            self._temporary.remove()
            self._temporary = None
        elif self._is_described:  # else it is of the cluster that has the directory
            self._description.unlink(missing_ok=True)
        self._is_described = False
        self.directory = Path()
        self._listeners = None
        self._users = {}

    def kill(self, node_id: int) -> None:
        """End a node as ``kill -9`` does; its data stay for :meth:`restart`."""
        self.node(node_id).kill()

    def restart(self, node_id: int) -> None:
        """Start a node that was killed, or stop it in order and start it; return when it serves."""
        node = self.node(node_id)
        node.stop()
        node.spawn()
        node.let_serve()
        node.wait_ready()
        self._await_complete()
        self._describe()

    def pause(self, node_id: int) -> None:
        """Freeze a node: its connections stay open and silent."""
        self.node(node_id).pause()

    def resume(self, node_id: int) -> None:
        """Let a paused node go on."""
        self.node(node_id).resume()

    def repair(self) -> None:
        """Resume every node that is paused, restart every one that has ended."""
        for node in self.nodes:
            node.resume()
        for node in self.nodes:
            if not node.is_running:
                self.restart(node.id)

    def user(self, name: str = "alice", password: str | None = None) -> SecuredUser:
        """A user of a secured cluster, made when he is first asked for; every node knows him.

        Without ``password`` one is made up. Raises Failure where the cluster is not secured.
        """
        made = self._users.get(name)
        if made is not None and password in (None, made.password):
            return made
        user = self._secured_listeners.user(name, password)
        self._ask(lambda admin: set_passwords(admin, user.name, user.password, until))
        self._users[name] = user
        return user

    def allow(
        self,
        user: str,
        *operations: str,
        topic: str = "",
        group: str = "",
        transactional_id: str = "",
        prefixed: bool = False,
    ) -> None:
        """Let a user do these, in Kafka's words: ``allow("alice", "Read", topic="orders")``.

        From the first entry on, whatever the entries of a resource do not allow is refused.
        ``prefixed``: names are beginnings of names. Raises Failure for words that mean nothing;
        returns when every node decides so.
        """
        named = {"topic": topic, "group": group, "transactional_id": transactional_id}
        self._add_entries(entries(user, operations, named, is_allowed=True, is_prefix=prefixed))

    def deny(
        self,
        user: str,
        *operations: str,
        topic: str = "",
        group: str = "",
        transactional_id: str = "",
        prefixed: bool = False,
    ) -> None:
        """The opposite, which wins over whatever is allowed; ``All`` is every operation."""
        named = {"topic": topic, "group": group, "transactional_id": transactional_id}
        self._add_entries(entries(user, operations, named, is_allowed=False, is_prefix=prefixed))

    def _add_entries(self, made: Sequence[AclBinding]) -> None:
        _ = self._secured_listeners
        self._ask(lambda admin: add_entries(admin, made, until))

    @property
    def _secured_listeners(self) -> SecuredListeners:
        if self._listeners is None:
            raise Failure("the cluster asks nobody who he is: start it with secured=True")
        return self._listeners

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        self.stop()

    async def __aenter__(self) -> Self:
        """Start; the loop stands still meanwhile: the main thread must do it."""
        return self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        self.stop()

    def check_settings(self) -> Sequence[str]:
        """The warnings that every node's settings call for; raises ConfigError for wrong ones.

        What the cluster itself gives each node, its own place and the secret, is not to be set.
        """
        own = self._settings.keys() & OWN_SETTINGS
        if own:
            raise ConfigError(*(f"{name}: is chosen by the cluster itself" for name in sorted(own)))
        given = {"zookeeper.connect": LOOPBACK, "log.dirs": "data", "cluster.secret": "any"}
        return load({**given, **self._settings}).warnings

    @property
    def _description(self) -> Path:
        return self.directory / "cluster.json"

    def _prepare(self) -> None:
        ports = self._ports()
        if self._data is None:
            self._temporary = TemporaryDirectory("barnabas-")
            self.directory = self._temporary.path
        else:
            self.directory = self._data.absolute()
            _check_name(self.directory)
            make_directory(self.directory)
        self.secret = secrets.token_urlsafe(24)
        death_signal = signal.SIGTERM if self._data else signal.SIGKILL
        self.nodes = [
            NodeProcess(index + 1, port, self.directory / f"node-{index + 1}", death_signal)
            for index, port in enumerate(ports)
        ]
        if self._secured:
            from .secured_listeners import SecuredListeners, secured_ports

            self._listeners = SecuredListeners(
                self.directory, secured_ports(self._port, self._brokers)
            )
        if self._with_metrics:
            for node, port in zip(self.nodes, free_ports(self._brokers), strict=True):
                node.metrics = f"{LOOPBACK}:{port}"

    def _ports(self) -> list[int]:
        if self._port == 0:
            return free_ports(self._brokers)
        ports = list(range(self._port, self._port + self._brokers))
        if ports[-1] > PORT_MAX:
            raise PortTaken(f"port {ports[-1]} does not exist; --port 0 takes free ones")
        for port in ports:
            if not is_free(port):
                holder = port_holder(port)
                by = f" by {holder}" if holder else ""
                raise PortTaken(f"port {port} is in use{by}; --port 0 takes free ones")
        return ports

    def _start(self, report_ready: Progress) -> None:
        temporary = self._data is None
        self._zookeeper = zookeeper_server(
            None if temporary else self.directory / "zookeeper", _TICK_MS
        )
        if isinstance(self._zookeeper, ExternalZooKeeper) and temporary:
            self._chroot = f"/{self.directory.name}"  # its data must not meet another cluster's
        self._zookeeper.spawn()
        for node in self.nodes:
            node.spawn()
        self._zookeeper.wait_ready()
        report_ready("ZooKeeper")
        for node in self.nodes:
            node.configure(self._settings_of(node))
            node.let_serve()
        for node in self.nodes:
            node.wait_ready()
            report_ready(f"node {node.id}")
        self._await_complete()
        self._describe()

    def _settings_of(self, node: NodeProcess) -> dict[str, str]:
        return {
            "broker.id": str(node.id),
            "listeners": f"PLAINTEXT://{node.address}",
            "log.dirs": str(node.directory / "data"),
            "zookeeper.connect": self.zookeeper,
            "cluster.secret": self.secret,
            **({"metrics.listener": node.metrics} if node.metrics else {}),
            **(self._listeners.settings_of(node) if self._listeners else {}),
            **self._settings,
        }

    def _await_complete(self) -> None:
        running = [node for node in self.nodes if node.is_running]
        wait_until_complete([(LOOPBACK, node.port) for node in running], len(running))

    def _describe(self) -> None:
        """Write ``cluster.json`` for scripts; only its owner may read it, for the secret in it."""
        text = json.dumps(self.description(), indent=2) + "\n"
        descriptor = os.open(self._description, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        self._is_described = True

    def description(self) -> dict[str, Any]:
        """What ``cluster.json`` says: addresses, secret, and the process of every part."""
        processes: list[dict[str, Any]] = []
        if self.zookeeper_pid is not None:
            processes.append({"name": "zookeeper", "pid": self.zookeeper_pid})
        processes += [
            {
                "name": f"node-{node.id}",
                "pid": node.pid,
                "id": node.id,
                "address": node.address,
                **({"metrics": node.metrics} if node.metrics else {}),
                "properties": str(node.properties),
                "log": str(node.log),
            }
            for node in self.nodes
        ]
        return {
            "bootstrap": self.bootstrap,
            "zookeeper": self.zookeeper,
            "secret": self.secret,
            "processes": processes,
        }
