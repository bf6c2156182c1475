"""What nodes tell over HTTP, against a cluster that is used, harmed and mended.

Source: docs/spec/users.md §4.
"""

from __future__ import annotations

import contextlib
import re
import time
import urllib.request
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

import pytest

from barnabas.client import SyncConsumer
from tests.harness.client_libraries import ClientLibrary
from tests.harness.confluent_client import Confluent
from tests.harness.consumer_groups import ConsumerGroup
from tests.harness.coordinators import coordinator
from tests.harness.deployments import OwnCluster, create_topic
from tests.harness.raw_calls import commit_offsets
from tests.harness.raw_connection import RawConnection
from tests.harness.records import Sent
from tests.harness.steady_settings import STEADY
from tests.harness.waiting import TooLate, eventually

CLIENT: ClientLibrary = Confluent()
SETTINGS = {
    **STEADY,
    "metrics.listener": "127.0.0.1:0",
    "metrics.lag.interval.ms": "200",
    "metrics.partitions.regex": "watched.*",
    "metrics.compat": "kafka_exporter,lag_exporter",
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.wait.max.ms": "200",
}
MANUAL = Path(__file__).parents[2] / "docs" / "metrics.md"
ONLY_SOMETIMES = {
    *("acls", "authorization_decisions_total", "audit_lines_lost_total"),
    *("certificate_not_after_seconds", "tls_handshake_seconds", "tls_handshakes_total"),
    *(f"event_records_{what}" for what in ("written_total", "lost_total", "waiting")),
    *("authority_majority_age_seconds", "group_survey_time_seconds"),
    *("cleaner_last_pass_time_seconds", "standby_snapshot_age_seconds"),
    *(f"group_partition_{what}" for what in ("offset", "lag", "lag_seconds", "status")),
}
"""Metrics that this cluster has no reason to tell, or not yet when it is asked."""
SAMPLE = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)(\{(?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)+\})? (\S+)')
HEAD = re.compile(r"# (?:HELP [a-z_]+ .+|TYPE [a-z_]+ (?:counter|gauge|histogram))")


@pytest.fixture(scope="module")
def observed() -> Iterator[OwnCluster]:
    """Two nodes that tell metrics, each on a port of its own choice."""
    running = OwnCluster(2, SETTINGS)
    yield running
    running.stop()


def ports(cluster: OwnCluster) -> list[int]:
    """Where each node was heard to tell metrics last."""
    said = (Path(log).read_text() for log in cluster.logs)
    return [
        int(re.findall(r"tells metrics host=127\.0\.0\.1 port=(\d+)", text)[-1]) for text in said
    ]


def scrape(port: int) -> dict[str, float]:
    """Every sample by name and labels, as they are written; fails on a line of another shape."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=120) as answer:
        text = answer.read().decode()
    found: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            assert HEAD.fullmatch(line), line
            continue
        sample = SAMPLE.fullmatch(line)
        assert sample, line
        name = sample[1] + (sample[2] or "")
        assert name not in found, f"twice: {name}"
        found[name] = float(sample[3])
    return found


def scraped(cluster: OwnCluster) -> list[dict[str, float]]:
    return [scrape(port) for port in ports(cluster)]


def total(scrapes: list[dict[str, float]], name: str) -> float:
    return sum(scrape.get(name, 0.0) for scrape in scrapes)


def told_of_group(cluster: OwnCluster, group: str, wanted: Mapping[str, float]) -> bool:
    """Whether some node tells all of ``wanted``: names whose labels begin with the group."""
    return any(
        all(scrape.get(name.replace("GROUP", group)) == value for name, value in wanted.items())
        for scrape in scraped(cluster)
    )


def test_a_cluster_has_one_active_controller_which_knows_the_rest(observed: OwnCluster) -> None:
    eventually(
        lambda: total(scraped(observed), "barnabas_controller_live_nodes") == 2, what="two nodes"
    )
    scrapes = scraped(observed)
    assert total(scrapes, "barnabas_active_controller") == 1
    assert total(scrapes, "barnabas_controller_offline_partitions") == 0
    for node, scrape in enumerate(scrapes, 1):
        (info,) = (name for name in scrape if name.startswith("barnabas_node_info{"))
        assert f'node="{node}"' in info
        assert 'roles="broker,coordinator"' in info
        assert scrape["process_resident_memory_bytes"] > 1 << 20
        assert scrape["process_open_fds"] > 3


def test_nodes_tell_how_long_their_own_duties_take(observed: OwnCluster) -> None:
    def counted(duty: str) -> float:
        return total(scraped(observed), f'barnabas_duty_seconds_count{{duty="{duty}"}}')

    for duty in ("loop", "authority_check", "beacon_echo", "control_request"):
        eventually(lambda duty=duty: counted(duty) > 0, what=duty)  # type: ignore[misc]
        assert total(scraped(observed), f'barnabas_duty_seconds_max{{duty="{duty}"}}') > 0
    assert total(scraped(observed), "barnabas_gc_pause_seconds_max") > 0


def test_nodes_tell_of_leases_votes_and_the_authority_that_comes_of_them(
    observed: OwnCluster,
) -> None:
    def told(name: str) -> float:
        return total(scraped(observed), f"barnabas_{name}")

    eventually(lambda: told("authority_voters") == 2, what="voters")
    eventually(lambda: told("lease_held") == 2, what="both nodes have a lease")
    eventually(lambda: told("authority_seconds") > 0, what="authority")
    eventually(lambda: told("authority_settled") == 1, what="a settled controller")
    eventually(lambda: told('votes_total{outcome="given"}') > 1, what="votes")
    eventually(lambda: told('duty_seconds_count{duty="session_proof"}') > 1, what="proofs")
    assert told("authority_voters_version") >= 0
    assert told("authority_majority_age_seconds") > 0
    for counted in ('votes_total{outcome="refused"}', "session_proofs_failed_total"):
        assert told(counted) >= 0


def test_requests_are_counted_with_their_times_and_bytes(observed: OwnCluster, topic: str) -> None:
    create_topic(observed, CLIENT, topic, 1)
    before = scraped(observed)
    CLIENT.produce(observed.bootstrap, topic, [Sent(b"v" * 1000)] * 10)
    after = scraped(observed)
    count, size = 'barnabas_request_seconds_count{api="Produce"}', "barnabas_request_bytes_total"
    assert total(after, count) > total(before, count)
    produced = f'{size}{{api="Produce"}}'
    assert total(after, produced) >= total(before, produced) + 10_000
    assert total(after, 'barnabas_response_bytes_total{api="Metadata"}') > 0
    bucket = 'barnabas_request_seconds_bucket{api="Produce",le="+Inf"}'
    assert total(after, bucket) == total(after, count)
    assert total(after, f'barnabas_topic_end_offset_sum{{topic="{topic}"}}') == 10
    assert total(after, 'barnabas_connections{listener="INTERNAL"}') > 0


def test_bytes_and_records_of_topics_and_batches_of_commits_are_counted(
    observed: OwnCluster, topic: str, group: str
) -> None:
    create_topic(observed, CLIENT, topic, 1, 2)
    CLIENT.produce(observed.bootstrap, topic, [Sent(b"v" * 1000)] * 10)
    first = {"auto.offset.reset": "earliest"}
    with SyncConsumer(observed.bootstrap, topic, group=f"{group}-reads", config=first) as consumer:
        assert len(list(islice(consumer, 10))) == 10
    with RawConnection(coordinator(observed.addresses, group)) as link:
        assert commit_offsets(link, group, topic, {0: 1}) == {0: 0}
    scrapes = scraped(observed)
    assert total(scrapes, f'barnabas_topic_records_in_total{{topic="{topic}"}}') == 10
    assert total(scrapes, f'barnabas_topic_bytes_in_total{{topic="{topic}"}}') >= 10_000
    # Followers fetch them as well: only what consumers were sent is counted.
    sent = total(scrapes, f'barnabas_topic_bytes_out_total{{topic="{topic}"}}')
    assert 10_000 <= sent < 40_000
    assert total(scrapes, 'barnabas_topic_records_in_total{topic="__consumer_offsets"}') > 0
    for name in ("commit_batch_requests", "commit_seconds"):
        assert total(scrapes, f"barnabas_{name}_count") > 0, name
    batches = total(scrapes, "barnabas_commit_batch_requests_count")
    assert total(scrapes, "barnabas_commit_batch_requests_sum") >= batches
    assert total(scrapes, "barnabas_replica_lag_max_records") >= 0


def test_error_codes_of_answers_are_counted_by_api(
    observed: OwnCluster, topic: str, group: str
) -> None:
    create_topic(observed, CLIENT, topic, 1)
    name = 'barnabas_request_errors_total{api="OffsetCommit",code="UNKNOWN_TOPIC_OR_PARTITION"}'
    before = total(scraped(observed), name)
    with RawConnection(coordinator(observed.addresses, group)) as link:
        assert commit_offsets(link, group, topic, {0: 1, 7: 1, 8: 1}) == {0: 0, 7: 3, 8: 3}
    assert total(scraped(observed), name) == before + 2


def test_every_metric_is_in_the_manual_and_every_metric_of_the_manual_is_told(
    observed: OwnCluster,
) -> None:
    described = set(names_in(MANUAL.read_text()))
    missing = described - ONLY_SOMETIMES

    def is_complete() -> bool:
        """Those of groups come with the next survey of them."""
        told: set[str] = set()
        for port in ports(observed):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=120) as answer:
                text = answer.read().decode()
            names = re.findall(r"^# TYPE (?:barnabas_)?(\S+)", text, re.MULTILINE)
            told |= {name for name in names if not name.startswith("kafka_")}
        assert sorted(told - described) == [], "not in the manual"
        missing.difference_update(told)
        return not missing

    with contextlib.suppress(TooLate):
        eventually(is_complete)
    assert sorted(missing) == [], "in the manual only"


def names_in(page: str) -> Iterator[str]:
    """The names in the first column of the tables, with what braces stand for."""
    for cell in re.findall(r"^\| (`.*?) \| ", page, re.MULTILINE):
        for word in re.findall(r"`([^`]+)`", cell):
            yield from _spelt_out(re.sub(r"(?<!_)\{[\w,]+\}$", "", word))


def _spelt_out(name: str) -> list[str]:
    """``a_{b,c}_d`` stands for ``a_b_d`` and ``a_c_d``; labels are gone already."""
    found = re.search(r"\{([^}]*)\}", name)
    if found is None:
        return [name]
    heads = [name[: found.start()] + word + name[found.end() :] for word in found[1].split(",")]
    return [each for head in heads for each in _spelt_out(head)]


def test_a_groups_lag_is_told_in_our_words_and_in_those_of_others(
    observed: OwnCluster, topic: str, group: str
) -> None:
    group = f"watched-{group}"
    create_topic(observed, CLIENT, topic, 2)
    stamp = int(time.time() * 1000) - 3_600_000
    records = [Sent(b"v", partition=part, timestamp_ms=stamp) for part in (0, 0, 0, 1)]
    CLIENT.produce(observed.bootstrap, topic, records)
    with RawConnection(coordinator(observed.addresses, group)) as link:
        assert commit_offsets(link, group, topic, {0: 1, 1: 9}) == {0: 0, 1: 0}
    in_topic = f'topic="{topic}"'
    of_first = f'{in_topic},partition="0"'
    wanted = {
        'barnabas_group_state{group="GROUP",state="Empty"}': 1,
        'barnabas_group_members{group="GROUP"}': 0,
        'barnabas_group_commits_total{group="GROUP"}': 1,
        'barnabas_group_status{group="GROUP"}': 3,  # it committed once and is silent since
        'barnabas_group_partitions_beyond_end{group="GROUP"}': 1,
        'barnabas_group_partitions_below_log_start{group="GROUP"}': 0,
        f'barnabas_group_lag{{group="GROUP",{in_topic}}}': 2,
        f'barnabas_group_partition_offset{{group="GROUP",{of_first}}}': 1,
        f'barnabas_group_partition_lag{{group="GROUP",{of_first}}}': 2,
        f'barnabas_group_partition_status{{group="GROUP",{of_first}}}': 4,
        f'kafka_consumergroup_lag{{consumergroup="GROUP",{of_first}}}': 2,
        f'kafka_consumergroup_lag_sum{{consumergroup="GROUP",{in_topic}}}': 2,
        f"kafka_topic_partition_current_offset{{{of_first}}}": 3,
        f'kafka_consumergroup_group_topic_sum_lag{{group="GROUP",{in_topic}}}': 2,
        'kafka_consumergroup_group_max_lag{group="GROUP"}': 2,
        f"kafka_partition_latest_offset{{{of_first}}}": 3,
    }
    eventually(lambda: told_of_group(observed, group, wanted), what="the group's lag")
    seconds = f'barnabas_group_lag_seconds{{group="{group}",{in_topic}}}'
    eventually(lambda: total(scraped(observed), seconds) >= 3_600, what="the time of its lag")
    assert total(scraped(observed), seconds) < 7_200


def test_partitions_are_told_one_by_one_only_where_that_is_asked_for(
    observed: OwnCluster, topic: str, group: str
) -> None:
    create_topic(observed, CLIENT, topic, 1)
    CLIENT.produce(observed.bootstrap, topic, [Sent(b"v")] * 3)
    with RawConnection(coordinator(observed.addresses, group)) as link:
        assert commit_offsets(link, group, topic, {0: 1}) == {0: 0}
    wanted = {f'barnabas_group_lag{{group="GROUP",topic="{topic}"}}': 2.0}
    eventually(lambda: told_of_group(observed, group, wanted), what="the group's lag")
    named = f'barnabas_group_partition_lag{{group="{group}"'
    assert not any(name.startswith(named) for scrape in scraped(observed) for name in scrape)


def test_members_and_states_of_groups_are_counted(
    observed: OwnCluster, topic: str, group: str
) -> None:
    create_topic(observed, CLIENT, topic, 2)
    with ConsumerGroup(CLIENT, observed.bootstrap, group, topic, members=2) as members:
        members.await_shares(2)
        wanted = {
            'barnabas_group_members{group="GROUP"}': 2.0,
            'barnabas_group_state{group="GROUP",state="Stable"}': 1.0,
        }
        eventually(lambda: told_of_group(observed, group, wanted), what="two members")
        stable = 'barnabas_coordinator_groups{state="Stable"}'
        eventually(lambda: total(scraped(observed), stable) >= 1, what="one of them is stable")
    owned = 'barnabas_coordinator_partitions{state="owned"}'
    eventually(lambda: total(scraped(observed), owned) == 50, what="each has its owner")
    loads = "barnabas_coordinator_loads_total"
    eventually(lambda: total(scraped(observed), loads) >= 50, what="each was loaded")


def test_a_node_that_is_gone_shows_in_the_gauges_and_its_return_too(
    observed: OwnCluster, topic: str
) -> None:
    create_topic(observed, CLIENT, topic, 2, 2)
    CLIENT.produce(observed.bootstrap, topic, [Sent(b"v", partition=part) for part in (0, 1)])
    first, _ = ports(observed)
    second = observed._cluster.nodes[1]
    second.kill()
    CLIENT.produce(observed.bootstrap, topic, [Sent(b"v", partition=part) for part in (0, 1)])

    def is_harmed() -> bool:
        told = scrape(first)
        return (
            told["barnabas_under_replicated_partitions"] >= 2
            and told.get("barnabas_controller_live_nodes") == 1
            and told["barnabas_active_controller"] == 1
        )

    eventually(is_harmed, what="replicas are missing")
    shrinks = scrape(first)["barnabas_isr_shrinks_total"]
    causes = ("silent", "session", "takeover")

    def is_counted() -> bool:
        told = scrape(first)
        losses = [told.get(f'barnabas_failovers_total{{cause="{cause}"}}', 0) for cause in causes]
        elected = told.get('barnabas_failover_seconds_count{phase="elected"}', 0)
        return sum(losses) >= 1 and elected >= 1

    eventually(is_counted, what="the failover is counted, with the time it took")
    second.spawn()
    second.let_serve()
    second.wait_ready()

    def is_mended() -> bool:
        told = scrape(first)
        return (
            told["barnabas_under_replicated_partitions"] == 0
            and told["barnabas_isr_expands_total"] > 0
        )

    eventually(is_mended, what="all are in sync again")
    assert scrape(first)["barnabas_isr_shrinks_total"] >= shrinks
    second.ask_to_stop()
    second.wait_stopped()
    assert "Traceback" not in observed.logs[1].read_text()
