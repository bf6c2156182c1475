"""The parts of docs/ that are made from the code: run as ``python -m barnabas.console.reference``.

Each lies between two comments of its page, ``<!-- name -->`` and ``<!-- /name -->``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from barnabas.broker.handlers import authorization
from barnabas.broker.net import request_order
from barnabas.broker.settings.dynamic_settings import scope_of
from barnabas.broker.settings.log_config import BROKER_SYNONYMS, FOREVER, LogConfig
from barnabas.broker.settings.node_config import SECTIONS
from barnabas.broker.settings.unsupported_settings import UNSUPPORTED_SETTINGS, Scope, Treatment
from barnabas.client.consumer.consumer_config import ConsumerConfig
from barnabas.client.consumer.fetch_config import FetchConfig
from barnabas.client.producer.producer_config import ProducerConfig
from barnabas.console.file_map import file_map
from barnabas.protocol import api
from barnabas.protocol.settings import Setting, declared


def settings_table() -> str:
    """Every setting of a node: name, default, where it may change at run time, meaning."""
    rows = ["| name | default | changes | meaning |", "|---|---|---|---|"]
    for section in SECTIONS:
        for name, item in declared(section).items():
            changes = CHANGES[scope_of(name)]
            rows.append(f"| `{name}` | {_shown(item.default)} | {changes} | {_meaning(item)} |")
    return "\n".join(rows)


CHANGES: Final = {None: "", Scope.NODE: "node", Scope.CLUSTER: "node, all"}
"""Where a setting may change while nodes run."""


def topic_settings_table() -> str:
    """Every setting of a topic, with the node's names for its default."""
    rows = ["| topic | node | default | meaning |", "|---|---|---|---|"]
    for name, item in declared(LogConfig).items():
        synonyms = ", ".join(f"`{synonym}`" for synonym in BROKER_SYNONYMS.get(name, ()))
        rows.append(f"| `{name}` | {synonyms} | {_shown(item.default)} | {item.meaning} |")
    return "\n".join(rows)


def foreign_table() -> str:
    """Every name of Kafka's that is not acted on, sorted by what happens to it."""
    rows = ["| names | what happens |", "|---|---|"]
    for treatment, fate in FATES.items():
        names = sorted(
            name for name, setting in UNSUPPORTED_SETTINGS.items() if setting.treatment is treatment
        )
        marked = (
            f"`{name}`" + "*" * (UNSUPPORTED_SETTINGS[name].scope is not None) for name in names
        )
        rows.append(f"| {', '.join(marked)} | {fate} |")
    return "\n".join(rows)


FATES: Final = {
    Treatment.SECURITY: "a promise of security: the start is **refused** unless the value is "
    "Kafka's default or empty; so are they behind `listener.name.NAME.`",
    Treatment.MISLEADING: "would mislead: **refused** unless Kafka's default or empty, with what "
    "to say instead",
    Treatment.LIMIT: "a promise of limits: accepted with a warning, **not enforced**",
    Treatment.IDLE: "belongs to a part that is not here: accepted with a warning",
}
"""What an operator must know of each treatment, the strictest first."""


def table_of(*settings: type[Any]) -> Callable[[], str]:
    """Every setting of these classes: name, default, meaning."""
    return lambda: "\n".join(["| name | default | meaning |", "|---|---|---|", *_rows(settings)])


def order_table() -> str:
    """Which requests of one connection may be under way together: by class, what may start."""
    rows = ["| class | requests | may start while one waits | why |", "|---|---|---|---|"]
    for request_class in request_order.CLASSES:
        names = ", ".join(_api_name(key) for key in request_class.keys)
        allowed_behind = "nothing"
        if set(request_class.allowed_behind) >= request_order.MEMBERSHIP:
            allowed_behind = "JoinGroup and SyncGroup of other members, LeaveGroup"
        elif request_class.allowed_behind:
            allowed_behind = ", ".join(
                _api_name(key) for key in sorted(request_class.allowed_behind)
            )
        rows.append(
            f"| {request_class.name} | {names} | {allowed_behind} | {request_class.reason} |"
        )
    return "\n".join(rows)


def _api_name(key: int) -> str:
    spec = api.lookup(key)
    assert spec is not None
    return spec.name


PARTS: dict[str, dict[str, Callable[[], str]]] = {
    "operations.md": {
        "settings": settings_table,
        "foreign settings": foreign_table,
        "topic settings": topic_settings_table,
    },
    "wire.md": {"order": order_table},
    "architecture.md": {"files": file_map},
    "security.md": {"matrix": lambda: authorization.table().rstrip("\n")},
    "client/producer.md": {"settings": table_of(ProducerConfig)},
    "client/consumer.md": {"settings": table_of(ConsumerConfig, FetchConfig)},
}
"""Page to part to the text that belongs there."""


def rendered(page: str, text: str) -> str:
    """The page with every generated part renewed; raises ValueError when a mark is missing."""
    for name, make in PARTS[page].items():
        mark = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        if not mark.search(text):
            raise ValueError(f"{page} has no part {name}")
        part = make()
        text = mark.sub(lambda found, part=part: f"{found[1]}{part}\n{found[2]}", text)  # type: ignore[misc]
    return text


def main(arguments: Sequence[str]) -> int:
    """Renew every page in the folder that is named."""
    folder = Path(arguments[0]) if arguments else Path("docs")
    for page in PARTS:
        path = folder / page
        path.write_text(rendered(page, path.read_text()))
    return 0


def _rows(sections: Iterable[type[Any]]) -> Iterator[str]:
    seen: set[str] = set()
    for section in sections:
        for name, item in declared(section).items():
            if name not in seen:
                yield f"| `{name}` | {_shown(item.default)} | {_meaning(item)} |"
            seen.add(name)


def _meaning(item: Setting) -> str:
    return f"{item.meaning} ({', '.join(item.choices)})" if item.choices else item.meaning


def _shown(default: Any) -> str:
    if default is None or default in ("", ()):
        return ""
    if default == FOREVER:
        return "never"
    if isinstance(default, bool):
        return str(default).lower()
    text = ",".join(default) if isinstance(default, tuple) else str(default)
    return f"`{text}`"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
