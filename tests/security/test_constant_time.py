"""What proves something is compared in constant time only (CVE-2021-38153).

Source: docs/spec/security.md §10 (S83).
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WHERE = (
    "broker/security/*.py",
    "protocol/scram.py",
    "protocol/beacon.py",
    "client/connection/*.py",
)
PROOFS = re.compile(
    r"password|proof|signature|digest|nonce|stored_key|server_key|client_key|secret|hash|hmac|key"
)
HARMLESS = {"password_hash", "digest_bytes", "_NO_SECRET_HERE"}


def compared(path: Path) -> list[str]:
    """Lines that compare by ``==`` or ``!=`` what a stranger may not learn byte by byte."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Compare):
            continue
        if not any(isinstance(operator, ast.Eq | ast.NotEq) for operator in node.ops):
            continue
        for operand in (node.left, *node.comparators):
            name = getattr(operand, "id", getattr(operand, "attr", ""))
            if PROOFS.search(name) and name not in HARMLESS:
                found.append(f"{path.name}:{node.lineno} {name}")
    return found


def test_the_check_sees_a_comparison_that_takes_as_long_as_it_is_right(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("if self.stored_key == given:\n    pass\nif len(proof) != 3:\n    pass\n")
    assert compared(bad) == ["bad.py:1 stored_key"]


@pytest.mark.parametrize("pattern", WHERE)
def test_no_proof_is_compared_by_an_operator(pattern: str) -> None:
    paths = sorted(ROOT.glob(pattern))
    assert paths
    assert [line for path in paths for line in compared(path)] == []
