"""docs/reliability.md, made from the result files; nothing in it is typed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.proof.experiments import EXPERIMENTS
from tests.proof.plot import drawing
from tests.proof.promises import PROMISES
from tests.proof.results import Result
from tests.proof.runs import ROOT, SAMPLES

PAGE: Final = ROOT / "docs" / "reliability.md"
_HEAD: Final = """\
# Reliability: what is promised, how it is tried, what was found

Made by `python -m tests.proof table` from the files in `docs/reliability/`. These are written by
`python -m tests.proof run --profile pr|night|week` (`--only NAME` for one experiment): `pr` takes
minutes, `night` about eight hours on two cores, `week` a weekend. Each experiment has a small
version in `make test`. Setting, unless said: three nodes, three replicas,
`min.insync.replicas=2`, acks=all, no unclean elections.

No violation in n independent cases means, with 95 % confidence, a rate below 3/n. A case of a
simulation is a whole history with many faults.
"""
_NOT_PROMISED: Final = """

Not promised: records with acks 0 or 1; two nodes that lose power at once without a flush; nodes
that lie; what ZooKeeper itself loses.
"""


def page(results: Sequence[Result]) -> str:
    """The whole page."""
    return "\n".join([_HEAD, *_promises(results), "", *_experiments(results)]) + _NOT_PROMISED


def drawings(results: Sequence[Result]) -> dict[str, str]:
    """The pictures that the page shows, by name of their file."""
    return {one.drawing: drawing(one.figures[SAMPLES]) for one in results if SAMPLES in one.figures}


def _promises(results: Sequence[Result]) -> list[str]:
    rows = ["## Promises", "", "| | promise | tried, in the largest run of each | violations |"]
    rows.append("|---|---|---|---|")
    for name, text in PROMISES.items():
        tried = [experiment.name for experiment in EXPERIMENTS if name in experiment.promises]
        found = [largest for name in tried if (largest := _largest(results, name))]
        cases = "; ".join(f"{_cases(one)} of {one.experiment}" for one in found)
        violations = str(sum(one.violations for one in found)) if found else ""
        rows.append(f"| {name} | {text} | {cases or '**not tried yet**'} | {violations} |")
    return rows


def _experiments(results: Sequence[Result]) -> list[str]:
    rows = [
        "## Runs",
        "",
        "| experiment | what it does | cases | of a week's | faults | violations | figures | run |",
    ]
    rows.append("|---|---|---|---|---|---|---|---|")
    for experiment in EXPERIMENTS:
        name, how = experiment.name, experiment.how
        aim = f"{experiment.sizes['week']:,}" if experiment.unit != "tests" else "all"
        mine = [result for result in results if result.experiment == name]
        rows += [_row(one, how, aim) for one in mine]
        if not mine:
            rows.append(f"| {name} | {how} | not run yet | {aim} | | | | |")
    return rows


def _row(one: Result, how: str, aim: str) -> str:
    faults = ", ".join(f"{name} {count:,}" for name, count in one.faults.items())
    told = [
        f"{name.replace('_', ' ')} {_shown(value)}"
        for name, value in one.figures.items()
        if name != SAMPLES
    ]
    if SAMPLES in one.figures:
        told.append(f"[drawn](reliability/{one.drawing})")
    figures = ", ".join(told)
    run = f"{one.profile}, {one.date}, {one.commit}, {one.seconds:,.0f} s, {one.machine}"
    cells = (one.experiment, how, _cases(one), aim, faults, one.violations, figures, run)
    return f"| {' | '.join(map(str, cells))} |"


def _cases(one: Result) -> str:
    return f"{one.cases:,} {one.unit}" + (f" ({one.skipped} skipped)" if one.skipped else "")


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "(" + ", ".join(f"{name} {_shown(one)}" for name, one in value.items()) + ")"
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def _largest(results: Sequence[Result], experiment: str) -> Result | None:
    mine = [result for result in results if result.experiment == experiment]
    return max(mine, key=lambda result: result.cases, default=None)
