"""Names of topics, and the text form of ids.

Source: docs/spec/cluster.md §1.2 and §1.3.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from typing import Final

from .errors import ErrorCode, Refused

TOPIC_NAME_MAX: Final = 249
"""Kafka's bound: a directory name holds topic, dash and partition within 255 bytes."""

INTERNAL_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__barnabas_audit", "__barnabas_events"}
)
FORCE_INTERNAL_CLIENT: Final = "barnabas-admin:force-internal"
"""The client id that may delete internal topics: nobody has it by accident."""

_TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_UUID_TEXT: Final = re.compile(r"[A-Za-z0-9_-]{22}")


def topic_problem(name: str) -> str | None:
    """Why a topic cannot have this name, for people; None when it can.

    Whoever makes a path of a name asks here first.
    """
    if not name:
        return "the name is empty"
    if name in (".", ".."):
        return f"{name!r} is a place in the file system"
    if len(name) > TOPIC_NAME_MAX:
        return f"the name has {len(name)} characters, at most {TOPIC_NAME_MAX} are allowed"
    if _TOPIC_NAME.fullmatch(name) is None:
        return "only letters, digits, '.', '_' and '-' are allowed"
    return None


def check_topic(name: str) -> None:
    """Raises Refused(INVALID_TOPIC_EXCEPTION) for what :func:`topic_problem` objects to."""
    problem = topic_problem(name)
    if problem is not None:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)


def path_segment(name: str, code: ErrorCode = ErrorCode.INVALID_TOPIC_EXCEPTION) -> str:
    """``name`` as one level of a path; raises Refused(``code``) for what would be anything else.

    The last line of defence: every path in ZooKeeper that holds a name is made with it, so that a
    request whose names nobody looked at is refused, and never reaches another znode.
    """
    if not name.isprintable() or "/" in name or name in ("", ".", ".."):
        raise Refused(code, f"{name[:TOPIC_NAME_MAX]!r} cannot be part of a path")
    return name


def collides(name: str, others: Iterable[str]) -> str | None:
    """The other topic whose metrics could not be told from this one's: '.' and '_' count as one."""
    folded = name.replace(".", "_")
    for other in others:
        if other != name and other.replace(".", "_") == folded:
            return other
    return None


def is_internal(topic: str) -> bool:
    """Whether a topic belongs to the brokers themselves."""
    return topic in INTERNAL_TOPICS


def uuid_text(uuid: bytes) -> str:
    """Sixteen bytes as Kafka writes them: 22 letters of URL-safe base64."""
    assert len(uuid) == 16, uuid
    return base64.urlsafe_b64encode(uuid)[:22].decode()


def uuid_bytes(text: str) -> bytes:
    """The sixteen bytes of an id in text form; raises ValueError for anything else."""
    if _UUID_TEXT.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a 22-letter id")
    return base64.urlsafe_b64decode(text + "==")
