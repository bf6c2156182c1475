"""What a node tells of TLS."""

from __future__ import annotations

import asyncio
from pathlib import Path

from barnabas.broker.metrics.tls_families import tls_families
from barnabas.broker.net.dispatch import Dispatcher
from barnabas.broker.net.limits import Limits
from barnabas.broker.net.listener import Listener
from barnabas.broker.security.ssl_contexts import ListenerTls
from barnabas.broker.settings.node_config import NetworkSettings
from barnabas.broker.settings.ssl_settings import SslSettings
from tests.harness.certificates import Authority


async def test_handshakes_and_the_end_of_certificates_are_told_of_listeners_of_tls(
    tmp_path: Path,
) -> None:
    issued = Authority().issue("node")
    settings = SslSettings(
        ssl_keystore_type="PEM", ssl_keystore_location=str(issued.pem_store(tmp_path / "k"))
    )
    tls = ListenerTls("SSL", settings, is_internal=False)
    async with asyncio.TaskGroup() as tasks:
        dispatcher, limits = Dispatcher(tasks), Limits(NetworkSettings())
        secure = Listener("SSL", dispatcher, limits, tls=tls)
        clear = Listener("PLAINTEXT", dispatcher, limits)
        assert list(tls_families({"PLAINTEXT": clear})) == []
        secure.tls_handshakes["failed"] += 3
        told = "\n".join(tls_families({"PLAINTEXT": clear, "SSL": secure}))
    ends = issued.certificate.not_valid_after_utc.timestamp()
    assert 'barnabas_tls_handshakes_total{listener="SSL",result="done"} 0' in told
    assert 'barnabas_tls_handshakes_total{listener="SSL",result="failed"} 3' in told
    assert f'barnabas_certificate_not_after_seconds{{listener="SSL"}} {ends}' in told
    assert "PLAINTEXT" not in told
