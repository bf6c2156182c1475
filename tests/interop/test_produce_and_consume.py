"""``barnabas produce`` and ``barnabas consume``, beside kcat and librdkafka on the same topics.

Source: docs/spec/users.md §2.2.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Message, Producer

from tests.harness.command import Command, command
from tests.harness.confluent_client import Confluent
from tests.harness.deployments import Deployment, await_leaders, create_topic
from tests.harness.records import Sent

__all__ = ["command"]

PARTITIONS = 3
FORMAT = r"%t %p %o %T %k %K %S %h %%\t%s\n"
WHERE = ("-o", "beginning", "-e")


@pytest.fixture
def made(cluster: Deployment, topic: str) -> str:
    """A topic without records."""
    create_topic(cluster, Confluent(), topic, PARTITIONS)
    await_leaders(cluster, topic, PARTITIONS)
    return topic


@pytest.fixture
def mixed(cluster: Deployment, made: str) -> str:
    """A topic whose first partition has records of all kinds."""
    first_ms = 1_700_000_000_000
    records = [
        Sent(b"plain", partition=0, timestamp_ms=first_ms),
        Sent(b"keyed", partition=0, key=b"k\t1", timestamp_ms=first_ms + 1000),
        Sent(None, partition=0, key=b"gone", timestamp_ms=first_ms + 2000),
        Sent(b"", partition=0, key=b"", timestamp_ms=first_ms + 3000),
        Sent(
            b"with headers",
            partition=0,
            headers=(("a", b"1"), ("b", None), ("a", b"2")),
            timestamp_ms=first_ms + 4000,
        ),
        Sent(bytes(range(1, 256)), partition=0, key=b"\xff", timestamp_ms=first_ms + 5000),
    ]
    Confluent().produce(cluster.bootstrap, made, records)
    return made


def test_words_of_the_command_line_are_records(command: Command, made: str) -> None:
    places = command.json_lines("produce", made, "two teas", "naïve", "-p", "1", "--key", "kim")
    assert [(place["partition"], place["offset"]) for place in places] == [(1, 0), (1, 1)]
    shown = command("consume", made, "-e", "-f", r"%p %k %s\n").decode()
    assert shown == "1 kim two teas\n1 kim naïve\n"


def test_each_line_of_input_is_a_record_the_last_one_without_its_end_too(
    command: Command, cluster: Deployment, made: str
) -> None:
    lines = [b"x:1", b"y:", b"z:a:b", b"null:null", b"\xff:\xfe"]
    command(
        "produce", made, "-K", ":", "--null-marker", "null", "-p", "0", "-H", "from=here",
        given=b"\n".join(lines),
    )  # fmt: skip
    assert "produced 5 records" in command.told
    read = Confluent().read(cluster.bootstrap, made, {0: 0})
    assert [(record.key, record.value) for record in read] == [
        (b"x", b"1"),
        (b"y", b""),
        (b"z", b"a:b"),
        (None, None),
        (b"\xff", b"\xfe"),
    ]
    assert all(tuple(record.headers) == (("from", b"here"),) for record in read)


def test_a_key_goes_where_java_producers_put_it(
    command: Command, cluster: Deployment, made: str
) -> None:
    keys = [f"key-{number}" for number in range(40)]
    theirs: dict[str, int] = {}
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "partitioner": "murmur2_random"})

    def delivered(_error: object, sent: Message) -> None:
        key, partition = sent.key(), sent.partition()
        assert key is not None
        assert partition is not None
        theirs[key.decode()] = partition

    for key in keys:
        producer.produce(made, b"", key, on_delivery=delivered)
    assert producer.flush(60) == 0
    given = "".join(f"{key}=\n" for key in keys).encode()
    ours = command.json_lines("produce", made, "-K", "=", given=given)
    assert [place["partition"] for place in ours] == [theirs[key] for key in keys]


def test_many_records_arrive_once_each_and_compressed_as_asked(command: Command, made: str) -> None:
    given = b"".join(b"%d\n" % number for number in range(20_000))
    command("produce", made, "--config", "compression.type=lz4", "-p", "2", given=given)
    assert command("consume", made, "-e") == given


def test_a_line_without_its_key_is_named_and_what_came_before_is_sent(
    command: Command, made: str
) -> None:
    command("produce", made, "-K", ":", "-p", "0", given=b"a:1\nno key\nb:2\n", code=1)
    assert "line 2 has no ':'" in command.told
    assert command("consume", made, "-e", "-f", "%k%s") == b"a1"


@pytest.mark.parametrize("words", [("produce", "x"), ("consume", "-e")])
def test_a_partition_that_is_not_there_is_told_before_anything_is_done(
    command: Command, made: str, words: tuple[str, ...]
) -> None:
    verb, *rest = words
    command(verb, made, *rest, "-p", "3", code=1)
    assert f"{made} has 3 partitions: there is no 3" in command.told


def test_a_topic_that_is_not_there_is_told(command: Command, topic: str) -> None:
    command("consume", f"{topic}-nowhere", "-e", code=1)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in command.told


def test_a_record_is_printed_as_kcat_prints_it(
    command: Command, cluster: Deployment, kcat: str, mixed: str
) -> None:
    words = ["-b", cluster.bootstrap, "-C", "-t", mixed, "-q", "-o", "beginning", "-e"]
    theirs = subprocess.run([kcat, *words, "-f", FORMAT], capture_output=True, check=True).stdout
    assert command("consume", mixed, "-e", "-f", FORMAT) == theirs


def test_json_has_the_keys_and_values_of_kcat(
    command: Command, cluster: Deployment, kcat: str, mixed: str
) -> None:
    words = ["-b", cluster.bootstrap, "-C", "-t", mixed, "-q", "-o", "beginning", "-e", "-c", "5"]
    shown = subprocess.run([kcat, *words, "-J"], capture_output=True, check=True).stdout
    theirs = [json.loads(line) for line in shown.splitlines()]
    for envelope in theirs:
        envelope.pop("broker", None)  # of which replica it was read: nobody's business
    assert command.json_lines("consume", mixed, "-c", "5") == theirs


@pytest.mark.parametrize(
    ("words", "offsets"),
    [
        (WHERE, [0, 1, 2, 3, 4, 5]),
        (("-o", "4", "-e"), [4, 5]),
        (("-o", "99", "-e"), []),
        (("-o", "-2", "-e"), [4, 5]),
        (("-o", "-99", "-e"), [0, 1, 2, 3, 4, 5]),
        (("-o", "@1700000003000", "-e"), [3, 4, 5]),
        (("-o", "@2023-11-14T22:13:22.500", "-e"), [3, 4, 5]),
        (("-o", "end", "-e"), []),
        (("-o", "1", "-c", "2"), [1, 2]),
        (("-p", "1", "-e"), []),
    ],
)
def test_a_reader_begins_and_ends_where_it_is_told(
    command: Command, mixed: str, words: tuple[str, ...], offsets: list[int]
) -> None:
    read = command.json_lines("consume", mixed, *words)
    assert [record["offset"] for record in read] == offsets


def test_a_reader_of_committed_records_ends_behind_the_marker(
    command: Command, cluster: Deployment, made: str
) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": made})
    producer.init_transactions(60)
    for value, end in (
        (b"kept", producer.commit_transaction),
        (b"lost", producer.abort_transaction),
    ):
        producer.begin_transaction()
        producer.produce(made, value, partition=0)
        assert producer.flush(60) == 0
        end(60)
    committed = ("--config", "isolation.level=read_committed")
    assert command("consume", made, "-e", *committed) == b"kept\n"
    assert command("consume", made, "-e") == b"kept\nlost\n"


def test_a_member_of_a_group_goes_on_where_it_has_committed(
    command: Command, cluster: Deployment, mixed: str, group: str
) -> None:
    read = command.json_lines("consume", mixed, "--group", group, "--count", "2")
    assert [record["offset"] for record in read] == [0, 1]
    assert Confluent().committed(cluster.bootstrap, group) == {0: 2}
    read = command.json_lines("consume", mixed, "--group", group, "--count", "4")
    assert [record["offset"] for record in read] == [2, 3, 4, 5]


@contextmanager
def running(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    argv = [sys.executable, "-m", "barnabas.console", *words]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_what_is_written_into_an_open_pipe_is_sent_and_read_at_once(
    cluster: Deployment, made: str
) -> None:
    where = ("--bootstrap", cluster.bootstrap, "--timeout-ms", "60000")
    with running("consume", made, *where) as reader, running("produce", made, *where) as writer:
        assert writer.stdin is not None
        assert reader.stdout is not None
        for word in (b"first\n", b"second\n"):
            writer.stdin.write(word)
            writer.stdin.flush()
            assert reader.stdout.readline() == word
        for process in (reader, writer):
            os.kill(process.pid, signal.SIGINT)
        assert reader.wait(240) == 130
        assert writer.wait(240) == 130
