"""ZooKeeper that knows who asks: names and passwords for SASL, and certificates."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from barnabas.client.zookeeper.identity import ZooKeeperIdentity, ZooKeeperLogin, is_sasl_installed
from barnabas.console.development.zookeeper_security import server_jaas
from tests.harness.needs import skip_without

PASSWORD: Final = 'Canary "Pass\\word'
LOGIN: Final = ZooKeeperLogin("sasl", "kafka", PASSWORD)
NODES: Final = ZooKeeperIdentity((LOGIN,), secures=True)
"""Who nodes are."""
MODULE: Final = "org.apache.zookeeper.server.auth.DigestLoginModule"


def require_sasl() -> None:
    """Skip where the library for logins is missing."""
    if not is_sasl_installed():
        skip_without("no pure-sasl", "pip install pure-sasl")


def jaas_file(directory: Path, *logins: ZooKeeperLogin) -> Path:
    """Lets these logins in; skips where the library for them is missing."""
    require_sasl()
    path = directory / "jaas.conf"
    path.touch(mode=0o600)
    path.write_text(server_jaas(*logins or (LOGIN,)))
    return path


def login_settings(login: ZooKeeperLogin = LOGIN) -> dict[str, str]:
    """The same as settings of a node, in one line of a properties file."""
    quoted = login.password.replace("\\", "\\\\").replace('"', '\\"')
    text = f'{MODULE} required username="{login.user}" password="{quoted}";'
    return {"zookeeper.jaas.config": text.replace("\\", "\\\\")}
