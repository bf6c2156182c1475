"""Changes of administrators as records of ``__barnabas_audit``, beside those of offsets.

The same that the audit log has as a line (broker/security/audit_log.py): names, never the value of
a setting, a password or a token. What is done to groups' offsets the coordinator records by itself.
Source: docs/spec/console.md §2.2 (A).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from barnabas.protocol.audit_topic import AuditRecord, audit_value, parse_tool_client_id

from .topic_journal import TopicJournal


class ChangeRecords:
    """Notes the changes that one node was asked for."""

    def __init__(
        self, journal: TopicJournal, now_ms: Callable[[], int], rng: random.Random
    ) -> None:
        self._journal = journal
        self._now_ms = now_ms
        self._rng = rng

    def note(self, api: str, result: str, fields: Mapping[str, Any]) -> None:
        """A request has changed something, or tried to; called as the audit log is."""
        client_id = fields.get("client_id") or ""
        word = parse_tool_client_id(client_id)
        topics = _topics(fields.get("parts", ()))
        topic = topics.pop() if len(topics) == 1 else ""
        told = {name: fields[name] for name in ("parts", "code", "more") if name in fields}
        record = AuditRecord(
            time_ms=self._now_ms(),
            action=api,
            change=(word.change if word else "") or f"{self._rng.getrandbits(48):012x}",
            principal=fields.get("principal") or "",
            host=fields.get("host") or "",
            client_id=client_id,
            group="",
            topic=topic,
            partition=-1,
            old_offset=None,
            old_leader_epoch=-1,
            old_metadata="",
            new_offset=None,
            new_leader_epoch=-1,
            new_metadata="",
            reason=word.reason if word else "",
            what=json.dumps({"result": result, **told}, ensure_ascii=False, separators=(",", ":")),
        )
        self._journal.add(f"{api}:{topic}".encode(), audit_value(record))


def _topics(parts: Sequence[Mapping[str, Any]]) -> set[str]:
    return {part["topic"] for part in parts if isinstance(part.get("topic"), str)}
