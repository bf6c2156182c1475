"""What is raised when bytes cannot be read as records.

Source: docs/spec/log.md §1.1, §1.5 and §1.8.
"""

from __future__ import annotations

from barnabas.protocol.errors import ErrorCode, Refused


class CorruptRecords(Refused):
    """Bytes that are no valid records.

    The code is CORRUPT_MESSAGE for bytes that were damaged (checksum, size, magic) and
    INVALID_RECORD for bytes that arrived as they were sent, but were built wrongly.
    """

    def __init__(self, message: str, code: ErrorCode = ErrorCode.INVALID_RECORD) -> None:
        super().__init__(code, message)


class ExpandsTooFar(CorruptRecords):
    """Compressed records of more bytes than their reader takes; nothing says that they are damaged.

    A producer that sends fewer of them at once is welcome, so it is told another code than this
    one has (validate.py).
    """

    def __init__(self, codec: str, bytes_max: int) -> None:
        super().__init__(f"{codec}: expands to more than {bytes_max} bytes")
