"""The registry agrees with the specification. Source: docs/spec/protocol.md §2."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from barnabas.protocol import api
from barnabas.protocol.api import ApiKey
from barnabas.protocol.messages import metadata
from tests.protocol.golden import kafka_vectors


def test_every_api_of_kafka_is_known_with_its_versions() -> None:
    wanted: dict[int, set[int]] = {}
    for vector in kafka_vectors():
        if vector["message"].endswith("Request"):
            wanted.setdefault(vector["key"], set()).add(vector["version"])
    assert {
        int(key): set(range(spec.versions[0], spec.versions[1] + 1))
        for key, spec in api.registry().items()
    } == wanted


def test_every_api_is_offered_from_version_0_or_not_at_all() -> None:
    for spec in api.registry().values():
        assert spec.versions[0] == 0
        assert spec.advertised is None or spec.supports(spec.advertised)


def test_control_apis_are_never_offered_to_clients() -> None:
    for key in api.INTER_BROKER:
        assert api.registry()[key].advertised is None
    assert {4, 5, 6, 7} <= api.INTER_BROKER


def test_an_unknown_key_is_nothing() -> None:
    assert api.lookup(1000) is None
    assert api.lookup(-1) is None
    assert api.request_header_version(1000, 0) == 1


def test_the_exceptions_of_header_versions_hold() -> None:
    assert api.request_header_version(ApiKey.CONTROLLED_SHUTDOWN, 0) == 0
    assert api.request_header_version(ApiKey.API_VERSIONS, 3) == 2
    assert api.response_header_version(ApiKey.API_VERSIONS, 3) == 0
    assert api.request_header_version(ApiKey.SASL_HANDSHAKE, 1) == 1
    assert api.response_header_version(ApiKey.METADATA, 9) == 1
    assert api.response_header_version(ApiKey.METADATA, 8) == 0


def test_a_message_class_leads_to_its_api() -> None:
    assert api.spec_of(metadata.MetadataResponse).key == ApiKey.METADATA


def test_importing_the_registry_imports_no_message() -> None:
    program = (
        "import sys; import barnabas.protocol.api, barnabas.protocol.frame;"
        "print([name for name in sys.modules if '.messages.' in name])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_table_in_the_documentation_is_the_generated_one() -> None:
    document = Path(__file__).parents[2] / "docs" / "wire.md"
    assert api.table() in document.read_text()
