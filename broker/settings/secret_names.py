"""Which settings are never told: to nobody who asks for them, in no log, in no message.

Source: docs/spec/security.md §9 (S79).
"""

from __future__ import annotations

import dataclasses
from typing import Final

from .listener_settings import split_name
from .name_validation import unsupported_setting
from .node_config import SECTIONS

SECRET_SETTINGS: Final = frozenset(
    field.metadata["name"]
    for section in SECTIONS
    for field in dataclasses.fields(section)
    if not field.repr
)
"""As they are declared: a secret is left out of the ``repr`` of its class."""
_JAAS: Final = ".sasl.jaas.config"


def is_secret_name(name: str) -> bool:
    """Whether the value of a setting, of a listener or of the node, is never told."""
    found = split_name(name)
    own = name if found is None else found.setting
    if own in SECRET_SETTINGS or name.endswith(_JAAS):
        return True
    unsupported = unsupported_setting(name)
    return unsupported is not None and unsupported.is_secret
