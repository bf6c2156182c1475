"""The client's exceptions: KafkaError with Kafka's code, and the few worth catching apart.

Source: docs/spec/coordinator.md §1.9.
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


class TlsFailed(Disconnected):
    """The handshake failed: one side does not accept the certificate or protocol of the other."""


class ClosedByPeer(Disconnected):
    """The other side ended the connection and said nothing: perhaps it expects TLS, or a login."""


class OffsetOutOfRange(KafkaError):  # noqa: N818 - reads as what happened
    """The log of ``topic``-``partition`` does not reach to ``offset``, or no longer does."""

    def __init__(self, topic: str, partition: int, offset: int | None) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        """None when there was no offset to begin at."""
        where = "no offset to begin at" if offset is None else f"offset {offset} is not in the log"
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{topic}-{partition}: {where}, and auto.offset.reset is none",
        )


class QueueFull(KafkaError):  # noqa: N818 - reads as what happened
    """The producer holds as much as it may; wait for ``room()``, or drop the record."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.THROTTLING_QUOTA_EXCEEDED, message)


class CommitFailed(KafkaError):  # noqa: N818 - reads as what happened
    """The offsets were not stored: the group gave the partitions to somebody else meanwhile.

    Committing again does not help; the records will be read again by their new owner.
    """

    def __init__(
        self, code: int, message: str, *, member_id: str, generation: int, held_s: float = 0.0
    ) -> None:
        super().__init__(code, message)
        self.member_id = member_id
        self.generation = generation
        """The generation the member believed to be in."""
        self.held_s = held_s
        """Seconds since the application last asked for records."""

    @property
    def retriable(self) -> bool:
        """Never: the member must join again first."""
        return False


class AbortableTransactionError(KafkaError):
    """The open transaction cannot be committed: abort it; the next one may succeed."""

    @property
    def retriable(self) -> bool:
        """Never: the same transaction fails again."""
        return False


class FatalTransactionError(KafkaError):
    """The transactional producer cannot go on: close it; another one with its id may."""

    @property
    def retriable(self) -> bool:
        """Never: this producer fails for ever."""
        return False


class ProducerFenced(FatalTransactionError):  # noqa: N818 - reads as what happened
    """A newer producer has the same transactional id, or the transaction took too long."""


class TransactionAborted(KafkaError):  # noqa: N818 - reads as what happened
    """The record was not sent: its transaction was aborted before."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.OPERATION_NOT_ATTEMPTED, message)


class DecodingFailed(KafkaError):  # noqa: N818 - reads as what happened
    """Bytes in a partition that are no records, or no value of the decoder that was asked for."""

    def __init__(self, topic: str, partition: int, offset: int, message: str) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        """Where to go on: seek behind it to leave it out."""
        super().__init__(
            ErrorCode.CORRUPT_MESSAGE, f"{topic}-{partition} at offset {offset}: {message}"
        )

    @property
    def retriable(self) -> bool:
        """Never: the same bytes would come again."""
        return False


def known_code(code: int) -> ErrorCode:
    """``code`` as a member; a code from a newer broker than we know counts as unknown."""
    return _BY_CODE.get(code, ErrorCode.UNKNOWN_SERVER_ERROR)


def raise_for(code: int, message: str | None = None) -> None:
    """Raise KafkaError unless ``code`` is 0; ``message`` may be what the broker added."""
    if code:
        raise KafkaError(code, message or "")
