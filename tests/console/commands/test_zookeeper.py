"""Where the options of ``barnabas zookeeper`` come from when they are not typed."""

from __future__ import annotations

from barnabas.console.commands.zookeeper import from_environment


def test_the_official_images_name_wins_over_confluents() -> None:
    environment = {"ZOO_PORT": "1", "ZOOKEEPER_CLIENT_PORT": "2", "ZOOKEEPER_SERVER_ID": "3"}
    assert from_environment(environment) == {"port": "1", "id": "3"}


def test_what_kubernetes_says_of_a_service_named_zoo_is_no_option() -> None:
    assert from_environment({"ZOO_PORT": "tcp://10.0.0.1:2181"}) == {}
