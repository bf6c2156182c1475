"""A Barnabas node under measurement: `python -m barnabas.broker` as a child process."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks.server_process import ServerProcess, write_properties

ROOT = Path(__file__).resolve().parents[1]
NODES_PYTHON = "BARNABAS_NODES_PYTHON"
"""Names the Python of an environment that has an installed barnabas, to measure that instead."""


def barnabas_node(
    directory: Path,
    zookeeper: str,
    *,
    node_id: int = 1,
    settings: Mapping[str, str] | None = None,
) -> ServerProcess:
    """A node that keeps everything below ``directory``, not yet started.

    ``settings`` override the properties given here.
    """
    properties = {
        "broker.id": str(node_id),
        "zookeeper.connect": zookeeper,
        "log.dirs": str(directory / "data"),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        **(settings or {}),
    }
    file, port, others = write_properties(directory, properties)
    installed = os.environ.get(NODES_PYTHON)
    found_first = "" if installed else str(ROOT)
    search_path = os.pathsep.join(filter(None, (found_first, os.environ.get("PYTHONPATH", ""))))
    # an installed wheel has its bytecode; a checkout keeps it unless this variable forbids it
    command = ["/usr/bin/env", "-u", "PYTHONDONTWRITEBYTECODE", f"PYTHONPATH={search_path}"]
    # -P: an installed package would be hidden by a checkout that is the current directory
    command += [installed, "-P"] if installed else [sys.executable]
    command += ["-m", "barnabas.broker", str(file)]
    return ServerProcess(
        f"barnabas-{node_id}", command, port, directory / "node.log", others=others
    )
