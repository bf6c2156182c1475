"""Answers of HTTP servers, closed whatever they say.

Source: urllib.error.HTTPError, which is an answer as well and holds its connection.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPResponse


@contextmanager
def opened(
    opener: urllib.request.OpenerDirector, request: urllib.request.Request, timeout_s: float
) -> Iterator[HTTPResponse]:
    """What the server answers; raises OSError, HTTPError for an answer that is an error."""
    try:
        with opener.open(request, timeout=timeout_s) as answer:
            yield answer
    except urllib.error.HTTPError as refusal:
        refusal.close()
        raise
