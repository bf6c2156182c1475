"""Every job by its name, and the way all of them start: words in, a session, a report, a code.

The three faces share it: ``run`` of a job's module for Python, ``barnabas spark JOB`` for people,
``spark-submit pipeline/jobs/FILE`` for clusters. Source: docs/spec/pipeline.md §4 and §5.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from barnabas.client.option_parser import OptionParser
from barnabas.client.os_errors import describe_os_error
from barnabas.pipeline.jobs.reports.html_page import write_html
from barnabas.pipeline.jobs.reports.report import FAILED, INTERRUPTED, USAGE, Report, write_json

log = logging.getLogger(__name__)

JOBS: Final = {
    "lag-history": "how far groups were behind over time, and what that meant",
    "offset-audit": "commits that went back, jumped, stalled or left the log",
    "zk-migrate": "bring offsets of classic groups from ZooKeeper to the coordinator, and back",
    "reset": "move many groups to a time or an offset, by a plan that can be undone",
    "archive": "topics into Parquet, exactly once",
    "restore": "an archive back into a topic",
    "segments": "verify, profile, compact or compare log directories, without a broker",
    "profile": "who commits how often, and how evenly it spreads",
    "reconcile": "the same topic in two clusters, record by record",
}
_MODULES: Final = {
    "lag-history": "lag_history",
    "offset-audit": "offset_audit",
    "zk-migrate": "zk_migrate",
    "reset": "bulk_reset",
    "archive": "archive",
    "restore": "restore",
    "segments": "segments",
    "profile": "commit_profile",
    "reconcile": "reconcile",
}
"""Each has ``add_arguments``, ``configured`` and ``run``, and is what spark-submit is given."""
_ROWS: Final = 1_000


def main(job: str, words: Sequence[str] | None = None) -> int:
    """Run ``job`` with command line ``words``: the exit code, see report.py."""
    module = module_of(job)
    parser = OptionParser(
        prog=f"barnabas spark {job}", description=f"{JOBS[job][:1].upper()}{JOBS[job][1:]}."
    )
    module.add_arguments(parser)
    _add_common(parser)
    try:
        chosen = parser.parse_args(words)
    except SystemExit as usage:
        return int(usage.code or 0)
    return _run(job, module, chosen)


def module_of(job: str) -> ModuleType:
    """The module of a job."""
    return importlib.import_module(f"barnabas.pipeline.jobs.{_MODULES[job]}")


def _add_common(parser: argparse.ArgumentParser) -> None:
    output = parser.add_argument_group("what comes of it")
    output.add_argument("--report", type=Path, metavar="FILE", help="write the report as JSON")
    output.add_argument("--html", type=Path, metavar="FILE", help="write it as a page with plots")
    output.add_argument(
        "--limit", type=int, default=_ROWS, metavar="N",
        help=f"rows of each table in the report (default: {_ROWS})",
    )  # fmt: skip
    output.add_argument("--quiet", action="store_true", help="tell nothing while it runs")
    spark = parser.add_argument_group("Spark")
    spark.add_argument("--master", metavar="URL", help="default: that of spark-submit, or local[*]")
    spark.add_argument(
        "--conf", action="append", default=[], metavar="K=V", help="a setting of the session"
    )
    spark.add_argument("--packages", metavar="A,B", help="Maven packages for the session")


def _run(job: str, module: ModuleType, chosen: argparse.Namespace) -> int:
    from barnabas.pipeline.jobs.reports.job_progress import progress_on_stderr

    from .inputs import UsageProblem

    progress = progress_on_stderr(job, quiet=chosen.quiet)
    started = time.monotonic()
    started_ms = time.time_ns() // 1_000_000
    try:
        config = module.configured(chosen)
        for path in (chosen.report, chosen.html):
            if path is not None and not path.absolute().parent.is_dir():
                raise UsageProblem(f"{path}: its directory is not there")
        progress.step("starting Spark")
        spark = _session(job, chosen)
        try:
            with progress.watching(spark):
                report: Report = module.run(spark, config, progress)
        finally:
            spark.stop()
    except UsageProblem as problem:
        return _failed(job, str(problem), USAGE)
    except OSError as problem:
        return _failed(job, describe_os_error(problem), FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as problem:
        log.debug("job failed name=%s", job, exc_info=True)
        return _failed(job, str(problem) or type(problem).__name__, FAILED)
    report.started_ms, report.seconds = started_ms, time.monotonic() - started
    report.arguments = _arguments(chosen)
    _write(report, chosen)
    return report.exit_code


def _session(job: str, chosen: argparse.Namespace) -> Any:
    from barnabas.pipeline.jobs.spark_session.ship_package import ship
    from barnabas.pipeline.jobs.spark_session.shuffle_partitions import divide_shuffles
    from barnabas.pipeline.session import spark_session

    conf = dict(_pair(setting) for setting in chosen.conf)
    if chosen.packages:
        conf["spark.jars.packages"] = chosen.packages
    conf.setdefault("spark.ui.enabled", "false")
    spark = spark_session(f"barnabas {job}", chosen.master, conf)
    spark.sparkContext.setLogLevel("ERROR")
    ship(spark)
    divide_shuffles(spark)
    return spark


def _pair(text: str) -> tuple[str, str]:
    from .inputs import UsageProblem

    name, sign, value = text.partition("=")
    if not sign:
        raise UsageProblem(f"--conf {text} must read NAME=VALUE")
    return name, value


def _arguments(chosen: argparse.Namespace) -> dict[str, Any]:
    """What was typed and is worth telling; what may hold a password is not."""
    hidden = {"option", "conf", "report", "html", "quiet"}
    return {
        name: str(value)
        for name, value in sorted(vars(chosen).items())
        if name not in hidden and value not in (None, "", [], False)
    }


def _write(report: Report, chosen: argparse.Namespace) -> None:
    for name, value in report.figures.items():
        sys.stdout.write(f"{name}: {value}\n")
    for note in report.notes:
        sys.stdout.write(f"{note}\n")
    if chosen.report:
        write_json(report, chosen.report)
    if chosen.html:
        write_html(report, chosen.html)
    sys.stdout.flush()


def _failed(job: str, problem: str, code: int) -> int:
    lines = problem.strip().splitlines() or ["failed, and did not say why"]
    sys.stderr.write(f"barnabas spark {job}: {lines[0]}\n")
    return code
