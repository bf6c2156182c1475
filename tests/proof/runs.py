"""How the commands of tests/ are run for a proof, and what they count."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

from tests.fuzz.targets import TARGETS
from tests.harness.seeds import VARIABLE as SEEDS
from tests.proof.experiment import Counts, NoResultError

ROOT: Final = Path(__file__).parents[2]
EXAMPLES: Final = "BARNABAS_FUZZ_EXAMPLES"
LONGEST_WAIT: Final = "longest wait for a commit, s, by new release"
"""A figure of tests/upgrade/rolling.py; its other ones are counts."""
FIRST_SEED: Final = 10_000
"""Above the seeds of `make test`: a proof tries what was not tried before."""
FAULTS_EACH: Final = 50
"""All that clients saw is kept until the end, and an hour of it is much."""
WRONG_CLOCK: Final = "wall clock ± 1 day"
"""A kind of tests/chaos/fault_kinds.py."""
SAMPLES: Final = "samples"
"""A figure that is drawn, and not told."""
_SHOWN: Final = 6_000
_VIOLATIONS_SHOWN: Final = 50

Run = Callable[[int], Counts]


def unchanged(*paths: str, marks: str = "not nightly") -> Run:
    """These tests as they are; a case is a test, whatever the size."""
    return lambda size: _of_tests(paths, {}, marks, 1)


def seeded(*paths: str, keyword: str = "") -> Run:
    """These tests with ``size`` seeds each; a case is one test with one seed."""

    def run(size: int) -> Counts:
        seeds = {SEEDS: f"{FIRST_SEED}:{size}"}
        return _of_tests((*paths, *(["-k", keyword] if keyword else [])), seeds, "", 1)

    return run


def fuzzed(*paths: str) -> Run:
    """These tests with ``size`` examples each; a case is an example."""
    return lambda size: _of_tests(paths, {EXAMPLES: str(size)}, "", size)


def power_cuts(size: int) -> Counts:
    """So many processes that end by a power cut, a kill or a stop (tests/crash/power_cuts.py)."""
    found = _stated(_printed(["-m", "tests.crash.power_cuts", f"--cycles={size}"], allowed=(0, 1)))
    kept = ("records", "durable", "unsafe_lost", "recovery_ms")
    return Counts(
        cases=found["cycles"],
        faults=found["ends"],
        violations=found["lost"] + len(found["broken"]),
        figures={name: found[name] for name in kept},
    )


def flipped(size: int) -> Counts:
    """So many bits of a data directory, one at a time (tests/proof/bit_flips.py)."""
    found = _reported("tests.proof.bit_flips", [f"--cases={size}"])
    kept = ("files", "directory_bytes", "starts_refused", "records_refused", "groups_refused")
    violations = found["violations"]
    for violation in violations[:_VIOLATIONS_SHOWN]:
        sys.stderr.write(f"{violation}\n")
    figures = {name: found[name] for name in kept}
    return Counts(found["cases"], found["by_kind"], len(violations), figures=figures)


def spoilt(size: int) -> Counts:
    """So many inputs, shared by all decoders (python -m tests.fuzz)."""
    found = _reported("tests.fuzz", [f"--cases={-(-size // len(TARGETS))}"])["targets"]
    findings = [finding for target in found for finding in target["findings"]]
    for finding in findings[:_VIOLATIONS_SHOWN]:
        sys.stderr.write(f"{finding}\n")
    return Counts(
        sum(target["cases"] for target in found),
        {target["target"]: target["cases"] for target in found},
        len(findings),
        figures={
            "slowest ms": max(target["slowest_ms"] for target in found),
            "most bytes allocated for one of input": {
                target["target"]: target["most_bytes_per_byte"] for target in found
            },
        },
    )


def campaign(*options: str) -> Run:
    """So many rounds of faults on three real nodes under load (tests/chaos/campaign.py)."""

    def run(size: int) -> Counts:
        arguments = [f"--rounds={size}", f"--seed={FIRST_SEED + size}", *options]
        found = _reported("tests.chaos.campaign", arguments)
        violations = len(found["findings"])
        return Counts(found["rounds"], found["faults"], violations, figures=found["figures"])

    return run


def faults(size: int) -> Counts:
    """So many faults of every kind on three real nodes (tests/chaos/fault_campaign.py).

    A cluster takes FAULTS_EACH of them; then comes the next, with the next seed.
    """
    starts = range(0, size, FAULTS_EACH)
    several = [
        _reported(
            "tests.chaos.fault_campaign",
            [f"--rounds={min(FAULTS_EACH, size - start)}", f"--seed={FIRST_SEED + start}"],
        )
        for start in starts
    ]
    rounds = [one for report in several for one in report["outcomes"]]
    skipped: Counter[str] = Counter()
    for report in several:
        skipped.update(report["skipped"])
    return Counts(
        cases=len(rounds),
        faults=Counter(one["fault"] for one in rounds),
        violations=sum(len(report["findings"]) for report in several),
        skipped=skipped.total(),
        figures=_figures_of_faults(several, rounds, skipped),
    )


def _figures_of_faults(
    several: Sequence[Mapping[str, Any]],
    rounds: Sequence[Mapping[str, Any]],
    skipped: Counter[str],
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    why = several[0]["why"]
    if skipped:
        found["skipped"] = {
            f"{kind} ({count}):": why[kind] for kind, count in sorted(skipped.items())
        }
    if not rounds:
        return found
    found["faults on controller and coordinator in one"] = sum(one["is_both"] for one in rounds)
    totals: Counter[str] = Counter()
    for report in several:
        totals.update(report["totals"])
    outages: dict[str, list[float]] = {}
    for one in rounds:
        if one["outage_s"]:  # else nobody waited for the victim: it coordinated nothing
            outages.setdefault(one["fault"], []).append(one["outage_s"])
    found["s without a commit, median and worst"] = {
        fault: f"{statistics.median(many):.2f} {max(many):.2f}"
        for fault, many in sorted(outages.items())
    }
    clocks = [one for one in rounds if one["fault"] == WRONG_CLOCK]
    if clocks:
        found["elections while a clock was wrong"] = sum(one["elections"] for one in clocks)
    found["in sync again, worst s"] = round(max(one["healed_s"] for one in rounds), 1)
    return {**found, **totals}


def endurance(size: int) -> Counts:
    """So many minutes of three real nodes at work (tests/chaos/endurance.py)."""
    found = _reported("tests.chaos.endurance", [f"--minutes={size}"])
    return Counts(
        cases=size,
        faults={"restart": found["restarts"]},
        violations=len(found["findings"]),
        figures={**found["figures"], SAMPLES: found["samples"]},
    )


def rolling(size: int) -> Counts:
    """So many upgrades there and back of three real nodes under load (tests/upgrade/rolling.py)."""
    several = [_reported("tests.upgrade.rolling", [f"--seed={seed}"]) for seed in range(size)]
    figures = [report["figures"] for report in several]
    waits = [figure.pop(LONGEST_WAIT) for figure in figures]
    longest = {release: max(wait[release] for wait in waits) for release in waits[0]}
    done = {name: sum(figure[name] for figure in figures) for name in figures[0]}
    moves = sum(report["moves"] for report in several)
    violations = sum(len(report["findings"]) for report in several)
    return Counts(moves, {"SIGTERM": moves}, violations, figures={LONGEST_WAIT: longest, **done})


def _reported(module: str, arguments: Sequence[str]) -> Mapping[str, Any]:
    """What a module that takes ``--json`` wrote there."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "report.json"
        printed = _printed(["-m", module, f"--json={file}", *arguments], allowed=(0, 1))
        found: Mapping[str, Any] = json.loads(file.read_text())
    if found.get("findings"):
        sys.stderr.write(printed[-_SHOWN:])
    return found


def _of_tests(
    arguments: tuple[str, ...], environment: Mapping[str, str], marks: str, scale: int
) -> Counts:
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        options = ["-q", "-p", "no:cacheprovider", f"--junitxml={report}", "-m", marks]
        printed = _printed(["-m", "pytest", *options, *arguments], (0, 1), environment)
        found = counted(report.read_text(), scale)
    if not found.cases + found.violations + found.skipped:
        raise NoResultError(f"no test ran\n{printed[-_SHOWN:]}")
    if found.violations:
        sys.stderr.write(printed[-_SHOWN:])
    return found


def counted(junit: str, scale: int) -> Counts:
    """The counts of a JUnit report; each test that passed stands for ``scale`` cases."""
    verdicts: Counter[str] = Counter()
    for case in ET.fromstring(junit).iter("testcase"):
        said = {child.tag for child in case}
        failed = said & {"failure", "error"}
        verdicts["failed" if failed else "skipped" if "skipped" in said else "passed"] += 1
    cases = scale * (verdicts["passed"] + verdicts["failed"])
    return Counts(cases, violations=verdicts["failed"], skipped=verdicts["skipped"])


def _printed(
    arguments: list[str], allowed: tuple[int, ...], environment: Mapping[str, str] | None = None
) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode not in allowed:
        words = " ".join(arguments)
        raise NoResultError(f"{words}\nexit code {done.returncode}\n{done.stdout[-_SHOWN:]}")
    return done.stdout


def _stated(printed: str) -> Mapping[str, Any]:
    """The JSON object that a command printed on lines of its own."""
    found: Mapping[str, Any] = json.loads(printed[printed.index("{") : printed.rindex("}") + 1])
    return found
