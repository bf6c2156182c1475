"""Forms as browsers send them: urlencoded, bounded, with the session's token.

Source: docs/spec/console.md §3.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import Request

BYTES_MOST: Final = 256 << 10
FIELDS_MOST: Final = 5_000
CONTENT_TYPE: Final = "application/x-www-form-urlencoded"
CSRF: Final = "csrf"


class BadForm(Exception):  # noqa: N818 - says what it is
    """What was posted is no form of ours; ``status`` is HTTP's."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


async def read_form(request: Request) -> dict[str, str]:
    """The fields, each once (the last one counts); raises BadForm."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != CONTENT_TYPE:
        raise BadForm(415, f"a form must be sent as {CONTENT_TYPE}")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > BYTES_MOST:
            raise BadForm(413, f"a form has at most {BYTES_MOST} bytes")
    try:
        pairs = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, errors="strict",
            max_num_fields=FIELDS_MOST,
        )  # fmt: skip
    except (ValueError, UnicodeDecodeError):
        raise BadForm(400, "the form cannot be read") from None
    return dict(pairs)


def check_token(form: Mapping[str, str], expected: str) -> None:
    """Raises BadForm for a form that this session's pages did not make."""
    if not hmac.compare_digest(form.get(CSRF, "").encode(), expected.encode()):
        raise BadForm(403, "the form is out of date: load the page again, and send it from there")
