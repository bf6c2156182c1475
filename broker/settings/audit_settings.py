"""Where the audit log of a node is kept, and whether its events are topics as well.

Source: docs/spec/security.md §8 (S76).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from barnabas.protocol.settings import ConfigError, setting

_SHELL_WORDS = ("~", "$")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """A file of its own, or the node's log."""

    path: str | None = setting(
        "audit.log.path",
        None,
        "file that lines of the audit log are appended to; unset: the node's log has them",
    )
    bytes_max: int = setting(
        "audit.log.max.bytes", 100 << 20, "a larger file is renamed to PATH.1", least=1 << 16
    )
    backups: int = setting("audit.log.backups", 10, "renamed files that are kept", least=1)

    events_topic_enable: bool = setting(
        "events.topic.enable",
        False,
        "tell what happens to the cluster in __barnabas_events, and what administrators change in "
        "__barnabas_audit beside the changes of offsets",
    )

    def __post_init__(self) -> None:
        if self.path and self.path.startswith(_SHELL_WORDS):
            raise ConfigError(f"audit.log.path={self.path}: is taken as it stands, without a shell")

    @property
    def file(self) -> Path | None:
        """The file, if there is to be one."""
        return Path(self.path) if self.path else None
