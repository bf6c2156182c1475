"""Child processes that die with their parent and leave what they said in a file.

Source: docs/spec/pipeline.md §6.1 step 4; prctl(2) for what PR_SET_PDEATHSIG does.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_TRAMPOLINE: Final = (
    "import ctypes, os, sys;"
    f"ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, int(sys.argv[2]));"
    "os.getppid() == int(sys.argv[1]) or sys.exit('the parent is gone');"
    "os.execv(sys.argv[3], sys.argv[3:])"
)
"""Does in a fresh interpreter what a hook between fork and exec may not do beside threads."""


class ChildProcess:
    """A process started by us, in a session of its own so that Ctrl-C reaches only us.

    ``pass_fds`` stay open in the child under the same numbers; ``environment`` None is ours.
    ``death_signal`` is what the kernel sends it when we end: SIGKILL reaches a paused one, too.
    """

    def __init__(
        self,
        argv: Sequence[str],
        log: Path,
        pass_fds: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
        death_signal: signal.Signals = signal.SIGTERM,
    ) -> None:
        self.log = log
        argv, hook = _dying_with_us(list(argv), death_signal)
        with log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 - the program is ours or Java
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=tuple(pass_fds),
                env=environment,
                preexec_fn=hook,
            )

    @property
    def pid(self) -> int:
        """The number by which the system knows the process."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How it ended, minus the signal's number when one killed it; None while it runs."""
        return self._process.poll()

    @property
    def is_running(self) -> bool:
        """It has not ended; a paused process runs."""
        return self._process.poll() is None

    def stop(self, grace_s: float = 5.0) -> int:
        """Ask it to end, insist after ``grace_s``, and return its exit code."""
        self.ask_to_stop()
        return self.wait_or_kill(grace_s)

    def ask_to_stop(self) -> None:
        """Send SIGTERM, and SIGCONT so that a paused process hears it; do not wait."""
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)

    def wait_or_kill(self, grace_s: float) -> int:
        """Return the exit code, after SIGKILL when ``grace_s`` was not enough."""
        try:
            return self._process.wait(grace_s)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self) -> int:
        """End it at once, as ``kill -9`` does, and return its exit code."""
        self._signal(signal.SIGKILL)
        return self._process.wait()

    def pause(self) -> None:
        """Freeze it; its connections stay open and silent."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on."""
        self._signal(signal.SIGCONT)

    def last_words(self, lines: int = 12) -> str:
        """The end of what it wrote, without Java's stack frames; empty when it wrote nothing."""
        try:
            text = self.log.read_text(errors="replace")
        except FileNotFoundError:
            return ""
        written = [line for line in text.splitlines() if line and not line.startswith("\tat ")]
        return "\n".join(written[-lines:])

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)


def _dying_with_us(
    argv: list[str], death_signal: signal.Signals
) -> tuple[list[str], Callable[[], None] | None]:
    """The command and the hook that tie a child's life to ours, where the system can.

    The tie is to the thread that starts the child: one that may end early must not make it.
    """
    if not sys.platform.startswith("linux"):
        return argv, None
    if threading.current_thread() is not threading.main_thread():
        return argv, None
    parent, number = os.getpid(), int(death_signal)
    if _has_threads():
        return [
            sys.executable,
            "-I",
            "-S",
            "-c",
            _TRAMPOLINE,
            f"{parent}",
            f"{number}",
            *argv,
        ], None
    prctl = ctypes.CDLL(None).prctl

    def hook() -> None:
        prctl(_PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:
            os._exit(1)

    return argv, hook


def _has_threads() -> bool:
    """Threads run in this process, those of C libraries (librdkafka's) included."""
    return len(os.listdir("/proc/self/task")) > 1  # noqa: PTH208 - only their number
