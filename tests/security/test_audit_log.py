"""The audit log: one line of JSON each, folded, bounded; and its file (S76)."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.security import audit_file, audit_log
from barnabas.broker.security.audit_file import AuditFile
from barnabas.broker.security.audit_log import FOLD_S, LINES_MAX, TEXT_MAX, AuditLog, to_logger
from barnabas.broker.settings.audit_settings import AuditSettings
from barnabas.protocol.settings import ConfigError, parse


class Written:
    """An audit log and its lines; the test tells the time."""

    def __init__(self, *, has_timer: bool = True) -> None:
        self.now = 0.0
        self.lines: list[str] = []
        self.due: list[tuple[float, Callable[[], None]]] = []
        self.log = AuditLog(
            self.lines.append,
            now=lambda: self.now,
            now_ms=lambda: 1_795_000_000_123,
            later=self._later if has_timer else None,
        )

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self.due.append((self.now + seconds, call))

    def go_on(self, seconds: float) -> None:
        self.now += seconds
        due = [one for one in self.due if one[0] <= self.now]
        self.due = [one for one in self.due if one[0] > self.now]
        for _, call in due:
            call()

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]

    def deny(self, name: str = "t", principal: str = "User:alice") -> None:
        self.log.denied(
            listener="USERS",
            host="10.0.0.1",
            principal=principal,
            operation="Read",
            resource=f"Topic:{name}",
            api="Fetch",
        )


def test_a_login_leaves_a_line_with_who_how_and_from_where() -> None:
    written = Written()
    written.log.logged_in(
        listener="USERS", mechanism="PLAIN", host="10.0.0.1", principal="User:alice"
    )
    assert written.events() == [
        {
            "time": "2026-11-18T11:06:40.123Z",
            "event": "login",
            "result": "success",
            "listener": "USERS",
            "mechanism": "PLAIN",
            "host": "10.0.0.1",
            "principal": "User:alice",
        }
    ]


def test_every_login_has_a_line_of_its_own() -> None:
    written = Written()
    for _ in range(3):
        written.log.logged_in(listener="U", mechanism="PLAIN", host="h", principal="User:a")
    assert len(written.lines) == 3


def test_the_same_denial_leaves_one_line_in_ten_seconds_and_then_a_count() -> None:
    written = Written()
    for _ in range(42):
        written.deny()
    assert [one.get("count") for one in written.events()] == [None]
    written.go_on(FOLD_S)
    assert [one.get("count") for one in written.events()] == [None, 41]
    assert written.events()[1] == {**written.events()[0], "count": 41}
    assert written.log.counts == {("access", "denied"): 42}


def test_what_was_folded_is_told_though_it_never_happens_again() -> None:
    """And a denial that begins meanwhile is told in its own time."""
    written = Written()
    written.deny("t")
    written.deny("t")
    written.go_on(FOLD_S / 2)
    written.deny("u")
    written.deny("u")
    written.go_on(FOLD_S / 2)
    written.go_on(FOLD_S)
    told = [(one["resource"], one.get("count")) for one in written.events()]
    assert told == [("Topic:t", None), ("Topic:u", None), ("Topic:t", 1), ("Topic:u", 1)]
    assert not written.due, "no timer runs while nothing is folded"


def test_other_denials_are_not_folded_with_it() -> None:
    written = Written()
    written.deny("t")
    written.deny("u")
    written.deny("t", principal="User:bob")
    assert len(written.lines) == 3


def test_the_end_of_the_node_tells_what_was_folded() -> None:
    written = Written()
    written.deny()
    written.deny()
    written.log.flush()
    assert [one.get("count") for one in written.events()] == [None, 1]


def test_invented_names_can_neither_fill_the_memory_nor_the_disk() -> None:
    written = Written()
    for number in range(5 * LINES_MAX):
        written.deny(f"t{number}")
    assert len(written.lines) == LINES_MAX
    assert len(written.log._folds) == audit_log.KINDS_MAX
    written.now += FOLD_S
    written.deny("later")
    assert written.events()[-2:][0]["event"] == "suppressed"
    assert written.events()[-2]["count"] == 4 * LINES_MAX


def test_changes_are_told_however_much_strangers_cause() -> None:
    written = Written()
    for number in range(2 * LINES_MAX):
        written.deny(f"t{number}")
    written.log.changed("CreateTopics", "success", {"parts": [{"topic": "t", "code": 0}]})
    written.log.certificate_read(listener="USERS", problem="no such file")
    assert [one["event"] for one in written.events()[-2:]] == ["change", "certificate"]


@pytest.mark.parametrize("name", ['x"}\n{"event":"login"', "\x1b[2J", "\u202e", "\ud800", "é"])
def test_no_name_forges_a_line(name: str) -> None:
    written = Written()
    written.deny(name, principal=f"User:{name}")
    (line,) = written.lines
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["principal"] == f"User:{name}"


def test_names_are_cut() -> None:
    written = Written()
    written.deny("t" * 30_000, principal="User:" + "a" * 30_000)
    (event,) = written.events()
    assert len(event["principal"]) == len(event["resource"]) == TEXT_MAX


# -- the file --------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "audit.log"
    assert not audit_log.log.handlers, "closed"
    assert audit_log.log.propagate


def opened(path: Path, *, bytes_max: int = 1 << 20, backups: int = 2) -> AuditFile:
    return AuditFile(path, bytes_max=bytes_max, backups=backups)


def test_the_file_has_the_lines_and_the_nodes_log_has_not(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    file = opened(path)
    AuditLog().logged_in(listener="U", mechanism="PLAIN", host="h", principal="User:a")
    file.close()
    assert json.loads(path.read_text())["principal"] == "User:a"
    assert not caplog.records
    assert path.stat().st_mode & 0o777 == 0o600


def test_without_a_file_the_nodes_log_has_them_at_any_level(
    caplog: pytest.LogCaptureFixture,
) -> None:
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.ERROR)
    try:
        AuditLog().logged_in(listener="U", mechanism="PLAIN", host="h", principal="User:a")
    finally:
        root.setLevel(before)
    assert json.loads(caplog.records[0].getMessage())["event"] == "login"


def test_a_full_file_is_renamed_and_so_many_are_kept(path: Path) -> None:
    file = opened(path, bytes_max=100)
    for number in range(10):
        to_logger(f"{number}" * 60)
    file.close()
    kept = {one.name: one.read_text()[0] for one in path.parent.iterdir()}
    assert kept == {"audit.log": "9", "audit.log.1": "8", "audit.log.2": "7"}
    assert {one.stat().st_mode & 0o777 for one in path.parent.iterdir()} == {0o600}
    assert file.lost == 0


def test_a_file_is_gone_on_with(path: Path) -> None:
    for word in ("one", "two"):
        file = opened(path)
        to_logger(word)
        file.close()
    assert path.read_text() == "one\ntwo\n"


def test_lines_that_cannot_be_written_are_counted_and_complained_of_once(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """/dev/full takes nothing."""
    path.symlink_to("/dev/full")
    file = opened(path, bytes_max=1 << 30)
    for _ in range(3):
        to_logger("line")
    file._writer.stop()
    file._writer.start()
    assert file.lost == 3
    assert sum("could not write the audit log" in one.getMessage() for one in caplog.records) == 1
    file.close()


def test_a_disk_that_is_too_slow_holds_nobody_up(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_file, "WAITING_MAX", 5)
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    file = opened(path, bytes_max=1 << 30)
    size = 1 << 16  # what a pipe holds: the thread stands from then on
    for _ in range(50):
        to_logger("x" * size)
    assert file.lost >= 40
    while file._writer._thread is not None and file._handler.queue.qsize():  # type: ignore[attr-defined]
        _drain(reader)
    os.set_blocking(reader, False)
    _close_while_reading(file, reader)


def _drain(reader: int) -> None:
    try:
        os.read(reader, 1 << 20)
    except BlockingIOError:
        return


def _close_while_reading(file: AuditFile, reader: int) -> None:
    closing = threading.Thread(target=file.close)
    closing.start()
    while closing.is_alive():
        _drain(reader)
        closing.join(0.01)
    os.close(reader)


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        opened(tmp_path / "nowhere" / "audit.log")
    assert not audit_log.log.handlers


def test_the_path_is_taken_as_it_stands() -> None:
    assert parse(AuditSettings, {}).file is None
    assert parse(AuditSettings, {"audit.log.path": "/a"}).file == Path("/a")
    with pytest.raises(ConfigError, match=r"audit\.log\.path"):
        parse(AuditSettings, {"audit.log.path": "~/audit.log"})
