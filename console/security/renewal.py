"""Other certificates of the same authority and names, in place of those that end.

Source: docs/spec/security.md §1 (S12): a running node takes them without a restart.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from barnabas.console.command_line.failure import Failure, Misuse

from .authority import KEY_FILE, Authority, common_name_of, hosts_of
from .cluster_files import KEYSTORE
from .secret_files import FileSet, replace


def renew(directory: Path, names: Sequence[str], days: int) -> list[Path]:
    """Replace the keystores of these parts, or of all; which they were. Raises Failure, Misuse."""
    folder = directory / "authority"
    if not (folder / KEY_FILE).exists():
        raise Failure(f"{folder / KEY_FILE}: is not there; only it can make certificates")
    authority = Authority(folder, FileSet())
    found = {
        path.parent.name: path
        for path in sorted(
            [*directory.glob(f"nodes/*/{KEYSTORE}"), directory / "zookeeper" / KEYSTORE]
        )
        if path.exists()
    }
    unknown = [name for name in names if name not in found]
    if unknown:
        raise Misuse(f"--node {unknown[0]}: there are {', '.join(found)}")
    chosen = [found[name] for name in names or found]
    for path in chosen:
        text = path.read_text(encoding="utf-8")
        try:
            common_name, hosts = common_name_of(text), hosts_of(text)
        except ValueError as error:
            raise Failure(f"{path}: holds no certificate with names of hosts") from error
        replace(path, authority.keystore(common_name, hosts, days))
    return chosen
