"""The archive of ZooKeeper's classes: made by the first start, used by the next, never trusted."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from barnabas.console.development import embedded_zookeeper
from barnabas.console.development.class_archive import ClassArchive
from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper, four_letter_word
from barnabas.console.development.java import find_java
from barnabas.console.development.zookeeper_jars import find_jars


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    # Java writes the archive as it ends: on a busy machine that takes longer than a stop may.
    monkeypatch.setattr(embedded_zookeeper, "_STOP_S", 120.0)
    if not ClassArchive(find_java(), find_jars()).is_wanted:
        pytest.skip("this Java brings no archive of its own to build upon")
    return tmp_path / "barnabas"


def _serves(server: EmbeddedZooKeeper) -> bool:
    return "Mode:" in four_letter_word(server.port, b"srvr")


def test_the_first_server_leaves_an_archive_to_the_next(cache: Path) -> None:
    with EmbeddedZooKeeper():
        pass
    assert [file.suffix for file in cache.iterdir()] == [".jsa"]
    with EmbeddedZooKeeper() as server:
        assert _serves(server)


def test_an_archive_that_kills_java_is_thrown_away(cache: Path) -> None:
    with EmbeddedZooKeeper():
        pass
    (archive,) = cache.iterdir()
    archive.write_bytes(archive.read_bytes()[:100_000])
    words = [str(find_java()), f"-XX:SharedArchiveFile={archive}", "-version"]
    started = subprocess.run(words, cwd=cache, capture_output=True, check=False)
    is_deadly = started.returncode != 0
    for crash in cache.glob("hs_err*"):
        crash.unlink()
    with EmbeddedZooKeeper() as server:
        assert _serves(server)
    assert archive.exists() != is_deadly  # Javas after 17 go on without it


def test_an_archive_of_nonsense_is_no_hindrance(cache: Path) -> None:
    with EmbeddedZooKeeper():
        pass
    (archive,) = cache.iterdir()
    archive.write_bytes(b"nonsense")
    with EmbeddedZooKeeper() as server:
        assert _serves(server)


def test_a_java_without_an_archive_of_its_own_gets_no_flags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch()
    (tmp_path / "release").write_text('JAVA_VERSION="25.0.2"\n')
    assert ClassArchive(java, []).flags == []


def test_a_cache_that_cannot_be_written_means_no_flags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert ClassArchive(find_java(), find_jars()).flags == []
