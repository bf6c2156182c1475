"""Which topic names an expression matches: as a whole, in time linear in their length.

Python's ``re`` tries again from the last choice, so that 30 characters can take it minutes. Here
the tree of an expression becomes a nondeterministic automaton, whose sets of states are the states
of a deterministic one that is made as names need it, and kept. Google's RE2 does the same, but its
Python binding takes 20 us to be called at all; this takes some 0.5 us a name that shares its
beginning with others, and needs no compiled package.
Source: docs/spec/consumer-groups.md §3.1, C40 to C43.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barnabas.coordinator.cooperative import Steps, Turn

from .topic_characters import BITS, WORD, CharacterSet
from .topic_regex_syntax import (
    Alternation,
    Assertion,
    Characters,
    Concatenation,
    InvalidTopicRegex,
    Node,
    Repetition,
    parse,
)

STATES_MAX: Final = 10_000
"""Of the nondeterministic automaton."""
SETS_KEPT_MAX: Final = 2_000
"""States of the deterministic automaton; when there are more, all are forgotten."""
MEMBERS_KEPT_MAX: Final = 200_000
"""States of the nondeterministic automaton in all sets that are kept: some 15 MB."""
_WORK_A_STEP: Final = 20
"""States looked at, or characters read, that make up one step of a turn."""

_START: Final = 0
_IN_WORD: Final = 1
_OUTSIDE_WORD: Final = 2
_END: Final = 3
"""What stands before or behind: nothing, a character of a word, or another."""


class TopicRegex:
    """One expression. Raises InvalidTopicRegex."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._automaton = _Automaton(parse(pattern))
        self._forget()

    def matches(self, name: str) -> bool:
        """Whether the whole name matches."""
        steps = self.matching([name])
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                return bool(stop.value)

    def matching(self, names: Iterable[str]) -> Steps[list[str]]:
        """The names that match, in their order."""
        found = []
        turn = Turn()
        for name in names:
            is_match = yield from self._walk(name, turn)
            if is_match:
                found.append(name)
        return found

    def _walk(self, name: str, turn: Turn) -> Steps[bool]:
        state, work = self._first, 0
        for character in name:
            following = state.following.get(character)
            if following is None:
                bit = BITS.get(character)
                if bit is None:
                    return False  # no name of a topic
                following = self._follow(state, character, bit)
                work += len(state.members)
            if not following.members:
                return False
            state = following
            work += 1
            if work >= _WORK_A_STEP * 8:
                if turn.is_over(work // _WORK_A_STEP):
                    yield
                work = 0
        if turn.is_over():
            yield
        if state.accepts is None:
            behind = self._automaton.closure(state.members, state.before, _END)
            state.accepts = self._automaton.accepting in behind
        return state.accepts

    def _follow(self, state: _StateSet, character: str, bit: CharacterSet) -> _StateSet:
        """Where one more character leads; found out once for each set and character."""
        kind = _IN_WORD if bit & WORD else _OUTSIDE_WORD
        members = self._automaton.step(state.members, state.before, kind, bit)
        key = members, kind
        following = self._sets.get(key)
        if following is None:
            self._members += len(members)
            if len(self._sets) >= SETS_KEPT_MAX or self._members > MEMBERS_KEPT_MAX:
                self._forget()
                self._members += len(members)
            following = self._sets[key] = _StateSet(members, kind)
        state.following[character] = following
        return following

    def _forget(self) -> None:
        self._sets: dict[tuple[frozenset[int], int], _StateSet] = {}
        self._members = 0
        self._first = _StateSet(frozenset((self._automaton.first,)), _START)


class _StateSet:
    """A state of the deterministic automaton: all states that the other one may be in.

    The set is as it was before assertions are looked at, since these depend on what comes next.
    """

    __slots__ = ("accepts", "before", "following", "members")

    def __init__(self, members: frozenset[int], before: int) -> None:
        self.members = members
        self.before = before
        self.following: dict[str, _StateSet] = {}
        self.accepts: bool | None = None


class _Automaton:
    """A nondeterministic automaton, built from its end to its beginning."""

    def __init__(self, tree: Node) -> None:
        self._allowed: list[CharacterSet] = []
        """By state the characters that lead on; 0 for states that read none."""
        self._assertion: list[Assertion | None] = []
        self._onward: list[tuple[int, ...]] = []
        self.accepting = self._add(0, None, ())
        self.first = self._build(tree, self.accepting)

    def closure(self, members: Iterable[int], before: int, behind: int) -> set[int]:
        """All states that are reached without a character, between these two."""
        found, waiting = set(), list(members)
        while waiting:
            state = waiting.pop()
            if state in found:
                continue
            found.add(state)
            if self._allowed[state]:
                continue
            assertion = self._assertion[state]
            if assertion is None or _holds(assertion, before, behind):
                waiting += self._onward[state]
        return found

    def step(
        self, members: Iterable[int], before: int, kind: int, bit: CharacterSet
    ) -> frozenset[int]:
        """The states behind one character."""
        allowed, onward = self._allowed, self._onward
        return frozenset(
            onward[state][0]
            for state in self.closure(members, before, kind)
            if allowed[state] & bit
        )

    def _add(
        self, allowed: CharacterSet, assertion: Assertion | None, onward: tuple[int, ...]
    ) -> int:
        if len(self._onward) >= STATES_MAX:
            raise InvalidTopicRegex("too large")
        self._allowed.append(allowed)
        self._assertion.append(assertion)
        self._onward.append(onward)
        return len(self._onward) - 1

    def _build(self, node: Node, following: int) -> int:
        """States for ``node`` that lead to ``following``; the first of them."""
        if isinstance(node, Characters):
            # a set that no topic name can meet leads nowhere
            onward = (following,) if node.allowed else ()
            return self._add(node.allowed, None, onward)
        if isinstance(node, Assertion):
            return self._add(0, node, (following,))
        if isinstance(node, Concatenation):
            for part in reversed(node.parts):
                following = self._build(part, following)
            return following
        if isinstance(node, Alternation):
            choices = tuple(self._build(choice, following) for choice in node.choices)
            return self._add(0, None, choices)
        return self._build_repetition(node, following)

    def _build_repetition(self, node: Repetition, following: int) -> int:
        if node.most is None:
            first = self._add(0, None, ())
            self._onward[first] = (self._build(node.part, first), following)
        else:
            first = following
            for _ in range(node.most - node.least):
                first = self._add(0, None, (self._build(node.part, first), following))
        for _ in range(node.least):
            first = self._build(node.part, first)
        return first


def _holds(assertion: Assertion, before: int, behind: int) -> bool:
    if assertion is Assertion.START:
        return before == _START
    if assertion is Assertion.END:
        return behind == _END
    is_boundary = (before == _IN_WORD) != (behind == _IN_WORD)
    return is_boundary == (assertion is Assertion.WORD_BOUNDARY)
