"""What a console is started with: where it listens, who may log in, what it may do.

Source: docs/spec/console.md §3 (security).
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from barnabas.console.command_line.failure import Misuse

from .records.masking import Masks
from .roles import FULL, Rights, Roles
from .schemas.decoders import Decoders

AuthMode = Literal["token", "sasl", "none"]

PORT: Final = 9080
ANYBODY: Final = "anybody on this machine"
"""The principal of everybody with ``--auth none``."""
LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """How one console behaves; :meth:`check` says what contradicts itself."""

    host: str = "127.0.0.1"
    port: int = PORT
    """0 takes a free one."""
    auth: AuthMode = "token"
    is_read_only: bool = False
    names: tuple[str, ...] = ()
    """Host names under which browsers may ask, besides where it listens."""
    certificate: Path | None = None
    key: Path | None = None
    is_behind_proxy: bool = False
    """A proxy speaks TLS to the browsers."""
    is_published_on_loopback: bool = False
    """In a container whose port is published on the loopback of its host, and nowhere else."""
    undo_directory: Path = field(default_factory=Path)
    """Where undo files are written before a change."""
    audit_file: Path | None = None
    """Where each change is written down before it is asked for."""
    status_token: str | None = field(default=None, repr=False)
    """What nodes are shown when they are asked for their status."""
    metrics_token: str | None = field(default=None, repr=False)
    """What collectors on other machines show for ``/metrics``."""
    reports: Path | None = None
    """Where Spark jobs write their reports."""
    roles: Roles | None = None
    """Who may do what here; None where everybody who gets in may do everything."""
    decoders: Decoders = field(default_factory=Decoders)
    """By what keys and values are read."""
    masks: Masks = field(default_factory=Masks)
    """What nobody is shown of records."""

    @property
    def is_loopback(self) -> bool:
        """Whether only programs of this machine reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def is_secure(self) -> bool:
        """Whether browsers speak TLS, to us or to the proxy."""
        return self.certificate is not None or self.is_behind_proxy

    def rights_of(self, principal: str) -> Rights | None:
        """What a principal may do here; None for somebody who is not let in."""
        return FULL if self.roles is None else self.roles.of(principal)

    def check(self) -> None:
        """Raise Misuse for what would leave the console open, or cannot work."""
        if (self.certificate is None) != (self.key is None):
            raise Misuse("--tls-cert and --tls-key go together")
        if self.is_published_on_loopback and self.is_secure:
            raise Misuse("--published-on-loopback is for consoles that speak no TLS")
        if not (self.is_loopback or self.is_secure or self.is_published_on_loopback):
            raise Misuse(
                f"--listen {self.host}: off the loopback passwords would travel in clear; say "
                "--tls-cert and --tls-key, or --behind-proxy"
            )
        if self.auth == "none" and (not self.is_loopback or self.is_behind_proxy):
            raise Misuse("--auth none: only on the loopback, and not behind a proxy")
        if self.auth == "none" and self.rights_of(ANYBODY) is None:
            raise Misuse(f"--auth none: --roles has no role for {ANYBODY!r}")
        if self.is_behind_proxy and not self.names:
            raise Misuse("--behind-proxy: say --allowed-host, the name that browsers use")

    def allows_host(self, host: str) -> bool:
        """Whether a browser may ask by this name; anything else may be DNS rebinding."""
        name = host_name(host).lower()
        if name in (known.lower() for known in self.names):
            return True
        return name in LOOPBACK_NAMES if self.is_loopback else name == self.host.lower()


def host_name(host: str) -> str:
    """The name in a ``Host`` header, without port and brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
