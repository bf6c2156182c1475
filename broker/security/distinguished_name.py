r"""Prints a distinguished name as Java does, since ACLs and mapping rules are written against that.

The last part comes first. Parts that RFC 2253 has no keyword for are told by number and in hex:

    2.5.4.5=#13023432,1.2.840.113549.1.9.1=#16056440782e79,CN=Duke,OU=A+OU=B,O=Acme\, Inc,C=US

Source: docs/spec/security.md §1 (S10); X500Principal.getName of Java 25; RFC 2253.
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
_ENCODINGS: Final[Mapping[int, str]] = {
    0x0C: "utf-8",  # UTF8String
    0x13: "latin-1",  # PrintableString
    0x14: "latin-1",  # T61String
    0x16: "latin-1",  # IA5String
    0x1B: "latin-1",  # GeneralString
    0x1E: "utf-16-be",  # BMPString
}
"""How the strings are read that are printed as text; all others are printed in hex.

Java 17 reads every string as UTF-8, Java 25 by its kind, as here. They agree in plain ASCII,
but for BMPString: read as UTF-8, two Chinese characters pass for four letters of another name.
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
    encoding = _ENCODINGS.get(value.tag)
    if keyword is None or encoding is None:
        return f"{keyword or number}=#{value.raw.hex()}"
    text = value.content.decode(encoding, "replace")
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
