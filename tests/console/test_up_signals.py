"""Ctrl-C ends `barnabas up` whenever it comes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]

AT_A_FORK: Final = """
import os, signal, sys
from barnabas.console.__main__ import main
from barnabas.console.development import web_console

real = web_console._Started

def started(*arguments):
    os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGINT))
    return real(*arguments)

web_console._Started = started
sys.exit(main(sys.argv[1:]))
"""
"""A signal that comes while the web console's process is forked."""


def test_an_interrupt_while_a_child_is_forked_is_not_lost(tmp_path: Path) -> None:
    words = ["up", "-n", "1", "--port", "0", "--data", str(tmp_path / "data")]
    done = subprocess.run(
        [sys.executable, "-c", AT_A_FORK, *words],
        cwd=ROOT,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert "KeyboardInterrupt" in done.stderr, "it came at another moment"
    assert "ignored" in done.stderr
    assert done.returncode == 0, done.stderr
