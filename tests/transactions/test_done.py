"""What transactions were to hold when they were done, and the tests that show it.

The specification's own checks are in test_checks.py.
"""

from __future__ import annotations

import pytest

from tests.harness.named_tests import names_in

DONE: dict[str, tuple[str, ...]] = {
    "moved: 1,000,000 records in 100 rounds": (
        "chaos/test_transactional_copies.py"
        "::test_a_million_records_are_copied_once_in_a_hundred_rounds",
    ),
    "moved: the small version": (
        "chaos/test_transactional_copies.py"
        "::test_jobs_and_nodes_that_are_hurt_copy_everything_once",
        "chaos/test_transactional_copies.py"
        "::test_jobs_that_are_killed_and_frozen_copy_everything_once_on_apache_kafka",
    ),
    "checker: finds nothing in a sound cluster": (
        "transactions/test_planted_bugs.py::test_a_sound_cluster_has_a_clean_history",
    ),
    "checker: finds what is planted": (
        "transactions/test_planted_bugs.py::test_a_planted_bug_is_found_by_what_it_does",
    ),
    "measured: rates, copies, gap": (
        "../benchmarks/transactions.py::measure_rates",
        "../benchmarks/transactions.py::measure_copies",
        "../benchmarks/transactions.py::measure_gaps",
    ),
    "simulated with all faults": (
        "sim/test_transactions.py"
        "::test_every_marker_of_a_transaction_is_the_same_and_an_answered_commit_stands",
        "sim/test_transactional_copies.py"
        "::test_each_record_is_copied_once_and_committed_offsets_are_what_was_copied",
    ),
    "bad input: every code is told to who can act on it": (
        "client/producer/test_transaction_errors.py"
        "::test_every_code_of_every_request_is_treated_as_the_table_says",
        "coordinator/test_txn_commit_errors.py"
        "::test_what_the_verification_says_is_told_as_the_client_understands_it",
        "handlers/test_transactional_produce.py"
        "::test_a_coordinators_answer_becomes_a_code_that_every_producer_knows",
    ),
    "bad input: who vanishes leaves nothing open": (
        "interop/test_vanished_producers.py::test_a_producer_that_vanishes_leaves_nothing_open",
        "interop/test_copies_in_transactions.py"
        "::test_what_a_killed_member_left_open_is_copied_once_by_those_that_follow",
    ),
    "bad input: a stranger opens nothing": (
        "handlers/test_transactional_produce.py::test_a_partition_that_was_not_added_takes_nothing",
        "coordinator/transactions/test_add_partitions.py"
        "::test_a_batch_adds_no_internal_topic_and_may_verify_one",
        "coordinator/transactions/test_add_partitions.py"
        "::test_an_unknown_id_or_another_producer_id_is_49",
    ),
    "bad input: a stranger extends nothing": (
        "handlers/test_transactional_produce.py"
        "::test_an_open_transaction_of_another_epoch_vouches_for_nothing",
        "interop/test_foreign_producers.py"
        "::test_a_stranger_who_claims_a_producer_id_changes_nothing_of_its_transaction",
    ),
    "bad input: a stranger ends nothing": (
        "coordinator/transactions/test_end_txn.py::test_an_unknown_id_or_another_producer_id_is_49",
        "markers/test_client_markers.py::test_a_forged_marker_is_refused_and_changes_nothing",
    ),
}


@pytest.mark.parametrize("line", DONE)
def test_what_was_promised_has_tests_that_are_there(line: str) -> None:
    for test in DONE[line]:
        path, _, name = test.partition("::")
        assert name in names_in(path), test
