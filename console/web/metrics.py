"""What the console tells of itself: ``/metrics`` for collectors, ``/healthz`` for probers.

As nodes do: the loopback may read, others show a token; whoever is behind a proxy always shows it,
since a proxy's word for where somebody comes from is the reader's own.
Source: docs/spec/console.md §6.
"""

from __future__ import annotations

import hmac
import ipaddress
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from barnabas.broker.metrics.exposition import CONTENT_TYPE, family, histogram, single
from barnabas.broker.metrics.open_metrics import CONTENT_TYPE as OPEN_TYPE
from barnabas.broker.metrics.open_metrics import is_wanted, open_metrics
from barnabas.broker.metrics.process_families import process_families, release

from .console_settings import ConsoleSettings
from .logins import Logins
from .page import FORMATS
from .streams import Streams

METRICS_PATH: Final = "/metrics"
BOUNDS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_OTHER: Final = "other"


class Meter:
    """Counts answers, by page and code, and how long they took, by kind of answer."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.buckets: dict[str, list[int]] = {}
        self.seconds: Counter[str] = Counter()
        self.logins: Counter[str] = Counter()
        self.paths: frozenset[str] = frozenset()
        """Of which answers are counted by themselves: a name that somebody makes up is none."""

    def count(self, path: str, method: str, code: int, seconds: float) -> None:
        """One answer; of a stream the time until it ended is none of an answer."""
        page = path if path in self.paths else _OTHER
        self.requests[page, code] += 1
        kind = _kind(path, method)
        buckets = self.buckets.setdefault(kind, [0] * (len(BOUNDS_S) + 1))
        buckets[bisect_left(BOUNDS_S, seconds)] += 1
        self.seconds[kind] += seconds  # type: ignore[assignment]  # a Counter holds floats as well


def _kind(path: str, method: str) -> str:
    ending = path.rpartition(".")[2]
    if method == "POST":
        return "form"
    if path.startswith("/static/"):
        return "static"
    return ending if ending in FORMATS else "page"


class MeterMiddleware:
    """Measures up to the head of each answer."""

    def __init__(self, app: ASGIApp, meter: Meter) -> None:
        self._app = app
        self._meter = meter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                taken = time.monotonic() - began
                self._meter.count(scope["path"], scope["method"], message["status"], taken)
            await send(message)

        await self._app(scope, receive, counted)


class OwnPages:
    """``/metrics`` and ``/healthz``: nobody logs in for them."""

    def __init__(
        self, settings: ConsoleSettings, meter: Meter, logins: Logins, streams: Streams
    ) -> None:
        self._settings = settings
        self._meter = meter
        self._logins = logins
        self._streams = streams

    async def health(self, request: Request) -> Response:
        """The loop answers."""
        return PlainTextResponse("ok\n")

    async def metrics(self, request: Request) -> Response:
        """Prometheus' text, or OpenMetrics for who asks for it."""
        if not self._may_read(request):
            return PlainTextResponse("show the token of --metrics-token-file\n", 401)
        is_open = is_wanted(request.headers.get("accept", ""))
        lines = self.families()
        text = "".join(open_metrics(lines) if is_open else lines)
        return Response(text, media_type=OPEN_TYPE if is_open else CONTENT_TYPE)

    def _may_read(self, request: Request) -> bool:
        token = self._settings.metrics_token
        shown = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token and hmac.compare_digest(shown.encode(), token.encode()):
            return True
        return not self._settings.is_behind_proxy and _is_local(request)

    def families(self) -> Iterator[str]:
        """Every line of a scrape."""
        yield from process_families()
        settings = self._settings
        labels = {
            "version": release(), "auth": settings.auth,
            "read_only": str(settings.is_read_only).lower(),
        }  # fmt: skip
        yield from family("barnabas_console_info", "gauge", "The console.", [(labels, 1)])
        yield from family(
            "barnabas_console_requests_total", "counter", "Answers by page and code.",
            [({"page": page, "code": code}, count)
             for (page, code), count in sorted(self._meter.requests.items())],
        )  # fmt: skip
        yield from histogram(
            "barnabas_console_request_seconds", "From the request to the head of the answer.",
            BOUNDS_S,
            [({"kind": kind}, counts, self._meter.seconds[kind])
             for kind, counts in sorted(self._meter.buckets.items())],
        )  # fmt: skip
        yield from family(
            "barnabas_console_logins_total", "counter", "Logins by outcome.",
            [({"outcome": outcome}, count)
             for outcome, count in sorted(self._meter.logins.items())],
        )  # fmt: skip
        yield from single(
            "barnabas_console_sessions", "gauge", "Who is logged in.", self._logins.sessions
        )
        yield from single(
            "barnabas_console_streams", "gauge", "Live tails that are open.", self._streams.count
        )
        yield from self._cluster()

    def _cluster(self) -> Iterator[str]:
        """Of the connections that sessions share; with ``--auth sasl`` each has its own."""
        watch = self._logins.shared
        if watch is None:
            return
        reading = watch.catalogue.cluster.known()
        if reading.at_ms is not None or reading.problem is not None:
            yield from single(
                "barnabas_console_cluster_up", "gauge", "The cluster answered when asked last.",
                int(reading.problem is None),
            )  # fmt: skip
        survey = watch.survey
        for name, kind, meaning, value in (
            ("rounds_total", "counter", "Rounds over all groups.", survey.rounds),
            ("groups", "gauge", "Groups whose standing is known.", len(survey.rows)),
            ("failing", "gauge", "The last round did not get through.",
             int(survey.problem is not None)),
        ):  # fmt: skip
            yield from single(f"barnabas_console_sweep_{name}", kind, meaning, value)  # type: ignore[arg-type]  # one of the two kinds


def _is_local(request: Request) -> bool:
    try:
        address = ipaddress.ip_address(request.client.host if request.client else "")
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
