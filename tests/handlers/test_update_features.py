"""UpdateFeatures, as a Kafka 3.9 with ZooKeeper answers it."""

from __future__ import annotations

import pytest

from barnabas.broker.handlers.update_features import UpdateFeaturesHandler
from barnabas.protocol.messages import update_features as messages
from tests.handlers.peer import call, over_the_wire


def update(name: str, level: int, **more: bool) -> messages.FeatureUpdate:
    return messages.FeatureUpdate(feature=name, max_version_level=level, **more)


@pytest.mark.parametrize("version", [0, 1])
def test_no_feature_can_be_finalized_and_each_is_refused_by_itself(version: int) -> None:
    handler = UpdateFeaturesHandler(is_controller=lambda: True)
    request = messages.UpdateFeaturesRequest(
        feature_updates=[update(name, 1) for name in ("metadata.version", "x", "x", "")]
    )
    answer = over_the_wire(handler.update(call(request, version)), version)
    assert answer.error_code == 0
    assert [(each.feature, each.error_code) for each in answer.results] == [
        ("metadata.version", 42),
        ("x", 42),
        ("", 42),
    ]
    assert not handler.update(call(messages.UpdateFeaturesRequest(), version)).results


@pytest.mark.parametrize(
    ("version", "wish", "reason"),
    [
        (0, update("x", 0), "less than 1"),
        (1, update("x", 0), "less than 1"),
        (0, update("x", 0, allow_downgrade=True), "no such feature"),
        (1, update("x", 5), "no such feature"),
        (1, update("", 0), "must be named"),
    ],
)
def test_the_reason_is_told(version: int, wish: messages.FeatureUpdate, reason: str) -> None:
    handler = UpdateFeaturesHandler(is_controller=lambda: True)
    request = messages.UpdateFeaturesRequest(feature_updates=[wish])
    [told] = handler.update(call(request, version)).results
    assert reason in (told.error_message or "")


def test_a_node_that_is_not_the_controller_says_so() -> None:
    handler = UpdateFeaturesHandler(is_controller=lambda: False)
    assert handler.update(call(messages.UpdateFeaturesRequest(), 1)).error_code == 41
