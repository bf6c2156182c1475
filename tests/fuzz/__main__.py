"""Try every decoder with so many spoilt inputs.

    python -m tests.fuzz --cases 10000 [--first 0] [--only TARGET ...] [--keep] [--json FILE]

``--cases`` is for each target. What is found is printed; ``--keep`` puts it into the corpus, which
`make test` reads from then on. Ends with 1 when there was a finding.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.fuzz.engine import Figures, keep, tried
from tests.fuzz.targets import TARGETS

_SHOWN = 20
_AT_ONCE = 10_000


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when nothing was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--cases", type=int, default=10_000, help="for each target")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    names = [target.name for target in TARGETS]
    parser.add_argument("--only", choices=names, action="append", metavar="TARGET")
    parser.add_argument("--keep", action="store_true", help="put what is found into the corpus")
    parser.add_argument("--json", type=Path, help="write the results there")
    asked = parser.parse_args(arguments)
    results = []
    for target in TARGETS:
        if asked.only and target.name not in asked.only:
            continue
        figures = tried(target, range(asked.first, asked.first + asked.cases))
        results.append(figures)
        sys.stdout.write(
            f"{figures.target:14} {figures.cases:>10,} cases, slowest {figures.slowest_ms:.1f} ms, "
            f"most {figures.most_bytes_per_byte} bytes a byte, {len(figures.findings)} findings\n"
        )
        for found in figures.findings[:_SHOWN]:
            sys.stdout.write(f"  {found}\n")
            if asked.keep:
                keep(found)
        sys.stdout.flush()
    if asked.json is not None:
        rows = {"targets": [_row(result) for result in results]}
        asked.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 1 if any(result.findings for result in results) else 0


def _row(figures: Figures) -> dict[str, Any]:
    return {
        "target": figures.target,
        "cases": figures.cases,
        "slowest_ms": round(figures.slowest_ms, 1),
        "most_bytes_per_byte": figures.most_bytes_per_byte,
        "findings": [str(finding) for finding in figures.findings],
    }


if __name__ == "__main__":
    sys.exit(main())
