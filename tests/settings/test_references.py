"""Values are taken as they stand: nothing in them names a file, a variable, a class (S88, S89)."""

from __future__ import annotations

import pytest

from barnabas.broker.settings.node_config import load
from barnabas.client.properties_file import client_properties

REFERENCES = ("${env:HOME}", "${file:/etc/passwd:root}", "${directory:/etc:hostname}", "$HOME")


@pytest.mark.parametrize("text", REFERENCES)
def test_a_reference_to_something_else_is_a_text_like_any_other(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CVE-2024-31141: Kafka's config providers gave files and variables to whoever set a value."""
    monkeypatch.setenv("HOME", "/canary")
    node = load({"zookeeper.connect": "z:1", "log.dirs": "/d", "cluster.secret": text})
    assert node.node.cluster_secret == text
    client = client_properties({"sasl.username": "u", "sasl.password": text}).client
    assert client.sasl_password == text


@pytest.mark.parametrize("name", ["config.providers", "config.providers.env.class"])
def test_whoever_asks_for_references_is_told_that_there_are_none(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        load({"zookeeper.connect": "z:1", "log.dirs": "/d", name: "env"})
    with pytest.raises(ValueError, match=name):
        client_properties({name: "env"})
