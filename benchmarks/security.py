"""What encryption, logins and access control cost, beside Apache Kafka if asked.

    python -m benchmarks.security [--against kafka] [--libs DIR] [--json FILE]

Commits, produce and fetch per CPU second of the broker: in clear, over TLS (SSL), and with a login
inside of it (SASL_SSL, PLAIN); then commits of a user who logs in, on a node without an authorizer
and on one with entries, which remembers what it decided. Same machine, same certificate, same
bytes; the systems take turns, both are warm.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from confluent_kafka import admin as confluent_admin

from barnabas.console.development.ports import LOOPBACK, free_ports
from benchmarks.apache_kafka import KAFKA_VERSION, kafka_jars, kafka_node
from benchmarks.barnabas_node import barnabas_node
from benchmarks.commit import zookeeper_address
from benchmarks.generator import LoadWindow, WindowResult
from benchmarks.generator_process import GeneratorProcess
from benchmarks.login_link import Security
from benchmarks.produce_fetch import BulkClient
from benchmarks.report import machine
from benchmarks.server_process import ServerFailed, ServerProcess, pin
from benchmarks.tls_stores import TlsStores, make_stores

confluent: Final[Any] = confluent_admin
"""Untyped: its names are made at run time."""
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_SSL", "SASL_PLAINTEXT")
ENCRYPTED: Final = ("PLAINTEXT", "SSL", "SASL_SSL")
SHAPES: Final = ((64, 1), (8, 64))
"""Connections, and requests in flight on each."""
RECORD_BYTES: Final = 1000
USER, PASSWORD = "load", "load-password"
_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_JAAS: Final = f'{_MODULE} required user_{USER}="{PASSWORD}";'
AUTHORIZER: Final = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}
ADMIN_S: Final = 60.0


@dataclass(slots=True)
class SecuredNode:
    """A server, and the ports of its listeners by protocol."""

    system: str
    server: ServerProcess
    ports: Mapping[str, int]
    stores: TlsStores

    def security(self, protocol: str) -> Security:
        """How a client of this protocol connects."""
        trust = str(self.stores.trust) if protocol.endswith("SSL") else ""
        return Security(trust, *((USER, PASSWORD) if protocol.startswith("SASL") else ()))

    def bootstrap(self, protocol: str) -> str:
        """Where it does."""
        return f"{LOOPBACK}:{self.ports[protocol]}"


@dataclass(slots=True)
class Row:
    """One way of loading, what it counts, and what all rounds gave, by system."""

    name: str
    unit: str
    rounds: dict[str, list[float]] = field(default_factory=dict)
    by_clock: dict[str, list[float]] = field(default_factory=dict)

    def add(self, system: str, amount: float, cpu_s: float, wall_s: float) -> None:
        """One more round."""
        self.rounds.setdefault(system, []).append(amount / max(cpu_s, 0.01))
        self.by_clock.setdefault(system, []).append(amount / wall_s)

    def ratio(self, system: str, rival: str) -> float:
        """The median of the ratios round by round."""
        pairs = zip(self.rounds[system], self.rounds[rival], strict=True)
        return median(ours / theirs for ours, theirs in pairs)

    def left_of(self, base: Row, system: str) -> float:
        """The median of what is left of another row, round by round."""
        pairs = zip(self.rounds[system], base.rounds[system], strict=True)
        return median(ours / theirs for ours, theirs in pairs)


@dataclass(frozen=True, slots=True)
class Plan:
    """How long and how often."""

    rounds: int
    seconds: float
    warm_up: float
    megabytes: int


class Commits(GeneratorProcess):
    """The generator of commits."""

    def __init__(self, cores: set[int] | None) -> None:
        super().__init__("benchmarks.generator", cores)

    def prepare(self, node: SecuredNode) -> None:
        """Make what is committed to, in clear and as nobody."""
        ports, pids = [node.ports["PLAINTEXT"]], [node.server.pid]
        job = LoadWindow(ports, pids, "commit", max(count for count, _ in SHAPES), 1, 0)
        self.order({"do": "prepare", "job": asdict(job)})

    def load(
        self, node: SecuredNode, protocol: str, shape: tuple[int, int], seconds: float
    ) -> WindowResult:
        """One window; raises ServerFailed at the first wrong answer."""
        connections, in_flight = shape
        job = LoadWindow(
            [node.ports[protocol]] * connections,
            [node.server.pid],
            "commit",
            connections,
            in_flight,
            seconds,
            security=asdict(node.security(protocol)),
        )
        found = WindowResult(**self.order({"do": "run", "job": asdict(job)}))
        if found.wrong or not found.answers:
            raise ServerFailed(f"{node.system}, {protocol}: {found.wrong or 'no answer at all'}")
        return found


def settings(stores: TlsStores, *, has_authorizer: bool) -> tuple[dict[str, str], dict[str, int]]:
    """Of a node of either system, and where it listens."""
    ports = dict(zip(PROTOCOLS, free_ports(len(PROTOCOLS)), strict=True))
    found = {
        "port": str(ports["PLAINTEXT"]),
        "listeners": ",".join(f"{name}://{LOOPBACK}:{port}" for name, port in ports.items()),
        **stores.settings(),
        "log.segment.delete.delay.ms": "100",
    }
    for name in ("sasl_ssl", "sasl_plaintext"):
        found[f"listener.name.{name}.sasl.enabled.mechanisms"] = "PLAIN"
        found[f"listener.name.{name}.plain.sasl.jaas.config"] = _JAAS
    return found | (AUTHORIZER if has_authorizer else {}), ports


def nodes(
    wanted: Sequence[str], jars: Path | None, directory: Path, zookeeper: str, stores: TlsStores
) -> Iterator[tuple[bool, SecuredNode]]:
    """Of each system one without an authorizer and one with; not yet started."""
    for has_authorizer in (False, True):
        for system in wanted:
            values, ports = settings(stores, has_authorizer=has_authorizer)
            name = f"{system}-{'acl' if has_authorizer else 'open'}"
            root = f"{zookeeper}/{name}-{os.getpid()}"
            if system == "Barnabas":
                if has_authorizer:
                    values["cluster.secret"] = "between nodes"
                    values["listener.security.protocol.map"] = ",".join(
                        [f"{one}:{one}" for one in PROTOCOLS] + ["INTERNAL:SASL_PLAINTEXT"]
                    )
                server = barnabas_node(directory / name, root, settings=values)
            else:
                assert jars is not None
                values["inter.broker.listener.name"] = "PLAINTEXT"
                server = kafka_node(jars, directory / name, root, settings=values)
            yield has_authorizer, SecuredNode(system, server, ports, stores)


def allow(node: SecuredNode) -> None:
    """Entries by which the user may commit, among a hundred that are of others."""
    everything = confluent.ResourcePatternType.LITERAL
    kinds = confluent.AclOperation
    wanted = [
        (confluent.ResourceType.TOPIC, "*", USER, kinds.READ),
        (confluent.ResourceType.GROUP, "*", USER, kinds.READ),
        *((confluent.ResourceType.TOPIC, f"t{n}", f"u{n}", kinds.READ) for n in range(100)),
    ]
    admin = confluent.AdminClient({"bootstrap.servers": node.bootstrap("PLAINTEXT")})
    permission = confluent.AclPermissionType.ALLOW
    bindings = [
        confluent.AclBinding(kind, name, everything, f"User:{user}", "*", operation, permission)
        for kind, name, user, operation in wanted
    ]
    for done in admin.create_acls(bindings).values():
        done.result(ADMIN_S)


class Measuring:
    """Rows as they fill."""

    def __init__(self, commits: Commits, bulk: BulkClient, plan: Plan) -> None:
        self._commits = commits
        self._bulk = bulk
        self._plan = plan
        self.rows: dict[str, Row] = {}

    def warm_up(self, node: SecuredNode, protocols: Sequence[str]) -> None:
        """All of it, but for the records of nodes with an authorizer."""
        self._commits.prepare(node)
        for protocol in protocols:
            for shape in SHAPES:
                share = self._plan.warm_up / len(protocols) / len(SHAPES)
                self._commits.load(node, protocol, shape, share)

    def commits(self, label: str, node: SecuredNode, protocol: str, shape: tuple[int, int]) -> None:
        """One round of one row."""
        found = self._commits.load(node, protocol, shape, self._plan.seconds)
        connections, in_flight = shape
        name = f"commits, {connections} connections x {in_flight}, {label}"
        row = self.rows.setdefault(name, Row(name, "k"))
        row.add(node.system, found.answers / 1e3, found.cpu_seconds, found.wall_seconds)

    def records(self, node: SecuredNode, protocol: str, megabytes: int) -> None:
        """One round of two rows."""
        found = self._bulk.round(
            node.server,
            RECORD_BYTES,
            megabytes,
            node.bootstrap(protocol),
            node.security(protocol).librdkafka(),
        )
        for kind, cost in found.items():
            name = f"{kind}, {RECORD_BYTES} bytes, {protocol}"
            row = self.rows.setdefault(name, Row(name, "MB"))
            row.add(node.system, cost.value_bytes / 1e6, cost.cpu_seconds, cost.wall_seconds)


def measure(running: Sequence[tuple[bool, SecuredNode]], work: Measuring, plan: Plan) -> None:
    """Fill all rows."""
    without = [node for has_authorizer, node in running if not has_authorizer]
    guarded = [node for has_authorizer, node in running if has_authorizer]
    for node in without:
        work.warm_up(node, PROTOCOLS)
        for protocol in ENCRYPTED:
            work.records(node, protocol, max(1, plan.megabytes // 2))
    for node in guarded:
        allow(node)
        work.warm_up(node, ["SASL_PLAINTEXT"])
    work.rows.clear()
    for number in range(plan.rounds):
        order = slice(None, None, 1 if number % 2 == 0 else -1)
        for protocol in ENCRYPTED:
            _encrypted(work, without[order], protocol, plan)
        for shape in SHAPES:
            for label, among in (("no authorizer", without), ("entries", guarded)):
                for node in among[order]:
                    work.commits(label, node, "SASL_PLAINTEXT", shape)
        print(f"round {number + 1} of {plan.rounds} done", file=sys.stderr)


def _encrypted(work: Measuring, among: Sequence[SecuredNode], protocol: str, plan: Plan) -> None:
    """One round of the rows of one protocol."""
    for shape in SHAPES:
        for node in among:
            work.commits(protocol, node, protocol, shape)
    for node in among:
        work.records(node, protocol, plan.megabytes)


def table(rows: Sequence[Row], systems: Sequence[str]) -> str:
    """Markdown: per CPU second, by the clock in brackets; last column the ratio."""
    head = ["row", *(f"{system}, per CPU second (per second)" for system in systems)]
    lines = [head + ["ratio"] * (len(systems) > 1)]
    lines.append(["---"] * len(lines[0]))
    for row in rows:
        shown = (
            f"{median(row.rounds[system]):.1f} {row.unit} ({median(row.by_clock[system]):.1f})"
            for system in systems
        )
        cells = [row.name, *shown]
        if len(systems) > 1:
            cells.append(f"{row.ratio(*systems):.2f}")
        lines.append(cells)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


BASES: Final = {"SASL_SSL": "PLAINTEXT", "SSL": "PLAINTEXT", "entries": "no authorizer"}


def costs(rows: Mapping[str, Row], systems: Sequence[str]) -> Iterator[str]:
    """What is left of a rate in clear behind encryption, and of one without entries."""
    for name, row in rows.items():
        front, _, word = name.rpartition(", ")
        if word in BASES:
            base = rows[f"{front}, {BASES[word]}"]
            left = (f"{system} {row.left_of(base, system):.2f}" for system in systems)
            yield f"{name}: {', '.join(left)} of {BASES[word]}"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--against", choices=("kafka",), help="measure Apache Kafka beside it")
    parser.add_argument("--libs", type=Path, help="Kafka's jars, instead of fetching them")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one window")
    parser.add_argument("--megabytes", type=int, default=200, help="produced in one round")
    parser.add_argument("--warm-up", type=float, default=30.0, help="seconds of load beforehand")
    parser.add_argument("--zookeeper", help="HOST:PORT of one that runs already")
    parser.add_argument("--no-pin", action="store_true", help="let the scheduler choose cores")
    parser.add_argument("--json", type=Path, help="write every round to this file")
    return parser.parse_args()


def main() -> None:
    """Measure what the command line names and print the tables."""
    options = arguments()
    wanted = ["Barnabas", *(["Kafka"] if options.against else [])]
    libs = options.libs or os.environ.get("BARNABAS_KAFKA_LIBS")
    jars = kafka_jars(Path(libs) if libs else None) if options.against else None
    plan = Plan(options.rounds, options.seconds, options.warm_up, options.megabytes)
    are_pinned = not options.no_pin and (os.cpu_count() or 1) >= 2
    cores = {1} if are_pinned else None
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="barnabas-bench-")))
        address = stack.enter_context(zookeeper_address(options.zookeeper, directory / "zookeeper"))
        stores = make_stores(directory / "tls")
        running = list(nodes(wanted, jars, directory, address, stores))
        for _, node in running:
            stack.enter_context(node.server)
            if are_pinned:
                pin(node.server.pid, {0})
        work = Measuring(
            stack.enter_context(Commits(cores)), stack.enter_context(BulkClient(cores)), plan
        )
        measure(running, work, plan)
    print(f"machine: {machine()}")
    print(
        f"plan: {plan.rounds} rounds of {plan.seconds:g} s and {plan.megabytes} MB a row after "
        f"{plan.warm_up:g} s of warm-up each; Apache Kafka {KAFKA_VERSION}"
    )
    print(table(list(work.rows.values()), wanted))
    for line in costs(work.rows, wanted):
        print(line)
    if options.json:
        rows = [asdict(row) for row in work.rows.values()]
        options.json.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
