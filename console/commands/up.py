"""``barnabas up``: a cluster in about a second, and nothing left of it after Ctrl-C.

Source: docs/spec/users.md §5 and §6; docs/spec/cluster.md §5.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Final

from barnabas.broker.settings.properties import from_assignments
from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import NewTopic
from barnabas.client.errors import KafkaError
from barnabas.console.command_line.number_arguments import PORT_MAX, whole_number
from barnabas.console.command_line.output import note
from barnabas.console.development.child_process import ChildProcess
from barnabas.console.development.cluster import Cluster, Progress
from barnabas.console.development.fetch_jars import provide_jars
from barnabas.console.development.node import child_environment
from barnabas.console.development.snippets import snippets
from barnabas.console.development.web_console import web_console
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.names import topic_problem
from barnabas.protocol.settings import ConfigError

_BROKERS: Final = 3
_BROKERS_MAX: Final = 100
_PORT: Final = 9092
_MISUSED: Final = 2
_LOOK_S: Final = 0.5
_DEMO_STEPS: Final = """\
# orders come in; kitchen keeps up, shipping is too slow, billing is stuck (seen after 15 seconds)
barnabas groups lag kitchen
barnabas groups lag shipping
barnabas groups lag billing
# lose a node, and see how long that took on the page Failovers of the console
kill -9 {pid}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Size, place and first topics of the cluster."""
    parser.add_argument(
        "-n",
        "--brokers",
        type=whole_number(1, _BROKERS_MAX),
        default=_BROKERS,
        metavar="N",
        help=f"nodes (default: {_BROKERS})",
    )
    parser.add_argument(
        "--port",
        type=whole_number(0, PORT_MAX),
        default=_PORT,
        metavar="PORT",
        help=f"port of the first node, the next ones follow; 0: free ones (default: {_PORT})",
    )
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="keep everything here (default: keep nothing)"
    )
    parser.add_argument(
        "--topic",
        action="append",
        type=topic,
        default=[],
        metavar="NAME:PARTITIONS",
        help="create this topic; may be repeated",
    )
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of every node, as in a server.properties file; may be repeated",
    )
    parser.add_argument(
        "--demo",
        action="store_true",
        help="send records, with a group that keeps up, a slow one and a stuck one",
    )
    parser.add_argument(
        "--offline", action="store_true", help="fail rather than fetch ZooKeeper's jars"
    )
    parser.add_argument("--json", action="store_true", help="print cluster.json once it is up")
    parser.add_argument("--no-console", action="store_true", help="start no web console")


def run(chosen: argparse.Namespace) -> int:
    """Start, say where it is, wait for a signal, stop; 1 when every node died meanwhile."""
    try:
        settings = from_assignments(chosen.settings)
        cluster = Cluster(
            chosen.brokers,
            chosen.data,
            chosen.port,
            settings={"events.topic.enable": "true", **settings},
            with_metrics="metrics.listener" not in settings,
        )
        warnings = cluster.check_settings()
    except ConfigError as error:
        note(f"barnabas: {error.listing()}")
        return _MISUSED
    for warning in warnings:
        note(warning)
    if "ZK_EXTERNAL" not in os.environ:
        provide_jars(
            may_fetch=not chosen.offline
        )  # said on lines of their own, before the line that grows
    traffic: ChildProcess | None = None
    with _signals_interrupt() as was_interrupted:
        try:
            started = time.monotonic()
            with _progress_line(chosen.brokers) as report_ready:
                cluster.start(report_ready)
                asyncio.run(_create(cluster.bootstrap, chosen.topic))
            if chosen.demo:
                traffic = start_demo_traffic(cluster)
            _announce(cluster, time.monotonic() - started, chosen)
            with web_console(cluster, chosen.port, is_wanted=not chosen.no_console) as look:
                _watch(cluster, look, was_interrupted)
            return 1
        except KeyboardInterrupt:
            return 0
        finally:
            _ignore_signals()
            if traffic is not None:
                traffic.stop()
            cluster.stop()


def topic(text: str) -> NewTopic:
    """``name`` or ``name:partitions``."""
    name, colon, partitions = text.partition(":")
    problem = topic_problem(name)
    if problem is not None:
        raise argparse.ArgumentTypeError(f"{text} must read NAME:PARTITIONS, and {problem}")
    return NewTopic(name=name, partitions=whole_number(1)(partitions) if colon else 1)


async def _create(bootstrap: str, topics: list[NewTopic]) -> None:
    async with Admin.of(bootstrap) as admin:
        for new_topic in topics:
            try:
                await admin.create_topics([new_topic])
            except KafkaError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:  # kept by --data
                    raise


def start_demo_traffic(cluster: Cluster) -> ChildProcess:
    """The records and groups of ``--demo``, in a process that ends with ours."""
    module = "barnabas.console.development.demo_traffic"
    argv = [sys.executable, "-P", "-m", module, cluster.bootstrap]
    return ChildProcess(argv, cluster.directory / "demo.log", environment=child_environment())


def _announce(cluster: Cluster, took_s: float, chosen: argparse.Namespace) -> None:
    if chosen.json:
        print(json.dumps(cluster.description(), indent=2), flush=True)
        return
    count = len(cluster.nodes)
    print(f"Barnabas is up: {count} node{'s' * (count > 1)} in {took_s:.1f} s. Ctrl-C ends it.\n")
    print(f"  bootstrap   {cluster.bootstrap}")
    print(f"  zookeeper   {cluster.zookeeper}")
    if metrics := [node.metrics for node in cluster.nodes if node.metrics]:
        print(f"  metrics     http://{metrics[0]}/metrics  (and /status, /readyz; of node 1)")
    print(f"  files       {cluster.directory}  (cluster.json names every process)\n")
    print("# in other terminals, so that every command finds this cluster")
    print(f"export BARNABAS_BOOTSTRAP={cluster.bootstrap}\n")
    last = cluster.nodes[-1].pid
    steps = _DEMO_STEPS.format(pid=last) if chosen.demo else snippets(cluster.bootstrap)
    print(steps, flush=True)


def _watch(cluster: Cluster, look: Callable[[], None], was_interrupted: Callable[[], bool]) -> None:
    """Return when no node runs any more; say which one ended, as soon as it does."""
    ended: set[int] = set()
    while len(ended) < len(cluster.nodes):
        if was_interrupted():
            raise KeyboardInterrupt
        look()
        for node in cluster.nodes:
            if not node.is_running and node.id not in ended:
                ended.add(node.id)
                note(f"node {node.id} ended with exit code {node.exit_code}; see {node.log}")
        select.select([], [], [], _LOOK_S)
    note("no node is left")


@contextlib.contextmanager
def _signals_interrupt() -> Iterator[Callable[[], bool]]:
    """SIGTERM and SIGHUP end the command in the way Ctrl-C does.

    What is yielded says whether one has come. An exception that a handler raises while a child is
    forked ends in the hooks that Python's own modules have there (that of ``logging`` is one): it
    is printed, and lost.
    """
    came: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        came.append(number)
        raise KeyboardInterrupt

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield lambda: bool(came)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ignore_signals() -> None:
    """What comes while we stop asks for nothing that is not under way."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def _progress_line(brokers: int) -> Iterator[Progress]:
    """One line that grows while the parts become ready, where a person watches."""
    is_watched = sys.stderr.isatty()

    def report_ready(what: str) -> None:
        if is_watched:
            sys.stderr.write(f" {what},")
            sys.stderr.flush()

    if is_watched:
        sys.stderr.write(f"starting ZooKeeper and {brokers} nodes:")
        sys.stderr.flush()
    try:
        yield report_ready
    finally:
        if is_watched:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
