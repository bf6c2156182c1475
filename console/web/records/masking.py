"""Masks: what nobody is shown of the records of some topics, whatever they ask for.

A file in TOML; the first entry whose topic matches counts::

    [[mask]]
    topic = "pay*"
    paths = ["key", "value.card.number", "header.authorization"]
    how = "last-4"                     # or "hide" (the default), or "hash"

    [[mask]]
    topic = "hr-*"
    only = ["value.id", "value.department"]     # nothing else is shown

What is masked is masked before filters, lists, exports and previews see it. A value that cannot be
taken apart is hidden as a whole where one of its parts has to be. ``hash`` is keyed by a secret of
the process: equal values look equal, and nobody finds them by trying.
Source: docs/spec/console.md §2.3 (records).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from barnabas.client.os_errors import describe_os_error
from barnabas.console.command_line.failure import Failure
from barnabas.console.web.glob_pattern import glob_matcher

from .decoding import NULL, Decoded

HIDDEN: Final = "[masked]"
WAYS: Final = ("hide", "hash", "last-4")
_LAST: Final = 4
_DIGEST: Final = 12
_KEY: Final = secrets.token_bytes(32)

Path_ = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mask:
    """What is masked of the topics that match."""

    matches: Callable[[str], bool]
    paths: Sequence[Path_]
    only: Sequence[Path_] | None
    """An allow-list: None where ``paths`` says what is masked."""
    how: str

    def field(self, name: str, found: Decoded) -> Decoded:
        """``key`` or ``value`` as it may be shown."""
        if found is NULL or found.text is None:
            return found
        if self.only is not None:
            return self._allowed(name, found)
        inside = [path[1:] for path in self.paths if path[0] == name]
        if not inside:
            return found
        if any(not path for path in inside):
            return _as_text(self._masked(found.text), found.bytes)
        if not isinstance(found.value, dict | list):
            return _as_text(HIDDEN, found.bytes)
        value = found.value
        for path in inside:
            value = _replaced(value, path, self._masked)
        return Decoded(found.kind, json.dumps(value, ensure_ascii=False), value, found.bytes)

    def header(self, name: str, text: str | None) -> str | None:
        """The value of a header as it may be shown."""
        path = ("header", name)
        if self.only is not None:
            return text if path in self.only else HIDDEN
        return self._masked(text) if path in self.paths else text

    def _allowed(self, name: str, found: Decoded) -> Decoded:
        assert self.only is not None
        inside = [path[1:] for path in self.only if path[0] == name]
        if any(not path for path in inside):
            return found
        if not inside or not isinstance(found.value, dict | list):
            return _as_text(HIDDEN, found.bytes)
        value = _kept(found.value, inside)
        return Decoded(found.kind, json.dumps(value, ensure_ascii=False), value, found.bytes)

    def _masked(self, value: Any) -> str:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if self.how == "hash":
            digest = hmac.new(_KEY, text.encode("utf-8", "surrogatepass"), hashlib.sha256)
            return f"[{digest.hexdigest()[:_DIGEST]}]"
        if self.how == "last-4" and len(text) > 2 * _LAST:
            return f"…{text[-_LAST:]}"
        return HIDDEN


def _as_text(text: str, size: int) -> Decoded:
    return Decoded("masked", text, text, size)


def _replaced(value: Any, path: Path_, masked: Callable[[Any], str]) -> Any:
    """The value with what lies at the path masked; an array is gone through, ``*`` is any name."""
    if isinstance(value, list):
        return [_replaced(part, path, masked) for part in value]
    if not path:
        return masked(value)
    if not isinstance(value, dict):
        return value
    return {
        name: _replaced(part, path[1:], masked) if path[0] in (name, "*") else part
        for name, part in value.items()
    }


def _kept(value: Any, paths: Sequence[Path_]) -> Any:
    """What the paths lead to, everything else masked."""
    if any(not path for path in paths):
        return value
    if isinstance(value, list):
        return [_kept(part, paths) for part in value]
    if not isinstance(value, dict):
        return HIDDEN
    return {
        name: _kept(part, inside) if inside else HIDDEN
        for name, part in value.items()
        for inside in [[path[1:] for path in paths if path[0] in (name, "*")]]
    }


class Masks:
    """All masks of a console."""

    def __init__(self, masks: Sequence[Mask] = ()) -> None:
        self._masks = masks

    def of(self, topic: str) -> Mask | None:
        """The mask of a topic; None where everything may be shown."""
        return next((mask for mask in self._masks if mask.matches(topic)), None)

    def behind(self, mask: Mask) -> Masks:
        """These masks, and one more that counts before them."""
        return Masks([mask, *self._masks])


def read_masks(path: Path) -> Masks:
    """The masks in a file; raises Failure: a mask that is not understood opens nothing."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Failure(f"--mask {path}: {describe_os_error(error)}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Failure(f"--mask {path}: {error}") from None
    entries = document.get("mask")
    if not isinstance(entries, list) or set(document) != {"mask"}:
        raise Failure(f"--mask {path}: it has to consist of [[mask]] entries")
    return Masks([_mask(path, number, entry) for number, entry in enumerate(entries, start=1)])


def _mask(path: Path, number: int, entry: Any) -> Mask:
    def problem(text: str) -> Failure:
        return Failure(f"--mask {path}: entry {number}: {text}")

    if not isinstance(entry, dict) or not set(entry) <= {"topic", "paths", "only", "how"}:
        raise problem("it may have topic, paths, only and how")
    if not isinstance(entry.get("topic"), str):
        raise problem("topic must be a text")
    if ("paths" in entry) == ("only" in entry):
        raise problem("it needs either paths or only")
    how = entry.get("how", "hide")
    if how not in WAYS:
        raise problem(f"how must be one of {', '.join(WAYS)}")
    named = entry.get("paths", entry.get("only"))
    if not isinstance(named, list) or not all(isinstance(word, str) for word in named):
        raise problem("paths and only are lists of texts")
    paths = [_path(word) for word in named]
    if not all(path and path[0] in ("key", "value", "header") for path in paths):
        raise problem("a path begins with key, value or header")
    only = paths if "only" in entry else None
    return Mask(glob_matcher(entry["topic"]), [] if only is not None else paths, only, how)


def _path(text: str) -> Path_:
    if text.startswith("header."):
        return "header", text.removeprefix("header.")
    return tuple(text.split("."))
