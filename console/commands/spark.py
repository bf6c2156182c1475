"""``barnabas spark``: jobs on Spark over topics, committed offsets and their history.

Source: docs/spec/pipeline.md §4.
"""

from __future__ import annotations

import argparse
import importlib.util

from barnabas.console.command_line.failure import Failure
from barnabas.pipeline.jobs import launch


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The job; its own words are read by itself, so that only its module is loaded."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    width = max(map(len, launch.JOBS))
    listed = "\n".join(f"  {job.ljust(width)}  {what}" for job, what in launch.JOBS.items())
    parser.epilog = f"jobs:\n{listed}\n\nbarnabas spark JOB --help tells about one job."
    parser.add_argument("job", choices=launch.JOBS, metavar="JOB", help="what to do")
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="...", help="as the job has it")


def run(chosen: argparse.Namespace) -> int:
    """0 when all is well, 1 when there is something to look at, 2 for wrong usage, 3 for failure.

    Raises Failure when Spark is not installed.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise Failure("jobs need Spark: pip install pyspark pyarrow pandas numpy")
    return launch.main(chosen.job, chosen.words)
