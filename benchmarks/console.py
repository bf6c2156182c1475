"""The web console at full size: 10,000 topics, 100,000 partitions, 10,000 groups.

``python -m benchmarks.console [--users 20] [--seconds 30]``: a paper cluster, a console, and users
who load pages one after the other. Source: docs/spec/console.md §5 (load).
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx

from .paper_cluster import GROUPS, TOPICS, group_name, topic_name

TABS: Final = 20
TAB_S: Final = 5.0
"""How often a page asks for its rows again."""
WARM_S: Final = 300.0
STARTS: Final = 3
"""The first one compiles modules."""
AWAY_S: Final = 70.0
"""So long after the last page nobody looks any more: the sweep rests."""
_TICKS: Final = 100
_MIB: Final = 1 << 20


@contextmanager
def started(words: Sequence[str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process and the first line that it printed."""
    command = [sys.executable, "-m", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            yield running, running.stdout.readline().strip()
        finally:
            running.terminate()
            running.wait(30)


def cpu_s(process: int) -> float:
    """CPU time of a process."""
    words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / _TICKS


def resident_mib(process: int) -> float:
    """What it keeps in memory."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * 4096 / _MIB


def lists() -> list[str]:
    """Pages of lists, at random places of them."""
    topic, group = topic_name(random.randrange(TOPICS)), group_name(random.randrange(GROUPS))
    return [
        "/topics", f"/topics?q={topic[:-2]}", f"/topics?after=%5B%22{topic}%22%2C%22{topic}%22%5D",
        "/groups?sort=name", f"/groups?q={group[:-2]}", "/groups?sort=-lag",
    ]  # fmt: skip


def details() -> list[str]:
    """Pages of one topic and one group."""
    return [
        f"/topic?name={topic_name(random.randrange(TOPICS))}",
        f"/group?name={group_name(random.randrange(GROUPS))}",
    ]


async def first_byte_ms(http: httpx.AsyncClient, path: str) -> float:
    """Until the head of the answer is here; the rest is read all the same."""
    began = time.perf_counter()
    async with http.stream("GET", path) as answer:
        taken = (time.perf_counter() - began) * 1000
        await answer.aread()
        assert answer.status_code == 200, (path, answer.status_code)
    return taken


async def load(base: str, users: int, seconds: float) -> dict[str, list[float]]:
    """What users waited for, by kind of page; each waits a second between two pages."""
    found: dict[str, list[float]] = {"list": [], "detail": []}
    end = time.monotonic() + seconds

    async def user() -> None:
        async with httpx.AsyncClient(base_url=base, timeout=60) as http:
            await asyncio.sleep(random.random())
            while time.monotonic() < end:
                kind = random.choice(("list", "detail"))
                path = random.choice(lists() if kind == "list" else details())
                found[kind].append(await first_byte_ms(http, path))
                await asyncio.sleep(1.0)

    await asyncio.gather(*(user() for _ in range(users)))
    return found


async def tabs(base: str, seconds: float) -> None:
    """Pages that are open and ask for their rows again."""
    end = time.monotonic() + seconds
    headers = {"hx-request": "true"}

    async def tab(path: str) -> None:
        async with httpx.AsyncClient(base_url=base, timeout=60, headers=headers) as http:
            await asyncio.sleep(random.random() * TAB_S)
            while time.monotonic() < end:
                (await http.get(path)).raise_for_status()
                await asyncio.sleep(TAB_S)

    paths = [path for _ in range(TABS) for path in (random.choice(lists() + details()),)]
    await asyncio.gather(*map(tab, paths))


async def swept(base: str) -> float:
    """Until the sweep has gone over all groups once; how long that took, in seconds."""
    began = time.monotonic()
    async with httpx.AsyncClient(base_url=base, timeout=60) as http:
        while time.monotonic() - began < WARM_S:
            text = (await http.get("/metrics")).text
            if "barnabas_console_sweep_rounds_total 0" not in text and "sweep_rounds" in text:
                return time.monotonic() - began
            await http.get("/groups?n=1")
            await asyncio.sleep(2)
    return float("inf")


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of all does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else float("nan")


@contextmanager
def console_of(bootstrap: str) -> Iterator[tuple[int, str, float]]:
    """A console's process and address, and how long it took to listen, in seconds."""
    words = ["--json", "--auth", "none", "--bootstrap", bootstrap, "--listen", "127.0.0.1:0"]
    began = time.perf_counter()
    with started(["barnabas.console", "console", *words]) as (console, line):
        yield console.pid, json.loads(line)["url"].rstrip("/"), time.perf_counter() - began


def first_page(base: str, began: float) -> tuple[float, bytes]:
    """When the list of topics was there, in seconds since ``began``, and what it is."""
    page = httpx.get(f"{base}/topics", timeout=60).raise_for_status().content
    return time.perf_counter() - began, page


def start_figures() -> dict[str, float]:
    """How long a console of an empty cluster takes to be there; its modules are compiled."""
    found = {}
    with started(["benchmarks.paper_cluster", "--topics", "0", "--groups", "0"]) as (_, bootstrap):
        for _ in range(STARTS):
            began = time.perf_counter()
            with console_of(bootstrap) as (_, base, listening_s):
                found["listening, s"] = listening_s
                found["first page, empty, s"] = first_page(base, began)[0]
    return found


def busy_share(process: int, meanwhile: Callable[[], object]) -> float:
    """What it took of a core meanwhile, in percent."""
    at, cpu = time.monotonic(), cpu_s(process)
    meanwhile()
    return 100 * (cpu_s(process) - cpu) / (time.monotonic() - at)


def figures_of(users: int, seconds: float) -> dict[str, float]:
    """Everything, in the order in which it happens."""
    figures = start_figures()
    with started(["benchmarks.paper_cluster"]) as (_, bootstrap):
        began = time.perf_counter()
        with console_of(bootstrap) as (console, base, _):
            figures["first page, full, s"], page = first_page(base, began)
            figures["50 rows gzipped, kB"] = len(gzip.compress(page)) / 1000
            figures["sweep over all groups, s"] = asyncio.run(swept(base))
            figures["memory at full size, MiB"] = resident_mib(console)
            figures[f"CPU with {TABS} tabs, % of a core"] = busy_share(
                console, lambda: asyncio.run(tabs(base, seconds))
            )
            waited = asyncio.run(load(base, users, seconds))
            for kind, values in waited.items():
                figures[f"{kind}: pages"] = len(values)
                figures[f"{kind}: first byte p50, ms"] = percentile(values, 0.5)
                figures[f"{kind}: first byte p95, ms"] = percentile(values, 0.95)
            figures["memory after that, MiB"] = resident_mib(console)
            time.sleep(AWAY_S)
            figures["CPU idle, % of a core"] = busy_share(console, lambda: time.sleep(20))
    figures["load of the machine"] = os.getloadavg()[0]
    return figures


def main() -> None:
    """Measure, and print a table and JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=30.0)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="barnabas-compiled-") as compiled:
        # As after any first start, whatever this shell says of compiled modules.
        os.environ["PYTHONPYCACHEPREFIX"] = compiled
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        figures = figures_of(chosen.users, chosen.seconds)
    for name, value in figures.items():
        print(f"{name:40} {value:10.1f}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
