"""Metrics of logins and of the audit log. No label names a user: anybody could make any number.

Source: docs/spec/security.md §8 (S76, S77).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from barnabas.broker.coordination.topic_journal import TopicJournal
from barnabas.broker.security.audit_file import AuditFile
from barnabas.broker.security.sasl import EXPIRED

from .exposition import Sample, family, single

Logins = Mapping[tuple[str, str, str], int]
"""By listener, mechanism and result."""


def authentication_families(logins: Logins) -> Iterator[str]:
    """Logins by listener, mechanism (empty where none was agreed on) and result."""
    if not logins:
        return
    yield from family(
        "barnabas_authentications_total",
        "counter",
        "Logins on listeners that ask for one, those between nodes included.",
        [
            ({"listener": listener, "mechanism": mechanism, "result": result}, count)
            for (listener, mechanism, result), count in sorted(logins.items())
            if result != EXPIRED
        ],
    )
    yield from family(
        "barnabas_expired_connections_total",
        "counter",
        "Connections that were closed because their login was not repeated in time.",
        [
            ({"listener": listener, "mechanism": mechanism}, count)
            for (listener, mechanism, result), count in sorted(logins.items())
            if result == EXPIRED
        ],
    )


def audit_families(audited: Mapping[tuple[str, str], int], file: AuditFile | None) -> Iterator[str]:
    """What happened that the audit log has lines of, folded or not, and the lines that it lost."""
    yield from family(
        "barnabas_audit_events_total",
        "counter",
        "What the audit log was told, whether it left a line of its own or was folded.",
        [
            ({"event": event, "result": result}, count)
            for (event, result), count in sorted(audited.items())
        ],
    )
    if file is not None:
        yield from single(
            "barnabas_audit_lines_lost_total",
            "counter",
            "Lines that could not be written to audit.log.path.",
            file.lost,
        )


def journal_families(journals: Mapping[str, TopicJournal]) -> Iterator[str]:
    """Records of events and of administrators' changes, by topic; none where they are off."""
    if not journals:
        return
    for name, kind, meaning, values in (
        ("written_total", "counter", "Records written.", _each(journals, "written")),
        ("lost_total", "counter", "Records that found no room.", _each(journals, "lost")),
        ("waiting", "gauge", "Records not written yet.", _each(journals, "waiting")),
    ):
        yield from family(f"barnabas_event_records_{name}", kind, meaning, values)  # type: ignore[arg-type]


def _each(journals: Mapping[str, TopicJournal], what: str) -> list[Sample]:
    return [({"topic": topic}, getattr(one, what)) for topic, one in sorted(journals.items())]
