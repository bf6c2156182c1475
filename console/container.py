"""What a container of ours runs: the ``barnabas`` command, and the question whether it serves.

``broker`` and ``coordinator`` also read a mounted server.properties, and can be told only after
their start what to advertise. Source: docs/spec/pipeline.md §6.2 and §6.3.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from barnabas.broker.settings.node_config import NodeConfig, load
from barnabas.broker.settings.properties import from_environment, parse_properties, variables
from barnabas.console.command_line.failure import Failure
from barnabas.console.commands.zookeeper import DEFAULT_PORT
from barnabas.console.commands.zookeeper import from_environment as zookeeper_options
from barnabas.console.development.embedded_zookeeper import four_letter_word, probe_context
from barnabas.console.development.readiness_probe import Address, is_complete
from barnabas.protocol.settings import ConfigError

from .__main__ import main as barnabas
from .health_probe import READYZ, SRVR, Probe, problem, remember

MOUNTED_SETTINGS: Final = Path("/mnt/shared/config/server.properties")
"""Where Kafka's own image looks for a settings file, too."""
ADVERTISED_FILE: Final = "BARNABAS_ADVERTISED_FILE"
"""Names a file to wait for; its text becomes ``advertised.listeners``.

For starters that learn the published port only from the running container, as testcontainers do.
"""
_NODES: Final = ("broker", "coordinator")
_LOOPBACK: Final = "127.0.0.1"
_POLL_S: Final = 0.05


def main(arguments: Sequence[str]) -> int:
    """Run ``barnabas`` with these words, or answer ``healthy`` with exit code 0 or 1."""
    signal.signal(signal.SIGTERM, _end)  # the first process of a container ignores it otherwise
    words = list(arguments)
    if words == ["healthy"]:
        return _report_health(os.environ)
    if words and words[0] in _NODES:
        if path := os.environ.get(ADVERTISED_FILE):
            os.environ["KAFKA_ADVERTISED_LISTENERS"] = _awaited(Path(path))
        if len(words) == 1 and MOUNTED_SETTINGS.exists():
            words.append(str(MOUNTED_SETTINGS))
    return barnabas(words)


def health_problem(environment: Mapping[str, str]) -> str | None:
    """Why the part that ``environment`` describes does not serve; None when it does.

    A node serves when its ``/readyz`` says so, or, without ``metrics.listener``, when its clients'
    listener names a controller; ZooKeeper, when it has a mode. What is asked in clear is remembered
    for the next check.
    """
    if not _is_node(environment):
        return _zookeeper_problem(zookeeper_options(environment))
    try:
        config = load(_settings(environment), variables(environment))
        if config.metrics.address is not None:
            host, port = config.metrics.address
            return _remembered(Probe(READYZ, _dialled(host), port))
        host, port = client_address(config)
    except (ConfigError, Failure) as error:
        return str(error)
    return None if is_complete(host, port, 1) else f"{host}:{port} knows no controller"


def _zookeeper_problem(options: Mapping[str, str]) -> str | None:
    port, keystore = int(options.get("port", DEFAULT_PORT)), options.get("keystore")
    if keystore is None:
        return _remembered(Probe(SRVR, _LOOPBACK, port))
    answer = four_letter_word(port, b"srvr", tls=probe_context(Path(keystore)))
    return None if "Mode:" in answer else f"no ZooKeeper on {port}"


def _remembered(probe: Probe) -> str | None:
    """What speaks against it; the next check begins with what nothing speaks against."""
    found = problem(probe)
    if found is None:
        remember(probe)
    return found


def readiness_problem(host: str, port: int) -> str | None:
    """What the node's metrics listener says against it; None when it is ready."""
    return problem(Probe(READYZ, _dialled(host), port))


def client_address(config: NodeConfig) -> Address:
    """Where a process beside the node reaches it without a password. Raises Failure."""
    for listener in config.listeners:
        if listener.listener != config.inter_broker_listener and listener.protocol == "PLAINTEXT":
            return _dialled(listener.host), listener.port
    raise Failure("no PLAINTEXT listener to ask")


def _dialled(host: str) -> str:
    return _LOOPBACK if host in ("", "0.0.0.0", "::") else host  # noqa: S104


def _report_health(environment: Mapping[str, str]) -> int:
    problem = health_problem(environment)
    print(problem or "serves")
    return 0 if problem is None else 1


def _is_node(environment: Mapping[str, str]) -> bool:
    return MOUNTED_SETTINGS.exists() or "zookeeper.connect" in from_environment(environment)


def _settings(environment: Mapping[str, str]) -> dict[str, str]:
    settings = parse_properties(MOUNTED_SETTINGS.read_text()) if MOUNTED_SETTINGS.exists() else {}
    return settings | from_environment(environment)


def _awaited(path: Path) -> str:
    """The first line of a file that somebody writes into the container after its start."""
    while True:
        text = path.read_text() if path.exists() else ""
        if text.endswith("\n"):
            return text.strip()
        time.sleep(_POLL_S)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    del frame
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
