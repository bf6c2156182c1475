"""A Docker engine and our image for the tests: started and built here where that can be done.

Source: docs/spec/pipeline.md §6.2. Nothing is pulled unless the base image is already known or
asked for with BASE_IMAGE: a registry that cannot be reached takes minutes to say so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from docker import DockerClient

from tests.harness.waiting import eventually

REPOSITORY: Final = Path(__file__).parents[2]
IMAGE: Final = "barnabas:test"
_DEBIAN: Final = "debian:bookworm-slim"
_PACKAGES: Final = "apt-get install docker.io iptables debootstrap"
_OWN_BASE: Final = "barnabas-base:bookworm"


class NoEngine(Exception):  # noqa: N818 - says what is missing
    """No container can run on this machine; the text says what is missing."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.remedy = remedy


class Engine:
    """The engine that runs, or one that is started and ended with the tests."""

    def __init__(self) -> None:
        self._daemon: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def start(self) -> None:
        """Return when an engine answers. Raises NoEngine."""
        if shutil.which("docker") is None:
            raise NoEngine("no docker", _PACKAGES)
        if _answers():
            return
        if shutil.which("dockerd") is None:
            raise NoEngine("no dockerd", _PACKAGES)
        if os.geteuid() != 0:
            raise NoEngine("no Docker engine that answers", "start it: only root may")
        self._folder = tempfile.TemporaryDirectory(prefix="barnabas-dockerd-")
        log = Path(self._folder.name) / "dockerd.log"
        with log.open("wb") as output:
            self._daemon = subprocess.Popen(
                ["dockerd"], stdout=output, stderr=output, start_new_session=True
            )
        daemon = self._daemon
        eventually(lambda: _answers() or daemon.poll() is not None, what="the engine answers")
        if daemon.poll() is not None:
            words = log.read_text(errors="replace").splitlines()[-3:]
            raise NoEngine("dockerd does not start: " + " / ".join(words), "see its log")

    def stop(self) -> None:
        """End the engine if it is ours."""
        if self._daemon is not None and self._daemon.poll() is None:
            self._daemon.terminate()
            self._daemon.wait(120)
        if self._folder is not None:
            self._folder.cleanup()


def build_image() -> str:
    """Build the image of this checkout; what did not change comes from the engine's cache.

    Returns its name. Raises NoEngine when there is no base to build on.
    """
    base = base_of_tests()
    jars = [sys.executable, "-m", "barnabas.console.development.fetch_jars", "dist/zookeeper-jars"]
    subprocess.run(jars, cwd=REPOSITORY, check=True)  # as `make image` does
    words = ["docker", "build", "--network", "host", "--build-arg", f"BASE_IMAGE={base}"]
    built = subprocess.run(
        [*words, "--tag", IMAGE, str(REPOSITORY)], capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, f"the image does not build:\n{built.stdout}{built.stderr}"
    return IMAGE


def base_of_tests() -> str:
    """The Debian that images are built on. Raises NoEngine where there is none."""
    return os.environ.get("BASE_IMAGE") or _base_image()


def _answers() -> bool:
    """Asked with the program: docker-py leaves its socket open when nobody listens."""
    asked = subprocess.run(["docker", "version"], capture_output=True, check=False)
    return asked.returncode == 0


def _base_image() -> str:
    client = DockerClient.from_env()
    with_tags = {tag for image in client.images.list() for tag in image.tags}
    client.close()
    for known in (_OWN_BASE, _DEBIAN):
        if known in with_tags:
            return known
    if shutil.which("debootstrap") is None or os.geteuid() != 0:
        raise NoEngine("no Debian base", f"docker pull {_DEBIAN}, or as root {_PACKAGES}")
    subprocess.run([REPOSITORY / "container" / "base.sh", _OWN_BASE], check=True)
    return _OWN_BASE
