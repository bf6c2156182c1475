"""A real ZooKeeper for development: one child process, made of Java and a few jars.

Source: docs/spec/pipeline.md §6.1 (every number and flag there was measured).
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import os
import signal
import socket
import ssl
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

from barnabas.console.command_line.failure import Failure

from .child_process import ChildProcess
from .class_archive import ClassArchive
from .fetch_jars import provide_jars
from .java import find_java, java_environment, java_text
from .missing_part import MissingPart
from .ports import LOOPBACK, free_ports
from .temporary_directory import TemporaryDirectory
from .zookeeper_command import java_command, log_flag
from .zookeeper_security import ZooKeeperSecurity

__all__ = [
    "EmbeddedZooKeeper",
    "ExternalZooKeeper",
    "MissingPart",
    "ZooKeeperFailed",
    "ZooKeeperServer",
    "zookeeper_server",
]

_START_S: Final = 30.0
_STOP_S: Final = 5.0
_POLL_S: Final = 0.02
_ATTEMPTS: Final = 3
_EXIT_BUSY_PORT: Final = 1
_FLAGS: Final = (
    "-Xshare:auto",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dzookeeper.jmx.log4j.disable=true",
)


class ZooKeeperFailed(Failure):
    """ZooKeeper did not start; the text holds the end of what it said."""


class ZooKeeperServer(Protocol):
    """A ZooKeeper to use: embedded here, or running elsewhere."""

    @property
    def hosts(self) -> str:
        """The connection string, with chroot when there is one."""

    def spawn(self) -> None:
        """Begin to start; return at once."""

    def wait_ready(self) -> None:
        """Return when clients are served. Raises ZooKeeperFailed."""

    def stop(self) -> None:
        """End it, in order."""


class EmbeddedZooKeeper:
    """One ZooKeeper server on the loopback, on a free port, in a directory of its own.

    ``data`` None means a temporary directory, removed at the stop; its transactions are then not
    fsynced, for nobody reads them after a crash of the machine. ``tick_ms`` bounds what clients
    may ask: sessions last between 2 and 20 ticks. With a keystore in ``security`` the port speaks
    nothing but TLS. ``heap_mb`` bounds its memory: 128 are enough for the znodes of tens of
    thousands of partitions. Blocking, for tests and for the console; start
    it in the main thread, with which it then also ends should that be killed.
    """

    def __init__(
        self,
        data: Path | None = None,
        tick_ms: int = 500,
        *,
        port: int = 0,
        java: Path | None = None,
        jars: Path | None = None,
        security: ZooKeeperSecurity | None = None,
        heap_mb: int = 128,
    ) -> None:
        self.port = port
        self._heap_mb = heap_mb
        self._is_port_ours = port == 0
        self._tick_ms = tick_ms
        self._java = java
        self._jars = jars
        self._security = security or ZooKeeperSecurity()
        self._is_temporary = data is None
        self._temporary: TemporaryDirectory | None = None
        self._data = data
        self._child: ChildProcess | None = None
        self._lock: int | None = None
        self._archive: ClassArchive | None = None

    @property
    def hosts(self) -> str:
        """The connection string for clients; the port stays the same over a restart."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def pid(self) -> int:
        """The process, for scripts and for tests that kill it."""
        return self._running().pid

    @property
    def is_running(self) -> bool:
        """The process lives; a paused one does, too."""
        return self._child is not None and self._child.is_running

    def start(self) -> Self:
        """Start and return when clients are served. Raises MissingPart or ZooKeeperFailed."""
        self.spawn()
        self.wait_ready()
        return self

    def spawn(self) -> None:
        """Begin to start; :attr:`hosts` is known afterwards unless another takes the port."""
        assert not self.is_running, "started twice"
        if self._is_port_ours and not self.port:
            self.port = free_ports(1)[0]
        self._take_directory()
        atexit.register(self.stop)  # from here on there is something that only we remove
        try:
            self._launch()
        except BaseException:
            self.stop()
            raise

    def wait_ready(self) -> None:
        """Return when the server answers ``srvr`` with its mode: only then do sessions work.

        Raises ZooKeeperFailed, and then nothing is left running.
        """
        try:
            for _ in range(_ATTEMPTS):
                if self._serves():
                    return
                # Killed by a signal. Java maps the archive of classes without checking it: one cut
                # short, on a full disk for example, crashes every start that uses it.
                if self._archive is not None and (self._running().exit_code or 0) < 0:
                    self._archive.discard()
                # Between the choice of the port and Java's bind another process may have taken it.
                elif self._is_port_ours and self._running().exit_code == _EXIT_BUSY_PORT:
                    self.port = free_ports(1)[0]
                else:
                    break
                self._launch()
            raise ZooKeeperFailed(self._reason())
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ask it to end, insist after 5 s, give the directory back; stopping twice is allowed.

        One whose data nobody will read is not asked, for the orderly end takes 0.4 s; except by
        the first of this machine, which leaves an archive of its classes to the next ones.
        """
        atexit.unregister(self.stop)
        if self._child is not None:
            makes_archive = self._archive is not None and self._archive.is_wanted
            is_hurried = self._is_temporary and not makes_archive
            self._child.stop(0.0 if is_hurried else _STOP_S)
            self._child = None
        if self._archive is not None:
            self._archive.keep()
        self._release_directory()

    def kill(self) -> None:
        """End it as a crash would; its data stay for :meth:`restart`."""
        self._running().kill()

    def pause(self) -> None:
        """Freeze it: connections stay open, nothing is answered, and sessions do not expire."""
        self._running().pause()

    def resume(self) -> None:
        """Let it go on after :meth:`pause`."""
        self._running().resume()

    def restart(self) -> None:
        """Start again on the same port with the same data, after an orderly end if need be."""
        self._running().stop()
        self._is_port_ours = False
        self._launch()
        self.wait_ready()

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        self.stop()

    def _running(self) -> ChildProcess:
        assert self._child is not None, "not started"
        return self._child

    def _directory(self) -> Path:
        assert self._data is not None, "no directory before the start"
        return self._data

    def _take_directory(self) -> None:
        if self._is_temporary:
            self._temporary = TemporaryDirectory("barnabas-zookeeper-")
            self._data = self._temporary.path
        directory = self._directory()
        make_directory(directory)
        # Two servers would write into one transaction log. The kernel gives the lock back however
        # this process ends, so none is ever left behind; a file with a process id could be.
        self._lock = os.open(directory / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._release_directory()
            raise ZooKeeperFailed(f"{directory} is in use by another ZooKeeper of ours") from None

    def _release_directory(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        if self._temporary is not None:
            self._temporary.remove()
            self._temporary = None

    def _launch(self, *, with_log: bool = False) -> None:
        directory = self._directory()
        configuration = directory / "zoo.cfg"
        configuration.write_text(self._configuration(), encoding="utf-8")
        java = find_java(self._java)
        jars = provide_jars(self._jars, with_log=with_log, with_netty=self._security.needs_netty)
        flags = [f"-Xmx{self._heap_mb}m", *_FLAGS, *self._security.flags()]
        flags.append(f"-XX:ErrorFile={directory / 'java-error.log'}")
        if self._is_temporary:
            flags.append("-Dzookeeper.forceSync=no")
        if with_log:
            flags.append(log_flag(directory, "info"))
        else:
            self._archive = self._archive or ClassArchive(java, jars)
            flags += self._archive.flags
        argv = java_command(java, flags, jars, configuration)
        death_signal = signal.SIGKILL if self._is_temporary else signal.SIGTERM
        log = directory / "zk.log"
        self._child = ChildProcess(argv, log, (), java_environment(), death_signal)
        (directory / "zookeeper.pid").write_text(f"{self._child.pid}\n")

    def _configuration(self) -> str:
        return "\n".join(
            (
                f"tickTime={self._tick_ms}",
                f"dataDir={java_text(str(self._directory()))}",
                *self._security.address_lines(self.port, LOOPBACK),
                *self._security.lines(),
                "admin.enableServer=false",
                "maxClientCnxns=0",
                "4lw.commands.whitelist=ruok,srvr,stat,mntr,conf,cons,dump,envi,wchs,isro",
                "autopurge.snapRetainCount=3",
                "autopurge.purgeInterval=1",
                "",
            )
        )

    def _serves(self) -> bool:
        """True once it serves, False as soon as the process ends or 30 s have passed."""
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline and self._running().is_running:
            if "Mode:" in four_letter_word(self.port, b"srvr", tls=self._probe):
                return True
            time.sleep(_POLL_S)
        return False

    @property
    def _probe(self) -> ssl.SSLContext | None:
        """TLS that asks whether it serves; with what it shows to others it is let in itself."""
        return probe_context(self._security.keystore) if self._security.has_tls else None

    def _reason(self) -> str:
        """Why it does not start: asked of a second try that has a log, if the first was silent."""
        code = self._running().exit_code
        if code is None:
            return f"ZooKeeper does not serve after {_START_S:g} s\n{self._running().last_words()}"
        with contextlib.suppress(MissingPart):
            self._launch(with_log=True)
            self._running().wait_or_kill(_START_S)
        return f"ZooKeeper ended with exit code {code}\n{self._running().last_words()}"


class ExternalZooKeeper:
    """A ZooKeeper that somebody else runs; starting and stopping it is not our business."""

    def __init__(self, hosts: str) -> None:
        self.hosts = hosts

    def spawn(self) -> None:
        """Do nothing."""

    def wait_ready(self) -> None:
        """Do nothing: the nodes wait for it themselves."""

    def stop(self) -> None:
        """Do nothing."""


def make_directory(path: Path) -> None:
    """Make it with those above it; raises OSError, in words that fit when a file is there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)) from error


def zookeeper_server(data: Path | None, tick_ms: int) -> ZooKeeperServer:
    """The ZooKeeper to use: the one ``ZK_EXTERNAL`` names, or an embedded one."""
    if hosts := os.environ.get("ZK_EXTERNAL"):
        return ExternalZooKeeper(hosts)
    return EmbeddedZooKeeper(data, tick_ms)


def four_letter_word(
    port: int, word: bytes, timeout_s: float = 1.0, tls: ssl.SSLContext | None = None
) -> str:
    """The server's answer to one of its four-letter commands; empty when it gives none.

    Read to the end: a server whose answer nobody reads fills its log with broken pipes.
    """
    answer = b""
    try:
        with (
            socket.create_connection((LOOPBACK, port), timeout_s) as plain,
            plain if tls is None else tls.wrap_socket(plain) as link,
        ):
            link.sendall(word)
            while piece := link.recv(4096):
                answer += piece
    except OSError:  # ssl.SSLError is one: Netty ends TLS without a goodbye
        pass
    return answer.decode(errors="replace")


def probe_context(keystore: Path | None) -> ssl.SSLContext:
    """TLS to a server of this machine that is told nothing, and only asked whether it serves."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if keystore is not None:
        context.load_cert_chain(keystore)
    return context
