"""``python -m barnabas.coordinator FILE``: a node that hosts groups and their offsets only."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from barnabas.broker import __main__ as broker


def main(arguments: Sequence[str]) -> int:
    """Run one node with the role coordinator, unless its file names other roles."""
    return broker.main(arguments, {"node.roles": "coordinator"}, "barnabas coordinator")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
