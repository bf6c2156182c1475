"""What a test started ends with it, however the test ends (tests/harness/child.py)."""

from __future__ import annotations

import signal
import sys

import pytest

from tests.harness.child import Child


def test_a_test_that_fails_does_not_wait_for_what_it_started() -> None:
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    with pytest.raises(ZeroDivisionError), Child(command) as child:
        raise ZeroDivisionError
    assert child.returncode == -signal.SIGKILL


def test_what_ends_by_itself_is_waited_for() -> None:
    with Child([sys.executable, "-c", "print(1)"], stdout=-1, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.read() == "1\n"
    assert child.returncode == 0
