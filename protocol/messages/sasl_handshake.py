"""SaslHandshake (key 17): chooses how to authenticate.

Source: docs/spec/protocol.md §2.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import INT16, STRING, array, message, wire


@message(key=17, versions=(0, 1), advertised=1)
class SaslHandshakeRequest:
    """The mechanism a client wants."""

    mechanism: str = wire(STRING)


@message(key=17, versions=(0, 1))
class SaslHandshakeResponse:
    """Whether it may, and what else there is."""

    error_code: int = wire(INT16)
    mechanisms: Sequence[str] = wire(array(STRING))
