"""UpdateFeatures: there is no feature to finalize, as in a Kafka 3.9 with ZooKeeper.

Source: Kafka 3.9 KafkaController.processFeatureUpdates (codes and their order); KIP-584.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Final

from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import update_features as messages

from .call import Answer, Call, Handler
from .cooperative import Turn, in_turns
from .topics import elsewhere

UPGRADE: Final = 1
"""The kind of update that lowers nothing."""


class UpdateFeaturesHandler:
    """Refuses each update by itself; only the controller's node does even that."""

    def __init__(self, *, is_controller: Callable[[], bool]) -> None:
        self._is_controller = is_controller

    def handlers(self) -> Mapping[int, Handler]:
        """What to register with the dispatcher."""
        return {ApiKey.UPDATE_FEATURES: self.update}

    def update(self, call: Call) -> Answer:
        """One answer for each feature, however often it is named."""
        if not self._is_controller():
            refusal = elsewhere()
            return messages.UpdateFeaturesResponse(
                error_code=refusal.code, error_message=refusal.message or None
            )
        return in_turns(_answer(call.request, call.version))


def _answer(
    request: messages.UpdateFeaturesRequest, version: int
) -> Generator[None, None, messages.UpdateFeaturesResponse]:
    updates: dict[str, messages.FeatureUpdate] = {}
    turn = Turn()
    for update in request.feature_updates:
        updates[update.feature] = update
        if turn.is_over():
            yield
    results = []
    for name, update in updates.items():
        problem = _problem(update, version)
        code = ErrorCode.INVALID_REQUEST
        results.append(messages.Result(feature=name, error_code=code, error_message=problem))
        if turn.is_over():
            yield
    return messages.UpdateFeaturesResponse(error_message=None, results=results)


def _problem(update: messages.FeatureUpdate, version: int) -> str:
    if not update.feature:
        return "a feature must be named"
    is_lowering = update.allow_downgrade if version == 0 else update.upgrade_type != UPGRADE
    if update.max_version_level < 1 and not is_lowering:
        return f"version level {update.max_version_level} is less than 1, and no downgrade"
    return "no such feature is supported"
