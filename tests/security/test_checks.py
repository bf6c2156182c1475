"""Each rule of docs/spec/security.md, S1 to S104, and the tests that prove it.

The names say the rules; here it is seen that none of them has gone, and what has none yet. Who
builds one moves it from ``OPEN`` to ``CHECKS``.
"""

from __future__ import annotations

import pytest

from tests.harness.named_tests import names_in

AUTHORIZER = "authorizer"
BESIDE_KAFKA = "interop/test_rights_beside_kafka.py"
EVERY_CELL = f"{BESIDE_KAFKA}::test_every_cell_is_answered_as_kafka_answers_it_or_explained"
AMONG_PEERS = "interop/test_entries_among_kafka_peers.py"
LISTENERS = "settings/test_listener_settings.py"
SSL = "settings/test_ssl_settings.py"
STORES = "client/tls/test_key_stores.py"
CONTEXTS = "client/tls/test_contexts.py"
TLS = "net/test_tls_listener.py"
HANDSHAKES = "net/test_hostile_handshakes.py"
HOSTILE = "interop/test_hostile_peers.py"
LOGINS = "net/test_authentication.py"
SASL = "security/test_sasl_server.py"
SCRAM = "protocol/test_scram.py"
USERS = "security/test_scram_users.py"
BEARER = "security/test_oauthbearer.py"
TOKENS = "security/test_delegation_tokens.py"
QUOTAS = "quota/test_client_quotas.py"
SECRETS = "interop/test_secrets_stay.py"

CHECKS: dict[str, tuple[str, ...]] = {
    # 1: listeners and TLS
    "S1": (
        f"{LISTENERS}::test_a_listeners_own_value_beats_the_nodes",
        f"{LISTENERS}::test_what_is_said_of_a_mechanism_beats_its_listener_and_the_node",
        f"{LISTENERS}::test_a_node_refuses_what_is_said_of_an_unknown_listener_or_mechanism",
    ),
    "S2": (
        f"{SSL}::test_tls_that_would_not_be_what_it_says_is_refused",
        "settings/test_setting_names.py::test_no_name_that_speaks_of_security_is_only_warned_of",
    ),
    "S3": (
        "client/tls/test_tls_settings.py::test_what_does_not_go_together_is_refused_without_telling_a_secret",
    ),
    "S4": (
        f"{STORES}::test_a_file_holds_key_and_chain_in_any_order_and_other_text",
        f"{STORES}::test_a_setting_may_have_escapes_or_spaces_for_the_ends_of_lines",
    ),
    "S5": (
        f"{STORES}::test_pkcs12_is_read_whatever_it_is_called",
        f"{STORES}::test_a_store_that_is_truly_jks_is_refused_with_the_command_that_converts_it",
    ),
    "S6": (
        f"{STORES}::test_the_key_of_a_pkcs12_store_never_leaves_it_in_clear",
        f"{CONTEXTS}::test_without_a_truststore_no_client_is_asked_for_a_certificate",
    ),
    "S7": (
        f"{TLS}::test_the_certificate_says_who_the_peer_is",
        f"{TLS}::test_a_peer_without_a_proper_certificate_is_refused",
        f"{SSL}::test_below_sasl_only_the_listeners_own_word_asks_for_certificates",
    ),
    "S8": (
        f"{TLS}::test_a_client_of_tls_1_1_is_refused",
        f"{CONTEXTS}::test_a_suite_that_is_weak_or_unknown_is_refused",
        f"{CONTEXTS}::test_the_handshake_cannot_be_repeated_and_nothing_is_compressed",
    ),
    "S9": (f"{CONTEXTS}::test_the_certificate_of_a_server_must_be_of_the_host_that_is_dialled",),
    "S10": (
        "security/test_distinguished_name.py::test_the_vector_of_java_17",
        "security/test_java_names.py::test_names_are_printed_as_java_prints_them",
    ),
    "S11": (
        "security/test_principal_mapping.py"
        "::test_the_first_rule_that_matches_the_whole_name_tells_the_user",
    ),
    "S12": (
        "interop/test_tls_renewal.py"
        "::test_a_certificate_is_replaced_by_request_while_clients_write_and_nothing_is_lost",
        "security/test_ssl_contexts.py::test_between_nodes_old_and_new_must_know_each_other",
    ),
    "S13": (
        "interop/test_tls_renewal.py"
        "::test_what_cannot_be_used_is_refused_and_the_former_certificate_stays",
        "authorizer/test_audited_changes.py::test_each_change_leaves_its_parts_and_their_codes",
    ),
    "S14": (f"{TLS}::test_quotas_hold_before_the_handshake",),
    "S15": (f"{TLS}::test_no_byte_of_a_record_leaves_in_clear",),
    "S16": (f"{TLS}::test_a_slow_reader_over_tls_is_given_pieces_and_keeps_nobody_waiting",),
    "S17": (
        f"{HANDSHAKES}::test_s17_tls_on_another_loop_than_uvloop_is_warned_of",
        f"{HOSTILE}::test_five_thousand_idle_sessions_take_less_than_200_mib",
    ),
    "S18": (
        "net/test_handshake_turns.py"
        "::test_an_address_does_not_wait_for_another_that_came_by_the_thousand",
        "net/test_handshake_turns.py"
        "::test_no_two_begin_closer_than_two_milliseconds_whatever_the_rate",
        f"{TLS}::test_peers_that_stall_are_gone_in_time_and_hold_nobody_up",
    ),
    "S19": (
        f"{TLS}::test_who_sends_no_tls_is_closed_without_an_answer_and_told_once",
        f"{HOSTILE}::test_clear_text_on_a_port_of_tls_is_closed_without_a_word",
    ),
    # 2: SASL
    "S20": (
        "net/test_before_login.py::test_before_the_handshake_no_request_is_decoded",
        f"{BESIDE_KAFKA}::test_who_has_not_logged_in_is_served_nothing_where_a_login_is_asked_for",
    ),
    "S21": (f"{LOGINS}::test_bare_tokens_follow_an_old_handshake",),
    "S22": (f"{LOGINS}::test_sasl_requests_after_the_login_are_34_and_the_connection_stays",),
    "S23": (
        f"{LOGINS}::test_a_strangers_frame_has_the_length_of_its_setting_at_most",
        f"{LOGINS}::test_a_login_has_to_be_over_in_time_however_far_it_is",
    ),
    "S24": (
        f"{LOGINS}::test_a_failure_is_answered_late_and_nothing_else_is_read_meanwhile",
        f"{SASL}::test_the_eleventh_failure_of_an_address_in_a_second_waits_longer",
    ),
    "S25": (f"{AUTHORIZER}/test_decision.py::test_a_principal_is_compared_exactly",),
    "S26": (f"{SASL}::test_a_plain_token_that_is_none_has_kafkas_words",),
    "S27": (
        "protocol/test_jaas.py::test_a_login_that_cannot_be_read_is_refused_without_repeating_it",
    ),
    "S28": (
        f"{LOGINS}::test_a_hashed_password_is_checked_beside_the_loop",
        "settings/test_sasl_settings.py::test_plain_in_clear_is_warned_of_where_others_can_listen",
    ),
    "S29": (f"{SCRAM}::test_the_vector_of_rfc_7677_comes_out_on_both_sides",),
    "S30": (
        f"{SCRAM}::test_a_nonce_that_only_ends_in_the_servers_is_refused",
        f"{SCRAM}::test_a_last_message_that_is_none_ends_the_login",
    ),
    "S31": (f"{SCRAM}::test_a_name_that_nobody_has_is_challenged_like_one_that_somebody_has",),
    "S32": (f"{USERS}::test_a_credential_is_written_as_kafka_does_and_known_on_every_node",),
    "S33": (f"{USERS}::test_what_cannot_be_done_has_kafkas_code_and_changes_nothing",),
    "S34": ("interop/test_sasl_clients.py::test_kafkas_own_tools_make_users_and_log_in_as_them",),
    "S35": (
        f"{BEARER}::test_a_good_token_is_answered_with_nothing",
        f"{BEARER}::test_a_bad_token_is_told_why_and_fails_then_whatever_comes",
        "interop/test_oauthbearer.py::test_a_client_with_a_signed_token_writes_and_reads",
    ),
    "S36": (
        f"{BEARER}::test_a_token_with_a_wrong_claim_proves_nothing",
        f"{BEARER}::test_unsecured_tokens_are_believed_only_where_that_is_asked_for",
        "security/test_jwks.py"
        "::test_no_redirect_is_followed_and_no_answer_is_longer_than_a_megabyte",
    ),
    "S37": (
        f"{TOKENS}::test_whoever_has_a_token_logs_in_on_every_node_as_its_owner",
        f"{TOKENS}::test_who_logged_in_by_a_token_or_not_at_all_may_do_nothing_of_it",
        f"{BESIDE_KAFKA}::test_what_has_no_class_of_ours_is_closed_or_answered_as_kafka_answers_it",
    ),
    "S38": (
        f"{LOGINS}::test_the_end_of_a_session_is_told_and_the_next_request_closes",
        f"{LOGINS}::test_a_repeated_login_prolongs_the_session_even_after_its_end",
        "interop/test_sasl_clients.py::test_librdkafka_repeats_its_login_while_it_writes",
    ),
    # 3: authorization
    "S39": (
        "settings/test_node_config.py::test_access_is_never_less_controlled_than_the_file_says",
    ),
    "S40": (f"{AUTHORIZER}/test_acl_requests.py::test_filters_and_patterns", EVERY_CELL),
    "S41": (
        f"{AUTHORIZER}/test_decision.py::test_a_decision_is_that_of_the_plainest_model",
        EVERY_CELL,
    ),
    "S42": (
        f"{AUTHORIZER}/test_decision.py::test_a_host_is_compared_as_an_address",
        f"{AUTHORIZER}/test_decision.py"
        "::test_an_ipv4_peer_on_an_ipv6_socket_does_not_bypass_a_denial",
    ),
    "S43": (f"{AUTHORIZER}/test_decision.py::test_whether_any_topic_may_be_written",),
    "S44": (
        f"{AUTHORIZER}/test_partial_service.py::test_bit_fields_say_what_this_peer_may_do",
        EVERY_CELL,
    ),
    "S45": (
        f"{AUTHORIZER}/test_authorizer.py::test_a_change_of_the_entries_ends_what_was_decided",
    ),
    "S46": (
        f"{AUTHORIZER}/test_znodes.py::test_entries_read_and_are_written_as_kafka_has_them",
        f"{AMONG_PEERS}::test_an_entry_acts_on_the_other_side_and_its_end_does",
    ),
    "S47": (
        f"{AUTHORIZER}/test_znodes.py::test_a_note_about_a_literal_is_text_with_colons",
        f"{AUTHORIZER}/test_store.py::test_old_notes_are_deleted_by_any_node",
    ),
    "S48": (
        f"{AUTHORIZER}/test_store.py"
        "::test_what_was_written_while_this_node_was_away_is_read_when_it_is_back",
    ),
    "S49": (
        f"{AUTHORIZER}/test_store.py"
        "::test_of_a_thousand_concurrent_creations_on_three_nodes_none_is_lost",
        f"{AMONG_PEERS}::test_of_concurrent_creations_on_all_nodes_none_that_was_answered_is_lost",
    ),
    "S50": (f"{AUTHORIZER}/test_decision.py::test_a_filter_finds_what_it_matches",),
    "S51": (f"{AUTHORIZER}/test_acl_requests.py::test_what_is_no_entry_is_refused_by_itself",),
    "S52": (
        f"{AUTHORIZER}/test_acl_requests.py"
        "::test_each_entry_is_removed_under_the_first_filter_that_means_it",
    ),
    "S53": (
        f"{AUTHORIZER}/test_authorizer.py::test_a_denial_leaves_kafkas_line",
        f"{AUTHORIZER}/test_authorizer.py::test_repeated_denials_are_folded",
    ),
    "S54": (
        f"{BESIDE_KAFKA}::test_who_is_denied_is_not_told_what_exists",
        f"{AUTHORIZER}/test_matrix.py::test_a_denial_does_not_tell_whether_a_topic_exists",
        f"{AUTHORIZER}/test_partial_service.py::test_denied_records_are_not_deleted",
    ),
    "S55": (
        f"{AUTHORIZER}/test_partial_service.py::test_a_node_follows_and_obeys_without_entries",
        f"{BESIDE_KAFKA}::test_a_node_is_no_super_user_and_a_broker_of_kafka_is",
    ),
    "S56": (
        f"{AUTHORIZER}/test_partial_service.py::test_a_client_id_does_not_open_internal_topics",
        f"{AUTHORIZER}/test_partial_service.py::test_nobody_but_a_node_writes_the_audit_topic",
    ),
    # 4: quotas
    "S57": (
        "quota/test_client_quotas_handler.py"
        "::test_s57_a_quota_is_written_as_kafka_does_and_acts_on_every_node",
    ),
    "S58": (f"{QUOTAS}::test_s58_each_level_beats_those_behind_it_and_has_its_own_counter",),
    "S59": (
        "quota/test_rate.py::test_s59_a_burst_into_an_empty_history_is_spread_over_ten_windows",
    ),
    "S60": (
        "net/test_throttle.py::test_s60_the_time_of_handlers_counts_and_throttles_one_window_at_most",
    ),
    "S61": (
        "net/test_throttle.py"
        "::test_s61_a_producer_over_its_quota_is_answered_at_once_and_not_served_for_as_long",
    ),
    "S62": (f"{QUOTAS}::test_s62_invented_client_ids_do_not_fill_the_memory",),
    "S63": (
        "controller/test_mutation_quotas.py"
        "::test_s63_thirty_partitions_pass_and_the_next_topic_waits_four_seconds",
    ),
    "S64": (
        "net/test_throttle.py"
        "::test_s64_above_the_rate_of_its_address_a_connection_is_left_unread_and_closed",
    ),
    "S65": (
        "quota/test_client_quotas_handler.py"
        "::test_s65_a_change_that_makes_no_sense_is_refused_and_writes_nothing",
        EVERY_CELL,
    ),
    "S66": (
        "sim/test_quotas.py"
        "::test_s66_a_moved_replica_is_copied_at_its_rate_until_the_throttle_goes",
    ),
    # 5: ZooKeeper
    "S67": (
        "zookeeper/test_access.py"
        "::test_what_a_node_creates_is_its_own_and_passwords_are_not_read_by_others",
        "interop/test_zookeeper_access.py"
        "::test_ownership_is_switched_on_and_off_under_load_and_nothing_acknowledged_is_lost",
    ),
    "S68": ("zookeeper/test_access.py::test_of_two_digests_each_owns_what_is_created",),
    "S69": (f"{SSL}::test_tls_to_zookeeper_that_would_not_be_what_it_says_is_refused",),
    "S70": (
        "interop/test_zookeeper_access.py"
        "::test_a_node_that_is_somebody_else_to_zookeeper_ends_and_says_why",
    ),
    # 6: between nodes
    "S71": (
        "security/test_cluster_secret.py"
        "::test_the_secret_never_travels_to_a_node_that_offers_scram",
        f"{BESIDE_KAFKA}::test_no_user_is_let_in_on_the_nodes_listener",
    ),
    "S72": (f"{TLS}::test_where_nodes_meet_a_certificate_alone_makes_no_node",),
    "S73": ("security/test_cluster_secret.py::test_each_use_of_the_secret_has_a_label_of_its_own",),
    "S74": (
        "protocol/test_beacon.py::test_bytes_of_a_stranger_are_refused",
        "interop/test_own_surfaces.py::test_beacons_answer_nothing_to_who_has_proved_nothing",
    ),
    # 7 to 9: limits, audit, tools
    "S75": (
        "net/test_strangers.py"
        "::test_s75_strangers_have_half_of_all_places_and_the_oldest_goes_first",
        f"{HOSTILE}::test_peers_that_never_come_to_the_point_are_gone_in_time",
    ),
    "S76": (
        "security/test_audit_log.py"
        "::test_the_same_denial_leaves_one_line_in_ten_seconds_and_then_a_count",
        "net/test_audited_logins.py::test_logins_leave_lines_and_those_that_fail_say_no_secret",
        "authorizer/test_audited_changes.py::test_each_change_leaves_its_parts_and_their_codes",
        "security/test_ssl_contexts.py::test_certificates_that_are_read_again_are_audited",
    ),
    "S77": (
        "interop/test_own_surfaces.py::test_every_family_that_a_node_tells_is_in_the_manual",
        "net/test_audited_logins.py::test_a_connection_whose_login_was_not_repeated_is_counted",
    ),
    "S78": (
        "interop/test_access_control.py::test_kafka_acls_adds_lists_and_removes_on_nodes_of_ours",
        "interop/test_delegation_tokens.py::test_kafkas_own_tool_and_its_clients_live_on_tokens",
        "interop/test_quotas.py::test_quotas_of_kafka_configs_are_kept_shown_and_taken_back",
    ),
    "S79": (f"{SECRETS}::test_describing_settings_tells_no_secret",),
    # 10: traps
    "S80": (
        f"{AUTHORIZER}/test_matrix.py::test_each_api_is_denied_as_the_matrix_has_it",
        EVERY_CELL,
    ),
    "S81": (f"{AUTHORIZER}/test_matrix.py::test_a_super_user_may_do_everything", EVERY_CELL),
    "S82": (f"{SASL}::test_a_plain_token_may_name_the_user_twice",),
    "S83": ("security/test_constant_time.py::test_no_proof_is_compared_by_an_operator",),
    "S84": (
        "net/test_rights.py::test_a_stranger_may_not_send_large_frames",
        "net/test_before_login.py::test_where_a_token_is_due_no_other_request_is_decoded",
    ),
    "S85": (f"{HOSTILE}::test_a_nonce_that_only_ends_as_the_nodes_does_proves_nothing",),
    "S86": (
        f"{AUTHORIZER}/test_store.py::test_deleting_one_of_three_leaves_two_in_force_everywhere",
        f"{AMONG_PEERS}::test_deleting_one_of_three_leaves_two_in_force_on_every_node",
    ),
    "S87": (
        "records/test_codecs.py::test_a_snappy_block_that_claims_the_impossible_allocates_nothing",
    ),
    "S88": ("settings/test_properties.py::test_nothing_is_looked_up_for_a_value",),
    "S89": (
        "settings/test_sasl_settings.py::test_what_would_leave_a_listener_more_open_or_shut_is_refused",
        f"{SECRETS}::test_no_log_has_a_secret",
    ),
    "S90": (
        "security/test_jwks.py::test_keys_are_read_over_https_from_a_server_that_is_trusted",
        "settings/test_oauthbearer_settings.py::test_no_request_changes_what_is_believed",
    ),
    "S91": (
        f"{SECRETS}::test_no_log_has_a_secret",
        f"{SECRETS}::test_no_metric_has_a_secret_or_a_user",
        f"{SECRETS}::test_describing_settings_tells_no_secret",
        f"{SECRETS}::test_the_process_tells_no_secret",
        f"{SECRETS}::test_zookeeper_has_keys_that_check_and_no_password",
        f"{SECRETS}::test_no_file_has_a_secret_but_those_that_were_given",
        f"{SECRETS}::test_settings_show_no_secret_in_python",
        f"{SECRETS}::test_what_is_wrong_with_a_secret_is_said_without_it",
    ),
    "S92": (
        "net/test_bulk_framing.py"
        "::test_requests_of_every_size_arrive_in_order_however_they_are_cut",
    ),
    "S93": (f"{SASL}::test_nobody_logs_in_by_a_name_that_stands_for_others",),
    "S94": (f"{AMONG_PEERS}::test_odd_names_of_users_stay_what_they_are",),
    "S95": (
        "protocol/test_sanitizer.py::test_every_name_survives_its_escapes",
        f"{AMONG_PEERS}::test_odd_names_of_users_stay_what_they_are",
    ),
    "S96": (f"{AUTHORIZER}/test_authorizer.py::test_an_error_in_the_authorizer_denies",),
    "S97": (
        f"{AUTHORIZER}/test_partial_service.py"
        "::test_a_fetch_that_waits_is_judged_again_when_it_wakes",
        f"{AUTHORIZER}/test_partial_service.py"
        "::test_a_member_that_lost_its_right_is_told_when_its_join_is_answered",
    ),
    "S98": (
        f"{AUTHORIZER}/test_partial_service.py"
        "::test_a_fetch_session_asks_again_for_every_partition_it_remembers",
    ),
    "S99": (
        f"{AUTHORIZER}/test_decision.py::test_a_prefixed_star_means_names_that_begin_with_a_star",
        f"{AMONG_PEERS}::test_a_prefixed_star_means_names_that_begin_with_one_on_both_sides",
    ),
    "S100": (
        "security/test_ssl_contexts.py::test_a_key_that_others_may_read_is_told",
        "security/test_file_review.py"
        "::test_a_key_that_others_may_read_is_found_once_for_all_listeners",
    ),
    "S101": (
        f"{TOKENS}::test_a_token_lets_nobody_in_that_has_ended_but_is_not_removed_yet",
        f"{SASL}::test_a_login_that_ends_says_when_and_may_be_repeated",
    ),
    # 11: layout
    "S103": (f"{AUTHORIZER}/test_matrix.py::test_a_handler_without_a_row_ends_the_start",),
}

OPEN: dict[str, str] = {}
"""Rules without a test, because what they are about is not there; why."""

NO_RULES = {"S102", "S104"}
"""Which libraries are used, and what had to be changed once: nothing that a node does."""


@pytest.mark.parametrize("check", CHECKS)
def test_a_check_has_tests_that_are_there(check: str) -> None:
    for test in CHECKS[check]:
        path, _, name = test.partition("::")
        assert name in names_in(path), test


def test_no_rule_is_left_out_and_none_is_both_built_and_open() -> None:
    every = {f"S{number}" for number in range(1, 105)}
    assert set(CHECKS) | set(OPEN) | NO_RULES == every
    assert not set(CHECKS) & (set(OPEN) | NO_RULES)
