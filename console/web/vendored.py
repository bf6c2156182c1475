"""The scripts of others that are kept here, and how they are fetched again: ``make vendor``.

Source: docs/spec/console.md §3 (vendoring).
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parent / "static" / "vendor"
LIST: Final = FOLDER / "vendor.json"


def listed() -> list[dict[str, Any]]:
    """The packages: name, version, npm's integrity, licence, and each file with its sha256."""
    found: list[dict[str, Any]] = json.loads(LIST.read_text())["packages"]
    return found


def fetch(package: dict[str, Any], folder: Path) -> None:
    """Put the files of a package into ``folder``, from npm; raises ValueError for other bytes."""
    with tempfile.TemporaryDirectory() as place:
        name = f"{package['name']}@{package['version']}"
        packed = subprocess.run(  # noqa: S603 - npm, with names of our own list
            ["npm", "pack", "--silent", name],  # noqa: S607 - whichever npm there is
            cwd=place, check=True, capture_output=True, text=True,
        )  # fmt: skip
        archive = Path(place) / packed.stdout.strip().splitlines()[-1]
        digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        if f"sha512-{digest}" != package["integrity"]:
            raise ValueError(f"{name}: npm gave other bytes than vendor.json expects")
        with tarfile.open(archive) as packages:
            for item in package["files"]:
                member = packages.extractfile(f"package/{item['from']}")
                assert member is not None, item["from"]
                _keep(folder / item["file"], member.read(), item["sha256"])


def _keep(path: Path, data: bytes, sha256: str) -> None:
    if hashlib.sha256(data).hexdigest() != sha256:
        raise ValueError(f"{path.name}: other bytes than vendor.json expects")
    path.write_bytes(data)


if __name__ == "__main__":
    for each in listed():
        fetch(each, FOLDER)
    sys.exit(0)
