"""Names of users, clients and addresses as one level of a path in ZooKeeper.

Source: docs/spec/security.md §2 (S32); Kafka's Sanitizer, which is URL encoding made stricter.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

DEFAULT_ENTITY = "<default>"
"""Stands unescaped in a path for whoever has no entry; a name like it is escaped."""


def sanitize(name: str) -> str:
    """``name`` in letters, digits, ``._-`` and ``%XX`` of its UTF-8 only.

    Python leaves ``~`` as it is and Java does not; who writes the other form writes another znode.
    """
    return quote(name, safe="").replace("~", "%7E")


def desanitize(text: str) -> str:
    """The name behind :func:`sanitize`; raises ValueError for what is no result of it.

    Two spellings of one name would be two users of one name, so only one is read.
    """
    name = unquote(text, errors="strict")
    if sanitize(name) != text:
        raise ValueError(f"{text[:255]!r} is no name as Kafka writes it")
    return name
