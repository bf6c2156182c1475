"""A node keeps a bounded part of what it frees, so that batch after batch takes no fresh pages."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from barnabas.broker.runtime.freed_memory import keep_freed_memory

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="thresholds of glibc")

_BATCHES = """
import resource, sys
from barnabas.broker.runtime.freed_memory import KEPT_BYTES, keep_freed_memory

def pages_of(size, times):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):
        first, second = b"x" * size, b"y" * size
        del first, second
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

if sys.argv[1] == "kept":
    assert keep_freed_memory()
pages_of(4 << 20, 2)
resident = int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
print(pages_of(4 << 20, 50), pages_of(2 * KEPT_BYTES, 1))
after = int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
print(after - resident < KEPT_BYTES)
"""


def _pages(how: str) -> list[str]:
    words = [sys.executable, "-c", _BATCHES, how]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()


def test_batch_after_batch_takes_no_fresh_pages() -> None:
    batches, large, is_bounded = _pages("kept")
    assert int(batches) < 1000 < int(_pages("as it is")[0])
    assert int(large) > 1000, "what is larger than the bound is given back, and fresh again"
    assert is_bounded == "True"


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"])
def test_an_operator_who_says_otherwise_has_the_last_word(name: str) -> None:
    assert not keep_freed_memory({name: "1"})
