"""The web console beside a development cluster: started when the cluster serves, gone with it.

Source: docs/spec/console.md §0 (decision 1).
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from typing import Final

from barnabas.console.command_line.output import note

from .child_process import ChildProcess
from .cluster import Cluster
from .ports import LOOPBACK, is_free

PORT: Final = 9080
NEEDS: Final = ("jinja2", "starlette", "uvicorn")
LOG: Final = "console.log"
_URL_BYTES_MAX: Final = 4096


@contextlib.contextmanager
def web_console(
    cluster: Cluster, port: int, *, is_wanted: bool = True
) -> Iterator[Callable[[], None]]:
    """Start the console; what is yielded is to be called now and then, and tells its URL once.

    Nobody waits for it. With free ports for the nodes (``port`` 0) it takes a free one, too, else
    9080 if nobody has it.
    """
    if not is_wanted:
        yield _nothing
        return
    if any(importlib.util.find_spec(name) is None for name in NEEDS):
        note("no web console: pip install 'barnabas[web]' brings it (--no-console: not a word)")
        yield _nothing
        return
    started = _Started(cluster, PORT if port and is_free(PORT) else 0)
    try:
        yield started.look
    finally:
        started.stop()


class _Started:
    """A console in a process of its own, which writes its URL into a pipe that only we read."""

    def __init__(self, cluster: Cluster, port: int) -> None:
        self._pipe, theirs = os.pipe()
        os.set_blocking(self._pipe, False)
        words = [sys.executable, "-m", "barnabas.console", "console"]
        words += ["--bootstrap", cluster.bootstrap, "--listen", f"{LOOPBACK}:{port}"]
        words += ["--announce-fd", str(theirs), "--undo-directory", str(cluster.directory)]
        self._process = ChildProcess(words, cluster.directory / LOG, pass_fds=[theirs])
        os.close(theirs)
        self._is_told = False

    def look(self) -> None:
        """Tell the URL, once; or that the console ended, and why."""
        if self._is_told:
            return
        try:
            data = os.read(self._pipe, _URL_BYTES_MAX)
        except BlockingIOError:
            return
        self._is_told = True
        if data:
            note(f"  console     {data.decode().strip()}")
        else:
            note(f"the web console did not start: {self._process.last_words(1)}")

    def stop(self) -> None:
        """End it."""
        self._process.stop()
        os.close(self._pipe)


def _nothing() -> None:
    """There is no console to look after."""
