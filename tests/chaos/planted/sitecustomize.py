"""Loaded by an interpreter that starts with this folder on its path: a node with a planted bug.

Which one says BARNABAS_TEST_PLANT; tests/chaos/group_plants.py has them and sets both.
"""

from __future__ import annotations

import os

if "BARNABAS_TEST_PLANT" in os.environ:
    from tests.chaos.group_plants import plant

    plant(os.environ["BARNABAS_TEST_PLANT"])
