"""What a node of the development cluster runs: import while ZooKeeper starts, then serve.

``python -m barnabas.console.development.node_main FILE GATE READY`` imports the daemon, waits until
GATE gets a byte, then is ``python -m barnabas.broker FILE --ready-fd READY``. Half of a node's
start is importing, and a ZooKeeper client that connects before ZooKeeper listens loses seconds to
back-off.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Serve once the parent says so; returns the daemon's exit code."""
    properties, start_pipe, ready = arguments[0], int(arguments[1]), int(arguments[2])
    from barnabas.broker.__main__ import main as serve

    start_byte = os.read(start_pipe, 1)
    os.close(start_pipe)
    if not start_byte:
        return 1  # the parent went away first
    return serve([properties, "--ready-fd", str(ready)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
