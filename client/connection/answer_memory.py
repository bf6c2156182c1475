"""The last answer to a question that is asked again and again, read anew only when it differs.

All topics or all groups of a large cluster are megabytes that mostly say what they said before: to
compare them takes a millisecond, to read them a second. What is read is read in turns.
Source: docs/spec/console.md §5 (budgets).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from barnabas.client.turns import Turns
from barnabas.protocol.codec.compiler import request_decoder_in_turns


class AnswerMemory:
    """Keeps the bytes of one answer, and what they mean."""

    def __init__(self) -> None:
        self._body = b""
        self._version = -1
        self._answer: Any = None

    async def read(self, answer_class: type, version: int, frame: bytes, start: int) -> Any:
        """The answer that begins at ``start``: the same object as before where it is the same.

        Whoever gets it must not change it. Raises CorruptRequest.
        """
        body = frame[start:] if start else frame
        if body == self._body and version == self._version:
            return self._answer
        turns = Turns()
        reading: Generator[None, None, Any] = request_decoder_in_turns(answer_class, version)(
            body, 0
        )
        while True:
            try:
                next(reading)
            except StopIteration as end:
                self._body, self._version, self._answer = body, version, end.value
                return end.value
            await turns.pause()
