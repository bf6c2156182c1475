"""One node of the development cluster: its settings file, its process, the word that it serves.

Source: docs/spec/cluster.md §5; §2.14 (listeners).
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import barnabas
from barnabas.broker.settings.properties import property_line
from barnabas.console.command_line.failure import Failure

from .child_process import ChildProcess
from .ports import LOOPBACK

_START_S: Final = 60.0
_STOP_S: Final = 30.0
_HOME: Final = Path(barnabas.__file__).parents[1]


class NodeStartFailed(Failure):
    """A node ended while it started, or never served; the text holds the end of its log."""


class NodeProcess:
    """A broker and coordinator in a child process; made, started and stopped by Cluster.

    ``directory`` holds its properties file, its log and its data. The port stays the same over a
    restart, as clients expect of a broker. ``death_signal`` ends it when this process has ended.
    """

    def __init__(
        self,
        node_id: int,
        port: int,
        directory: Path,
        death_signal: signal.Signals = signal.SIGTERM,
    ) -> None:
        self.id = node_id
        self.port = port
        self.directory = directory
        self.metrics = ""
        """Where its metrics and status are, as host:port; empty: nowhere."""
        self._death_signal = death_signal
        self._child: ChildProcess | None = None
        self._start_pipe: int | None = None
        self._ready: int | None = None

    @property
    def address(self) -> str:
        """Where clients find it."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def properties(self) -> Path:
        """Its settings, as ``barnabas broker`` reads them."""
        return self.directory / "server.properties"

    @property
    def log(self) -> Path:
        """What it writes to standard output and error."""
        return self.directory / "node.log"

    @property
    def pid(self) -> int:
        """Its process; the last one, when it ended."""
        return self._started().pid

    @property
    def is_running(self) -> bool:
        """Its process lives; a paused one does, too."""
        return self._child is not None and self._child.is_running

    @property
    def exit_code(self) -> int | None:
        """How the process ended; None while it runs."""
        return self._started().exit_code

    def spawn(self) -> None:
        """Let the process begin: it loads the program, then waits for :meth:`let_serve`."""
        assert not self.is_running, f"node {self.id} runs already"
        (self.directory / "data").mkdir(parents=True, exist_ok=True)
        start_pipe, self._start_pipe = os.pipe()
        self._ready, ready = os.pipe()
        module = "barnabas.console.development.node_main"
        argv = [
            sys.executable,
            "-P",
            "-m",
            module,
            str(self.properties),
            str(start_pipe),
            str(ready),
        ]
        try:
            self._child = ChildProcess(
                argv, self.log, (start_pipe, ready), child_environment(), self._death_signal
            )
        finally:
            os.close(start_pipe)
            os.close(ready)

    def configure(self, settings: Mapping[str, str]) -> None:
        """Write the settings file; a node reads it when its gate opens."""
        self.directory.mkdir(parents=True, exist_ok=True)
        text = "".join(property_line(name, value) for name, value in settings.items())
        descriptor = os.open(self.properties, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(os.fsencode(text))  # a name may come in any encoding of the terminal

    def let_serve(self) -> None:
        """Let it connect and serve: ZooKeeper is there."""
        assert self._start_pipe is not None, "not spawned"
        start_pipe, self._start_pipe = self._start_pipe, None
        try:
            os.write(start_pipe, b"\n")
        except BrokenPipeError:
            pass  # it ended already, which wait_ready says with its reason
        finally:
            os.close(start_pipe)

    def wait_ready(self) -> None:
        """Return once it serves and is registered. Raises NodeFailed with its last words."""
        assert self._ready is not None, "not spawned"
        ready, self._ready = self._ready, None
        try:
            self._read_word(ready)
        finally:
            os.close(ready)

    def stop(self) -> None:
        """Let it end in order; insist after 30 s."""
        self.ask_to_stop()
        self.wait_stopped()

    def ask_to_stop(self) -> None:
        """Send it SIGTERM, so that several can end side by side."""
        self._close_pipes()
        if self._child is not None:
            self._child.ask_to_stop()

    def wait_stopped(self) -> None:
        """Return when it has ended, after SIGKILL if it took more than 30 s."""
        if self._child is not None:
            self._child.wait_or_kill(_STOP_S)

    def kill(self) -> None:
        """End it as ``kill -9`` does."""
        self._started().kill()

    def pause(self) -> None:
        """Freeze it: it holds its connections and answers nothing."""
        self._started().pause()

    def resume(self) -> None:
        """Let it go on after :meth:`pause`."""
        self._started().resume()

    def last_words(self) -> str:
        """The end of its log."""
        return self._started().last_words()

    def _started(self) -> ChildProcess:
        assert self._child is not None, f"node {self.id} was never started"
        return self._child

    def _close_pipes(self) -> None:
        for descriptor in (self._start_pipe, self._ready):
            if descriptor is not None:
                os.close(descriptor)
        self._start_pipe = self._ready = None

    def _read_word(self, ready: int) -> None:
        """Wait for a byte (it serves) or the end of the pipe (it ended)."""
        deadline = time.monotonic() + _START_S
        while (left_s := deadline - time.monotonic()) > 0:
            if select.select([ready], [], [], left_s)[0]:
                if os.read(ready, 4096):
                    return
                code = self._started().wait_or_kill(1.0)
                raise NodeStartFailed(
                    f"node {self.id} ended with exit code {code}\n{self.last_words()}"
                )
        raise NodeStartFailed(
            f"node {self.id} does not serve after {_START_S:g} s\n{self.last_words()}"
        )


def child_environment() -> dict[str, str]:
    """Ours, with the path this package came from, and without settings meant for other nodes.

    A node reads its settings and names its files in UTF-8, whatever the terminal speaks.
    """
    kept = {name: text for name, text in os.environ.items() if not name.startswith("KAFKA_")}
    paths = [str(_HOME), kept.get("PYTHONPATH", "")]
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    kept["PYTHONUTF8"] = "1"
    return kept
