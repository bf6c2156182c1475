"""Whether the list of a znode is what it should be (S67)."""

from __future__ import annotations

import pytest

from barnabas.client.zookeeper.identity import ZooKeeperIdentity, ZooKeeperLogin
from barnabas.client.zookeeper.znode_acl import ALL, READ, WORLD, ZnodeAcl, gives
from barnabas.console.security.znode_owners import owners
from barnabas.protocol.zookeeper.znode_access import Access

KAFKA = ZnodeAcl("sasl:kafka", ALL)
CERTIFICATE = ZnodeAcl("x509:CN=node", ALL)
EVERYBODY = ZnodeAcl(WORLD, ALL)
READERS = ZnodeAcl(WORLD, READ)


@pytest.mark.parametrize(
    ("entries", "wanted", "mine", "is_right"),
    [
        ([EVERYBODY], Access.OPEN, {"sasl:kafka"}, True),
        ([KAFKA, READERS], Access.OPEN, {"sasl:kafka"}, False),
        ([KAFKA, READERS], Access.READABLE, {"sasl:kafka"}, True),
        ([KAFKA, EVERYBODY], Access.READABLE, {"sasl:kafka"}, False),
        ([KAFKA], Access.READABLE, {"sasl:kafka"}, False),
        ([KAFKA], Access.CLOSED, {"sasl:kafka"}, True),
        ([KAFKA, READERS], Access.CLOSED, {"sasl:kafka"}, False),
        ([READERS], Access.READABLE, {"sasl:kafka"}, False),
        ([], Access.CLOSED, {"sasl:kafka"}, False),
        ([ZnodeAcl("sasl:kafka", READ), READERS], Access.READABLE, {"sasl:kafka"}, False),
        ([ZnodeAcl("sasl:other", ALL), READERS], Access.READABLE, {"sasl:kafka"}, False),
        ([KAFKA, ZnodeAcl("sasl:other", ALL)], Access.CLOSED, {"sasl:kafka"}, False),
        ([KAFKA], Access.CLOSED, {"sasl:kafka", "digest:a:b"}, False),
        ([CERTIFICATE, READERS], Access.READABLE, {"x509:"}, True),
        ([CERTIFICATE, KAFKA], Access.CLOSED, {"x509:", "sasl:kafka"}, True),
        ([KAFKA], Access.CLOSED, {"x509:", "sasl:kafka"}, True),
        ([CERTIFICATE], Access.CLOSED, {"x509:", "sasl:kafka"}, False),
    ],
)
def test_a_list_is_right_when_the_owners_alone_may_do_everything(
    entries: list[ZnodeAcl], wanted: Access, mine: set[str], is_right: bool
) -> None:
    assert gives(entries, wanted, mine) is is_right


def test_an_owner_is_named_as_zookeeper_names_it() -> None:
    """ZooKeeper's own DigestAuthenticationProvider makes this of super:test."""
    login = ZooKeeperLogin("digest", "super", "test")
    assert login.id == "digest:super:D/InIHSb7yEEbrWz8b9l71RjZJU="
    identity = ZooKeeperIdentity((login, ZooKeeperLogin("sasl", "kafka", "x")))
    assert owners(identity, has_certificate=True) == {login.id, "sasl:kafka", "x509:"}
