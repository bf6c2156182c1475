"""The alerts in deploy/: tried by Prometheus' own tool, and made of metrics that nodes tell."""

from __future__ import annotations

import re
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from barnabas.client import SyncConsumer, SyncProducer
from barnabas.console.development.cluster import Cluster
from tests.harness.needs import program
from tests.harness.steady_settings import STEADY
from tests.harness.waiting import eventually

DEPLOY = Path(__file__).parents[2] / "deploy" / "prometheus"
RULES: list[dict[str, Any]] = yaml.safe_load((DEPLOY / "rules.yml").read_text())["groups"][0][
    "rules"
]
TESTS: list[dict[str, Any]] = yaml.safe_load((DEPLOY / "tests.yml").read_text())["tests"]
PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()


def test_promtool_finds_every_alert_firing_and_silent() -> None:
    promtool = program("promtool", package="--no-install-recommends prometheus")
    for words in (("check", "rules", "rules.yml"), ("test", "rules", "tests.yml")):
        done = subprocess.run(
            [promtool, *words], cwd=DEPLOY, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_has_a_severity_a_sentence_a_place_in_the_manual_and_both_cases(
    rule: dict[str, Any],
) -> None:
    name = rule["alert"]
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["annotations"]["summary"]
    book = DEPLOY.parents[1] / rule["annotations"]["runbook"]
    assert f"`{name.removeprefix('Barnabas')}`" in book.read_text()
    assert f"({book.name})" in (book.parent / "README.md").read_text()
    assert f"`{name.removeprefix('Barnabas')}`" in PAGE
    cases = [test["alert_rule_test"] for test in TESTS if test["name"].split()[0] == name]
    found = [bool(case.get("exp_alerts")) for (case,) in cases]
    assert sorted(found) == [False, True]
    assert all(case["alertname"] == name for (case,) in cases)


@pytest.fixture(scope="module")
def scrape() -> Iterator[str]:
    """What a node tells on which a group has committed, after a look at its lag."""
    settings = {**STEADY, "metrics.lag.interval.ms": "200", "events.topic.enable": "true"}
    with Cluster(1, settings=settings, with_metrics=True) as cluster:
        with SyncProducer(cluster.bootstrap) as producer:
            producer.send("orders", "two teas")
        first = {"auto.offset.reset": "earliest"}
        with SyncConsumer(cluster.bootstrap, "orders", group="kitchen", config=first) as consumer:
            next(iter(consumer))
            consumer.commit()
        url = f"http://{cluster.node(1).metrics}/metrics"

        def told() -> str:
            with urllib.request.urlopen(url, timeout=60) as answer:
                return str(answer.read().decode())

        eventually(lambda: 'group_lag_seconds{group="kitchen"' in told(), what="the lag is known")
        eventually(lambda: "log_directory_free_bytes{" in told(), what="disks were looked at")
        yield told()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_every_metric_and_label_of_an_alert_is_told_by_a_node(
    rule: dict[str, Any], scrape: str
) -> None:
    names = re.findall(r"\b(barnabas_\w+|up)\b(?:\{(\w+)=)?", rule["expr"])
    assert names
    for name, label in names:
        if name == "up":
            continue
        samples = re.findall(rf"^{name}(?:\{{(.*)\}})? ", scrape, re.MULTILINE)
        declared = re.search(rf"^# TYPE {name} ", scrape, re.MULTILINE)
        assert samples or declared, name
        if label and samples:
            assert all(f'{label}="' in one for one in samples), (name, label)
    for label in re.findall(r"by \(([\w, ]+)\)", rule["expr"]):
        own = {one.strip() for one in label.split(",")} - {"job", "instance", "le"}
        assert all(f'{one}="' in scrape for one in own), own
