"""Child processes: how they end, what they said, and that they end with their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from barnabas.console.development.child_process import ChildProcess
from tests.harness.waiting import await_process_end

ROOT = Path(__file__).parents[3]
SLEEPER = [sys.executable, "-c", "import signal; signal.pause()"]


def _speaks_and_sleeps(words: str) -> list[str]:
    return [sys.executable, "-c", f"import signal; print({words!r}, flush=True); signal.pause()"]


def test_a_child_that_is_asked_to_stop_ends_by_that_signal(tmp_path: Path) -> None:
    child = ChildProcess(SLEEPER, tmp_path / "log")
    assert child.is_running
    assert child.stop(grace_s=60) == -signal.SIGTERM
    assert not child.is_running


def test_a_paused_child_hears_the_request_to_stop(tmp_path: Path) -> None:
    child = ChildProcess(SLEEPER, tmp_path / "log")
    child.pause()
    assert child.stop(grace_s=60) == -signal.SIGTERM


def test_a_deaf_child_is_killed_after_the_grace(tmp_path: Path) -> None:
    deaf = "import signal; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True)"
    read_end, write_end = os.pipe()
    program = f"{deaf}; import os; os.write({write_end}, b'.'); signal.pause()"
    child = ChildProcess([sys.executable, "-c", program], tmp_path / "log", (write_end,))
    assert os.read(read_end, 1) == b"."
    assert child.stop(grace_s=0.05) == -signal.SIGKILL
    os.close(read_end)
    os.close(write_end)


def test_its_last_words_are_the_end_of_what_it_wrote(tmp_path: Path) -> None:
    program = "[print(f'line {n}') for n in range(50)]; print('\\tat some.java.Frame')"
    child = ChildProcess([sys.executable, "-c", program], tmp_path / "log")
    child.wait_or_kill(120)
    assert child.last_words(lines=2) == "line 48\nline 49"


def test_what_it_says_on_standard_error_is_kept_as_well(tmp_path: Path) -> None:
    child = ChildProcess([sys.executable, "-c", "raise SystemExit('why')"], tmp_path / "log")
    assert child.wait_or_kill(120) == 1
    assert child.last_words() == "why"


@pytest.mark.parametrize("threads", [0, 1], ids=["alone", "beside a thread"])
def test_it_ends_with_its_parent(threads: int, tmp_path: Path) -> None:
    program = (
        "import os, signal, sys, threading\n"
        "from pathlib import Path\n"
        "from barnabas.console.development.child_process import ChildProcess\n"
        f"for _ in range({threads}):\n"
        "    threading.Thread(target=signal.pause, daemon=True).start()\n"
        f"child = ChildProcess({_speaks_and_sleeps('here')!r}, Path({str(tmp_path / 'log')!r}))\n"
        "while not child.last_words(): pass\n"
        "print(child.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=ROOT, timeout=120
    )
    await_process_end(int(done.stdout))


def test_a_paused_child_ends_with_its_parent_when_that_is_asked_for(tmp_path: Path) -> None:
    program = (
        "import os, signal\n"
        "from pathlib import Path\n"
        "from barnabas.console.development.child_process import ChildProcess\n"
        f"log = Path({str(tmp_path / 'log')!r})\n"
        f"child = ChildProcess({_speaks_and_sleeps('here')!r}, log, death_signal=signal.SIGKILL)\n"
        "while not child.last_words(): pass\n"
        "child.pause()\n"
        "print(child.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=ROOT, timeout=120
    )
    await_process_end(int(done.stdout))


def test_it_outlives_a_thread_that_started_it(tmp_path: Path) -> None:
    children: list[ChildProcess] = []
    thread = threading.Thread(
        target=lambda: children.append(ChildProcess(SLEEPER, tmp_path / "log"))
    )
    thread.start()
    thread.join()
    assert children[0].is_running
    assert children[0].stop(grace_s=60) == -signal.SIGTERM
