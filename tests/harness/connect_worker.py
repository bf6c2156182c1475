"""Workers of Kafka Connect 3.9 in one group, as processes, and the calls of its REST interface."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from barnabas.console.development.java import find_java
from barnabas.console.development.ports import LOOPBACK, free_ports
from benchmarks.apache_kafka import LOG4J, class_path, fetch_jars
from benchmarks.download_cache import CACHE

from .needs import obtained

VERSION: Final = "3.9.1"
_ARTIFACTS: Final = (
    ("org.apache.kafka", "connect-file", VERSION),
    ("org.apache.kafka", "connect-runtime", VERSION),
    ("org.slf4j", "slf4j-reload4j", "1.7.36"),
)
_MAIN: Final = "org.apache.kafka.connect.cli.ConnectDistributed"
_ANSWER_S: Final = 60.0
_STRINGS: Final = "org.apache.kafka.connect.storage.StringConverter"


def connect_jars() -> Path:
    """The jars of a worker and of the connectors of files; skips the test without them."""
    folder = CACHE / f"connect-{VERSION}" / "libs"
    return obtained(
        f"Kafka Connect {VERSION}",
        lambda: fetch_jars(folder, _ARTIFACTS, f"connect-file-{VERSION}.jar"),
    )


class ConnectWorker:
    """One worker whose source connectors write exactly once, started at once."""

    def __init__(self, bootstrap: str, group: str, directory: Path) -> None:
        jars = connect_jars()
        (port,) = free_ports(1)
        self.address = f"{LOOPBACK}:{port}"
        """As other workers and the REST interface name it."""
        directory.mkdir(parents=True)
        logging = directory / "log4j.properties"
        logging.write_text(LOG4J)
        file = directory / "worker.properties"
        settings = _settings(bootstrap, group, port)
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        command = [str(find_java()), "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += [f"-Dlog4j.configuration=file:{logging}", "-cp", class_path(jars)]
        self.log = directory / "worker.log"
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                [*command, _MAIN, str(file)], stdout=log, stderr=subprocess.STDOUT
            )

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """What the worker answers; None where it refuses, or does not listen."""
        request = urllib.request.Request(
            f"http://{self.address}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refusal:
            refusal.close()
            return None
        except (urllib.error.URLError, OSError, json.JSONDecodeError):
            return None

    def runs_connector(self, name: str) -> str:
        """The address of the worker that runs the connector's only task; "" while none does."""
        status = self.call("GET", f"/connectors/{name}/status")
        tasks = [] if status is None else status["tasks"]
        running = [task["worker_id"] for task in tasks if task["state"] == "RUNNING"]
        return running[0] if running else ""

    def kill(self) -> None:
        """As ``kill -9`` does."""
        self._process.kill()
        self._process.wait()

    def last_words(self) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-40:])


def _settings(bootstrap: str, group: str, port: int) -> dict[str, str]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "exactly.once.source.support": "enabled",
        "key.converter": _STRINGS,
        "value.converter": _STRINGS,
        "config.storage.topic": f"{group}-configs",
        "offset.storage.topic": f"{group}-offsets",
        "status.storage.topic": f"{group}-status",
        "config.storage.replication.factor": "3",
        "offset.storage.replication.factor": "3",
        "status.storage.replication.factor": "3",
        "offset.storage.partitions": "3",
        "status.storage.partitions": "1",
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "500",
        "scheduled.rebalance.max.delay.ms": "0",
        "listeners": f"http://{LOOPBACK}:{port}",
        "rest.advertised.host.name": LOOPBACK,
        "rest.advertised.port": str(port),
    }
