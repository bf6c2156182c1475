"""Where ZooKeeper's jars are: looked for on this machine, in one order, before any is fetched.

Source: docs/spec/console.md §8; docs/spec/pipeline.md §6.1 step 1.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from .jars_lock import jars_lock
from .missing_part import MissingPart

JARS_VARIABLE: Final = "BARNABAS_ZOOKEEPER_JARS"
_JARS: Final = (
    "zookeeper-[0-9]*",
    "zookeeper-jute-*",
    "slf4j-api-*",
    "metrics-core-*",
    "snappy-java-*",
)
_PARTS: Final = {
    "log": ("log4j-slf4j2-impl-*", "log4j-api-*", "log4j-core-*"),
    "netty": (
        "netty-buffer-[0-9]*",
        "netty-codec-[0-9]*",
        "netty-common-[0-9]*",
        "netty-handler-[0-9]*",
        "netty-resolver-[0-9]*",
        "netty-transport-[0-9]*",
        "netty-transport-native-unix-common-[0-9]*",
        "netty-transport-classes-epoll-[0-9]*",
    ),
}
_SPLIT_JARS: Final = {"netty": ("netty-codec-base-[0-9]*",)}
"""What a newer Netty has taken out of another one; an older one has none."""
_DEBIAN_JARS: Final = Path("/usr/share/java")


def find_jars(
    explicit: Path | None = None, *, with_log: bool = False, with_netty: bool = False
) -> list[Path]:
    """The jars in ``explicit``, or in the first of: BARNABAS_ZOOKEEPER_JARS, the wheel
    barnabas-zookeeper, pyspark (never imported), Debian's directory, the user's cache.

    ``with_log`` adds the three of log4j, with which ZooKeeper says why it does not start,
    ``with_netty`` those of Netty, without which it knows neither TLS nor logins. What is not some
    other package manager's is compared with ``jars.lock``. Raises MissingPart.
    """
    wanted = {"log": with_log, "netty": with_netty}
    parts = [part for part, is_wanted in wanted.items() if is_wanted]
    if explicit is not None:
        return _named(explicit, "in", parts)
    if named := os.environ.get(JARS_VARIABLE):
        return _named(Path(named), f"where {JARS_VARIABLE} says,", parts)
    for directory, is_ours in _directories():
        if jars := _complete(directory, parts, is_ours=is_ours):
            return jars
    raise MissingPart("No ZooKeeper jars found.")


def directory_with_the_locked_bytes() -> Path | None:
    """Where all files of ``jars.lock`` lie as they are named there; None where nowhere."""
    for directory, _ in _directories():
        if not jars_lock().wrong_in(directory):
            return directory
    return None


def cache_directory() -> Path:
    """Where the jars of this release's ``jars.lock`` are kept once they were fetched."""
    root = os.environ.get("XDG_CACHE_HOME")
    base = (Path(root) if root else Path.home() / ".cache") / "barnabas"
    return base / f"zookeeper-{jars_lock().digest}"


def _named(directory: Path, where: str, parts: Sequence[str]) -> list[Path]:
    """Somebody said where: nothing else will do."""
    if jars := _matching(directory, parts):
        return jars
    raise MissingPart(f"No ZooKeeper jars found {where} {directory}.")


def _directories() -> Iterator[tuple[Path, bool]]:
    """Where to look, and whether the files there are to be those of ``jars.lock``."""
    for package, is_ours in (("barnabas_zookeeper", True), ("pyspark", False)):
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.origin is not None:
            yield Path(spec.origin).parent / "jars", is_ours
    yield _DEBIAN_JARS, False
    yield cache_directory(), True


def _complete(directory: Path, parts: Sequence[str], *, is_ours: bool) -> list[Path]:
    if not is_ours:
        return _matching(directory, parts)
    lock = jars_lock()
    return [] if lock.wrong_in(directory) else lock.chosen_in(directory, parts)


def _matching(directory: Path, parts: Sequence[str]) -> list[Path]:
    patterns = [*_JARS, *(pattern for part in parts for pattern in _PARTS[part])]
    found = [sorted(directory.glob(f"{pattern}.jar")) for pattern in patterns]
    if not all(found):
        return []
    more = [pattern for part in parts for pattern in _SPLIT_JARS.get(part, ())]
    split = [jar for pattern in more for jar in directory.glob(f"{pattern}.jar")]
    return [jars[-1] for jars in found] + split
