"""The registered nodes, asked whether this one can speak with them: before it registers itself.

A node that cannot prove the cluster's secret would be sent orders that never arrive, and might be
elected controller of nodes that refuse its orders. Source: docs/spec/cluster.md §2.14; KIP-43.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from barnabas.broker.security.node_security import NodeSecurity
from barnabas.broker.security.node_tls import NodeTls
from barnabas.broker.settings.node_config import NodeConfig
from barnabas.client.connection.connection import Connection, MechanismNotOffered
from barnabas.client.connection.sasl_login import SaslLogin
from barnabas.client.errors import (
    AuthenticationFailed,
    Disconnected,
    KafkaError,
    TlsFailed,
    UnsupportedVersion,
)
from barnabas.client.zookeeper.interface import NoNode, ZooKeeper
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    controlled_shutdown,
    fetch,
    leader_and_isr,
    metadata,
    offset_for_leader_epoch,
    sasl_handshake,
    stop_replica,
    update_metadata,
)
from barnabas.protocol.zookeeper import znodes

from .node_identity import NodeIdentity

log = logging.getLogger(__name__)

ASK_MS: Final = 2000
"""How long one question may take: connect, agree on versions, prove the secret."""
ASK_AGAIN_S: Final = 1.0
SAY_AGAIN_S: Final = 5.0
"""How often a start that waits says for whom."""
ANY_EPOCH: Final = 2**63
_LOWEST_SPOKEN: Final = {
    leader_and_isr.LeaderAndIsrRequest: 4,
    update_metadata.UpdateMetadataRequest: 6,
    stop_replica.StopReplicaRequest: 3,
    controlled_shutdown.ControlledShutdownRequest: 3,
    fetch.FetchRequest: 0,
    offset_for_leader_epoch.OffsetForLeaderEpochRequest: 0,
}
"""What nodes ask of each other, and the lowest version they do it in (decisions/0005)."""

_OR_CLUSTER: Final = ", or zookeeper.connect leads to a cluster that it does not belong to"
_OTHER_SECRET: Final = (
    "refuses the cluster.secret of this node: either this node's is not the cluster's (compare "
    f"the files of both){_OR_CLUSTER}"
)
_NO_SECRET_HERE: Final = (
    "asks for a cluster.secret and this node has none: either it is missing in this node's "
    f"settings{_OR_CLUSTER}"
)
_NO_SECRET_THERE: Final = (
    "asks for no cluster.secret and this node has one: either it does not belong in this node's "
    f"settings (all nodes have the same, or none has any){_OR_CLUSTER}"
)
_VERSIONS: Final = f"either one of both is of a version that does not fit{_OR_CLUSTER}"


class PeerRefused(Exception):  # noqa: N818 - what happened
    """A registered node and this one cannot work together; the text names both possible causes."""


class PeerVerdict(enum.Enum):
    """What came of asking one node."""

    ACCEPTED = "speaks with this node"
    REFUSED = "refuses this node"
    SILENT = "does not answer"
    """It is dead, frozen, cut off, or somebody else is found at its address."""


@dataclass(frozen=True, slots=True)
class PeerAnswer:
    """One node's answer; ``reason`` ends the sentence "node 1 at host:port ..."."""

    verdict: PeerVerdict
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RegisteredPeer:
    """A registered node; ``broker_epoch`` is the czxid of its registration."""

    id: int
    broker_epoch: int
    registration: znodes.BrokerRegistration

    def __str__(self) -> str:
        places = [f"{host}:{port}" for host, port in self.registration.endpoints.values()]
        return f"node {self.id} at {', '.join(places)}"


class Peers:
    """Asks on the inter-broker listener ``listener``, with the proof that this node has."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        node_id: int,
        cluster_id: str,
        *,
        listener: str,
        login: SaslLogin | None,
        tls: NodeTls | None = None,
    ) -> None:
        self._zookeeper = zookeeper
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._listener = listener
        self._login = login
        self._tls = tls

    @classmethod
    def of_node(
        cls,
        zookeeper: ZooKeeper,
        identity: NodeIdentity,
        config: NodeConfig,
        security: NodeSecurity,
    ) -> Self:
        """With the listener of a node's settings, and its proofs."""
        return cls(
            zookeeper,
            identity.node_id,
            identity.cluster_id,
            listener=config.inter_broker_listener,
            login=security.login,
            tls=security.tls,
        )

    async def await_acceptance(self, before: int = ANY_EPOCH) -> bool:
        """Return once a node that registered before this epoch accepts us, or none is left.

        False in the second case. Nodes that do not answer are waited for until they do or their
        sessions end: they may be dead, and they may know another secret. Raises PeerRefused.
        """
        loop = asyncio.get_running_loop()
        say_at = loop.time()
        while True:
            changed = asyncio.Event()
            peers = await self._registered(before, changed)
            if not peers:
                return False
            silent = await self._ask_all(peers)
            if not silent:
                return True
            if loop.time() >= say_at:
                say_at = loop.time() + SAY_AGAIN_S
                log.warning(
                    "waiting for a registered node to answer, or for the sessions of all to end: "
                    "%s",
                    "; ".join(silent),
                )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ASK_AGAIN_S):
                    await changed.wait()

    async def refuse_if_refused(self) -> None:
        """Ask once; raises PeerRefused. Who does not answer now is not waited for."""
        peers = await self._registered(ANY_EPOCH, asyncio.Event())
        if peers:
            await self._ask_all(peers)

    async def ask(self, peer: RegisteredPeer) -> PeerAnswer:
        """Whether one node speaks with this one, on the listener that nodes speak on."""
        address = peer.registration.endpoints.get(self._listener)
        if address is None:
            return await self._without_listener(peer)
        try:
            link = await self._open(*address, self._login)
        except MechanismNotOffered as error:
            return PeerAnswer(PeerVerdict.REFUSED, f"takes no proof of ours: {error.message}")
        except AuthenticationFailed as error:
            asks_none = error.code is ErrorCode.ILLEGAL_SASL_STATE
            return PeerAnswer(PeerVerdict.REFUSED, _NO_SECRET_THERE if asks_none else _OTHER_SECRET)
        except TlsFailed as error:
            return PeerAnswer(PeerVerdict.REFUSED, f"cannot be spoken to: {error.message}")
        except UnsupportedVersion:  # SaslHandshake is not served: there is nothing to prove
            return PeerAnswer(PeerVerdict.REFUSED, _NO_SECRET_THERE)
        except KafkaError as error:
            return PeerAnswer(PeerVerdict.SILENT, error.message or error.name)
        try:
            async with link:
                return await self._ask_on(link)
        except UnsupportedVersion as error:
            return PeerAnswer(
                PeerVerdict.REFUSED, f"speaks another protocol ({error.message}): {_VERSIONS}"
            )
        except KafkaError as error:
            return PeerAnswer(PeerVerdict.SILENT, error.message or error.name)

    async def _ask_all(self, peers: Sequence[RegisteredPeer]) -> list[str]:
        """Empty as soon as one accepts, else who is silent and why; raises PeerRefused."""
        asked = {asyncio.ensure_future(self.ask(peer)): peer for peer in peers}
        silent = []
        try:
            waiting = set(asked)
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when="FIRST_COMPLETED")
                for task in done:
                    peer, answer = asked[task], task.result()
                    if answer.verdict is PeerVerdict.ACCEPTED:
                        return []
                    if answer.verdict is PeerVerdict.REFUSED:
                        raise PeerRefused(f"{peer} {answer.reason}")
                    silent.append(f"{peer} ({answer.reason})")
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        return silent

    async def _open(self, host: str, port: int, login: SaslLogin | None) -> Connection:
        name = f"node-{self._node_id}"
        tls = None if self._tls is None else self._tls.dialling()
        return await Connection.open(
            host, port, client_id=name, timeout_ms=ASK_MS, sasl=login, tls=tls
        )

    async def _ask_on(self, link: Connection) -> PeerAnswer:
        if self._login is None and await _asks_for_proof(link):
            return PeerAnswer(PeerVerdict.REFUSED, _NO_SECRET_HERE)
        for request, lowest in _LOWEST_SPOKEN.items():
            if (version := link.version_of(request)) < lowest:
                raise UnsupportedVersion(f"{request.__name__} only up to {version}")
        cluster = await link.request(metadata.MetadataRequest(topics=[]))
        if cluster.cluster_id not in (None, self._cluster_id):
            return PeerAnswer(
                PeerVerdict.SILENT, f"a node of cluster {cluster.cluster_id} is found there"
            )
        return PeerAnswer(PeerVerdict.ACCEPTED)

    async def _without_listener(self, peer: RegisteredPeer) -> PeerAnswer:
        """A node that names no such listener: alive if any other answers at all."""
        names = ", ".join(peer.registration.endpoints) or "none"
        reason = (
            f"has no listener {self._listener} (but {names}): either inter.broker.listener.name "
            "of this node is wrong or of that one"
        )
        for host, port in peer.registration.endpoints.values():
            try:
                async with await self._open(host, port, None):
                    return PeerAnswer(PeerVerdict.REFUSED, reason)
            except Disconnected:
                continue
            except KafkaError:
                return PeerAnswer(PeerVerdict.REFUSED, reason)
        return PeerAnswer(PeerVerdict.SILENT, reason)

    async def _registered(self, before: int, changed: asyncio.Event) -> list[RegisteredPeer]:
        """All other nodes that registered before this epoch; ``changed`` when some come or go."""
        found = []
        names = await self._zookeeper.children(znodes.BROKER_IDS, changed.set)
        for node_id in znodes.broker_ids(names):
            if node_id == self._node_id:
                continue
            try:
                data, stat = await self._zookeeper.get(znodes.broker_path(node_id))
                registration = znodes.BrokerRegistration.from_json(data)
            except NoNode:
                continue
            except ValueError as error:
                log.error("ignored a registration that cannot be read node=%d: %s", node_id, error)
                continue
            if stat.ephemeral_owner == 0:  # written by hand: nobody answers there, nor does it end
                log.error("ignored a registration that no session holds node=%d", node_id)
                continue
            if stat.czxid < before:
                found.append(RegisteredPeer(node_id, stat.czxid, registration))
        return found


async def _asks_for_proof(link: Connection) -> bool:
    """Whether the listener wants SASL; one that does not refuses to begin with it (34)."""
    try:
        begun = await link.request(sasl_handshake.SaslHandshakeRequest(mechanism="PLAIN"))
    except UnsupportedVersion:
        return False
    return bool(begun.error_code != ErrorCode.ILLEGAL_SASL_STATE)
