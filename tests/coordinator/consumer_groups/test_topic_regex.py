"""Expressions of topic names, beside Google's RE2.

Source: docs/spec/consumer-groups.md §3.1, C43.
"""

from __future__ import annotations

from itertools import count

import pytest
import re2
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.coordinator.consumer_groups.topic_characters import ALPHABET
from barnabas.coordinator.consumer_groups.topic_regex import TopicRegex
from barnabas.coordinator.consumer_groups.topic_regex_syntax import InvalidTopicRegex

QUIET = re2.Options()
QUIET.log_errors = False

GOOD = (
    "topic", "^topic", "topic$", "^topic$", "top|ic", "(top|ic)+", "t.*", "t.+c", "t?opic", "",
    "()", "a{2}", "a{2,}", "a{0,3}b", "a{,2}", "a{", "a{x}", "a{1,2}?", "a*?b+?c??", "[abc]+",
    "[^abc]+", "[a-c0-9]*", "[]a]+", "[^]a]+", "[a-]+", "[-a]+", "[a\\-c]+", "[[:alpha:]]+",
    "[[:^digit:]]+", "[[:word:].]+", "\\d+", "\\D+", "\\w+", "\\W+", "\\s*", "\\S+", "[\\d.]+",
    "[^\\w]+", "\\bab\\b", "\\Bab", "a\\.b", "a\\b.b", "a\\Bb", "\\Atopic\\z", "(?i)TOPIC",
    "(?i:To)pic", "t(?i)OP(?-i)ic", "(?:a|b)c", "(?P<name>a)b", "\\x61+", "\\x{62}", "\\141",
    "\\Qa.b\\E+", "\\Qa.b", "\\p{L}+", "\\pL+", "\\PL+", "\\p{^L}+", "\\P{^Nd}+", "\\p{Greek}*",
    "\\p{Latin}+", "\\p{Common}+", "\\p{Lu}\\p{Ll}*", "(?i)[a-c]+", "(?i)[^a]+", "(?s).*",
    "(?im)^a$", "(?U)a+", "(a|b|)c", "|a", "(|a)+", "(a*)*", "(a*)+", "((a|b)*c){1,3}", "a|b|c.d",
    "[[:upper:]]x", "(?i)[[:upper:]]x", "(?i)\u017f", "(?i)\u212a+", "\u00e4*a", "^^a$$", "a^b",
    "$a", "(^a|b$)", "x*", "\\C+", "[\\x61-\\x63]+", "(?i-s)A", "\\a*b", "_+", "[_.-]+",
)  # fmt: skip
BAD = (
    "(", ")", "a)", "(a", "[a", "[", "*", "+a", "?", "a**", "a++", "a+*", "a{2}{3}", "a{1001}",
    "(a{100}){100}", "a{3,2}", "(?=a)", "(?!a)", "(?<=a)b", "(?<!a)b", "(?>a)", "\\1", "(a)\\1",
    "\\Z", "\\8", "\\e", "\\", "[b-a]", "[[:nope:]]", "\\p{Nope}", "\\pX", "(?x)a", "(?P=n)",
    "(?P<n", "(?", "(?i", "\\x{110000}", "\\xg1", "\\x6", "[a-\\d]", "[\\Z]", "(?--i)",
)  # fmt: skip
NAMES = (
    "topic", "atopic", "topics", "TOPIC", "Topic", "top", "ic", "topicic", "a", "b", "c", "ab",
    "abc", "aab", "aaab", "aa", "aaa", "a.b", "a.bb", "x", "xx", "a-b", "a_b", "A", "AB", "Ab",
    "s", "S", "k", "K", "0", "12", "a1", "1a", ".", "-", "_", "Xx", "ax", "bc", "cc", "abcabc",
    "", "a.b.c", "c.d", "...", "__consumer_offsets",
)  # fmt: skip


def oracle(pattern: str, name: str) -> bool:
    return re2.fullmatch(pattern, name, options=QUIET) is not None


@pytest.mark.parametrize("pattern", GOOD)
def test_an_expression_matches_what_re2_matches(pattern: str) -> None:
    ours = TopicRegex(pattern)
    assert [name for name in NAMES if ours.matches(name)] == [
        name for name in NAMES if oracle(pattern, name)
    ]


@pytest.mark.parametrize("pattern", BAD)
def test_what_re2_refuses_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidTopicRegex):
        TopicRegex(pattern)


PIECES = st.sampled_from(
    ["a", "b", ".", "-", "\\.", "[ab]", "[^a]", "\\w", "\\W", "\\d", "x", "^", "$", "\\b", "\\B"]
)
PATTERNS = st.recursive(
    PIECES,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}"])).map(
            lambda found: f"(?:{found[0]}){found[1]}"
        ),
        inner.map(lambda found: f"({found})"),
    ),
    max_leaves=8,
)


@settings(max_examples=400, deadline=None)
@given(PATTERNS, st.lists(st.text("abx.-1", max_size=6), min_size=1, max_size=5))
def test_any_expression_matches_what_re2_matches(pattern: str, names: list[str]) -> None:
    ours = TopicRegex(pattern)
    for name in names:
        assert ours.matches(name) == oracle(pattern, name), (pattern, name)


@settings(max_examples=400, deadline=None)
@given(st.text(st.sampled_from("ab()[]{}|*+?.^$\\-:,1pPdwQEi<>=!"), max_size=12))
def test_any_text_is_refused_or_matches_as_in_re2(text: str) -> None:
    """A name of a group without its P is RE2/J's and newer than this RE2."""
    try:
        re2.compile(text, options=QUIET)
        is_good = True
    except re2.error:
        is_good = False
    try:
        ours = TopicRegex(text)
    except InvalidTopicRegex:
        assert not is_good or _is_ours_alone(text), text
        return
    assert is_good or "(?<" in text, text
    if is_good:
        assert [ours.matches(name) for name in NAMES] == [oracle(text, name) for name in NAMES]


def _is_ours_alone(text: str) -> bool:
    return any(part in text for part in ("(?P", "\\p", "\\P", "\\Q", "[:"))


@pytest.mark.parametrize(
    "pattern", ["(a|a)*b", "(a*)*b", "(a+)+b", "(.*)(.*)(.*)(.*)b", "(a?){200}b"]
)
def test_no_expression_takes_more_than_states_times_characters(pattern: str) -> None:
    """Python's re would not return from these."""
    found, turns = finished(TopicRegex(pattern), ["a" * 249])
    assert found == []
    assert turns <= 10


def finished(regex: TopicRegex, names: list[str]) -> tuple[list[str], int]:
    """What matches, and how often others had their turn meanwhile."""
    steps = regex.matching(names)
    for turns in count():
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value, turns
    raise AssertionError


def test_the_states_of_an_expression_are_bounded() -> None:
    with pytest.raises(InvalidTopicRegex, match="too large"):
        TopicRegex("[ab]{1000}" * 20)
    with pytest.raises(InvalidTopicRegex, match="deeper"):
        TopicRegex("(" * 200 + "a" + ")" * 200)
    with pytest.raises(InvalidTopicRegex, match="longer"):
        TopicRegex("a" * 1025)


def test_what_is_remembered_is_bounded_and_forgetting_changes_nothing() -> None:
    regex = TopicRegex("(a|b)*a(a|b){13}")
    names = [f"{number:030b}".replace("0", "a").replace("1", "b") for number in range(3000)]
    wanted = [name for name in names if name[-14] == "a"]
    assert [name for name in names if regex.matches(name)] == wanted
    assert len(regex._sets) <= 2_001


def test_many_names_are_matched_in_many_turns() -> None:
    names = [f"orders-{number}" for number in range(5_000)]
    found, turns = finished(TopicRegex("orders-.*7"), names)
    assert found == [name for name in names if name.endswith("7")]
    assert turns >= 5


def test_the_alphabet_is_what_topics_may_be_named_with() -> None:
    assert len(ALPHABET) == len(set(ALPHABET)) == 65
    assert not TopicRegex(".*").matches("a b")
