"""Threads beside a busy loop get the interpreter: what a node's process sets for that, and when."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

STARTED = """
    import sys
    import threading

    from barnabas.broker import __main__ as node
    from barnabas.broker import daemon

    async def run(*arguments, **named):
        print(sys.getswitchinterval(), threading.active_count())
        raise daemon.NodeFailed("seen")

    daemon.run = run
    sys.exit(node.main(["--set", "zookeeper.connect=127.0.0.1:1", "--set", "log.dirs=unused"]))
"""


def test_a_nodes_threads_ask_for_the_interpreter_sooner_than_a_read_is_served() -> None:
    """Else they never ask: the loop lets go after each callback, and each time they wait anew.

    64 fetches of offsets in one read take 0.4 ms, eight of them 50 us: docs/decisions/0010.
    """
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(STARTED)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ,
    )
    assert found.returncode == 1, found.stderr
    interval, threads = found.stdout.split()
    assert float(interval) < 50e-6
    assert threads == "1", "it is set before any other thread starts"
