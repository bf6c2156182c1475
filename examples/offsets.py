"""Moves a group back, and undoes it: what an operator does when orders were cooked wrong.

    python examples/produce.py && python examples/consume.py
    python examples/offsets.py

On the command line this is two lines, with a preview and a history of who did it:

    barnabas groups reset kitchen --topic orders --shift-by -3 --execute --undo-file undo.json
    barnabas groups undo undo.json --execute

A group is moved while nobody reads in its name. (`reset --evict` does it beside readers.)
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

from barnabas.client import Admin, Committed, TopicPartition

BOOTSTRAP = os.environ.get("BARNABAS_BOOTSTRAP", "localhost:9092")
GROUP = "kitchen"
BACK = 3
UNDO = Path(os.environ.get("UNDO_FILE", "undo-kitchen.json"))

Offsets = dict[TopicPartition, Committed]


async def main() -> None:
    """Look, plan, keep the way back, change, look again; then undo."""
    async with Admin.of(BOOTSTRAP) as admin:
        group = await admin.describe_group(GROUP)
        if group.members:
            raise SystemExit(f"{len(group.members)} members read in the name of {GROUP}: stop them")

        # 1. Where the group is, and where it is to be: never below the first record that is kept.
        before = await admin.committed_offsets(GROUP)
        starts = await admin.start_offsets(before)
        wanted = {
            place: Committed(offset=max(starts[place], committed.offset - BACK))
            for place, committed in before.items()
        }
        for place, committed in before.items():
            print(f"{place.topic}-{place.partition}: {committed.offset} -> {wanted[place].offset}")

        # 2. The way back is in a file before anything is changed: a crash in between loses nothing.
        write(UNDO, before)

        # 3. Each partition is answered by itself, with Kafka's error codes; 0 is "done".
        codes = await admin.alter_offsets(GROUP, wanted)
        refused = {place: code.name for place, code in codes.items() if code}
        assert not refused, refused

        # 4. An answer is no proof: somebody may have committed right behind it. Look again.
        now = await admin.committed_offsets(GROUP)
        assert offsets_of(now) == offsets_of(wanted)
        print(f"moved {GROUP}: it reads up to {BACK} orders of each partition again")

        # 5. Undo is the same with what the file says.
        await admin.alter_offsets(GROUP, read(UNDO))
        assert offsets_of(await admin.committed_offsets(GROUP)) == offsets_of(before)
        forget(UNDO)
        print("undone")


def offsets_of(committed: Offsets) -> dict[TopicPartition, int]:
    """The numbers alone."""
    return {place: one.offset for place, one in committed.items()}


def write(path: Path, offsets: Offsets) -> None:
    """Keep offsets in a file; `x`: it never replaces one, which may be the only way back."""
    rows = [[*place, one.offset, one.metadata] for place, one in offsets.items()]
    with path.open("x", encoding="utf-8") as file:
        json.dump(rows, file)
        file.flush()
        os.fsync(file.fileno())


def read(path: Path) -> Offsets:
    """What `write` has kept."""
    return {
        TopicPartition(topic, partition): Committed(offset=offset, metadata=metadata)
        for topic, partition, offset, metadata in json.loads(path.read_text(encoding="utf-8"))
    }


def forget(path: Path) -> None:
    """It would undo nothing any more."""
    path.unlink()


if __name__ == "__main__":
    asyncio.run(main())
