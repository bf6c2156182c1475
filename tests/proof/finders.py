"""The simulations and models that must find planted bugs, each a function of one seed.

A finder returns when it saw nothing amiss, and raises what its checks raise otherwise.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any, Final

import hypothesis
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from barnabas.protocol.errors import Refused
from tests.coordinator.test_group_machine import GroupMachine
from tests.liveness.simulated_nodes import Faults
from tests.liveness.simulation import LivenessSimulation
from tests.sim import (
    test_compaction,
    test_controllers,
    test_daemon,
    test_failing_disk,
    test_replicated_commits,
    test_replication,
    test_transactional_copies,
    test_transactions,
)
from tests.sim import test_duplicate_node_id as test_twin
from tests.storage.compaction.test_compaction_model import CompactionMachine
from tests.storage.log.test_log_model import LogMachine

Finder = Callable[[int], Any]

EXAMPLES: Final = 10
"""Of a state machine, for one seed."""
LEASE_SECONDS: Final = 30.0


class LostRecords(AssertionError):  # noqa: N818 - what happened
    """A replica said that it cut committed records."""


class _Listening(logging.Handler):
    """Keeps what says that committed records were cut."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if "lost committed records" in message:
            self.found.append(message)


@contextlib.contextmanager
def no_committed_record_is_cut() -> Iterator[None]:
    """Raises LostRecords at the end."""
    listening, speaker = _Listening(), logging.getLogger("barnabas.broker.replication.partition")
    speaker.addHandler(listening)
    try:
        yield
    finally:
        speaker.removeHandler(listening)
    if listening.found:
        raise LostRecords(listening.found[0])


def replication(seed: int) -> None:
    """Three nodes and their accidents, one after the other."""
    with no_committed_record_is_cut():
        test_replication.simulate(seed)


def power_cut_of_all(seed: int) -> None:
    """Three nodes that lose power at the same moment."""
    with no_committed_record_is_cut():
        test_replication.simulate_power_cuts(seed)


def leases(seed: int) -> None:
    """Nodes, controllers and beacons under faults."""
    LivenessSimulation(seed, Faults()).run(LEASE_SECONDS)


def machine(model: type[RuleBasedStateMachine], seed: int, steps: int) -> None:
    """Some examples of a model-based test."""
    settings = hypothesis.settings(
        max_examples=EXAMPLES,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        phases=[hypothesis.Phase.generate],
        print_blob=False,
        verbosity=hypothesis.Verbosity.quiet,
        report_multiple_bugs=False,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    seeded: Any = hypothesis.seed(seed)(type(model.__name__, (model,), {}))
    run_state_machine_as_test(seeded, settings=settings)


FINDERS: Final[dict[str, Finder]] = {
    "replication": replication,
    "power-cut": test_daemon.simulate,
    "power-cut-of-all": power_cut_of_all,
    "compacted-offsets": test_compaction.simulate,
    "commits": test_replicated_commits.simulate,
    "transactions": test_transactions.simulate,
    "copies": test_transactional_copies.simulate,
    "controllers": test_controllers.run,
    "twin": test_twin.simulate,
    "failing-disk": test_failing_disk.simulate,
    "leases": leases,
    "groups": lambda seed: machine(GroupMachine, seed, 40),
    "log": lambda seed: machine(LogMachine, seed, 30),
    "compaction": lambda seed: machine(CompactionMachine, seed, 25),
}

FINDINGS: Final = (AssertionError, TimeoutError, Refused)
"""What checks raise: anything else is a plant that does not work, and no finding."""


def found_by(finder: Finder, seed: int) -> str | None:
    """What the finder says, in a line; None when nothing. Raises what is no finding."""
    logging.disable(logging.WARNING)
    try:
        finder(seed)
    except BaseException as error:
        told = _finding(error)
        if told is None:
            raise
        return told
    finally:
        logging.disable(logging.NOTSET)
    return None


def _finding(error: BaseException) -> str | None:
    if isinstance(error, BaseExceptionGroup):
        told = [_finding(exception) for exception in error.exceptions]
        return next((finding for finding in told if finding is not None), None)
    if not isinstance(error, FINDINGS):
        return None
    lines = str(error).strip().splitlines() or [""]
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    where = "" if traceback is None else f" in {traceback.tb_frame.f_code.co_name}"
    return f"{type(error).__name__}{where}: {lines[0]}"
