"""Log lines on a standard error that somebody reads, does not read, or reads late."""

from __future__ import annotations

import fcntl
import logging
import os
import sys
from collections.abc import Iterator

import pytest

from barnabas.broker.runtime import unblocked_log
from barnabas.broker.runtime.unblocked_log import UnblockedHandler

PAGE = 4096
"""The least that a pipe holds."""


class Pipe:
    """A pipe that holds little, whose writing end a handler has."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        fcntl.fcntl(self.writing, fcntl.F_SETPIPE_SZ, PAGE)
        os.set_blocking(self.reading, False)
        self.handler = UnblockedHandler(self.writing)

    def say(self, text: str, *arguments: object) -> None:
        """One line of the log."""
        record = logging.LogRecord("test", logging.INFO, __file__, 0, text, arguments, None)
        self.handler.handle(record)

    def read(self) -> list[str]:
        """What is in the pipe, and what follows as it is emptied."""
        found = b""
        while True:
            try:
                read = os.read(self.reading, 1 << 16)
            except BlockingIOError:
                read = b""
            found += read
            self.handler.flush()
            if not read:
                return found.decode().splitlines()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    for descriptor in (pipe.reading, pipe.writing):
        try:
            os.close(descriptor)
        except OSError:
            pass


def test_a_line_is_in_the_pipe_at_once(pipe: Pipe) -> None:
    pipe.say("one %d", 1)
    assert os.read(pipe.reading, PAGE) == b"one 1\n"


def test_a_pipe_that_nobody_empties_holds_nobody_up_and_no_line_is_lost(pipe: Pipe) -> None:
    lines = [f"line {number} {'x' * 100}" for number in range(500)]
    for line in lines:
        pipe.say(line)
    assert pipe.read() == lines
    pipe.say("and on")
    assert pipe.read() == ["and on"]


def test_a_line_that_is_longer_than_the_pipe_arrives_whole(pipe: Pipe) -> None:
    pipe.say("y" * 3 * PAGE)
    assert pipe.read() == ["y" * 3 * PAGE]


def test_what_waits_is_bounded_and_what_is_lost_is_told_where_it_is_missing(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unblocked_log, "WAITING_MAX", 2_000)
    lines = [f"{number:099d}" for number in range(100)]
    for line in lines:
        pipe.say(line)
    assert pipe.handler.lost
    kept = len(lines) - pipe.handler.lost
    text = f"standard error was not read lines_lost={pipe.handler.lost}"
    os.read(pipe.reading, PAGE)
    pipe.say("again")
    found = pipe.read()
    assert found[-2:] == [text, "again"]
    assert found[:-2] == lines[:kept][-len(found) + 2 :]
    assert pipe.handler.lost == 0


def test_a_reader_that_is_gone_is_no_error(pipe: Pipe, capsys: pytest.CaptureFixture[str]) -> None:
    os.close(pipe.reading)
    pipe.say("nobody")
    pipe.say("reads this")
    assert capsys.readouterr() == ("", "")


def test_a_closed_standard_error_is_not_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(unblocked_log.standard_error(), UnblockedHandler)
    monkeypatch.setattr(sys, "__stderr__", None)
    assert isinstance(unblocked_log.standard_error(), logging.NullHandler)


def test_what_cannot_be_formatted_is_told_as_logging_does(
    pipe: Pipe, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe.say("%d", "no number")
    pipe.say("the next")
    assert pipe.read() == ["the next"]
    assert "no number" in capsys.readouterr().err
