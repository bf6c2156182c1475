"""What cannot be tried where the hot modules are compiled (docs/decisions/0012)."""

from __future__ import annotations

from typing import Final

import pytest

from barnabas.broker.runtime.compiled_modules import kind_of_build

interpreted_only: Final = pytest.mark.skipif(
    kind_of_build() != "interpreted", reason="compiled modules; remedy: make test"
)
"""For a test that replaces what compiled code has bound, or derives from a compiled class."""
