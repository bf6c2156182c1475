"""``barnabas groups`` as somebody types it, and groups for it to work on."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import Committed, NewTopic
from barnabas.client.cluster import TopicPartition
from barnabas.console.__main__ import main

from .confluent_client import Confluent
from .deployments import Deployment, await_leaders
from .records import Sent

PARTITIONS: Final = 2
RECORDS: Final = 10
"""In each partition."""
STEP_MS: Final = 60_000
"""Between two records of a partition."""


class GroupShell:
    """Runs commands in this process; groups are committed for behind its back."""

    def __init__(self, cluster: Deployment, capsys: pytest.CaptureFixture[str]) -> None:
        self.bootstrap = cluster.bootstrap
        self.told = ""
        """What the last command said on standard error."""
        self._cluster = cluster
        self._capsys = capsys

    def __call__(self, *words: str, code: int | None = 0) -> str:
        """What a command prints; fails unless it ends with ``code``, if that is not None."""
        self._capsys.readouterr()
        ended = main(["groups", *words, "--bootstrap", self.bootstrap, "--timeout-ms", "60000"])
        shown = self._capsys.readouterr()
        self.told = shown.err
        assert code in (None, ended), f"exit code {ended}\n{shown.out}\n{shown.err}"
        return shown.out

    def json(self, *words: str, code: int | None = 0) -> Any:
        """The same with ``--json``."""
        return json.loads(self(*words, "--json", code=code))

    def rows(self, *words: str, code: int = 0) -> list[list[str]]:
        """The cells of the table that a command prints, without its head."""
        return [line.split() for line in self(*words, code=code).splitlines()[1:]]

    def fill(self, topic: str, partitions: int = PARTITIONS, *, step_ms: int = STEP_MS) -> int:
        """A topic with records a minute apart, unless told; gives the time of the first, in ms."""
        first_ms = time.time_ns() // 1_000_000 - 3_600_000

        async def create() -> None:
            async with Admin.of(self.bootstrap) as admin:
                await admin.create_topics([NewTopic(name=topic, partitions=partitions)])

        asyncio.run(create())
        await_leaders(self._cluster, topic, partitions)
        Confluent().produce(
            self.bootstrap,
            topic,
            [
                Sent(b"x", partition=index, timestamp_ms=first_ms + number * step_ms)
                for index in range(partitions)
                for number in range(RECORDS)
            ],
        )
        return first_ms

    def commit(self, group: str, topic: str, offsets: Sequence[int] | Mapping[int, int]) -> None:
        """Offsets of a group without members, by partition."""
        by_index = dict(enumerate(offsets)) if isinstance(offsets, Sequence) else offsets
        wanted = {
            TopicPartition(topic, index): Committed(offset=offset, metadata=f"at {offset}")
            for index, offset in by_index.items()
        }

        async def alter() -> None:
            async with Admin.of(self.bootstrap) as admin:
                codes = await admin.alter_offsets(group, wanted)
            assert not any(codes.values()), codes

        asyncio.run(alter())

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """Every offset of a group."""

        async def ask() -> dict[TopicPartition, Committed]:
            async with Admin.of(self.bootstrap) as admin:
                return await admin.committed_offsets(group)

        found = asyncio.run(ask())
        return {
            (topic_partition.topic, topic_partition.partition): committed.offset
            for topic_partition, committed in found.items()
        }


@pytest.fixture
def groups(
    cluster: Deployment,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> GroupShell:
    """The command, in a directory of its own for undo files."""
    monkeypatch.chdir(tmp_path)
    return GroupShell(cluster, capsys)


@pytest.fixture
def filled(groups: GroupShell, topic: str) -> str:
    """A topic with records."""
    groups.fill(topic)
    return topic
