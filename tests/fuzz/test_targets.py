"""Every decoder reads spoilt bytes or refuses them, in bounded time and memory; a small part.

`python -m tests.fuzz` tries any number; what it finds is put into the corpus and mended.
Source: docs/spec/reliability.md §7.
"""

from __future__ import annotations

from hashlib import pbkdf2_hmac
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.__main__ import main
from tests.fuzz.engine import BYTES_MAX, CORPUS, Seed, Target, case, keep, replayed, tried
from tests.fuzz.targets import TARGETS, target_named

GENEROUS_MS = 2_000.0
"""In a test beside others, a hang is what takes seconds; profiles are stricter."""
FEW = 600


@pytest.mark.parametrize("target", TARGETS, ids=lambda case: case.name)
def test_spoilt_bytes_are_read_or_refused(target: Target) -> None:
    figures = tried(target, range(FEW), cpu_ms_max=GENEROUS_MS)
    assert figures.cases == FEW
    assert not [str(finding) for finding in figures.findings]


@pytest.mark.nightly
@pytest.mark.parametrize("target", TARGETS, ids=lambda case: case.name)
def test_a_hundred_thousand_spoilt_inputs_are_read_or_refused(target: Target) -> None:
    figures = tried(target, range(FEW, 100_000), cpu_ms_max=GENEROUS_MS)
    assert not [str(finding) for finding in figures.findings]


@pytest.mark.parametrize("target", TARGETS, ids=lambda case: case.name)
def test_good_bytes_are_read(target: Target) -> None:
    for seed in target.seeds:
        assert replayed(alone(seed), seed.data) is None


def alone(seed: Seed) -> Target:
    return Target("alone", lambda: [seed], 1 << 20)


@pytest.mark.parametrize(
    "path", sorted(CORPUS.glob("*/*.bin")), ids=lambda case: f"{case.parent.name}-{case.stem}"
)
def test_what_was_found_once_is_read_or_refused(path: Path) -> None:
    assert replayed(target_named(path.parent.name), path.read_bytes()) is None


def _raise(data: bytes) -> None:
    if b"\xff" in data:
        raise LookupError("not foreseen")


def _hang(data: bytes) -> None:
    if b"\xff" in data:
        pbkdf2_hmac("sha256", b"", b"", 20_000)


def _allocate(data: bytes) -> None:
    if b"\xff" in data:
        bytearray(64 << 20)


@pytest.mark.parametrize("read", [_raise, _hang, _allocate])
def test_a_decoder_that_fails_hangs_or_allocates_is_found(read: Any) -> None:
    bad = Target("bad", lambda: [Seed("one", b"\xff" * 40, read)], 10)
    figures = tried(bad, range(8), cpu_ms_max=2.0)
    assert figures.findings


def test_a_case_is_decided_by_its_number_and_no_longer_than_64_kib() -> None:
    target = target_named("requests")
    inputs = [case(target, number)[1] for number in range(2_000)]
    assert inputs == [case(target, number)[1] for number in range(2_000)]
    assert 8 << 10 < max(map(len, inputs)) <= BYTES_MAX


def test_what_is_kept_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.engine.CORPUS", tmp_path)
    bad = Target("bad", lambda: [Seed("one", b"\xff" * 9, _raise)], 10)
    (first, *_) = tried(bad, range(9)).findings
    path = keep(first)
    assert path == tmp_path / "bad" / f"{first.number}.bin"
    assert "not foreseen" in (replayed(bad, path.read_bytes()) or "")


def test_the_command_ends_with_one_when_it_found_something(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    readers: tuple[tuple[Any, int], ...] = ((_raise, 1), (len, 0))
    for read, code in readers:
        one = alone(Seed("one", b"\xff" * 9, read))
        monkeypatch.setattr("tests.fuzz.__main__.TARGETS", (one,))
        assert main(["--cases", "9", "--json", str(tmp_path / "report.json")]) == code
    assert "not foreseen" in capsys.readouterr().out
