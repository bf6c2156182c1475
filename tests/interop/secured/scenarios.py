"""What every program of the secured matrix does: the steps of each scenario, told as JSON.

Standard input has the scenarios, standard output an outcome for each step: how many records, or the
code that it was refused with. A program runs in the environment of one release of one client,
without anything of ours but this file. tests/interop/test_secured_clients.py says what has to come
of it.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Scenario = Mapping[str, Any]
Outcome = Any

COUNT = 10
"""Records that are produced; so many are read."""
MORE = 5
"""Records of a transaction."""
PATIENCE_S = 120.0
REFUSED_MS = 8_000
"""How long a client tries that can only be refused."""
TLS = "TLS"
CLOSED = "closed"
_TOLD = (
    ("58", ("SaslAuthenticationFailed", "SASL_AUTHENTICATION_FAILED", "Authentication failed")),
    # Not the mere word: a folder is called so, and clients log where they read.
    (
        TLS,
        (
            "certificate verify",
            "alert certificate",
            "CERTIFICATE",
            "SSLError",
            "SSL handshake",
            "tls: ",
        ),
    ),
    (
        CLOSED,
        (
            "reset by peer",
            "Broken pipe",
            "socket disconnected",
            "Unable to bootstrap",
            "Connection reset during recv",
            "EOF occurred",
            "KafkaConnectionError",
        ),
    ),
)
"""How clients that tell no code tell the reason, in what they log."""


class Logged(logging.Handler):
    """What a client logs, since some clients tell their callers only that it did not work."""

    def __init__(self, name: str) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []
        logger = logging.getLogger(name)
        logger.setLevel(logging.INFO)
        logger.addHandler(self)
        logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the line, and the exception that it tells of."""
        cause = record.exc_info[1] if record.exc_info else ""
        self.lines.append(f"{record.getMessage()} {cause!r}")


def reason_in(lines: Iterable[str], failure: Exception) -> str:
    """The code that these lines tell, else the failure itself."""
    text = "\n".join([*lines, repr(failure)])
    return next(
        (code for code, words in _TOLD if any(word in text for word in words)), repr(failure)
    )


def wait_ms(scenario: Scenario) -> int:
    """How long a client may try: for as long as it takes where it is served."""
    return int(PATIENCE_S * 1000) if "read again" in scenario["steps"] else REFUSED_MS


def values(scenario: Scenario, count: int, what: str) -> list[bytes]:
    """Records to produce, which no other scenario has."""
    return [b"%s %s %d" % (scenario["topic"].encode(), what.encode(), at) for at in range(count)]


def until(read: Callable[[], Iterable[Any]], count: int) -> int:
    """How many different values come, as soon as they are ``count``."""
    found: set[Any] = set()
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < deadline:
        found.update(read())
    return len(found)


def run(
    steps_of: Callable[[Scenario], Mapping[str, Callable[[], Outcome]]],
    code_of: Callable[[Exception], str],
) -> None:
    """Do the steps of all scenarios and print what came of them."""
    outcomes: dict[str, dict[str, Outcome]] = {}
    for scenario in json.load(sys.stdin):
        steps = steps_of(scenario)
        found = outcomes[scenario["name"]] = {}
        for step in scenario["steps"]:
            if step not in steps:
                continue
            try:
                found[step] = steps[step]()
            except Exception as failure:  # noqa: BLE001 - every way to fail is told
                found[step] = code_of(failure)
    print(json.dumps(outcomes))  # noqa: T201 - this is what it is for
