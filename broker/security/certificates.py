"""The fields of an X.509 certificate that matter here, read from its DER.

    Certificate = SEQUENCE { SEQUENCE { [0] version?, serial, algorithm, issuer, validity, subject,
                                        key, [1]?, [2]?, [3] extensions? }, algorithm, signature }

Only of certificates that OpenSSL has parsed and verified before, or that the operator wrote down;
all the same a length that does not fit raises ValueError. Source: RFC 5280 (4.1), X.690.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

OBJECT_IDENTIFIER: Final = 0x06
SEQUENCE: Final = 0x30
SET: Final = 0x31
_UTC_TIME: Final = 0x17
_VERSION: Final = 0xA0
_EXTENSIONS: Final = 0xA3
_ALTERNATIVE_NAMES: Final = bytes.fromhex("0603551d11")
"""The object identifier 2.5.29.17, with tag and length."""


class Element(NamedTuple):
    """One tag, length and value."""

    tag: int
    raw: bytes
    """All of it."""
    content: bytes
    """What is behind its length."""


class Certificate(NamedTuple):
    """What is asked of one."""

    subject: bytes
    """The distinguished name, in DER."""
    alternative_names: frozenset[bytes]
    """Each in DER; empty without that extension."""
    not_before: datetime
    not_after: datetime


def elements(data: bytes) -> Iterator[Element]:
    """One after the other; raises ValueError where a length does not fit."""
    start = 0
    while start < len(data):
        if len(data) < start + 2:
            raise ValueError("an element is cut off")
        tag, size, content = data[start], data[start + 1], start + 2
        if tag & 0x1F == 0x1F:
            raise ValueError("a tag of several bytes")
        if size & 0x80:
            count = size & 0x7F
            size = int.from_bytes(data[content : content + count])
            content += count
            if not 0 < count <= 4:
                raise ValueError("a length of no bytes, or of too many")
        stop = content + size
        if stop > len(data):
            raise ValueError("an element is cut off")
        yield Element(tag, data[start:stop], data[content:stop])
        start = stop


def read_certificate(der: bytes) -> Certificate:
    """Raises ValueError for what is none."""
    try:
        (whole,) = elements(der)
        signed = next(elements(whole.content))
        fields = list(elements(signed.content))
        if fields[0].tag == _VERSION:
            del fields[0]
        not_before, not_after = (_time(moment) for moment in elements(fields[3].content))
        extensions = next((one for one in fields if one.tag == _EXTENSIONS), None)
        names = frozenset[bytes]() if extensions is None else _alternative_names(extensions)
        return Certificate(fields[4].raw, names, not_before, not_after)
    except (IndexError, StopIteration) as error:
        raise ValueError("no certificate") from error


def _alternative_names(extensions: Element) -> frozenset[bytes]:
    (all_of_them,) = elements(extensions.content)
    for extension in elements(all_of_them.content):
        parts = list(elements(extension.content))
        if parts[0].raw == _ALTERNATIVE_NAMES:  # then perhaps "critical", and the value at the end
            (names,) = elements(parts[-1].content)
            return frozenset(name.raw for name in elements(names.content))
    return frozenset()


def _time(moment: Element) -> datetime:
    text = moment.content.decode("ascii")
    if moment.tag == _UTC_TIME:
        # Years of two digits are those from 1950 to 2049 (RFC 5280, 4.1.2.5.1).
        text = ("19" if text[:2] >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
