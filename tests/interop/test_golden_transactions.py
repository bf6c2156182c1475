"""A node of ours takes over what Apache Kafka 3.9.1 left: transactions in every state.

The one that was open when Kafka stopped has timed out by now: our coordinator aborts it.
Source: tests/golden/txn-data.json; docs/spec/transactions.md §6 (T6.1), §5 (T5.10), §1 (T1.6).
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from barnabas.console.__main__ import main
from barnabas.console.development.cluster import Cluster
from tests.harness.committed_readers import READERS, Reader
from tests.harness.golden_transactions import FILE, SETTINGS, put
from tests.harness.kafka_tools import DUMP, GROUPS, TRANSACTIONS, Tool
from tests.harness.steady_settings import STEADY
from tests.harness.waiting import eventually

pytestmark = pytest.mark.kafka

WAIT_S = 120.0
PATIENT = ("--timeout-ms", "60000")
OPEN = "ongoing"
PRODUCER_ID = str(FILE["transactions"][OPEN]["producer_id"])
OPEN_SINCE = {"txn-out-0": 35, "txn-out-1": 9}


@pytest.fixture(scope="module")
def taken_over(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The node, once the transaction that was open is aborted; its files are sound at the end."""
    directory = tmp_path_factory.mktemp("kafka-data")
    put(directory)
    with Cluster(1, directory, settings={**STEADY, **SETTINGS}) as cluster:
        eventually(lambda: is_aborted(cluster), what="the time-out of what was open")
        yield cluster
    assert main(["log", "verify", str(directory / "node-1" / "data")]) == 0


def is_aborted(cluster: Cluster) -> bool:
    listed = rows_of(shown(cluster, "list"))
    return ["ongoing", "1", PRODUCER_ID, "CompleteAbort"] in listed


def shown(cluster: Cluster, *words: str) -> str:
    """What ``barnabas transactions`` prints."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        assert main(["transactions", *words, "--bootstrap", cluster.bootstrap, *PATIENT]) == 0
    return output.getvalue()


def rows_of(text: str) -> list[list[str]]:
    head, *rest = (line.split() for line in text.splitlines() if line.strip())
    return [head, *sorted(rest)]


def golden(command: str) -> list[list[str]]:
    return rows_of(FILE["tools"][command])


@pytest.fixture(params=["ours", "kafka's"])
def asked(request: pytest.FixtureRequest, tool: Tool, taken_over: Cluster) -> Any:
    """The rows that ``barnabas transactions``, or kafka-transactions, prints of our node."""

    def ours(*words: str) -> list[list[str]]:
        return rows_of(shown(taken_over, *words))

    def theirs(*words: str) -> list[list[str]]:
        return rows_of(tool(TRANSACTIONS, "--bootstrap-server", taken_over.bootstrap, *words))

    return ours if request.param == "ours" else theirs


def test_every_id_is_listed_as_kafka_listed_it(asked: Any) -> None:
    """T6.1: list."""
    wanted = [[*row[:3], "CompleteAbort"] if row[0] == OPEN else row for row in golden("list")]
    assert asked("list") == wanted


def test_an_id_that_never_began_passes_every_duration(asked: Any) -> None:
    """T6.1: list by duration, which is that of the first transaction of an id, too."""
    listed = asked("list", "--duration-filter", "315360000000")
    assert listed == golden("list --duration-filter 3600000")


def test_a_transaction_is_described_as_kafka_described_it(asked: Any) -> None:
    """T6.1: describe, but for its duration."""
    (head, ours), (_, theirs) = (
        asked("describe", "--transactional-id", "committed"),
        golden("describe committed"),
    )
    duration = head.index("TransactionDurationMs")
    del ours[duration], theirs[duration]
    assert ours == theirs


def test_what_was_open_was_aborted_in_the_next_epoch(asked: Any) -> None:
    """T3.8, of a transaction that was begun at Kafka."""
    _, row = asked("describe", "--transactional-id", OPEN)
    assert row[:6] == ["1", OPEN, PRODUCER_ID, "1", "CompleteAbort", "900000"]


@pytest.mark.parametrize("partition", [0, 1])
def test_producers_are_described_as_kafka_described_them(asked: Any, partition: int) -> None:
    """T6.1: describe-producers; the one whose transaction was open has another epoch now."""
    found = asked("describe-producers", "--topic", "txn-out", "--partition", str(partition))
    theirs = golden(f"describe-producers txn-out {partition}")
    untouched = [row for row in theirs if row[0] != PRODUCER_ID]
    assert [row for row in found if row[0] != PRODUCER_ID] == untouched
    (ended,) = (row for row in found if row[0] == PRODUCER_ID)
    assert (ended[1], ended[3], ended[5]) == ("1", "-1", "None")


def test_nothing_hangs(asked: Any) -> None:
    """T6.1: find-hanging."""
    assert asked("find-hanging", "--topic", "txn-out") == golden("find-hanging txn-out")


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
@pytest.mark.parametrize("name", OPEN_SINCE)
def test_every_client_is_shown_what_kafkas_clients_were(
    taken_over: Cluster, name: str, reader: Reader
) -> None:
    """T5.10: both levels; what stood behind the open transaction is shown now."""
    topic, _, index = name.rpartition("-")
    end = FILE["logs"][name]["log_end"] + 1  # the marker
    everything = rows("read_uncommitted", name)
    behind = [row for row in everything if row[0] > OPEN_SINCE[name] and b"ongoing" not in row[1]]
    committed = rows("read_committed", name) + behind
    for isolation, wanted in (("read_committed", committed), ("read_uncommitted", everything)):
        assert reader(taken_over.bootstrap, topic, int(index), isolation, end) == wanted


def rows(isolation: str, name: str) -> list[tuple[int, bytes]]:
    return [(offset, value.encode()) for offset, _key, value in FILE["readers"][isolation][name]]


def test_the_offsets_of_groups_are_those_kafka_had(taken_over: Cluster, tool: Tool) -> None:
    """T4.4; the offset that was staged in the open transaction is gone with it."""
    at = ("--bootstrap-server", taken_over.bootstrap, "--describe", "--group")
    assert rows_of(tool(GROUPS, *at, "group-a")) == golden("groups describe group-a")
    ours = ["groups", "describe", "group-b", "--bootstrap", taken_over.bootstrap]
    assert main([*ours, *PATIENT]) == 0


def test_kafkas_tool_reads_the_log_that_our_coordinator_goes_on_with(
    taken_over: Cluster, tool: Tool, capsys: pytest.CaptureFixture[str]
) -> None:
    """T1.6: what Kafka wrote and, behind it, what we did."""
    heir: Any = Producer(
        {"bootstrap.servers": taken_over.bootstrap, "transactional.id": OPEN, "linger.ms": 0}
    )
    heir.init_transactions(WAIT_S)
    heir.begin_transaction()
    heir.produce("txn-in", b"ours", partition=0)
    heir.commit_transaction(WAIT_S)
    words = ["describe", OPEN]
    eventually(lambda: "CompleteCommit" in shown(taken_over, *words), what="all its markers")
    path = taken_over.directory / "node-1/data/__transaction_state-1" / f"{0:020}.log"
    theirs = tool(DUMP, "--transaction-log-decoder", "--files", str(path))
    assert f"producerId:{PRODUCER_ID},producerEpoch:2,state=CompleteCommit" in theirs
    capsys.readouterr()
    assert main(["log", "dump", "--transaction-log-decoder", str(path)]) == 0
    assert in_one_order(capsys.readouterr().out) == in_one_order(theirs)


def in_one_order(text: str) -> list[str]:
    """Kafka prints the partitions of a transaction in the order of a hash set."""
    return ["".join(sorted(line)) if "partitions=[" in line else line for line in text.splitlines()]
