"""Each numbered check of docs/spec/coordinator.md §1 to §5, and the tests that prove it.

The names say the rules; here it is seen that none of them has gone.
"""

from __future__ import annotations

import pytest

from tests.harness.named_tests import names_in

CHECKS: dict[str, tuple[str, ...]] = {
    "C1.1": ("coordinator/test_kafka_data.py::test_a_group_lives_in_the_partition_kafka_gives_it",),
    "C1.2": (
        "coordinator/test_find_coordinator.py"
        "::test_the_first_question_in_a_new_cluster_starts_the_creation_of_the_topic",
        "controller/test_create_topics.py::test_the_offsets_topic_is_created_on_demand_on_coordinators",
        "interop/test_offsets_topic.py::test_a_fresh_cluster_makes_the_offsets_topic_when_asked",
    ),
    "C1.3": (
        "controller/test_create_topics.py"
        "::test_a_topic_that_cannot_be_created_on_demand_is_reported_once",
        "interop/test_offsets_topic.py::test_with_too_few_nodes_there_is_no_coordinator_ever",
    ),
    "C1.4": (
        "coordinator/test_error_matrix.py::test_every_api_answers_as_the_matrix_says",
        "coordinator/test_error_matrix.py"
        "::test_loading_is_asked_before_ownership_so_that_clients_wait_instead_of_wandering",
    ),
    "C1.5": (
        "coordinator/test_offset_commit.py"
        "::test_a_commit_to_a_node_that_does_not_own_the_group_is_refused_for_each_partition",
    ),
    "C1.6": (
        "coordinator/test_offset_commit.py"
        "::test_an_anonymous_commit_is_refused_by_a_stable_group_and_taken_by_an_empty_one",
    ),
    "C1.7": (
        "coordinator/test_offset_fetch.py"
        "::test_fetch_v1_puts_a_group_error_into_each_requested_partition",
    ),
    "C1.8": (
        "coordinator/test_offset_commit.py::test_oversize_metadata_fails_its_partition_and_no_other",
    ),
    "C2.1": (
        "protocol/test_golden_protocol.py"
        "::test_a_record_of_the_offsets_topic_is_read_as_others_wrote_it",
        "protocol/test_golden_protocol.py"
        "::test_a_record_of_the_offsets_topic_is_written_as_others_do",
    ),
    "C2.2": ("coordinator/test_loading.py::test_bytes_behind_a_known_value_are_ignored",),
    "C2.3": ("coordinator/test_loading.py::test_keys_of_later_versions_are_skipped",),
    "C2.4": (
        "coordinator/test_offset_commit.py::test_one_commit_of_three_partitions_is_one_batch_of_three_records",
        "coordinator/test_offset_commit.py::test_commits_of_one_turn_are_one_batch_and_each_has_its_own_answer",
        "coordinator/test_offset_commit.py::test_a_commit_that_does_not_fit_into_a_batch_fails_alone",
    ),
    "C2.5": (
        "interop/test_log_handover.py::test_records_and_commits_pass_to_apache_kafka_and_back",
    ),
    "C3.1": (
        "coordinator/test_offset_commit.py"
        "::test_a_commit_that_is_not_replicated_in_time_is_answered_7_and_not_served",
    ),
    "C3.2": ("sim/test_replicated_commits.py::test_a_committed_offset_never_goes_backwards",),
    "C3.3": ("coordinator/test_loading.py::test_the_last_of_commit_tombstone_commit_is_served",),
    "C3.4": (
        "coordinator/test_loading.py::test_an_open_transaction_is_not_served_and_unstable",
        "coordinator/test_loading.py::test_a_marker_decides_what_a_transaction_staged",
    ),
    "C3.5": (
        "coordinator/test_loading.py"
        "::test_a_plain_commit_after_a_transactional_one_stays_when_the_marker_comes",
        "coordinator/test_offset_commit.py"
        "::test_of_two_commits_of_one_partition_in_one_batch_the_later_record_wins",
    ),
    "C3.6": (
        "coordinator/test_elections.py::test_an_election_of_an_older_epoch_is_ignored",
        "coordinator/test_elections.py::test_a_resignation_of_an_older_epoch_is_ignored",
    ),
    "C3.7": (
        "coordinator/test_offset_commit.py"
        "::test_a_commit_in_flight_does_not_bring_back_the_offset_of_a_deleted_topic",
    ),
    "C3.8": (
        "coordinator/test_loading.py::test_a_log_that_cannot_be_read_whole_is_not_served_at_all",
        "coordinator/test_loading.py::test_a_batch_with_a_wrong_checksum_is_not_served",
    ),
    "C3.9": (
        "coordinator/test_standby_model.py::TestStandby",
        "coordinator/test_loading.py::test_the_cache_after_a_load_is_the_fold_over_the_log",
    ),
    "C3.10": (
        "coordinator/test_audit_trail.py"
        "::test_an_administrative_reset_leaves_one_audit_record_for_each_changed_partition",
        "coordinator/test_audit_trail.py::test_an_ordinary_commit_leaves_no_audit_record",
        "interop/test_group_history.py"
        "::test_a_reset_leaves_one_record_for_each_partition_undo_restores_and_a_commit_leaves_none",
    ),
    "C4.1": (
        "coordinator/test_offset_expiration.py::test_a_live_idle_subscribed_group_keeps_its_offsets",
    ),
    "C4.2": (
        "coordinator/test_offset_expiration.py"
        "::test_a_group_loses_all_a_retention_after_it_became_empty_and_none_before",
    ),
    "C4.3": (
        "coordinator/test_offset_expiration.py"
        "::test_a_group_that_only_keeps_offsets_loses_each_by_its_commit_time",
    ),
    "C4.4": (
        "coordinator/test_offset_expiration.py"
        "::test_a_retention_of_its_own_counts_only_while_nobody_subscribes",
    ),
    "C4.5": (
        "coordinator/test_offset_expiration.py"
        "::test_an_expired_group_leaves_tombstones_and_a_reload_finds_nothing",
    ),
    "C4.6": (
        "coordinator/test_offset_expiration.py::test_a_rebalancing_group_never_loses_offsets",
    ),
    "C4.7": (
        "coordinator/test_offset_expiration.py"
        "::test_a_deleted_topic_takes_its_offsets_out_of_every_group_at_once",
    ),
    "C5.1": (
        "coordinator/test_join_group.py"
        "::test_two_members_one_leads_and_knows_both_the_other_knows_nobody",
    ),
    "C5.2": (
        "coordinator/test_join_group.py"
        "::test_from_version_4_a_member_learns_its_id_first_and_joins_with_it",
        "coordinator/test_join_group.py"
        "::test_an_abandoned_member_id_delays_a_join_by_at_most_its_session_timeout",
    ),
    "C5.3": (
        "coordinator/test_join_group.py"
        "::test_a_silent_member_goes_after_its_session_and_the_others_are_told_27",
    ),
    "C5.4": (
        "coordinator/test_join_group.py"
        "::test_a_member_that_heartbeats_but_never_syncs_goes_after_the_rebalance_timeout",
    ),
    "C5.5": (
        "coordinator/test_static_members.py"
        "::test_a_restart_keeps_generation_and_assignment_and_fences_the_old_id",
    ),
    "C5.6": ("coordinator/test_join_group.py::test_the_third_member_of_a_group_of_two_is_refused",),
    "C5.7": (
        "coordinator/test_join_group.py"
        "::test_a_commit_is_taken_while_preparing_and_refused_while_completing",
    ),
    "C5.8": (
        "coordinator/test_static_members.py"
        "::test_a_stable_group_goes_on_without_a_rebalance_after_a_failover",
    ),
}


@pytest.mark.parametrize("check", CHECKS)
def test_a_check_has_tests_that_are_there(check: str) -> None:
    for test in CHECKS[check]:
        path, _, name = test.partition("::")
        assert name in names_in(path), test


def test_no_check_of_the_sections_is_left_out() -> None:
    most = {1: 8, 2: 5, 3: 10, 4: 7, 5: 8}
    assert list(CHECKS) == [
        f"C{section}.{number}" for section, count in most.items() for number in range(1, count + 1)
    ]
