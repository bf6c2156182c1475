"""axe-core, which finds what people with screen readers or without a mouse stumble over.

It is fetched by npm, once, into the cache of the tests, and no part of what is shipped (MPL-2.0).
Source: docs/spec/console.md §4 and §5.
"""

from __future__ import annotations

import base64
import hashlib
import subprocess
import tarfile
from pathlib import Path
from typing import Any, Final

from benchmarks.download_cache import CACHE, fetched

from .browser import Window
from .needs import Unobtainable, obtained, program

VERSION: Final = "4.14.1"
INTEGRITY: Final = (
    "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
)
TAGS: Final = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice")
COLOURS: Final = ("color-contrast", "link-in-text-block")
"""The rules whose outcome another theme can change."""
_FILE: Final = "axe.min.js"


def axe() -> str:
    """The script; skips where npm is missing, or cannot fetch it."""
    npm = program("npm", package="npm")
    folder = CACHE / f"axe-core-{VERSION}"
    place = obtained(
        f"axe-core {VERSION}",
        lambda: fetched(folder, _FILE, lambda target: _fetch(npm, target)),
        remedy="let npm reach its registry",
    )
    return (place / _FILE).read_text()


def _fetch(npm: str, target: Path) -> None:
    command = [npm, "pack", "--silent", f"axe-core@{VERSION}"]
    try:
        packed = subprocess.run(
            command, cwd=target, check=True, capture_output=True, text=True, timeout=120
        )
    except (subprocess.SubprocessError, OSError) as error:
        raise Unobtainable(str(error)) from None
    archive = target / packed.stdout.strip().splitlines()[-1]
    digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    assert digest == INTEGRITY, "npm gave other bytes than this file expects"
    with tarfile.open(archive) as package:
        member = package.extractfile(f"package/{_FILE}")
        assert member is not None
        (target / _FILE).write_bytes(member.read())
    archive.unlink()


def violations(window: Window, script: str, *, only_colours: bool = False) -> list[str]:
    """What stands in the way on the page that is open, one line each."""
    if not window.page.evaluate("typeof axe === 'object'"):
        window.page.evaluate(script)  # by the driver: the page's own policy lets in no script
    found: dict[str, Any] = window.page.evaluate(
        "runOnly => axe.run(document, {runOnly, resultTypes: ['violations']})",
        {
            "type": "rule" if only_colours else "tag",
            "values": list(COLOURS if only_colours else TAGS),
        },
    )
    return [
        f"{one['id']} ({one['impact']}): {node['html'][:160]} {node['failureSummary'][:200]}"
        for one in found["violations"]
        for node in one["nodes"]
    ]
