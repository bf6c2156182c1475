"""What goes wrong for a client: one error with Kafka's code, and the few worth catching apart.

Source: coordinator.md section 1.9; style.md, "Three kinds of failure".
"""

from __future__ import annotations

from typing import Final

from barnabas.protocol.errors import ErrorCode

_BY_CODE: Final = {code.value: code for code in ErrorCode}


class KafkaError(Exception):
    """A request failed; ``code`` says why in Kafka's words, ``message`` in the broker's or ours."""

    def __init__(self, code: int, message: str = "") -> None:
        self.code = known_code(code)
        self.message = message
        super().__init__(f"{self.code.name}: {message}" if message else self.code.name)

    @property
    def name(self) -> str:
        """Kafka's name of the error, for example ``NOT_COORDINATOR``."""
        return self.code.name

    @property
    def retriable(self) -> bool:
        """The same request may succeed later, perhaps at another broker."""
        return self.code.retriable


class Disconnected(KafkaError):  # noqa: N818 - reads as what happened
    """No connection, or it ended before the answer: the request may have been served or not."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, message)


class RequestTimedOut(KafkaError):  # noqa: N818 - reads as what happened
    """No answer in time: the request may have been served or not."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class UnsupportedVersion(KafkaError):  # noqa: N818 - reads as what happened
    """The broker serves this API in no version that we speak, or not at all."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNSUPPORTED_VERSION, message)


class AuthenticationFailed(KafkaError):  # noqa: N818 - reads as what happened
    """The broker refused the mechanism, or the name and password."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code, message)


def known_code(code: int) -> ErrorCode:
    """``code`` as a member; a code from a newer broker than we know counts as unknown."""
    return _BY_CODE.get(code, ErrorCode.UNKNOWN_SERVER_ERROR)


def raise_for(code: int, message: str | None = None) -> None:
    """Raise KafkaError unless ``code`` is 0; ``message`` may be what the broker added."""
    if code:
        raise KafkaError(code, message or "")
