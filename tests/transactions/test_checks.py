"""Each numbered check of docs/spec/transactions.md, and the tests that prove it.

The names say the rules; here it is seen that none of them has gone, and that no check was added
without a test.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.harness.named_tests import names_in

SPEC = Path(__file__).parents[2] / "docs" / "spec" / "transactions.md"

CHECKS: dict[str, tuple[str, ...]] = {
    "T1.1": (
        "controller/test_create_topics.py"
        "::test_the_transaction_log_is_created_on_demand_with_five_settings_on_coordinators",
        "interop/test_transactions.py"
        "::test_the_first_question_after_a_coordinator_makes_the_transaction_log",
    ),
    "T1.2": (
        "controller/test_create_topics.py"
        "::test_a_topic_that_cannot_be_created_on_demand_is_reported_once",
        "interop/test_transactions.py::test_with_too_few_nodes_there_is_no_transaction_log_ever",
    ),
    "T1.3": (
        "coordinator/transactions/test_transaction_record.py"
        "::test_golden_keys_decode_and_encode_to_the_same_bytes",
        "coordinator/transactions/test_transaction_record.py"
        "::test_golden_values_decode_and_encode_to_the_same_bytes",
        "coordinator/transactions/test_transaction_record.py::test_a_value_of_version_1_is_read",
    ),
    "T1.4": (
        "coordinator/transactions/test_transaction_replay.py"
        "::test_folding_the_golden_log_gives_the_states_of_its_manifest",
    ),
    "T1.5": (
        "coordinator/transactions/test_transaction_replay.py"
        "::test_a_key_of_a_version_that_is_not_known_is_skipped",
        "coordinator/transactions/test_transaction_record.py"
        "::test_a_value_that_nobody_writes_is_refused_either_way",
        "coordinator/transactions/test_takeover.py"
        "::test_a_partition_that_cannot_be_read_is_not_served_in_part",
    ),
    "T1.6": (
        "interop/test_golden_transactions.py"
        "::test_kafkas_tool_reads_the_log_that_our_coordinator_goes_on_with",
    ),
    "T2.1": (
        "coordinator/transactions/test_transaction_state.py"
        "::test_every_pair_is_a_legal_transition_or_our_bug",
        "coordinator/transactions/test_transaction_state.py"
        "::test_the_drawing_in_the_docs_is_made_from_the_table",
    ),
    "T2.2": (
        "coordinator/transactions/test_end_txn.py::test_each_state_answers_as_the_table_says",
        "coordinator/transactions/test_end_txn.py"
        "::test_a_prepared_end_without_a_pending_completion_answers_by_its_state",
    ),
    "T2.3": (
        "coordinator/transactions/test_transaction.py"
        "::test_exhausted_epochs_begin_anew_under_another_producer_id",
        "coordinator/transactions/test_transaction.py"
        "::test_at_32765_no_other_producer_id_is_needed",
        "coordinator/transactions/test_transaction.py"
        "::test_a_retry_after_exhaustion_gets_the_new_producer_id_again",
        "coordinator/transactions/test_init_producer_id.py"
        "::test_exhausted_epochs_lead_to_a_fresh_producer_id",
        "coordinator/transactions/test_exhausted_epochs.py"
        "::test_a_producer_begins_under_another_producer_id",
        "interop/test_exhausted_epochs.py"
        "::test_an_id_goes_on_under_another_producer_id_and_fences_its_last_epoch",
    ),
    "T2.4": (
        "coordinator/transactions/test_init_producer_id.py"
        "::test_a_fenced_producer_is_told_so_by_version",
        "coordinator/transactions/test_add_partitions.py"
        "::test_another_epoch_lower_or_higher_is_fenced",
        "coordinator/transactions/test_end_txn.py::test_another_epoch_lower_or_higher_is_fenced",
    ),
    "T2.5": (
        "coordinator/transactions/test_init_producer_id.py"
        "::test_a_second_producer_aborts_the_open_transaction_of_the_first",
        "interop/test_own_transactions.py::test_a_second_producer_fences_the_first",
    ),
    "T2.6": (
        "coordinator/transactions/test_add_partitions.py"
        "::test_an_unknown_topic_keeps_the_others_from_being_added",
    ),
    "T2.7": (
        "coordinator/transactions/test_add_partitions.py"
        "::test_partitions_that_are_known_append_nothing",
    ),
    "T2.8": (
        "coordinator/transactions/test_end_txn.py"
        "::test_the_end_is_answered_before_its_markers_are_written",
    ),
    "T2.9": (
        "coordinator/transactions/test_expiry.py"
        "::test_a_producer_that_comes_back_is_told_49_and_begins_anew",
        "coordinator/transactions/test_init_producer_id.py"
        "::test_a_producer_whose_id_expired_begins_anew",
    ),
    "T3.1": (
        "coordinator/transactions/test_takeover.py"
        "::test_a_decided_end_is_completed_by_the_next_coordinator",
        "sim/test_transactional_copies.py"
        "::test_each_record_is_copied_once_and_committed_offsets_are_what_was_copied",
    ),
    "T3.2": (
        "coordinator/transactions/test_takeover.py"
        "::test_no_marker_leaves_while_its_decision_is_above_the_high_watermark",
        "coordinator/transactions/test_takeover.py"
        "::test_its_markers_leave_when_the_high_watermark_reached_it",
        "sim/test_transactions.py"
        "::test_every_marker_of_a_transaction_is_the_same_and_an_answered_commit_stands",
    ),
    "T3.3": (
        "coordinator/transactions/test_journal.py::test_every_failed_append_leaves_nothing_pending",
        "coordinator/transactions/test_completion.py"
        "::test_a_completion_that_cannot_be_appended_is_tried_until_it_is",
    ),
    "T3.4": (
        "markers/test_receiver.py"
        "::test_a_deposed_coordinator_is_refused_where_its_successor_has_been",
        "coordinator/transactions/test_completion.py"
        "::test_refused_by_somebody_newer_it_is_left_to_them",
    ),
    "T3.5": (
        "markers/test_coordinator_and_sender.py"
        "::test_a_transaction_completes_when_its_topic_is_deleted",
        "coordinator/transactions/test_completion.py::test_a_commit_with_a_deleted_topic_completes",
        "markers/test_sender.py::test_a_topic_that_is_gone_for_good_holds_no_transaction_up",
    ),
    "T3.6": (
        "markers/test_sender.py::test_a_node_that_knows_no_topic_yet_drops_no_marker",
        "sim/test_transactions.py"
        "::test_coordinators_that_know_no_topic_yet_drop_no_partition_of_a_transaction",
    ),
    "T3.7": (
        "markers/test_coordinator_and_sender.py"
        "::test_a_commit_is_answered_while_a_leader_is_away_and_complete_when_it_is_back",
        "coordinator/transactions/test_end_txn.py"
        "::test_the_end_is_answered_before_its_markers_are_written",
    ),
    "T3.8": (
        "coordinator/transactions/test_timeouts.py"
        "::test_a_transaction_that_is_not_ended_is_aborted_under_the_next_epoch",
        "coordinator/transactions/test_timeouts.py"
        "::test_an_abort_that_cannot_be_appended_is_tried_again",
        "interop/test_own_transactions.py::test_a_transaction_that_takes_too_long_is_aborted",
        "interop/test_exhausted_epochs.py"
        "::test_what_is_left_open_at_the_last_epoch_times_out_under_the_one_kept_for_fences",
    ),
    "T3.9": (
        "coordinator/transactions/test_expiry.py"
        "::test_an_id_that_is_not_used_is_forgotten_with_a_tombstone",
        "coordinator/transactions/test_expiry.py"
        "::test_a_transaction_that_is_not_over_never_expires",
        "coordinator/transactions/test_expiry.py"
        "::test_while_the_tombstone_is_on_its_way_the_id_is_busy_and_not_shown",
    ),
    "T3.10": (
        "coordinator/transactions/test_transactions_machine.py::TestTransactionsMachine",
        "sim/test_transactions.py"
        "::test_every_marker_of_a_transaction_is_the_same_and_an_answered_commit_stands",
        "sim/test_transactional_copies.py"
        "::test_each_record_is_copied_once_and_committed_offsets_are_what_was_copied",
    ),
    "T3.11": (
        "markers/test_client_markers.py::test_a_forged_marker_is_refused_and_changes_nothing",
        "markers/test_client_markers.py::test_a_client_may_abort_what_is_open",
    ),
    "T3.12": (
        "markers/test_slow_markers.py"
        "::test_markers_of_other_partitions_pass_one_that_commits_nothing",
        "markers/test_slow_markers.py::test_who_asks_again_waits_for_the_marker_that_is_in_the_log",
    ),
    "T4.1": (
        "coordinator/test_txn_commit_errors.py"
        "::test_while_loading_old_producers_are_told_something_they_know",
    ),
    "T4.2": (
        "coordinator/test_txn_commit_errors.py::test_a_generation_fences_who_lost_the_partition",
        "coordinator/test_txn_commit_errors.py::test_an_instance_that_was_replaced_is_fenced",
        "coordinator/test_txn_commit_errors.py::test_who_says_nothing_of_itself_may_in_any_state",
    ),
    "T4.3": (
        "coordinator/test_txn_commits.py"
        "::test_a_staged_offset_is_served_when_its_transaction_commits",
        "interop/test_own_transactions.py"
        "::test_committed_offsets_wait_for_a_transaction_that_is_about_to_change_them",
    ),
    "T4.4": (
        "coordinator/test_golden_transactions.py"
        "::test_the_offsets_of_a_group_are_what_kafka_answered",
        "coordinator/test_txn_commits.py::test_a_plain_commit_between_record_and_marker_stays",
    ),
    "T4.5": ("coordinator/test_txn_model.py::TestHistory",),
    "T4.6": (
        "coordinator/test_txn_deletions.py"
        "::test_a_staged_offset_that_was_deleted_does_not_come_back_with_the_marker",
        "coordinator/test_txn_snapshots.py"
        "::test_what_was_deleted_behind_the_snapshot_does_not_come_back",
    ),
    "T4.7": (
        "coordinator/test_txn_commit_errors.py"
        "::test_of_two_commits_of_which_the_second_fails_the_first_counts",
    ),
    "T4.8": (
        "coordinator/test_txn_commits.py"
        "::test_the_next_transaction_is_not_ended_by_the_marker_of_this_one",
        "interop/test_group_transactions.py"
        "::test_five_transactions_in_a_row_are_each_served_with_their_own_offsets",
    ),
    "T4.9": ("coordinator/test_txn_commits.py::test_the_batch_is_the_one_that_kafka_writes",),
    "T5.1": ("markers/test_receiver.py::test_markers_are_those_of_kafka_byte_by_byte",),
    "T5.2": (
        "handlers/test_transactional_produce.py::test_a_partition_that_was_not_added_takes_nothing",
    ),
    "T5.3": (
        "handlers/test_transactional_produce.py"
        "::test_a_marker_between_the_answer_and_the_append_keeps_the_batch_out",
        "handlers/test_transactional_produce.py"
        "::test_a_marker_between_the_answer_and_the_turn_that_appends_keeps_the_batch_out",
    ),
    "T5.4": (
        "handlers/test_transactional_produce.py"
        "::test_a_producer_retries_while_its_coordinator_is_away_and_keeps_its_order",
    ),
    "T5.5": (
        "handlers/test_transactional_produce.py"
        "::test_a_producer_retries_while_its_coordinator_is_away_and_keeps_its_order",
    ),
    "T5.6": ("markers/test_receiver.py::test_a_second_marker_changes_nothing",),
    "T5.7": (
        "markers/test_receiver.py"
        "::test_a_deposed_coordinator_is_refused_where_its_successor_has_been",
        "markers/test_receiver.py::test_a_follower_appends_whatever_its_leader_has",
    ),
    "T5.8": (
        "handlers/test_transactional_produce.py::test_verification_is_switched_while_a_node_runs",
    ),
    "T5.9": (
        "handlers/test_transactional_produce.py"
        "::test_a_batch_that_comes_after_the_end_does_not_hold_readers_back",
    ),
    "T5.10": (
        "storage/test_golden_transactions.py"
        "::test_readers_of_both_levels_are_shown_what_kafka_showed_them",
        "storage/test_golden_transactions.py::test_indexes_made_anew_are_those_kafka_wrote",
        "storage/test_golden_transactions.py"
        "::test_producers_replayed_from_the_log_are_those_kafka_wrote_down",
        "storage/test_golden_transactions.py::test_a_follower_has_the_same_state_without_a_replay",
        "interop/test_golden_transactions.py::test_every_client_is_shown_what_kafkas_clients_were",
    ),
    "T5.11": (
        "handlers/test_transactional_produce.py"
        "::test_an_open_transaction_vouches_for_nobody_under_another_id",
        "handlers/test_transactional_produce.py::test_a_new_leader_asks_once_about_what_is_open",
        "verification/test_offsets_port.py::test_offsets_under_another_id_are_asked_about",
        "interop/test_foreign_producers.py"
        "::test_a_stranger_who_claims_a_producer_id_changes_nothing_of_its_transaction",
    ),
    "T6.1": (
        "console/transactions/test_tables.py"
        "::test_the_ids_of_a_real_kafka_are_listed_as_its_tool_lists_them",
        "console/transactions/test_tables.py"
        "::test_a_transaction_of_a_real_kafka_is_described_as_by_its_tool",
        "console/transactions/test_tables.py"
        "::test_the_producers_of_a_real_kafka_are_described_as_by_its_tool",
        "console/transactions/test_tables.py"
        "::test_what_hangs_stands_under_the_heads_of_kafkas_tool",
        "interop/test_transaction_tools.py::test_all_ids_are_listed_as_by_kafkas_tool",
        "interop/test_golden_transactions.py::test_every_id_is_listed_as_kafka_listed_it",
    ),
    "T6.2": (
        "interop/test_transaction_tools.py::test_what_hangs_is_found_as_by_kafkas_tool",
        "interop/test_transaction_tools.py"
        "::test_a_hanging_transaction_is_aborted_and_its_owner_goes_on",
    ),
    "T6.3": (
        "metrics/test_transaction_families.py::test_markers_that_wait_for_a_stuck_leader_are_told",
        "metrics/test_transaction_coordinator_families.py"
        "::test_transactions_are_told_by_state_age_and_end",
    ),
    "T7.1": (
        "client/producer/test_transaction_errors.py"
        "::test_every_code_of_every_request_is_treated_as_the_table_says",
        "client/producer/test_transaction_errors.py::test_a_code_is_treated_as_its_cell_says",
        "client/producer/test_transaction_errors.py"
        "::test_a_bump_that_the_coordinator_does_not_know_is_fatal",
        "client/producer/test_transaction_errors.py"
        "::test_the_lookup_of_a_coordinator_is_judged_by_itself",
    ),
    "T7.2": (
        "client/producer/test_transactions.py::test_nothing_is_sent_for_an_empty_transaction",
    ),
    "T7.3": (
        "client/producer/test_transaction_calls.py"
        "::test_a_coordinator_that_moves_before_a_request_changes_nothing",
        "client/producer/test_transaction_calls.py::test_an_answer_that_is_lost_is_asked_for_again",
        "interop/test_own_transactions_move.py::test_a_node_that_is_killed_changes_no_transaction",
    ),
    "T7.4": (
        "interop/test_own_transactions.py"
        "::test_commits_and_aborts_are_read_as_both_clients_read_them",
        "interop/test_own_exactly_once.py"
        "::test_members_that_come_go_and_fail_copy_each_record_once",
    ),
    "T8.1": (
        "coordinator/transactions/test_journal.py::test_every_failed_append_leaves_nothing_pending",
        "coordinator/transactions/test_expiry.py"
        "::test_a_tombstone_that_cannot_be_appended_leaves_the_id_usable",
    ),
    "T8.2": (
        "coordinator/transactions/test_timeouts.py"
        "::test_a_transaction_that_is_not_ended_is_aborted_under_the_next_epoch",
        "coordinator/transactions/test_init_producer_id.py"
        "::test_a_second_producer_aborts_the_open_transaction_of_the_first",
        "handlers/test_transactional_produce.py::test_a_zombie_is_refused_without_a_question",
    ),
    "T8.3": (
        "coordinator/transactions/test_end_txn.py::test_another_epoch_lower_or_higher_is_fenced",
        "coordinator/transactions/test_timeouts.py::test_more_partitions_do_not_extend_it",
    ),
    "T8.4": (
        "coordinator/transactions/test_completion.py"
        "::test_a_marker_that_is_answered_twice_counts_once",
        "coordinator/transactions/test_completion.py"
        "::test_answers_to_markers_of_a_former_term_do_not_touch_the_present_one",
    ),
    "T8.5": (
        "coordinator/transactions/test_completion.py::test_a_code_that_no_table_has_is_tried_again",
        "markers/test_sender.py::test_a_code_nobody_expects_is_an_alarm_and_no_end",
    ),
    "T8.6": (
        "coordinator/transactions/test_takeover.py"
        "::test_a_load_may_happen_again_without_a_difference",
        "coordinator/transactions/test_completion.py"
        "::test_a_leader_that_stays_serves_on_and_appends_under_its_new_epoch",
    ),
    "T8.7": (
        "markers/test_receiver.py::test_a_marker_keeps_its_producer_from_expiring",
        "markers/test_receiver.py::test_a_follower_appends_whatever_its_leader_has",
    ),
    "T8.8": (
        "handlers/test_transactional_produce.py"
        "::test_a_batch_that_comes_after_the_end_does_not_hold_readers_back",
        "interop/test_transaction_tools.py"
        "::test_a_hanging_transaction_is_aborted_and_its_owner_goes_on",
    ),
    "T8.9": (
        "handlers/test_transactional_produce.py"
        "::test_the_first_batch_of_a_transaction_is_appended_when_its_coordinator_vouches_for_it",
        "handlers/test_transactional_produce.py"
        "::test_plain_batches_under_an_id_are_appended_as_ever",
    ),
    "T8.10": (
        "handlers/test_transactional_produce.py"
        "::test_a_coordinators_answer_becomes_a_code_that_every_producer_knows",
        "coordinator/test_txn_commit_errors.py"
        "::test_nothing_is_staged_before_the_verification_and_all_is_checked_after_it",
        "verification/test_offsets_port.py"
        "::test_a_marker_between_check_and_append_keeps_the_commit_out",
    ),
    "T8.11": (
        "coordinator/transactions/test_add_partitions.py"
        "::test_an_unknown_topic_keeps_the_others_from_being_added",
    ),
    "T8.12": (
        "verification/test_verifier.py::test_a_node_of_before_verification_lets_everything_pass",
    ),
    "T8.13": (
        "markers/test_receiver.py::test_two_markers_of_one_producer_are_answered_as_one",
        "markers/test_receiver.py::test_an_answer_waits_for_every_marker",
    ),
    "T8.14": (
        "coordinator/transactions/test_completion.py"
        "::test_the_answer_of_a_marker_may_come_while_another_request_is_served",
    ),
    "T8.15": (
        "client/producer/test_transactions.py::test_a_batch_waits_until_its_partition_is_added",
        "handlers/test_transactional_produce.py"
        "::test_a_partition_that_is_added_while_its_batch_is_on_its_way_takes_the_retry",
    ),
    "T8.16": (
        "coordinator/transactions/test_init_producer_id.py"
        "::test_fencing_producers_succeeds_once_the_markers_are_written",
    ),
    "T8.17": (
        "handlers/test_transactional_produce.py"
        "::test_of_a_producer_whose_records_are_gone_any_sequence_is_taken",
        "client/producer/test_transactions.py::test_an_unknown_producer_is_mended_by_another_epoch",
    ),
    "T8.18": (
        "client/producer/test_transaction_calls.py"
        "::test_too_few_replicas_of_the_transaction_log_are_waited_for",
    ),
    "T8.19": (
        "coordinator/test_txn_commit_errors.py"
        "::test_who_waits_for_a_verification_is_told_at_once_that_the_group_has_moved",
        "coordinator/test_txn_commit_errors.py"
        "::test_who_waits_for_the_append_is_told_at_once_that_the_group_has_moved",
        "interop/test_group_transactions.py"
        "::test_staged_offsets_outlive_the_kill_of_their_coordinator",
    ),
    "T8.20": (
        "coordinator/transactions/test_expiry.py"
        "::test_a_producer_that_comes_back_is_told_49_and_begins_anew",
        "chaos/test_clock_jumps.py"
        "::test_a_clock_that_jumps_by_a_month_forgets_idle_ids_and_no_open_transaction",
    ),
    "T8.21": (
        "coordinator/transactions/test_takeover.py"
        "::test_a_crash_between_markers_and_completion_writes_the_markers_again",
        "sim/test_transactional_copies.py"
        "::test_each_record_is_copied_once_and_committed_offsets_are_what_was_copied",
        "sim/test_fault_points.py::test_an_appended_decision_is_in_the_leaders_log_alone",
        "sim/test_fault_points.py::test_a_committed_decision_is_in_another_log_and_nobody_was_told",
        "sim/test_fault_points.py::test_an_answered_commit_lacks_markers",
    ),
    "T8.22": (
        "handlers/test_transactions.py"
        "::test_what_a_producer_asked_on_a_connection_that_it_closed_is_not_done",
        "net/test_connection.py::test_a_peer_that_left_is_known_before_what_it_sent_is_served",
        "markers/test_sender.py::test_a_lost_connection_is_closed_before_its_markers_go_again",
    ),
    "T8.23": (
        "coordinator/test_txn_commit_errors.py"
        "::test_what_the_verification_says_is_told_as_the_client_understands_it",
    ),
    "T8.24": (
        "coordinator/transactions/test_completion.py"
        "::test_markers_have_the_epochs_that_were_decided_however_often_they_are_sent",
        "markers/test_receiver.py::test_a_second_marker_changes_nothing",
    ),
    "T8.25": (
        "coordinator/transactions/test_timeouts.py"
        "::test_a_clock_that_jumps_neither_ends_a_transaction_early_nor_keeps_it",
        "coordinator/transactions/test_timeouts.py"
        "::test_a_start_in_the_future_is_waited_for_no_longer_than_the_timeout",
        "chaos/test_clock_jumps.py"
        "::test_a_transaction_times_out_when_its_time_is_over_and_not_when_the_clock_says_so",
        "chaos/test_clock_jumps.py"
        "::test_a_coordinator_whose_clock_was_ahead_hands_on_a_transaction_that_goes_on",
    ),
    "T9.1": ("interop/test_own_transactions.py::test_an_empty_transaction_leaves_nothing",),
    "T9.2": ("interop/test_own_transactions.py::test_offsets_alone_are_committed_or_dropped",),
    "T9.3": (
        "interop/test_own_transactions.py::test_transactions_of_librdkafka_are_read_by_ours",
        "interop/test_own_transactions.py"
        "::test_commits_and_aborts_are_read_as_both_clients_read_them",
    ),
    "T9.4": (
        "interop/test_own_transactions.py::test_an_abort_before_a_batch_was_sent_and_then_a_commit",
    ),
    "T9.5": (
        "interop/test_own_transactions.py"
        "::test_commits_and_aborts_are_read_as_both_clients_read_them",
    ),
    "T9.6": (
        "interop/test_own_transactions.py"
        "::test_the_position_and_what_is_committed_are_behind_the_marker",
    ),
    "T9.7": ("interop/test_own_transactions.py::test_ends_of_both_levels_during_a_transaction",),
    "T9.8": (
        "interop/test_own_transactions.py::test_a_second_producer_fences_the_first",
        "interop/test_own_transactions.py::test_librdkafkas_producer_is_fenced_by_ours",
    ),
    "T9.9": (
        "interop/test_own_transactions.py"
        "::test_the_same_id_after_a_clean_stop_has_the_same_producer_id",
    ),
    "T9.10": (
        "interop/test_own_transactions.py::test_a_gap_in_the_sequences_is_mended_by_another_epoch",
    ),
    "T9.11": (
        "interop/test_own_transactions_move.py::test_a_node_that_is_killed_changes_no_transaction",
    ),
    "T9.12": ("interop/test_own_transactions.py::test_partitions_are_added_one_after_the_other",),
    "T9.13": (
        "interop/test_own_transactions.py::test_a_gap_in_the_sequences_is_mended_by_another_epoch",
        "interop/test_exhausted_epochs.py"
        "::test_an_epoch_that_a_producer_asks_for_behind_the_last_one_is_another_producer_id",
    ),
    "T9.14": (
        "interop/test_own_transactions.py"
        "::test_committed_offsets_wait_for_a_transaction_that_is_about_to_change_them",
    ),
    "T9.15": (
        "interop/test_own_transactions.py::test_a_member_of_an_old_generation_cannot_store_offsets",
    ),
    "T9.16": ("interop/test_own_transactions.py::test_partitions_are_added_one_after_the_other",),
    "T9.17": (
        "interop/test_own_transactions.py"
        "::test_a_topic_deleted_and_made_again_between_two_transactions",
    ),
    "T9.18": (
        "interop/test_own_transactions.py::test_a_transaction_that_takes_too_long_is_aborted",
    ),
    "T9.19": (
        "client/producer/test_transaction_calls.py"
        "::test_a_call_that_timed_out_is_resumed_by_the_same_call",
    ),
    "T9.20": (
        "interop/test_copies_in_transactions.py"
        "::test_a_group_copies_each_record_once_while_members_join_leave_and_are_fenced",
        "interop/test_own_exactly_once.py"
        "::test_members_that_come_go_and_fail_copy_each_record_once",
    ),
    "T10.1": (
        "chaos/test_hundred_transactional_ids.py"
        "::test_a_hundred_ids_lose_and_double_nothing_when_their_nodes_are_killed",
        "sim/test_hundred_transactional_ids.py"
        "::test_a_hundred_ids_lose_and_double_nothing_when_their_nodes_die",
    ),
    "T10.2": (
        "sim/test_deposed_transaction_coordinator.py"
        "::test_a_deposed_coordinator_vouches_for_nothing",
        "coordinator/transactions/test_gate.py"
        "::test_nothing_is_answered_out_of_memory_without_the_lease",
    ),
    "T10.3": (
        "interop/test_kafka_peer_transactions.py"
        "::test_ends_that_one_kind_decided_are_carried_out_by_the_other",
        "interop/test_transactions_among_kafka_peers.py"
        "::test_coordinators_of_both_kinds_end_transactions_in_partitions_of_both",
    ),
    "T10.4": ("../benchmarks/transactions.py::measure_rates",),
}


@pytest.mark.parametrize("check", CHECKS)
def test_a_check_has_tests_that_are_there(check: str) -> None:
    for test in CHECKS[check]:
        path, _, name = test.partition("::")
        assert name in names_in(path), test


def test_no_check_of_the_specification_is_left_out() -> None:
    """Bullets and rows have their numbers; the sequences of clients are one sentence."""
    text = SPEC.read_text()
    numbered = re.findall(r"^(?:- \*\*|\| )(T\d+\.\d+)\b", text, re.MULTILINE)
    (sequences,) = re.findall(r"\(T9\.1 to T9\.20\): (.*?)\.\n", text, re.DOTALL)
    parts = re.sub(r"\(.*?\)", "", sequences, flags=re.DOTALL).split(";")
    numbered += [f"T9.{number}" for number, _part in enumerate(parts, start=1)]
    assert sorted(numbered) == sorted(CHECKS)
