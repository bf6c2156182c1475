"""kcat produces and consumes; Debian's is an old librdkafka, which asks for old versions."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.harness.deployments import Deployment, await_leaders
from tests.harness.stored_batches import CODECS, stored_codecs

LINES = [f"line {number}{' and so on' * 20}" for number in range(1_000)]
"""Each shrinks by itself, so that a batch of any size does."""


def run(*command: str, given: str = "") -> str:
    done = subprocess.run(
        command, input=given, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def produce(cluster: Deployment, kcat: str, topic: str, *words: str, given: str) -> None:
    """To a topic that creates itself; afterwards every node knows it, whichever is asked next."""
    run(kcat, "-b", cluster.bootstrap, "-P", "-t", topic, *words, given=given)
    await_leaders(cluster, topic, 1)


def test_kcat_produces_to_a_topic_that_creates_itself_and_reads_it_back(
    cluster: Deployment, kcat: str, topic: str
) -> None:
    produce(cluster, kcat, topic, given="\n".join(LINES))
    read = run(kcat, "-b", cluster.bootstrap, "-C", "-t", topic, "-o", "beginning", "-e", "-q")
    assert sorted(read.splitlines()) == sorted(LINES)


@pytest.mark.parametrize("codec", CODECS)
def test_kcat_compresses_with_each_codec(
    cluster: Deployment, kcat: str, topic: str, codec: str
) -> None:
    bootstrap = cluster.bootstrap
    settings = ("-p", "0", "-X", "linger.ms=50", "-z", codec)
    produce(cluster, kcat, topic, *settings, given="\n".join(LINES))
    assert codec in stored_codecs(cluster, topic, 0)  # a batch that would grow stays as it is
    read = run(kcat, "-b", bootstrap, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q")
    assert read.splitlines() == LINES


def test_kcat_lists_brokers_and_partitions(cluster: Deployment, kcat: str, topic: str) -> None:
    produce(cluster, kcat, topic, given="one")
    listed = json.loads(run(kcat, "-b", cluster.bootstrap, "-L", "-t", topic, "-J"))
    assert {one["name"] for one in listed["brokers"]} == set(cluster.bootstrap.split(","))
    assert listed["controllerid"] in {one["id"] for one in listed["brokers"]}
    assert [one["topic"] for one in listed["topics"]] == [topic]
    assert all(one["isrs"] == one["replicas"] for one in listed["topics"][0]["partitions"])


def test_kcat_asks_for_offsets(cluster: Deployment, kcat: str, topic: str) -> None:
    produce(cluster, kcat, topic, "-p", "0", given="\n".join(LINES))
    first = run(kcat, "-b", cluster.bootstrap, "-Q", "-t", f"{topic}:0:-2")
    end = run(kcat, "-b", cluster.bootstrap, "-Q", "-t", f"{topic}:0:-1")
    assert first.split()[-1] == "0"
    assert end.split()[-1] == str(len(LINES))


def test_a_group_of_kcat_continues_where_it_stopped(
    cluster: Deployment, kcat: str, topic: str, group: str
) -> None:
    bootstrap = cluster.bootstrap
    consume = (kcat, "-b", bootstrap, "-q", "-e", "-X", "auto.offset.reset=earliest")
    produce(cluster, kcat, topic, given="\n".join(LINES))
    assert sorted(run(*consume, "-G", group, topic).splitlines()) == sorted(LINES)
    run(kcat, "-b", bootstrap, "-P", "-t", topic, given="one\nmore")
    assert sorted(run(*consume, "-G", group, topic).splitlines()) == ["more", "one"]


def test_kcat_carries_keys_headers_and_nulls(cluster: Deployment, kcat: str, topic: str) -> None:
    words = ("-p", "0", "-K:", "-Z", "-H", "colour=red")
    produce(cluster, kcat, topic, *words, given="a:1\nb:\n")
    consume = (kcat, "-b", cluster.bootstrap, "-C", "-t", topic, "-o", "beginning", "-e", "-q")
    first, second = (json.loads(line) for line in run(*consume, "-J").splitlines())
    assert (first["key"], first["payload"], first["headers"]) == ("a", "1", ["colour", "red"])
    assert (second["key"], second["payload"]) == ("b", None)
