"""One table of what we claim about speed, beside Apache Kafka, in one order after one warm-up.

    python -m benchmarks.table --against kafka [--section NAME] [--quick] [--compiled]

Reuses the benchmarks of single matters: commits and fetches of offsets for 50 groups on all offsets
partitions, with three replicas, in bulk; records of equal and of varied lengths, of many clients in
small batches, on three replicas; a cluster at rest; a start, a restart with a million keys; Spark's
stream and sink beside its own connector, both on our cluster. All ratios are of work per CPU second
of the broker (of times and costs the inverse), above 1 where Barnabas is ahead: the median of the
rounds, and the lowest and the highest.

Without ``--quick`` each section's rows take the place of its former ones as soon as it is done, in
benchmarks/ratios.json and in the table of docs/benchmarks.md; a section that fails costs the others
nothing. With it each row takes about a minute, nothing is written, and the run ends with 1 where a
ratio is lower than the stored one by more than both spreads. With ``--compiled`` the nodes are of
a compiled wheel (docs/decisions/0012), and the rows stand beside those of plain Python.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import (
    commit,
    idle,
    produce_fetch,
    rows_many_clients,
    rows_replicated_produce,
    rows_restart,
    rows_spark,
    start,
)
from benchmarks.apache_kafka import KAFKA_VERSION, kafka_jars, kafka_node
from benchmarks.barnabas_node import NODES_PYTHON, barnabas_node
from benchmarks.bulk_commits import CELLS as BULK_CELLS
from benchmarks.compiled_environment import build_compiled_wheel, install
from benchmarks.generator import LoadWindow
from benchmarks.report import Cell, Measured, machine
from benchmarks.server_process import ServerProcess, pin
from benchmarks.table_row import QUICK, WHOLE, Place, Plan, Row, has_cores

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
STORED = ROOT / "benchmarks" / "ratios.json"
BEGIN, END = "<!-- the table: python -m benchmarks.table -->", "<!-- end of the table -->"
OFFSETS_PARTITIONS = 50
BULK_PARTITIONS = 500
VARIED_BYTES = 300
CODECS = ("none", "lz4", "zstd")


# -- offsets -------------------------------------------------------------------------------------


def offsets_rows(plan: Plan, place: Place) -> list[Row]:
    """One node: single commits and fetches of 50 groups, then commits of 500 partitions."""
    model = LoadWindow(
        *([], [], "commit", commit.MOST_CONNECTIONS, 1, 0),
        partitions=BULK_PARTITIONS,
        spread=OFFSETS_PARTITIONS,
    )
    found = _load(plan, place, 1, (*commit.CELLS, *BULK_CELLS), model)
    return [_offsets_row(one, 1) for one in found]


def replicated_rows(plan: Plan, place: Place) -> list[Row]:
    """Three nodes, every commit on all of them."""
    cells = [cell for cell in commit.CELLS if cell.kind == "commit"]
    return [_offsets_row(one, 3) for one in _load(plan, place, 3, cells, commit.MODEL)]


def _load(
    plan: Plan, place: Place, replication: int, cells: Sequence[Cell], model: LoadWindow
) -> list[Measured]:
    commit_plan = commit.CommitPlan(plan.rounds, plan.seconds, plan.warm_up, cells)
    directory = place.directory / f"offsets-{replication}"
    zookeeper = f"{place.zookeeper}/offsets-{replication}"
    with ExitStack() as stack:
        running = []
        for system in commit.systems(place.options(replication), directory, zookeeper):
            running.append(stack.enter_context(system))
            if has_cores():
                system.pin({0})
        generator = stack.enter_context(commit.Generator({1} if has_cores() else None, model))
        return commit.measure(generator, running, commit_plan)


def _offsets_row(measured: Measured, replication: int) -> Row:
    is_bulk = measured.cell.kind == "bulk"
    times = BULK_PARTITIONS if is_bulk else 1
    name = f"{measured.cell}, three replicas" if replication > 1 else str(measured.cell)
    ours, theirs = (
        [rate.per_cpu_second * times / 1e3 for rate in measured.rounds[server]]
        for server in ("Barnabas", "Kafka")
    )
    return Row(name, "k offsets per CPU second", ours, theirs)


# -- records -------------------------------------------------------------------------------------


def records_rows(plan: Plan, place: Place) -> list[Row]:
    """Records of equal lengths, then of lengths that all differ, by librdkafka."""
    with ExitStack() as stack:
        directory, settings = place.directory / "records", produce_fetch.SETTINGS
        nodes: list[ServerProcess] = [
            barnabas_node(
                directory / "barnabas", f"{place.zookeeper}/records-ours", settings=settings
            ),
            kafka_node(
                *(kafka_jars(place.libs), directory / "kafka", f"{place.zookeeper}/records-kafka"),
                settings=settings,
            ),
        ]
        for node in nodes:
            stack.enter_context(node)
            if has_cores():
                pin(node.pid, {0})
        cores = {1} if has_cores() else None
        client = stack.enter_context(produce_fetch.BulkClient(cores))
        quantities = produce_fetch.ProduceFetchPlan(plan.rounds, plan.megabytes, plan.warm_up)
        rows = [
            Row(
                f"{cell.kind}, records of {cell.size} bytes",
                "MB per CPU second",
                cell.rates(nodes[0].name),
                cell.rates(nodes[1].name),
            )
            for cell in produce_fetch.measure(client, nodes, quantities)
        ]
        return rows + [_varied_row(client, nodes, plan, codec) for codec in CODECS]


def _varied_row(
    client: produce_fetch.BulkClient, nodes: Sequence[ServerProcess], plan: Plan, codec: str
) -> Row:
    rates: dict[str, list[float]] = {node.name: [] for node in nodes}
    for number in range(-1, plan.rounds):  # the first one is not counted: code is still compiled
        for node in nodes if number % 2 == 0 else reversed(nodes):
            costs = client.round(
                *(node, VARIED_BYTES, plan.megabytes // 3),
                settings={"compression.type": codec},
                is_varied=True,
            )
            cost = costs["produce"]
            if number >= 0:
                rates[node.name].append(cost.value_bytes / 1e6 / max(cost.cpu_seconds, 0.01))
    name = f"produce, keys, lengths that all differ, {VARIED_BYTES} bytes on average, {codec}"
    ours, theirs = (rates[node.name] for node in nodes)
    return Row(name, "MB per CPU second", ours, theirs)


# -- times and costs -----------------------------------------------------------------------------


def idle_rows(plan: Plan, place: Place) -> list[Row]:
    """Three nodes that nobody asks for anything, one system at a time."""
    found: dict[str, list[idle.IdleNode]] = {}
    zookeeper = f"{place.zookeeper}/idle"
    options = place.options(idle.NODES)
    systems = commit.systems(options, place.directory / "idle", zookeeper, idle.AS_DOCUMENTED)
    for system in systems:
        with system, commit.Generator(None) as generator:
            generator.prepare(system)
            root = f"{zookeeper}/{system.name.lower()}-{os.getpid()}"
            found[system.name] = idle.measure(system, root, plan.seconds * plan.rounds, None)
    unit = "% of a core"
    ours, theirs = ([node.core * 100 for node in found[name]] for name in ("Barnabas", "Kafka"))
    return [
        Row("idle cluster of three, its controller", unit, ours[:1], theirs[:1], is_cost=True),
        Row("idle cluster of three, another node", unit, ours[1:], theirs[1:], is_cost=True),
    ]


def start_rows(plan: Plan, place: Place) -> list[Row]:
    """From the birth of a process with a fresh directory to its first acknowledged commit."""
    jars = kafka_jars(place.libs)
    times: dict[str, list[float]] = {"ours": [], "kafka": []}
    for number in range(plan.rounds):
        for name, found in times.items():
            directory = place.directory / f"start-{name}-{number}"
            root = f"{place.zookeeper}/start-{name}-{number}"
            node = (
                barnabas_node(directory, root)
                if name == "ours"
                else kafka_node(jars, directory, root)
            )
            found.append(start.one_start(node).committed)
    return [
        Row("start to first commit", "s", times["ours"], times["kafka"], is_cost=True),
    ]


SECTIONS: Sequence[tuple[str, Callable[[Plan, Place], list[Row]]]] = (
    ("offsets", offsets_rows),
    ("replicas", replicated_rows),
    ("records", records_rows),
    ("clients", rows_many_clients.rows),
    ("replicated records", rows_replicated_produce.rows),
    ("idle", idle_rows),
    ("start", start_rows),
    ("restart", rows_restart.rows),
    ("spark", rows_spark.rows),
)
"""In this order, each with its own servers and warm-up."""
_COMPILED = ", compiled"
"""What sections and rows of nodes of a compiled wheel have at the end of their names."""
KEPT = [name + build for build in ("", _COMPILED) for name, _ in SECTIONS]
"""The sections in the order of the page."""


# -- what is told and kept -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoredSection:
    """What ratios.json has of one section: its last whole run."""

    measured: str
    """The day, the machine's load at the beginning and at the end, and its processor."""
    rows: Sequence[Row]

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> StoredSection:
        """From the file."""
        return cls(given["measured"], [Row(**row) for row in given["rows"]])


def read_stored() -> dict[str, StoredSection]:
    """By section; empty before the first whole run."""
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    return {name: StoredSection.of(given) for name, given in stored.items()}


def store(section: str, kept: StoredSection) -> None:
    """Put one section's rows in the place of those before, in the file and in the page."""
    every = read_stored() | {section: kept}
    in_order = {name: asdict(every[name]) for name in KEPT if name in every}
    STORED.write_text(json.dumps(in_order, indent=1) + "\n")
    PAGE.write_text(put_into_page(PAGE.read_text(), text_of(every, WHOLE)))


def text_of(kept: Mapping[str, StoredSection], plan: Plan) -> str:
    """The table with what one has to know about it."""
    python = platform.python_version()
    head = [
        f"{os.cpu_count()} cores, Python {python}; Apache Kafka {KAFKA_VERSION}; {plan.rounds} "
        f"rounds of {plan.seconds:g} s, or of {plan.megabytes} MB, after {plan.warm_up:g} s of "
        "warm-up for each section. Ratio: the median of the rounds, the lowest and the highest; "
        "above 1 Barnabas is ahead.",
        "",
        "| row | Barnabas | Kafka | unit | ratio | day, load before and after, processor |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines = [
        f"{row.line()} {kept[name].measured} |"
        for name in KEPT
        if name in kept
        for row in kept[name].rows
    ]
    return "\n".join([*head, *lines])


def put_into_page(page: str, text: str) -> str:
    """The page with another table between its markers; raises ValueError where there are none."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError("the page has no place for the table")
    return f"{before}{begin}\n\n{text}\n\n{end}{after}"


def regressions(rows: Sequence[Row], stored: dict[str, Sequence[float]]) -> list[str]:
    """The rows that are slower than stored by more than both spreads, each with its numbers.

    A ratio regressed when even its best round is below the worst that is stored.
    """
    return [
        f"{row.name}: {median(row.ratios):.2f} (at best {max(row.ratios):.2f}), stored "
        f"{median(stored[row.name]):.2f} (at worst {min(stored[row.name]):.2f})"
        for row in rows
        if row.name in stored and max(row.ratios) < min(stored[row.name])
    ]


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--against", choices=("kafka",), required=True, help="who is beside it")
    parser.add_argument("--libs", type=Path, help="Kafka's jars, instead of fetching them")
    parser.add_argument("--quick", action="store_true", help="compare with the stored ratios")
    parser.add_argument(
        "--section",
        action="append",
        choices=[name for name, _ in SECTIONS],
        help="leave others out",
    )
    parser.add_argument(
        "--compiled",
        action="store_true",
        help="nodes of a compiled wheel: BARNABAS_COMPILED_WHEEL, or one made now in two minutes",
    )
    parser.add_argument("--print", action="store_true", help="write neither page nor ratios")
    return parser.parse_args()


def measured(
    name: str, run: Callable[[Plan, Place], list[Row]], plan: Plan, place: Place, build: str
) -> StoredSection | None:
    """Run one section and print its rows; None when it failed, which costs the others nothing."""
    before = os.getloadavg()[0]
    try:
        rows = [replace(row, name=row.name + build) for row in run(plan, place)]
    except Exception:  # noqa: BLE001 - of whatever kind: told, and counted as a failure
        print(f"{name}: failed\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        return None
    print("\n".join(row.line() for row in rows), flush=True)
    day, processor = time.strftime("%Y-%m-%d"), machine().partition(",")[0]
    return StoredSection(f"{day}, {before:.1f}, {os.getloadavg()[0]:.1f}, {processor}", rows)


def main() -> None:
    """Measure, print, and keep or compare."""
    options = arguments()
    plan = QUICK if options.quick else WHOLE
    stored = read_stored()
    if options.quick and not stored:
        sys.exit(f"there is nothing to compare with: {STORED} is written by a whole run")
    ratios: dict[str, Sequence[float]] = {
        row.name: row.ratios for section in stored.values() for row in section.rows
    }
    problems: list[str] = []
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="barnabas-bench-")))
        address = stack.enter_context(commit.zookeeper_address(None, directory / "zookeeper"))
        place = Place(directory, address, options.libs)
        build = ""
        if options.compiled:
            build = _COMPILED
            python = install(build_compiled_wheel(directory / "wheels"), directory / "venv")
            os.environ[NODES_PYTHON] = str(python)
        for name, run in SECTIONS:
            if options.section and name not in options.section:
                continue
            found = measured(name, run, plan, place, build)
            if found is None:
                problems.append(f"failed: {name}")
            elif options.quick:
                problems += regressions(found.rows, ratios)
            elif not options.print:
                store(name + build, found)
    if problems:
        sys.exit("\n".join(["slower than stored, or failed:", *problems]))


if __name__ == "__main__":
    main()
