"""Run the tests that failed in the last run again, alone, three times; say so loudly.

    python .ci/failed_again.py

Among eighteen thousand tests with real processes on a shared machine one may fail for want of a
processor. CI does not throw a whole change away for that: where at most eight failed, and each
passes three times in a row with nothing beside it, the run counts, and ends with their names. Such
a test is a finding all the same: it is mended or written down in docs/status.md.
Ends with 1 in every other case, also when nothing is known of the last run.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

FAILED_MAX: Final = 8
ROUNDS: Final = 3
WITHIN_S: Final = 1500.0
"""All rounds together: the limit of CI would else end the run without a word."""
LAST_FAILED: Final = Path(".pytest_cache/v/cache/lastfailed")
_ALONE: Final = ("-p", "no:cacheprovider", "-p", "no:xdist", "-q")


def main() -> int:
    """0 when all that failed passed three times since."""
    failed = sorted(json.loads(LAST_FAILED.read_text())) if LAST_FAILED.exists() else []
    if not failed or len(failed) > FAILED_MAX:
        print(f"=== {len(failed)} tests are known to have failed: not run again", flush=True)
        return 1
    ends = time.monotonic() + WITHIN_S
    for number in range(1, ROUNDS + 1):
        print(f"=== again, alone, {number} of {ROUNDS}: {' '.join(failed)}", flush=True)
        words = [sys.executable, "-m", "pytest", *_ALONE, *failed]
        try:
            if subprocess.run(words, check=False, timeout=ends - time.monotonic()).returncode:
                return 1
        except subprocess.TimeoutExpired:
            print(f"=== not done within {WITHIN_S:g} s", flush=True)
            return 1
    told = "\n".join(f"===   {name}" for name in failed)
    print(f"=== FAILED ONCE, and passed {ROUNDS} times alone. Find out why:\n{told}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
