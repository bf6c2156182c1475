"""How Java runs ZooKeeper's server: main class, class path, and where its log goes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_MAIN: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_LOG_CONFIGURATION: Final = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{{ISO8601}} %p %c{{1}} %m%n
rootLogger.level = {level}
rootLogger.appenderRef.console.ref = console
"""


def java_command(
    java: Path, flags: Sequence[str], jars: Sequence[Path], configuration: Path
) -> list[str]:
    """The words that start the server which ``configuration``, a zoo.cfg, describes."""
    classpath = os.pathsep.join(map(str, jars))
    return [str(java), *flags, "-cp", classpath, _MAIN, str(configuration)]


def log_flag(directory: Path, level: str) -> str:
    """Write log4j's settings into ``directory``; the flag with which Java reads them."""
    path = (directory / "log4j2.properties").absolute()
    path.write_text(_LOG_CONFIGURATION.format(level=level), encoding="utf-8")
    return f"-Dlog4j2.configurationFile={path.as_uri()}"
