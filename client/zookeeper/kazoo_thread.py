"""Answers that are no ZooKeeper's end a connection of kazoo's, never the thread that reads them.

kazoo connects anew after the errors that it knows. Any other one, as bytes that cannot be read or
an answer to a question that was not asked, ended its thread: the session was lost, none followed
it, and a node lived on without ZooKeeper. A port that another program took over answers such
things, and so does a proxy that mixes up connections.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final

from kazoo.exceptions import AuthFailedError, SessionExpiredError
from kazoo.protocol.connection import ConnectionDropped, RWServerAvailable

_KNOWN: Final = (
    ConnectionDropped,
    AuthFailedError,
    SessionExpiredError,
    RWServerAvailable,
    OSError,
)
"""What kazoo's loop has a way on from, beside the time-outs of its handler."""


def keep_alive(connection: Any, timeout_exception: type[Exception]) -> None:
    """Have unknown errors of one kazoo connection end it as a lost one ends: kazoo tries again."""
    known = (*_KNOWN, timeout_exception)
    for name in ("_connect", "_read_socket", "_send_request"):  # they have no public names
        setattr(connection, name, _as_dropped(getattr(connection, name), known))


def _as_dropped(method: Callable[..., Any], known: tuple[type[Exception], ...]) -> Any:
    @wraps(method)
    def guarded(*arguments: Any) -> Any:
        try:
            return method(*arguments)
        except known:
            raise
        except Exception as error:
            raise ConnectionDropped(f"no answer of a ZooKeeper: {error!r}") from error

    return guarded
