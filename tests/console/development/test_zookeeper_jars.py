"""ZooKeeper's jars: looked for in one order, fetched once, believed only by their hashes."""

from __future__ import annotations

import http.server
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.console.development import fetch_jars, zookeeper_jars, zookeeper_wheel
from barnabas.console.development.fetch_jars import locked_jars, provide_jars
from barnabas.console.development.jars_lock import jars_lock
from barnabas.console.development.java import find_java
from barnabas.console.development.missing_part import MissingPart
from barnabas.console.development.zookeeper_jars import cache_directory, find_jars

ROOT = Path(__file__).parents[3]
LOCK = jars_lock()


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with no jars anywhere and no client of a registry; returns the user's cache."""
    for name in ("BARNABAS_ZOOKEEPER_JARS", "BARNABAS_MAVEN_URL", "BARNABAS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CACHE_DIR", str(tmp_path / "pip"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(zookeeper_jars, "_DEBIAN_JARS", tmp_path / "debian")
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the very files of the lock, from wherever this machine has them."""
    directory = tmp_path_factory.mktemp("originals")
    for jar in locked_jars():
        shutil.copyfile(jar, directory / jar.name)
    return directory


@pytest.fixture
def repository(originals: Path, tmp_path: Path) -> Iterator[str]:
    """A Maven repository on the loopback that has the jars; its address."""
    files = tmp_path / "repository"
    for jar in LOCK.jars:
        target = files / jar.repository_path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(originals / jar.file_name)

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *given: object) -> None:
            super().__init__(*given, directory=str(files))  # type: ignore[arg-type]

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_lock_names_five_jars_three_for_the_log_and_those_of_netty() -> None:
    assert [jar.part for jar in LOCK.jars] == [""] * 5 + ["log"] * 3 + ["netty"] * 9
    assert sum(jar.size for jar in LOCK.jars if not jar.part) < 4_300_000


def test_what_the_variable_names_comes_before_everything_else(
    originals: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BARNABAS_ZOOKEEPER_JARS", str(originals))
    assert {path.parent for path in find_jars(with_log=True)} == {originals}


def test_a_variable_that_names_a_directory_without_jars_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BARNABAS_ZOOKEEPER_JARS", str(tmp_path))
    with pytest.raises(MissingPart, match="BARNABAS_ZOOKEEPER_JARS says"):
        provide_jars()


def test_jars_are_fetched_once_from_a_repository(
    bare: Path, repository: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BARNABAS_MAVEN_URL", repository.replace("//", "//name:secret@"))
    with pytest.raises(MissingPart):
        find_jars()
    monkeypatch.setenv("BARNABAS_MAVEN_URL", repository + "/")
    said: list[str] = []
    assert len(provide_jars(report=said.append)) == 5
    assert len(provide_jars(with_log=True, report=said.append)) == 8
    assert len(provide_jars(with_netty=True, report=said.append)) == 14
    assert said == [f"fetching ZooKeeper's 17 jars, 9.4 MB, from {repository}/"]
    assert sorted(path.name for path in cache_directory().iterdir()) == sorted(
        jar.file_name for jar in LOCK.jars
    )


def test_a_password_in_the_address_is_not_said(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARNABAS_MAVEN_URL", "http://name:secret@127.0.0.1:1")
    said: list[str] = []
    with pytest.raises(MissingPart) as refusal:
        provide_jars(report=said.append)
    assert "secret" not in f"{said} {refusal.value}"


def test_other_bytes_than_those_of_the_lock_are_not_kept(
    bare: Path, repository: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = tmp_path / "repository" / LOCK.jars[0].repository_path
    content = bytearray(wrong.read_bytes())
    wrong.unlink()
    content[4711] ^= 1
    wrong.write_bytes(content)
    monkeypatch.setenv("BARNABAS_MAVEN_URL", repository)
    with pytest.raises(MissingPart, match=rf"jars.lock names: {LOCK.jars[0].file_name}\. Nothing"):
        provide_jars(report=lambda _: None)
    assert not cache_directory().exists()


def test_a_damaged_cache_is_fetched_anew(
    bare: Path, repository: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BARNABAS_MAVEN_URL", repository)
    jar = provide_jars(report=lambda _: None)[0]
    jar.write_bytes(jar.read_bytes()[:100])
    assert provide_jars(report=lambda _: None)[0].stat().st_size == LOCK.jars[0].size


def test_offline_nothing_is_fetched(
    bare: Path, repository: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BARNABAS_MAVEN_URL", repository)
    monkeypatch.setenv("BARNABAS_OFFLINE", "1")
    with pytest.raises(MissingPart, match=r"offline the 9.4 MB of them are not fetched"):
        provide_jars()
    monkeypatch.delenv("BARNABAS_OFFLINE")
    with pytest.raises(MissingPart, match="not fetched"):
        provide_jars(may_fetch=False)
    assert not bare.exists()


def test_a_machine_without_any_client_is_told_so(bare: Path) -> None:
    with pytest.raises(MissingPart, match="neither Maven nor pip"):
        provide_jars(report=lambda _: None)


def test_maven_brings_the_jars_and_nothing_that_they_depend_on(
    bare: Path, originals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for the program: it copies what the project names, as the real one does."""
    maven = tmp_path / "mvn"
    maven.write_text(
        f"#!{sys.executable}\n"
        "import pathlib, re, shutil, sys\n"
        "project = pathlib.Path(sys.argv[sys.argv.index('-f') + 1]).read_text()\n"
        "(target,) = [w.split('=')[1] for w in sys.argv if w.startswith('-DoutputDirectory=')]\n"
        "names = re.findall('<artifactId>([^*<]+)</artifactId><version>([^<]+)<', project)\n"
        "for artifact, version in names[1:]:\n"
        f"    shutil.copy(f'{originals}/{{artifact}}-{{version}}.jar', target)\n"
        "assert project.count('<exclusion>') == len(names) - 1\n"
    )
    maven.chmod(0o755)
    said: list[str] = []
    assert len(provide_jars(report=said.append)) == 5
    assert "by Maven" in said[0]


def test_the_jars_are_taken_out_of_the_source_package_of_pyspark(
    originals: Path, tmp_path: Path
) -> None:
    package = tmp_path / "pyspark-0.tar.gz"
    with tarfile.open(package, "w:gz", compresslevel=1) as made:
        for jar in LOCK.jars:
            made.add(originals / jar.file_name, f"pyspark-0/deps/jars/{jar.file_name}")
            made.add(originals / LOCK.jars[2].file_name, f"pyspark-0/elsewhere/{jar.file_name}")
    fetch_jars._take_out(LOCK, package, tmp_path)
    assert LOCK.wrong_in(tmp_path) == []


def test_a_wheel_of_pyspark_that_pip_has_kept_saves_the_way_to_a_registry(
    bare: Path, originals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels = tmp_path / "pip" / "wheels" / "aa" / "bb" / "cc" / "dd"
    wheels.mkdir(parents=True)
    wheel = wheels / f"pyspark-{LOCK.pyspark}-py2.py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as made:
        for jar in LOCK.jars:
            made.write(originals / jar.file_name, f"pyspark/jars/{jar.file_name}")
    said: list[str] = []
    assert len(provide_jars(report=said.append)) == 5
    assert said == [f"taking ZooKeeper's 17 jars, 9.4 MB out of {wheel}"]


def test_the_companion_wheel_holds_jars_and_licences_and_is_found(tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(
        ROOT / "wheels/zookeeper", project, ignore=shutil.ignore_patterns("jars", "licences")
    )
    assert zookeeper_wheel.main([str(project / "barnabas_zookeeper")]) == 0
    built = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path))
    subprocess.run(built, cwd=project, check=True, timeout=300, capture_output=True)
    (wheel,) = tmp_path.glob("barnabas_zookeeper-*.whl")
    with zipfile.ZipFile(wheel) as content:
        names = content.namelist()
        content.extractall(tmp_path / "site")
    assert "barnabas_zookeeper/licences/log4j-api-2.25.4-NOTICE" in names
    found = subprocess.run(
        [
            sys.executable,
            "-c",
            "from barnabas.console.development.zookeeper_jars import find_jars\n"
            "print(find_jars()[0])",
        ],
        env={**os.environ, "PYTHONPATH": f"{tmp_path / 'site'}:{ROOT}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.startswith(str(tmp_path / "site/barnabas_zookeeper/jars"))


def test_the_companion_wheel_has_zookeepers_version() -> None:
    project = tomllib.loads((ROOT / "wheels/zookeeper/pyproject.toml").read_text())
    assert project["project"]["version"] == LOCK.jars[0].version


@pytest.mark.parametrize(
    ("version", "is_taken"), [("1.8.0_392", False), ("11", False), ("21", True)]
)
def test_a_java_that_is_too_old_is_passed_over(
    version: str, is_taken: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.touch(mode=0o755)
    (tmp_path / "release").write_text(f'JAVA_VERSION="{version}"\n')
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    if is_taken:
        assert find_java() == program
    else:
        with pytest.raises(MissingPart, match=r"java is Java (8|11)\. ZooKeeper needs Java 17"):
            find_java()
