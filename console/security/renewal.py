"""Other certificates of the same authority and names, in place of those that end.

Source: docs/spec/security.md §1 (S12): a running node takes them without a restart.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from barnabas.console.command_line.failure import Failure, Misuse

from .authority import KEY_FILE, Authority, common_name_of, hosts_of
from .cluster_files import CERTIFICATE_FOLDER, KEYSTORE
from .secret_files import FileSet, replace


def renew(directory: Path, names: Sequence[str], days: int) -> list[Path]:
    """Replace the keystores of these parts, or of all; which they were. Raises Failure, Misuse."""
    folder = directory / "authority"
    if not (folder / KEY_FILE).exists():
        raise Failure(f"{folder / KEY_FILE}: is not there; only it can make certificates")
    authority = Authority(folder, FileSet())
    found = _keystores(directory)
    unknown = [name for name in names if name not in found]
    if unknown:
        raise Misuse(f"--node {unknown[0]}: there are {', '.join(found)}")
    chosen = [found[name] for name in names or found]
    for path in chosen:
        replace(path, _renewed(path, authority, days))
    return chosen


def _keystores(directory: Path) -> dict[str, Path]:
    """By the name that they are chosen by."""
    others = [directory / name / KEYSTORE for name in ("zookeeper", "console")]
    machines = [*directory.glob(f"nodes/*/{KEYSTORE}"), *others]
    found = {path.parent.name: path for path in sorted(machines) if path.exists()}
    for path in sorted(directory.glob(f"clients/*/{CERTIFICATE_FOLDER}/{KEYSTORE}")):
        found[f"clients/{path.parent.parent.name}"] = path
    return found


def _renewed(path: Path, authority: Authority, days: int) -> str:
    text = path.read_text(encoding="utf-8")
    try:
        common_name = common_name_of(text)
        if path.parent.name == CERTIFICATE_FOLDER:
            return authority.user_keystore(common_name, days)
        return authority.keystore(common_name, hosts_of(text), days)
    except ValueError as error:
        raise Failure(f"{path}: holds no certificate with names of hosts") from error
