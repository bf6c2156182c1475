"""The boards in deploy/grafana: made of what nodes tell, and what Prometheus itself makes of them.

Source: docs/spec/console.md §6. Grafana is in no registry that we use: its models are read here.
"""

from __future__ import annotations

import contextlib
import json
import re
import urllib.request
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from barnabas.client import SyncConsumer, SyncProducer
from barnabas.console.development.cluster import Cluster
from tests.harness.coordinators import coordinator
from tests.harness.prometheus import Prometheus, prometheus
from tests.harness.raw_calls import commit_offsets
from tests.harness.raw_connection import RawConnection
from tests.harness.steady_settings import STEADY
from tests.harness.waiting import TooLate, eventually

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
BOARDS: Final[dict[str, dict[str, Any]]] = {
    path.stem: json.loads(path.read_text()) for path in sorted((DEPLOY / "grafana").glob("*.json"))
}
RULES: Final = DEPLOY / "prometheus" / "rules.yml"
VARIABLES: Final = {
    "$__rate_interval": "1m",
    "$job": "barnabas",
    "$instance": ".*",
    "$group": ".*",
}
QUIET: Final = ("Failovers", "Connections closed by the node", "Connections that are not read")
"""Nothing is to be seen of them while nothing happens: their labels are those of the manual."""
MANUAL: Final = (DEPLOY.parent / "docs" / "metrics.md").read_text()
NEEDS_NOBODY: Final = {"up"}
"""What Prometheus adds by itself."""


def expressions(board: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Title, expression and legend of all panels and annotations, variables put in."""
    found = [
        (panel["title"], target["expr"], target["legendFormat"])
        for panel in board["panels"]
        for target in panel["targets"]
    ]
    found += [
        (note["name"], note["expr"], note["titleFormat"]) for note in board["annotations"]["list"]
    ]
    for name, value in VARIABLES.items():
        found = [(title, expr.replace(name, value), legend) for title, expr, legend in found]
    return found


def test_there_are_the_boards_that_the_manual_tells_of() -> None:
    page = (DEPLOY.parent / "docs" / "operations.md").read_text()
    assert list(BOARDS) == ["cluster", "coordinator", "groups", "node"]
    for name in BOARDS:
        assert f"`deploy/grafana/{name}.json`" in page


@pytest.mark.parametrize("name", BOARDS)
def test_a_board_can_be_imported_and_its_panels_lie_beside_each_other(name: str) -> None:
    board = BOARDS[name]
    assert board["uid"] == f"barnabas-{name}"
    assert board["description"]
    known = {one["name"] for one in board["templating"]["list"]}
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({panel["title"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["datasource"]["uid"] == "${datasource}", "none of somebody's own"
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
    for one, other in combinations([panel["gridPos"] for panel in panels], 2):
        is_beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        is_above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert is_beside or is_above, (one, other)
    text = json.dumps([panels, board["annotations"]])
    used = set(re.findall(r"\$\{?(\w+)", text)) - {"__rate_interval"}
    assert used <= known, used - known


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two nodes that everything has happened to which boards tell of."""
    settings = {**STEADY, "metrics.lag.interval.ms": "200", "events.topic.enable": "true"}
    with Cluster(2, settings=settings, with_metrics=True) as running:
        running.create_topic("orders", partitions=4)
        with SyncProducer(running.bootstrap) as producer:
            for number in range(100):
                producer.send("orders", f"tea {number}")
        first = {"auto.offset.reset": "earliest"}
        with SyncConsumer(running.bootstrap, "orders", group="kitchen", config=first) as consumer:
            next(iter(consumer))
            consumer.commit()
        addresses = [("127.0.0.1", node.port) for node in running.nodes]
        with RawConnection(coordinator(addresses, "kitchen")) as link:
            assert commit_offsets(link, "kitchen", "nowhere", {0: 1}) == {0: 3}
        eventually(lambda: 'group_lag_seconds{group="kitchen"' in scrape(running), what="lag")
        eventually(lambda: "log_directory_free_bytes{" in scrape(running), what="disks")
        eventually(lambda: "cleaner_dirty_ratio_max " in scrape(running), what="the cleaner")
        yield running


def scrape(cluster: Cluster) -> str:
    """What all nodes tell."""
    told = []
    for node in cluster.nodes:
        with urllib.request.urlopen(f"http://{node.metrics}/metrics", timeout=60) as answer:
            told.append(answer.read().decode())
    return "".join(told)


def labels_of(metric: str, told: str, *, is_quiet: bool) -> set[str]:
    """The labels that nodes give it; of what is quiet those that the manual says."""
    samples = re.findall(rf"^{metric}(?:\{{(.*)\}})? ", told, re.MULTILINE)
    if not samples and is_quiet and f"# TYPE {metric} " in told:
        name = metric.removeprefix("barnabas_")
        samples = [",".join(f'{label}="' for label in words.split(","))
                   for words in re.findall(rf"`{name}\{{(.*?)\}}`", MANUAL)]  # fmt: skip
    assert samples, f"no node tells {metric}"
    return {label for one in samples for label in re.findall(r'(\w+)="', one)}


@pytest.mark.parametrize("name", BOARDS)
def test_every_metric_and_label_of_a_board_is_told_by_a_node(name: str, cluster: Cluster) -> None:
    told = scrape(cluster)
    added = {"job", "instance", "le"}
    for title, expression, legend in expressions(BOARDS[name]):
        metrics = re.findall(r"\b((?:barnabas|process)_\w+|up)\b(?:\{([^}]*)\})?", expression)
        assert metrics, title
        shown: set[str] = set(re.findall(r"{{(\w+)}}", legend))
        shown |= {label for each in re.findall(r"by \(([^)]*)\)", expression)
                  for label in re.split(r",\s*", each)}  # fmt: skip
        labels: set[str] = set()
        for metric, matchers in metrics:
            if metric in NEEDS_NOBODY:
                continue
            labels |= labels_of(metric, told, is_quiet=title in QUIET)
            asked = set(re.findall(r'(\w+)(?:=~|=|!=)"', matchers)) - added
            assert asked <= labels, f"{title}: {metric} has no {asked - labels}"
        unknown = shown - labels - added - set(re.findall(r'count_values\("(\w+)"', expression))
        assert not unknown, f"{title}: {unknown}"


def test_prometheus_scrapes_a_cluster_evaluates_every_rule_and_finds_what_boards_show(
    cluster: Cluster, tmp_path: Path
) -> None:
    targets = [node.metrics for node in cluster.nodes]
    with prometheus(tmp_path, targets, [RULES]) as server:
        eventually(lambda: len(server.evaluate("up == 1")) == 2, what="both nodes are scraped")
        eventually(lambda: len(_rates(server)) > 0, what="there are two samples to make a rate of")
        shown = {
            f"{title}: {expression}": expression
            for board in BOARDS.values()
            for title, expression, _ in expressions(board)
            if title not in QUIET
        }

        def are_found() -> bool:
            for title, expression in list(shown.items()):
                if server.evaluate(expression):
                    del shown[title]
            return not shown

        with contextlib.suppress(TooLate):  # what is missing says more than that it is late
            eventually(are_found, within_s=180, what="every panel shows something")
        assert not shown
        for board in BOARDS.values():
            for title, expression, _ in expressions(board):
                if title in QUIET:
                    server.evaluate(expression)
        rules = eventually(
            lambda: _evaluated(server), within_s=180, what="every rule was evaluated"
        )
        wanted = {rule["alert"] for rule in yaml.safe_load(RULES.read_text())["groups"][0]["rules"]}
        assert {rule["name"] for rule in rules} == wanted
        assert {rule["name"]: rule["lastError"] for rule in rules if rule.get("lastError")} == {}
        firing = {rule["name"] for rule in rules if rule["state"] == "firing"}
        assert firing == set(), "of a cluster in order"


def _rates(server: Prometheus) -> list[dict[str, Any]]:
    return server.evaluate("rate(process_cpu_seconds_total[1m]) > 0")


def _evaluated(server: Prometheus) -> list[dict[str, Any]]:
    (group,) = server.ask("rules")["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules if all(rule["health"] == "ok" for rule in rules) else []
