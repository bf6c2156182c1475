"""Who this node is: its cluster, its id, and the notes about both in every log directory.

Source: docs/spec/cluster.md §1.2.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from barnabas.broker.metadata.random_uuid import new_uuid
from barnabas.broker.settings.properties import parse_properties
from barnabas.broker.storage.cooperative import uninterrupted
from barnabas.broker.storage.files import Files, StorageError
from barnabas.client.zookeeper.interface import NodeExists, ZooKeeper, ensure, read_if_any
from barnabas.protocol.names import uuid_text
from barnabas.protocol.settings import ConfigError
from barnabas.protocol.zookeeper import znodes

log = logging.getLogger(__name__)

META_PROPERTIES: Final = "meta.properties"
SESSION_FILE: Final = "zookeeper-session"
"""In a log directory: the session that this node's registration was last made in."""


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """A node's place among all nodes of all clusters."""

    node_id: int
    cluster_id: str


async def create_persistent_znodes(zookeeper: ZooKeeper) -> None:
    """Create the persistent znodes that every node expects to find."""
    for path in (*znodes.PERSISTENT_PATHS, *znodes.OUR_PERSISTENT_PATHS):
        await ensure(zookeeper, path)


async def cluster_id(
    zookeeper: ZooKeeper, rng: random.Random, noted: Mapping[Path, str] | None = None
) -> str:
    """The cluster's id; the first node ever makes it, and nobody changes it again.

    A node whose directories (``noted``) belong to a cluster makes none: raises ConfigError, as for
    an id that cannot be read.
    """
    found = await read_if_any(zookeeper, znodes.CLUSTER_ID)
    if found is None and noted:
        directory, cluster = next(iter(noted.items()))
        raise ConfigError(
            f"{directory}: belongs to cluster {cluster}, but the ZooKeeper that zookeeper.connect "
            f"leads to holds no cluster ({znodes.CLUSTER_ID} is missing). Either it is another "
            "one than before, or it has lost its data: bring those back"
        )
    if found is None:
        fresh = znodes.ClusterId(cluster_id=uuid_text(new_uuid(rng)))
        try:
            await zookeeper.create(znodes.CLUSTER_ID, fresh.to_json(), parents=True)
        except NodeExists:
            pass
        found = await zookeeper.get(znodes.CLUSTER_ID)
    try:
        return znodes.ClusterId.from_json(found[0]).cluster_id
    except ValueError as error:
        raise ConfigError(
            f"{znodes.CLUSTER_ID} cannot be read: {error}. Write the id there again that "
            "meta.properties of any node names"
        ) from None


async def establish_identity(
    zookeeper: ZooKeeper,
    files: Files,
    directories: Sequence[Path],
    *,
    configured_id: int,
    may_generate_id: bool,
    reserved_id_max: int,
    rng: random.Random,
) -> NodeIdentity:
    """Find out who this node is and note it in every log directory that works.

    The id is the configured one, else the noted one, else a new one. Raises ConfigError when
    a directory belongs to another node or to another cluster, and then writes nothing;
    StorageError when no directory works.
    """
    notes = _read_notes(files, directories)
    noted = {path: note["cluster.id"] for path, note in notes.items() if "cluster.id" in note}
    cluster = await cluster_id(zookeeper, rng, noted)
    noted_id = _noted_id(notes, cluster)
    node_id = configured_id if configured_id >= 0 else noted_id
    if node_id is None:
        if not may_generate_id:
            raise ConfigError("broker.id: must be set, since broker.id.generation.enable is false")
        node_id = await _generated_id(zookeeper, reserved_id_max)
    if noted_id is not None and noted_id != node_id:
        raise ConfigError(
            f"broker.id={node_id}: the log directories belong to node {noted_id} "
            f"({META_PROPERTIES}); set broker.id={noted_id} or use other directories"
        )
    for directory, note in notes.items():
        if not note:
            write_note(files, directory, NodeIdentity(node_id, cluster))
    return NodeIdentity(node_id, cluster)


def read_note(files: Files, directory: Path) -> Mapping[str, str]:
    """What ``meta.properties`` of a log directory says; empty when there is none.

    Raises ConfigError for nonsense, StorageError.
    """
    path = directory / META_PROPERTIES
    if not files.exists(path):
        return {}
    try:
        note = parse_properties(files.read_whole(path).decode())
        if note["version"] != "0":
            raise ValueError(f"version {note['version']}")
        int(note["broker.id"])  # without it the node would take a new id, and lead nothing it has
    except (KeyError, ValueError) as error:
        raise ConfigError(
            f"{path}: cannot be read: {error}. When it was damaged, write it again: version=0, "
            "broker.id=... and cluster.id=... as other directories or nodes have them"
        ) from None
    return note


def write_note(files: Files, directory: Path, identity: NodeIdentity) -> None:
    """Note in a log directory whose it is."""
    text = f"version=0\nbroker.id={identity.node_id}\ncluster.id={identity.cluster_id}\n"
    files.write_atomically(directory / META_PROPERTIES, text.encode())


def read_session(files: Files, directory: Path) -> int | None:
    """The ZooKeeper session of this node's former life, if it left word of it.

    Call it while holding the directory's lock, which proves that life to be over. The note names
    its directory: in a copy of it, beside which the original may be alive, it counts for nothing.
    """
    path = directory / SESSION_FILE
    if not files.exists(path):
        return None
    text = files.read_whole(path).decode(errors="replace")
    session_id, _, noted_directory = text.strip().partition(" ")
    if noted_directory != str(directory):
        log.warning("ignored a session note that was copied or moved path=%s", path)
        return None
    try:
        return int(session_id)
    except ValueError:
        log.warning("ignored a note that is no session id path=%s", path)
        return None


async def write_session(files: Files, directory: Path, session_id: int) -> None:
    """Leave word of the session that this node registered in, so as to survive a power cut.

    The node may serve meanwhile: the loop does not wait for the disk. Raises StorageError.
    """
    text = f"{session_id} {directory}\n"
    path = directory / SESSION_FILE
    await uninterrupted(files.off_loop(lambda: files.write_atomically(path, text.encode())))


def _read_notes(files: Files, directories: Sequence[Path]) -> dict[Path, Mapping[str, str]]:
    """The note of each directory; one that fails is left out, as the logs in it will be."""
    notes, failures = {}, []
    for directory in directories:
        try:
            files.make_directory(directory)
            notes[directory] = read_note(files, directory)
        except StorageError as error:
            log.error("left out a log directory: %s", error)
            failures.append(error)
    if not notes:
        raise failures[0]
    return notes


def _noted_id(notes: Mapping[Path, Mapping[str, str]], cluster: str) -> int | None:
    ids = set()
    for directory, note in notes.items():
        noted_cluster = note.get("cluster.id", cluster)
        if noted_cluster != cluster:
            raise ConfigError(
                f"{directory}: belongs to cluster {noted_cluster}, but zookeeper.connect leads "
                f"to cluster {cluster}"
            )
        if "broker.id" in note:
            ids.add(int(note["broker.id"]))
    if len(ids) > 1:
        raise ConfigError(f"log.dirs: belong to different nodes {sorted(ids)}")
    return ids.pop() if ids else None


async def _generated_id(zookeeper: ZooKeeper, reserved_id_max: int) -> int:
    await ensure(zookeeper, znodes.BROKER_SEQID)
    stat = await zookeeper.set(znodes.BROKER_SEQID, b"")
    return reserved_id_max + stat.version
