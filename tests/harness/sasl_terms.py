"""What listeners of tests ask for: users with passwords and SCRAM credentials, secrets of nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from barnabas.broker.security.cluster_secret import NODE_USER, ClusterSecret
from barnabas.broker.security.exchange import Exchange
from barnabas.broker.security.failure_delays import FailureDelays
from barnabas.broker.security.plain import Passwords, PlainExchange
from barnabas.broker.security.sasl import SaslTerms
from barnabas.broker.security.scram import ScramExchange
from barnabas.broker.settings.sasl_settings import NODES_MECHANISMS
from barnabas.client.connection.sasl_login import SaslLogin
from barnabas.protocol import scram
from barnabas.protocol.scram import MECHANISMS, ScramCredential, ScramMechanism

SALT = b"salt"
ALL_MECHANISMS = ("PLAIN", *MECHANISMS)


def credential_of(
    mechanism: ScramMechanism, password: str, iterations: int = scram.ITERATIONS_MIN
) -> ScramCredential:
    salted = scram.salted_password(mechanism, password, SALT, iterations)
    return scram.credential(mechanism, salted, SALT, iterations)


def terms(
    users: Mapping[str, str],
    *mechanisms: str,
    session_ms: int = 0,
    delay_ms: int = 0,
    receive_bytes_max: int = 524_288,
) -> SaslTerms:
    """``users`` by password; each may log in by any of the mechanisms, PLAIN where none is named.

    Failures are answered at once, so that tests need not wait.
    """

    def find(mechanism: ScramMechanism, name: str) -> Sequence[ScramCredential]:
        return [credential_of(mechanism, users[name])] if name in users else []

    made: dict[str, Callable[[], Exchange]] = {}
    for mechanism in mechanisms or ("PLAIN",):
        if mechanism == "PLAIN":
            passwords = Passwords({name: (password,) for name, password in users.items()})
            made[mechanism] = partial(PlainExchange, passwords)
        else:
            made[mechanism] = partial(ScramExchange, MECHANISMS[mechanism], find, b"decoys")
    return SaslTerms(
        listener="TEST",
        mechanisms=made,
        delays=FailureDelays(delay_ms),
        session_ms=dict.fromkeys(made, session_ms),
        receive_bytes_max=receive_bytes_max,
    )


def terms_of_nodes(
    secret: str | None, cluster_id: str, mechanisms: Sequence[str] = NODES_MECHANISMS
) -> SaslTerms | None:
    """What a node with this secret asks of others."""
    if secret is None:
        return None
    known = ClusterSecret(cluster_id, secret)
    offered: Mapping[str, Callable[[], Exchange]] = {
        "SCRAM-SHA-512": partial(
            ScramExchange, scram.SHA_512, known.find_credentials, known.decoy_secret
        ),
        "PLAIN": partial(PlainExchange, Passwords({NODE_USER: known.passwords})),
    }
    return SaslTerms(
        listener="INTERNAL",
        mechanisms={mechanism: offered[mechanism] for mechanism in mechanisms},
        delays=FailureDelays(0),
    )


def login_of_node(
    secret: str | None, cluster_id: str, mechanisms: Sequence[str] = NODES_MECHANISMS
) -> SaslLogin | None:
    """What a node with this secret proves to others."""
    return None if secret is None else ClusterSecret(cluster_id, secret).login(mechanisms)
