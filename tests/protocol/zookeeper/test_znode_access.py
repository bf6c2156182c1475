"""What a znode is created with where nodes secure what they create (S67)."""

from __future__ import annotations

import pytest

from barnabas.protocol.zookeeper import acl_znodes, znodes
from barnabas.protocol.zookeeper.znode_access import SECURED_ROOTS, Access, access


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("/", Access.READABLE),
        ("/brokers/ids/1", Access.READABLE),
        ("/config", Access.READABLE),
        ("/config/topics/users", Access.READABLE),
        ("/config/users", Access.CLOSED),
        ("/config/users/alice/clients/x", Access.CLOSED),
        ("/config/users2", Access.READABLE),
        ("/config/brokers/<default>", Access.CLOSED),
        ("/delegation_token", Access.READABLE),
        ("/delegation_token/tokens/id", Access.CLOSED),
        ("/delegation_token/token_changes/token_change_1", Access.READABLE),
        ("/consumers", Access.OPEN),
        ("/consumers/g/offsets/t/0", Access.OPEN),
        ("/consumers2", Access.READABLE),
    ],
)
def test_only_passwords_are_hidden_and_only_classic_consumers_write(
    path: str, wanted: Access
) -> None:
    assert access(path) is wanted


def test_everything_that_nodes_create_is_secured_by_the_command_but_for_consumers() -> None:
    made = [*znodes.PERSISTENT_PATHS, *acl_znodes.PERSISTENT_PATHS, znodes.CONTROLLER_EPOCH]
    made += [znodes.CLUSTER_ID, znodes.CONTROLLER, znodes.VOTERS, znodes.topic_path("t")]
    outside = {
        path
        for path in made
        if not any(path == root or path.startswith(root + "/") for root in SECURED_ROOTS)
    }
    assert outside == {znodes.CONSUMERS}
