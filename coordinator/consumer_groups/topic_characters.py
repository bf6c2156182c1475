"""Sets of the 65 characters that topic names are made of, and the classes of RE2's syntax.

A set is an integer with one bit a character. Expressions may name any character of Unicode; what
no topic name can hold drops out here, so that an automaton has at most 65 ways on from a state.
Source: docs/spec/consumer-groups.md §3.1; RE2's syntax (Perl, ASCII and Unicode classes).
"""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Callable
from typing import Final, TypeAlias

CharacterSet: TypeAlias = int

ALPHABET: Final = string.ascii_letters + string.digits + "._-"
ALL: Final[CharacterSet] = (1 << len(ALPHABET)) - 1
BITS: Final = {character: 1 << index for index, character in enumerate(ALPHABET)}
WORD: Final[CharacterSet] = ALL & ~BITS["."] & ~BITS["-"]
"""What ``\\w`` and ``\\b`` take for a part of a word."""


def where(test: Callable[[str], bool]) -> CharacterSet:
    """The characters for which ``test`` holds."""
    return sum(bit for character, bit in BITS.items() if test(character))


DIGITS: Final[CharacterSet] = where(str.isdigit)

PERL: Final = {
    "d": DIGITS,
    "D": ALL & ~DIGITS,
    "w": WORD,
    "W": ALL & ~WORD,
    "s": 0,
    "S": ALL,
}
"""Classes of one letter behind a backslash."""

ASCII: Final = {
    "alnum": where(str.isalnum),
    "alpha": where(str.isalpha),
    "ascii": ALL,
    "blank": 0,
    "cntrl": 0,
    "digit": DIGITS,
    "graph": ALL,
    "lower": where(str.islower),
    "print": ALL,
    "punct": where(lambda character: character in "._-"),
    "space": 0,
    "upper": where(str.isupper),
    "word": WORD,
    "xdigit": where(lambda character: character in string.hexdigits),
}
"""Classes that stand in brackets of their own: ``[[:alpha:]]``."""

_CATEGORIES: Final = (
    "C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So "
    "Z Zl Zp Zs"
)
_OTHER_SCRIPTS: Final = (
    "Adlam Ahom Anatolian_Hieroglyphs Arabic Armenian Avestan Balinese Bamum Bassa_Vah Batak "
    "Bengali Bhaiksuki Bopomofo Brahmi Braille Buginese Buhid Canadian_Aboriginal Carian "
    "Caucasian_Albanian Chakma Cham Cherokee Chorasmian Coptic Cuneiform Cypriot Cypro_Minoan "
    "Cyrillic Deseret Devanagari Dives_Akuru Dogra Duployan Egyptian_Hieroglyphs Elbasan Elymaic "
    "Ethiopic Georgian Glagolitic Gothic Grantha Greek Gujarati Gunjala_Gondi Gurmukhi Han Hangul "
    "Hanifi_Rohingya Hanunoo Hatran Hebrew Hiragana Imperial_Aramaic Inherited "
    "Inscriptional_Pahlavi Inscriptional_Parthian Javanese Kaithi Kannada Katakana Kawi Kayah_Li "
    "Kharoshthi Khitan_Small_Script Khmer Khojki Khudawadi Lao Lepcha Limbu Linear_A Linear_B "
    "Lisu Lycian Lydian Mahajani Makasar Malayalam Mandaic Manichaean Marchen Masaram_Gondi "
    "Medefaidrin Meetei_Mayek Mende_Kikakui Meroitic_Cursive Meroitic_Hieroglyphs Miao Modi "
    "Mongolian Mro Multani Myanmar Nabataean Nag_Mundari Nandinagari New_Tai_Lue Newa Nko Nushu "
    "Nyiakeng_Puachue_Hmong Ogham Ol_Chiki Old_Hungarian Old_Italic Old_North_Arabian Old_Permic "
    "Old_Persian Old_Sogdian Old_South_Arabian Old_Turkic Old_Uyghur Oriya Osage Osmanya "
    "Pahawh_Hmong Palmyrene Pau_Cin_Hau Phags_Pa Phoenician Psalter_Pahlavi Rejang Runic "
    "Samaritan Saurashtra Sharada Shavian Siddham SignWriting Sinhala Sogdian Sora_Sompeng "
    "Soyombo Sundanese Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Takri Tamil "
    "Tangsa Tangut Telugu Thaana Thai Tibetan Tifinagh Tirhuta Toto Ugaritic Vai Vithkuqi Wancho "
    "Warang_Citi Yezidi Yi Zanabazar_Square"
)
"""Scripts without a letter that a topic name may hold."""


def unicode_class(name: str) -> CharacterSet | None:
    """What ``\\p{name}`` stands for; None for a name that RE2 does not know."""
    if name == "Any":
        return ALL
    if name in _CATEGORIES.split():
        return where(lambda character: unicodedata.category(character).startswith(name))
    if name == "Latin":
        return ASCII["alpha"]
    if name == "Common":
        return ALL & ~ASCII["alpha"]
    return 0 if name in _OTHER_SCRIPTS.split() else None


def one(character: str, *, ignores_case: bool) -> CharacterSet:
    """A single character, with its other case where that is the same; the long s is an s."""
    if not ignores_case:
        return BITS.get(character, 0)
    folded = character.casefold()
    return where(lambda other: other.casefold() == folded)


def span(first: str, last: str, *, ignores_case: bool) -> CharacterSet:
    """All characters from ``first`` to ``last``, both inclusive."""
    found = where(lambda character: first <= character <= last)
    if ignores_case:
        found |= where(lambda character: first <= character.swapcase() <= last)
        found |= sum(
            one(special, ignores_case=True)
            for special in "\u017f\u212a"
            if first <= special <= last
        )
    return found
