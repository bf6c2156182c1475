"""What security was to hold when it was done, and the tests that show it.

Each line of the issue's "Done when", part by part. The rules of the specification are in
test_checks.py; what is still open is in docs/status.md.
"""

from __future__ import annotations

import pytest

from tests.harness.named_tests import names_in

CLIENTS = "interop/test_secured_clients.py"
EVERY_CLIENT = f"{CLIENTS}::test_a_client_is_served_or_told_why_not"
FRAMES = "pipeline/test_secured_frames.py"
CLASSIC = "interop/test_secured_classic.py"
BESIDE_KAFKA = "interop/test_rights_beside_kafka.py"
MATRIX = "authorizer/test_matrix.py"
HOSTILE = "interop/test_hostile_peers.py"
HANDSHAKES = "net/test_hostile_handshakes.py"
BENCHMARKS = "interop/test_security_benchmarks.py"

DONE: dict[str, tuple[str, ...]] = {
    # Scenarios and clients are parameters there: SCRAM-SHA-256, SCRAM-SHA-512, a certificate, and
    # each refusal, by kafka-python, aiokafka, confluent-kafka, franz-go, sarama, kcat, Java 2.8,
    # 3.9 and 4.1, and ours, in the newest and in older releases, against `security init`.
    "clients: SASL_SSL with SCRAM, mTLS, least rights, refused with the right code": (
        EVERY_CLIENT,
        "interop/test_security_init.py::test_a_user_with_least_rights_works_by_each_family_of_clients",
        "interop/test_security_init.py::test_what_was_not_allowed_is_refused_with_its_code",
        "interop/test_security_init.py::test_a_stranger_gets_nothing",
    ),
    "clients: Spark's connector": (
        f"{FRAMES}::test_sparks_own_connector_does_so_with_the_same_options",
    ),
    "clients: our own, in every shape": (
        EVERY_CLIENT,
        f"{FRAMES}::test_our_source_and_sink_read_and_write_with_few_rights",
        f"{FRAMES}::test_without_the_right_nothing_is_read_and_the_reason_is_told",
        f"{FRAMES}::test_a_stream_is_copied_in_transactions_and_its_group_is_told",
        f"{CLASSIC}::test_a_group_is_read_and_its_offsets_are_stored_where_it_says",
        f"{CLASSIC}::test_who_brokers_refuse_is_told_why",
        f"{CLASSIC}::test_who_zookeeper_refuses_gets_no_session",
        "pipeline/test_secured_zookeeper.py::test_the_job_moves_them_with_the_file_of_the_console",
        "interop/test_secured_console.py"
        "::test_every_command_that_asks_a_cluster_logs_in_inside_of_tls",
        "interop/test_cluster_for_tests.py::test_settings_are_ready_to_use",
    ),
    "matrix: no unexplained cell": (
        f"{MATRIX}::test_each_api_is_denied_as_the_matrix_has_it",
        f"{MATRIX}::test_every_api_of_the_matrix_is_asked",
        f"{MATRIX}::test_a_handler_without_a_row_ends_the_start",
        f"{BESIDE_KAFKA}::test_every_row_of_the_matrix_is_compared",
        f"{BESIDE_KAFKA}::test_every_cell_is_answered_as_kafka_answers_it_or_explained",
        f"{BESIDE_KAFKA}::test_no_difference_is_listed_in_vain",
    ),
    "hostile: handshakes cut at every byte": (
        f"{HOSTILE}::test_handshakes_that_are_cut_at_every_byte_disturb_nobody",
    ),
    "hostile: replayed SCRAM messages": (
        f"{HOSTILE}::test_what_others_said_in_their_logins_proves_nothing",
        f"{HOSTILE}::test_a_nonce_that_only_ends_as_the_nodes_does_proves_nothing",
        f"{HOSTILE}::test_a_login_is_over_once_and_its_messages_open_nothing_again",
    ),
    "hostile: wrong channel order": (
        f"{HOSTILE}::test_nothing_is_served_before_a_login_whatever_is_asked",
        f"{HOSTILE}::test_where_a_token_is_due_nothing_else_is_served",
        f"{HOSTILE}::test_clear_text_on_a_port_of_tls_is_closed_without_a_word",
        f"{HOSTILE}::test_tls_on_a_port_in_clear_is_closed_and_named_in_the_log",
    ),
    "hostile: certificates of another authority, expired, of a wrong host": (
        f"{HOSTILE}::test_certificates_that_prove_nothing_let_nobody_in",
        f"{HOSTILE}::test_clients_that_refuse_the_node_disturb_nobody",
        "interop/test_tls_clients.py::test_a_client_is_refused_or_refuses_and_does_not_hang",
    ),
    "hostile: null cipher and others that must not be": (
        f"{HOSTILE}::test_handshakes_that_must_not_be_get_an_alert_and_disturb_nobody",
        f"{HANDSHAKES}::test_a_handshake_that_must_not_be_is_answered_by_an_alert_at_most",
    ),
    "hostile: renegotiation": (
        f"{HOSTILE}::test_second_handshakes_inside_of_sessions_are_not_made",
        f"{HANDSHAKES}::test_nobody_begins_a_second_handshake_inside_of_a_session",
    ),
    "hostile: 1,000 half-open handshakes, with flat memory": (
        f"{HOSTILE}::test_a_thousand_half_open_handshakes_keep_no_client_out",
        f"{HOSTILE}::test_five_thousand_that_never_come_to_the_point_are_gone_in_time",
        f"{HOSTILE}::test_five_thousand_idle_sessions_take_less_than_200_mib",
    ),
    "measured: TLS beside Kafka, cost of entries, fairness": (
        "../benchmarks/security.py::measure",
        "../benchmarks/security.py::costs",
        "../benchmarks/fairness.py::measure",
        f"{BENCHMARKS}::test_every_row_of_security_is_filled_with_right_answers",
        f"{BENCHMARKS}::test_others_are_served_beside_a_flood_with_and_without_quotas",
    ),
    "rotation: under load no acknowledged record is lost": (
        "interop/test_rotation.py"
        "::test_every_secret_is_replaced_while_records_and_offsets_are_written",
        "interop/test_rotation_of_trust.py::test_the_authority_is_replaced_in_three_rounds",
        "interop/test_rotation_of_trust.py"
        "::test_the_secret_of_tokens_is_replaced_and_former_tokens_end",
        "interop/test_tls_renewal.py"
        "::test_a_certificate_is_replaced_by_request_while_clients_write_and_nothing_is_lost",
        "interop/test_tls_nodes.py"
        "::test_replication_goes_on_over_tls_while_certificates_are_renewed_and_a_node_is_killed",
    ),
}


@pytest.mark.parametrize("line", DONE)
def test_what_was_promised_has_tests_that_are_there(line: str) -> None:
    for test in DONE[line]:
        path, _, name = test.partition("::")
        assert name in names_in(path), test
