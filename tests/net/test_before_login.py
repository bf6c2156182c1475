"""What strangers send is not parsed: no decoder of any API but the two that lead to a login.

Source: docs/spec/security.md §2 (S20), CVE-2022-34917.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.broker.handlers import sasl as sasl_handlers
from barnabas.broker.handlers.api_versions import ApiVersionsHandler
from barnabas.broker.net import dispatch
from barnabas.broker.net.dispatch import Dispatcher
from barnabas.broker.net.limits import Limits
from barnabas.broker.net.listener import Listener
from barnabas.broker.settings.node_config import NetworkSettings
from barnabas.protocol import api
from barnabas.protocol.api import ApiKey
from barnabas.protocol.frame import request_frame
from barnabas.protocol.messages import sasl_handshake
from tests.harness.sasl_terms import terms
from tests.net.client import RawClient

PARSED = {ApiKey.SASL_HANDSHAKE, ApiKey.API_VERSIONS}
GARBAGE = b"\x7f\xff\xff\xff" * 16


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The APIs whose requests were decoded."""
    seen: list[str] = []

    def watching(make: Callable[..., Any]) -> Callable[..., Any]:
        def made(request: type, version: int) -> Callable[..., Any]:
            read = make(request, version)

            def spied(*words: Any) -> Any:
                seen.append(request.__name__)
                return read(*words)

            return spied

        return made

    for name in ("request_decoder", "view_decoder", "request_decoder_in_turns"):
        monkeypatch.setattr(dispatch, name, watching(getattr(dispatch, name)))
    return seen


async def asked_of_all(*, behind_handshake: bool) -> None:
    async with asyncio.TaskGroup() as tasks:
        dispatcher = Dispatcher(tasks)
        dispatcher.register(ApiVersionsHandler(dispatcher.supported_versions).handlers())
        dispatcher.register(sasl_handlers.handlers())
        others = api.registry().keys() - PARSED - {ApiKey.SASL_AUTHENTICATE}
        dispatcher.register({key: lambda call: None for key in others})
        listener = Listener("TEST", dispatcher, Limits(NetworkSettings()), sasl=terms({"u": "p"}))
        await listener.bind("127.0.0.1", 0)
        listener.serve()
        for key in others:
            spec = api.registry()[key]
            for version in range(spec.versions[0], spec.versions[1] + 1):
                client = await RawClient.open(listener.port)
                if behind_handshake:
                    await client.ask(sasl_handshake.SaslHandshakeRequest(mechanism="PLAIN"), 1)
                client.writer.write(request_frame(key, version, 5, "raw", GARBAGE))
                with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                    await client.frame_in()
                assert await client.is_closed()
                await client.close()
        await listener.close()


async def test_before_the_handshake_no_request_is_decoded(decoded: list[str]) -> None:
    await asked_of_all(behind_handshake=False)
    assert not decoded


async def test_where_a_token_is_due_no_other_request_is_decoded(decoded: list[str]) -> None:
    """Though the answer, 34, has the shape of what was asked."""
    await asked_of_all(behind_handshake=True)
    assert set(decoded) == {"SaslHandshakeRequest"}
