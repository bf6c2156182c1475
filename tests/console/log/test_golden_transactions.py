"""Kafka's own files with transactions in every state, dumped and verified.

Source: tests/golden/txn-data.json, whose ``dumps`` are what kafka-dump-log of 3.9.1 printed;
docs/spec/transactions.md §1.3.
"""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest

from barnabas.console.__main__ import main
from tests.records.vectors import GOLDEN

FILE: dict[str, Any] = json.loads((GOLDEN / "txn-data.json").read_text())
DECODERS = {
    "__transaction_state": "--transaction-log-decoder",
    "__consumer_offsets": "--offsets-decoder",
}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Kafka's directory, named from where we stand as it was when Kafka printed it."""
    monkeypatch.chdir(tmp_path)
    with tarfile.open(GOLDEN / "txn-data.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    return Path("data")


def in_one_order(text: str) -> list[str]:
    """Kafka prints the partitions of a transaction in the order of a hash set."""
    return [
        re.sub(r"partitions=\[(.*)\]", lambda found: str(sorted(found[1].split(","))), line)
        for line in text.splitlines()
    ]


@pytest.mark.parametrize("name", FILE["dumps"])
def test_the_dump_is_what_kafka_printed(
    name: str, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """States and tombstones of ids, offsets in transactions, markers, aborted lists, producers."""
    decoder = DECODERS.get(name.rpartition("/")[0].rpartition("-")[0])
    words = ["log", "dump", *([decoder] if decoder else ["--print-data-log"]), str(data / name)]
    assert main(words) == 0
    theirs = in_one_order(FILE["dumps"][name])
    assert theirs
    assert in_one_order(capsys.readouterr().out) == theirs


def test_the_dumps_have_what_only_transactions_have() -> None:
    """Or the test above would compare too little."""
    printed = "\n".join(FILE["dumps"].values())
    states = set(re.findall(r"state=(\w+)", printed))
    prepared = {"PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"}
    assert states == {"Empty", "Ongoing", *prepared}
    assert "payload: <DELETE>" in printed
    assert {"COMMIT", "ABORT"} == set(re.findall(r"endTxnMarker: (\w+)", printed))


def test_everything_that_kafka_wrote_is_sound(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batches = sum(len(log.get("batches", "1")) for log in FILE["logs"].values())
    assert main(["log", "verify", str(data)]) == 0
    assert f" {batches} batches, " in capsys.readouterr().out
