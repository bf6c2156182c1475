"""The console as an ASGI application: routes, logins, and who answers what.

Source: docs/spec/console.md §0 and §3.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from barnabas.client.client_config import ClientConfig
from barnabas.client.errors import KafkaError
from barnabas.console.command_line.failure import Failure

from . import shared_parts
from .answers import FRAGMENT, Answers, safe_back
from .console_settings import ConsoleSettings
from .downloads import VALUE_PATH, value_download
from .forms import BadForm, check_token, read_form
from .logins import Logins, session_cookie
from .metrics import METRICS_PATH, Meter, MeterMiddleware, OwnPages
from .page import FORMATS, Page, PageFunction, View
from .pages.actions import ACTIONS, Action
from .pages.records import STREAM_PATH, tail_of
from .pages.registry import PAGES, REQUIRED
from .query import BadQuery, Query
from .records.filter_syntax import BadFilter
from .records.matching import ShownRecord
from .render import assets
from .roles import Forbidden, Role
from .security import HEALTH_PATH, SecurityMiddleware
from .session import Session
from .spark_reports import REPORT_PATH, report_answer
from .streams import MEDIA_TYPE, Streams
from .watch.reading import FAILURES, now_ms
from .zones import zone_names, zone_of

log = logging.getLogger(__name__)

THEMES: Final = ("auto", "light", "dark")
SEE_OTHER: Final = 303
KEPT_S: Final = 365 * 24 * 3600
PAGE_S: Final = 30.0
"""A page that asks for longer says so: nodes that hang would hold it up for minutes."""
_FOR_EVER: Final = "public, max-age=31536000, immutable"

Handler = Callable[[Request], Awaitable[Response]]


class Console:
    """One console: the cluster it looks at, and who has logged in."""

    def __init__(self, bootstrap: str, config: ClientConfig, settings: ConsoleSettings) -> None:
        self.settings = settings
        self.logins = Logins(bootstrap, config, settings)
        self.answers = Answers(bootstrap, settings)
        self.streams = Streams()
        self.parts = shared_parts.SharedParts()
        self.meter = Meter()
        self.own = OwnPages(settings, self.meter, self.logins, self.streams)
        self.routed = Starlette(routes=self._routes(), lifespan=self._lifespan)
        # Around all of it: Starlette's own answer to a failure of ours carries the headers, too.
        self.app = MeterMiddleware(SecurityMiddleware(self.routed, settings), self.meter)
        self.meter.paths = frozenset(
            route.path for route in self.routed.routes if isinstance(route, Route)
        )

    def _routes(self) -> list[Route]:
        routes = [
            Route("/", self._home),
            Route("/login", self._login_page),
            Route("/login", self._log_in, methods=["POST"]),
            Route("/logout", self._posted(self._log_out), methods=["POST"]),
            Route("/preferences", self._posted(self._set_preferences), methods=["POST"]),
            Route("/static/{name}", _static),
            Route(HEALTH_PATH, self.own.health),
            Route(METRICS_PATH, self.own.metrics),
            Route(VALUE_PATH, self._download),
            Route(REPORT_PATH, self._report),
            Route(STREAM_PATH, self._stream),
        ]
        for path, function in PAGES.items():
            routes += [
                Route(path + ending, self._page(path, function, ending.removeprefix(".")))
                for ending in ("", *(f".{kind}" for kind in FORMATS))
            ]
        routes += [
            Route(path, self._posted(self._acting(path, action)), methods=["POST"])
            for path, action in ACTIONS.items()
        ]
        return routes

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        self.logins.open()
        try:
            yield
        finally:
            self.streams.closing.set()
            self.parts.close()
            await self.logins.close()

    async def _home(self, request: Request) -> Response:
        return RedirectResponse("/overview", 303)

    def _page(self, path: str, function: PageFunction, kind: str) -> Handler:
        async def answer(request: Request) -> Response:
            session = await self.logins.session_of(request)
            if session is None:
                return self._to_login(request, kind)
            view = self._view(request, session, path)

            async def make() -> Response:
                page = await guarded(within_time(permitted(function, path)), view)
                if page.status == SEE_OTHER and page.next_url is not None:
                    where, mark, query = page.next_url.partition("?")
                    ending = f".{kind}" if kind else ""
                    return RedirectResponse(f"{where}{ending}{mark}{query}", SEE_OTHER)
                return self.answers.page(request, view, page, kind, path)

            if request.headers.get(FRAGMENT) == "true" and not kind and path in shared_parts.PATHS:
                return await self.parts.part(_part_key(request, view), make)
            return await make()

        return answer

    def _posted(self, act: Callable[..., Awaitable[Response]]) -> Handler:
        """A form of a page: only for who is logged in, and only with the session's token."""

        async def answer(request: Request) -> Response:
            session = await self.logins.session_of(request)
            if session is None:
                return self._to_login(request, "")
            try:
                form = await read_form(request)
                check_token(form, session.csrf)
            except BadForm as problem:
                return self.answers.message(request, session, problem.status, str(problem))
            return await act(request, session, form)

        return answer

    async def _download(self, request: Request) -> Response:
        session = await self.logins.session_of(request)
        if session is None:
            return self._to_login(request, "bytes")
        try:
            async with asyncio.timeout(PAGE_S):
                return await value_download(self._view(request, session, VALUE_PATH))
        except FAILURES as failure:
            return _no_answer(failure)

    async def _report(self, request: Request) -> Response:
        session = await self.logins.session_of(request)
        if session is None:
            return self._to_login(request, "bytes")
        try:
            return await report_answer(self._view(request, session, REPORT_PATH))
        except Forbidden as problem:
            return Response(f"{problem}\n", 403, media_type="text/plain")
        except OSError as failure:
            return _no_answer(failure)

    async def _stream(self, request: Request) -> Response:
        session = await self.logins.session_of(request)
        if session is None:
            return self._to_login(request, "stream")
        if not self.streams.has_room:
            return Response("too many streams\n", 503, {"retry-after": "10"})
        view = self._view(request, session, STREAM_PATH)
        try:
            async with asyncio.timeout(PAGE_S):
                tail = await tail_of(view)
        except (BadQuery, BadFilter) as problem:
            return Response(f"{problem}\n", 400, media_type="text/plain")
        except FAILURES as failure:
            return _no_answer(failure)
        topic = view.query.required("topic")

        def rows_of(records: list[ShownRecord]) -> str:
            return self.answers.record_rows(request, topic, records)

        events = self.streams.events(tail, rows_of, lambda: self.logins.is_live(session))
        return StreamingResponse(events, media_type=MEDIA_TYPE)

    def _acting(self, path: str, action: Action) -> Callable[..., Awaitable[Response]]:
        """What a form of a page does: a page that says what came of it, or where that stands."""

        async def answer(request: Request, session: Session, form: Mapping[str, str]) -> Response:
            view = self._view(request, session, path)

            async def act(view: View) -> Page:
                outcome = await action(view, form)
                if isinstance(outcome, Page):
                    return outcome
                return Page(
                    title="Done", template="refused.html", next_url=outcome, status=SEE_OTHER
                )

            page = await guarded(act, view)
            if page.status == SEE_OTHER and page.next_url is not None:
                return RedirectResponse(page.next_url, SEE_OTHER)
            return self.answers.page(request, view, page, "", path)

        return answer

    def _view(self, request: Request, session: Session, path: str) -> View:
        return View(
            session=session,
            settings=self.settings,
            query=Query(path, dict(request.query_params)),
            zone=zone_of(request.cookies.get("zone", "")),
            now_ms=now_ms(),
        )

    def _to_login(self, request: Request, kind: str) -> Response:
        if kind:
            return Response("log in first\n", 401, media_type="text/plain")
        if FRAGMENT in request.headers:
            return Response(status_code=401, headers={"hx-redirect": "/login"})
        back = request.url.path
        if request.url.query:
            back += f"?{request.url.query}"
        return self.answers.login(request, back, status=401)

    async def _login_page(self, request: Request) -> Response:
        token = request.query_params.get("token")
        if token is None:
            return self.answers.login(request, "/overview")
        return await self._logged_in(request, {"token": token})

    async def _log_in(self, request: Request) -> Response:
        try:
            form = await read_form(request)
        except BadForm as problem:
            return self.answers.message(request, None, problem.status, str(problem))
        return await self._logged_in(request, form)

    async def _logged_in(self, request: Request, form: Mapping[str, str]) -> Response:
        back = safe_back(form.get("back", ""))
        outcome = await self.logins.log_in(request, form)
        self.meter.logins["good" if isinstance(outcome, Session) else "refused"] += 1
        if not isinstance(outcome, Session):
            return self.answers.login(request, back, problem=outcome.text, status=outcome.status)
        answer = RedirectResponse(back, 303)
        name = session_cookie(request, self.settings)
        answer.set_cookie(
            name, outcome.id, httponly=True, samesite="strict", secure=self.settings.is_secure,
            path="/",
        )  # fmt: skip
        return answer

    async def _log_out(
        self, request: Request, session: Session, form: Mapping[str, str]
    ) -> Response:
        await self.logins.log_out(session)
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(
            session_cookie(request, self.settings), path="/", secure=self.settings.is_secure,
            httponly=True, samesite="strict",
        )  # fmt: skip
        return answer

    async def _set_preferences(
        self, request: Request, session: Session, form: Mapping[str, str]
    ) -> Response:
        theme, zone = form.get("theme", ""), form.get("zone", "")
        if theme not in THEMES or zone not in zone_names():
            text = f"there is no time zone {zone!r}" if theme in THEMES else "no such colours"
            return self.answers.message(request, session, 400, text)
        answer = RedirectResponse(safe_back(form.get("back", "")), 303)
        for name, value in (("theme", theme), ("zone", zone)):
            answer.set_cookie(
                name, value, max_age=KEPT_S, httponly=True, samesite="strict",
                secure=self.settings.is_secure,
            )  # fmt: skip
        return answer


async def guarded(function: PageFunction, view: View) -> Page:
    """The page; where it cannot be made at all, one that says why."""
    try:
        return await function(view)
    except BadQuery as problem:
        return _problem_page(400, "This address leads nowhere", str(problem))
    except Forbidden as problem:
        return _problem_page(403, "This is not for your role", str(problem))
    except (KafkaError, Failure) as failure:
        return _problem_page(502, "The cluster does not say", str(failure))
    except FAILURES as failure:
        return _problem_page(502, "The cluster cannot be reached", str(failure))


def _part_key(request: Request, view: View) -> tuple[object, ...]:
    """All that a part of a page depends on: who looks at what, how, and since which change."""
    session = view.session
    return (
        session.watch, session.principal, session.rights, session.watch.changed_ms,
        view.query.path, tuple(sorted(view.query.given.items())),
        request.cookies.get("zone"), request.cookies.get("theme"),
    )  # fmt: skip


def permitted(function: PageFunction, path: str) -> PageFunction:
    """A page for those whose role suffices."""

    async def page(view: View) -> Page:
        view.session.rights.require(REQUIRED.get(path, Role.VIEWER))
        return await function(view)

    return page


def within_time(function: PageFunction) -> PageFunction:
    """A page that gives up after a while; what all readers ask together goes on by itself."""

    async def page(view: View) -> Page:
        limit = asyncio.timeout(PAGE_S)
        try:
            async with limit:
                return await function(view)
        except TimeoutError:
            if not limit.expired():
                raise
            text = f"it has not answered for {PAGE_S:.0f} s; load the page again in a while"
            raise Failure(text) from None

    return page


def _problem_page(status: int, title: str, text: str) -> Page:
    model: dict[str, Any] = {"text": text}
    return Page(title=title, template="message.html", model=model, status=status)


def _no_answer(failure: Exception) -> Response:
    text = str(failure) or "the cluster does not answer"
    return Response(f"{text}\n", 502, media_type="text/plain")


async def _static(request: Request) -> Response:
    path = assets().get(request.path_params["name"])
    if path is None:
        return Response("no such file\n", 404, media_type="text/plain")
    return FileResponse(path, headers={"cache-control": _FOR_EVER})
