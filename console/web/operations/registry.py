"""Every operation by its path: pages, forms, roles and tests are made from this list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .access import ACCESS_OPERATIONS
from .operation import Operation
from .topics import TOPIC_OPERATIONS
from .transactions import TRANSACTION_OPERATIONS

OPERATIONS: Final[Mapping[str, Operation]] = {
    operation.path: operation
    for operation in (*TOPIC_OPERATIONS, *ACCESS_OPERATIONS, *TRANSACTION_OPERATIONS)
}
APPLY_PATH: Final = "/operation/apply"
