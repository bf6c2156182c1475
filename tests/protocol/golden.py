"""Golden bodies as messages: what Kafka 3.9.1 and 4.1.0 and third-party encoders wrote, by class.

Source: docs/spec/protocol.md §3.4, docs/spec/coordinator.md §10.
"""

from __future__ import annotations

import base64
import json
import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from barnabas.protocol import api, consumer_protocol
from barnabas.protocol.codec.wire import Kind, schema_of

GOLDEN = Path(__file__).parent.parent / "golden"

CONSUMER_GROUPS = "golden-consumer-groups.json"
"""What Kafka 3.9 does not know yet: written by 4.1."""
KAFKA_FILES = ("golden-kafka39.json", "golden-delegation-tokens.json", CONSUMER_GROUPS)

MODULES = {
    "LeaderChangeMessage": "leader_change",
    "TransactionLogKey": "transaction_log",
    "TransactionLogValue": "transaction_log",
}


@dataclass(frozen=True, slots=True)
class Body:
    """One golden body: the message it holds and the bytes it must be."""

    message: Any
    version: int
    data: bytes


@cache
def document(name: str) -> Any:
    """A golden file, read once."""
    return json.loads((GOLDEN / name).read_text())


@cache
def kafka_vectors() -> list[Any]:
    """All that Kafka's own serializers wrote, as it stands in the files."""
    return [vector for name in KAFKA_FILES for vector in document(name)["vectors"]]


@cache
def kafka_bodies() -> dict[type, list[Body]]:
    """Every body Kafka's own serializers wrote, by message class; headers are not among them."""
    bodies = defaultdict(list)
    for vector in kafka_vectors():
        if not vector["message"].endswith("Header"):
            message_class = class_named(vector["message"])
            message = built(message_class, vector["body"])
            bodies[message_class].append(
                Body(message, vector["version"], bytes.fromhex(vector["hex"]))
            )
    return bodies


@cache
def message_versions() -> list[tuple[type, int]]:
    """Every version of every request, response and record we declare."""
    classes = [
        *(spec.request for spec in api.registry().values()),
        *(spec.response for spec in api.registry().values()),
        consumer_protocol.Subscription,
        consumer_protocol.Assignment,
        *map(class_named, MODULES),
    ]
    pairs = []
    for message_class in classes:
        low, high = schema_of(message_class).versions or (0, -1)
        pairs += [(message_class, version) for version in range(low, high + 1)]
    return pairs


def label(pair: tuple[type, int]) -> str:
    """The name of a parametrized case."""
    return f"{pair[0].__name__}-v{pair[1]}"


def class_named(name: str) -> type:
    """The message class of Kafka's name."""
    if name.startswith("ConsumerProtocol"):
        module, name = "barnabas.protocol.consumer_protocol", name.removeprefix("ConsumerProtocol")
    else:
        stem = MODULES.get(name) or snake(re.sub("(Request|Response)$", "", name))
        module = f"barnabas.protocol.messages.{stem}"
    found: dict[str, type] = vars(import_module(module))
    return found[name]


def built(message_class: type, values: dict[str, Any]) -> Any:
    """A message from the values of a golden file, in either of its spellings."""
    kinds = {field.name: field.kind for field in schema_of(message_class).fields}
    return message_class(
        **{snake(name): value(kinds[snake(name)], given) for name, given in values.items()}
    )


def value(kind: Kind[Any], given: Any) -> Any:
    """One value: bytes are base64 in one file and ``{"hex": ...}`` in the other."""
    if given is None:
        return None
    if kind.struct is not None:
        return built(kind.struct, given)
    if kind.element is not None:
        return [element(kind.element, item) for item in given]
    if isinstance(given, dict):
        return bytes.fromhex(given["hex"])
    if kind.name in ("bytes", "records"):
        return base64.b64decode(given)
    return base64.urlsafe_b64decode(given + "==") if kind.name == "uuid" else given


def element(kind: Any, given: Any) -> Any:
    """One element of an array."""
    return value(kind, given) if isinstance(kind, Kind) else built(kind, given)


def snake(name: str) -> str:
    """Kafka's camel case as we spell it."""
    name = name.replace("KRaft", "Kraft")
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()
