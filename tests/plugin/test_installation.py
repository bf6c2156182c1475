"""What README.md says about installing from a wheel and from a checkout works, extras included."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.harness.page_examples import ROOT, pages

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install")
OFFLINE = ("--dry-run", "--no-deps", "--no-index", "--no-build-isolation", "--ignore-installed")
"""What extras bring is the package index's business."""


def installed_by(command: str, directory: Path) -> str:
    """What pip would install for what stands behind ``pip install`` in a shell."""
    words = " ".join(f"'{word}'" for word in (*PIP, *OFFLINE))
    done = subprocess.run(
        ["sh", "-c", f"{words} {command}"],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def shown() -> list[str]:
    """Every way to install us that any page shows."""
    texts = [page.read_text(encoding="utf-8") for page in [ROOT / "README.md", *pages()]]
    words = (
        r"""pip install ('\.\[\w+\]'|"\$\(ls dist/barnabas-\*\.whl\)\[\w+\]"|'?barnabas[^ `]*)"""
    )
    return [found for text in texts for found in re.findall(words, text)]


def test_no_page_takes_us_from_an_index_where_we_are_not() -> None:
    assert len(shown()) > 4
    named = [word for word in shown() if word.strip("'`").startswith("barnabas")]
    assert named == ["barnabas"]  # README says that this finds nothing


def test_a_wheel_is_installed_as_the_pages_say(wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / wheel.name).symlink_to(wheel)
    for command in {word for word in shown() if "dist/" in word}:
        assert f"Would install {wheel.name.split('-py3')[0]}" in installed_by(command, tmp_path)


def test_a_checkout_is_installed_as_the_pages_say() -> None:
    for command in sorted({word for word in shown() if word.startswith("'.[")})[:1]:
        assert "Would install barnabas-" in installed_by(command, ROOT)
