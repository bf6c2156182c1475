"""Prometheus' text format, version 0.0.4: families, samples, labels.

::

    # HELP name what it is
    # TYPE name gauge | counter | histogram
    name{label="value",...} number
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Sample = tuple[Mapping[str, object], int | float]
"""Labels and value."""
Kind = Literal["counter", "gauge"]

_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def family(name: str, kind: Kind, meaning: str, samples: Iterable[Sample]) -> Iterator[str]:
    """The lines of one family, each with its end."""
    yield from _head(name, kind, meaning)
    for labels, value in samples:
        yield _line(name, labels, value)


def single(name: str, kind: Kind, meaning: str, value: float) -> Iterator[str]:
    """A family of one sample without labels."""
    return family(name, kind, meaning, [({}, value)])


def histogram(
    name: str,
    meaning: str,
    bounds: Iterable[float],
    samples: Iterable[tuple[Mapping[str, object], Iterable[int], float]],
) -> Iterator[str]:
    """Labels, how many fell into each bucket, and their sum; the last bucket has no bound."""
    yield from _head(name, "histogram", meaning)
    words = [*map(_number, bounds), "+Inf"]
    for labels, counts, total in samples:
        reached = 0
        for word, count in zip(words, counts, strict=True):
            reached += count
            yield _line(f"{name}_bucket", {**labels, "le": word}, reached)
        yield _line(f"{name}_sum", labels, total)
        yield _line(f"{name}_count", labels, reached)


def _head(name: str, kind: str, meaning: str) -> Iterator[str]:
    yield f"# HELP {name} {meaning}\n"
    yield f"# TYPE {name} {kind}\n"


def _line(name: str, labels: Mapping[str, object], value: float) -> str:
    if not labels:
        return f"{name} {_number(value)}\n"
    pairs = ",".join(f'{key}="{str(each).translate(_ESCAPES)}"' for key, each in labels.items())
    return f"{name}{{{pairs}}} {_number(value)}\n"


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(value)
