r"""Prints a distinguished name as Java does, since ACLs and mapping rules are written against that.

The last part comes first. Parts that RFC 2253 has no keyword for are told by number and in hex:

    2.5.4.5=#13023432,1.2.840.113549.1.9.1=#16056440782e79,CN=Duke,OU=A+OU=B,O=Acme\, Inc,C=US

Source: docs/spec/security.md §1 (S10); X500Principal.getName of Java 17; RFC 2253.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from .certificates import OBJECT_IDENTIFIER, elements

_KEYWORDS: Final[Mapping[str, str]] = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_STRINGS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E})
"""UTF8String, PrintableString, T61String, IA5String, GeneralString, UniversalString, BMPString.

Java reads all of them as UTF-8, whatever they are.
"""
_SPECIAL: Final = re.compile(r'[,=+<>#;"\\]')
_OUTER_SPACE: Final = re.compile(r"\A[ \r]+|[ \r]+\Z")


def distinguished_name(subject: bytes) -> str:
    """A name in DER as text; empty for a name without parts. Raises ValueError for what is none."""
    (name,) = elements(subject)
    parts = [_relative_name(part.content) for part in elements(name.content)]
    return ",".join(reversed(parts))


def _relative_name(part: bytes) -> str:
    """One part: usually a single attribute, otherwise several joined by ``+``."""
    return "+".join(_attribute(attribute.content) for attribute in elements(part))


def _attribute(pair: bytes) -> str:
    kind, value = elements(pair)
    if kind.tag != OBJECT_IDENTIFIER:
        raise ValueError("an attribute without its kind")
    number = _dotted(kind.content)
    keyword = _KEYWORDS.get(number)
    if keyword is None or value.tag not in _STRINGS:
        return f"{keyword or number}=#{value.raw.hex()}"
    text = value.content.decode("utf-8", "replace")
    text = _SPECIAL.sub(r"\\\g<0>", text).replace("\0", r"\00")
    return f"{keyword}={_OUTER_SPACE.sub(_escaped, text)}"


def _escaped(spaces: re.Match[str]) -> str:
    return "".join(f"\\{space}" for space in spaces[0])


def _dotted(content: bytes) -> str:
    """An object identifier as numbers: seven bits a byte, the first two arcs in one number."""
    arcs, arc = [], 0
    for byte in content:
        arc = arc << 7 | byte & 0x7F
        if not byte & 0x80:
            arcs.append(arc)
            arc = 0
    if not arcs:
        raise ValueError("an object identifier without arcs")
    first = min(arcs[0] // 40, 2)
    return ".".join(str(number) for number in (first, arcs[0] - 40 * first, *arcs[1:]))
