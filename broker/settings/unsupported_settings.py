"""What becomes of Kafka's settings that Barnabas does not act on: one table of all their names.

A node is never more open than its file says: a value that promises security is refused. Source:
what a node of Apache Kafka 3.9.1 in ZooKeeper mode tells of itself (tests/golden/node-configs.json
holds its answer); docs/spec/cluster.md §5.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from barnabas.protocol.settings import Setting, parsed

NEVER_MORE_OPEN: Final = "a node is never more open than its file says"


class Treatment(enum.Enum):
    """What happens to a name; the value is what is told of it."""

    IDLE = "belongs to a part that is not here"
    """Accepted, with one warning."""
    LIMIT = "bounds something that is not bounded here"
    """Accepted, with one warning: what it promises is not kept."""
    SECURITY = "promises security that is not built yet"
    """Refused, but for a value that promises nothing."""
    MISLEADING = "is refused, but for its default"
    """Refused, but for its default: silence would mislead."""


class Scope(enum.Enum):
    """Whose settings a dynamic one may be changed in (KIP-226)."""

    NODE = "node"
    """Of single nodes only."""
    CLUSTER = "cluster"
    """Of single nodes and of all."""


@dataclass(frozen=True, slots=True)
class UnsupportedSetting:
    """One name: how its value is read, and what becomes of it."""

    setting: Setting
    treatment: Treatment
    scope: Scope | None
    """None: fixed while a node runs."""
    is_secret: bool

    @property
    def note(self) -> str:
        """Why it is not acted on."""
        return REASONS.get(self.setting.name, self.treatment.value)

    def promises_nothing(self, text: str) -> bool:
        """Whether a value is the default, or empty; raises ConfigError when it is no value."""
        return not text.strip() or parsed(self.setting, text) == self.setting.default


_IDLE: Final = """\
advertised.host.name str -
advertised.port str -
auto.include.jmx.reporter bool true
background.threads int>=1 10 cluster
broker.heartbeat.interval.ms int 2000
broker.session.timeout.ms int 9000
controller.quorum.append.linger.ms int 25
controller.quorum.election.backoff.max.ms int 1000
controller.quorum.election.timeout.ms int 1000
controller.quorum.fetch.timeout.ms int 2000
controller.quorum.request.timeout.ms int 2000
controller.quorum.retry.backoff.ms int 20
delete.records.purgatory.purge.interval.requests int 1
early.start.listeners str -
eligible.leader.replicas.enable bool false
fetch.purgatory.purge.interval.requests int 1000
group.coordinator.append.linger.ms int 10
group.coordinator.threads int 1
group.share.delivery.count.limit int 5
group.share.heartbeat.interval.ms int 5000
group.share.max.groups int 10
group.share.max.heartbeat.interval.ms int 15000
group.share.max.record.lock.duration.ms int 60000
group.share.max.session.timeout.ms int 60000
group.share.max.size int 200
group.share.min.heartbeat.interval.ms int 5000
group.share.min.record.lock.duration.ms int 15000
group.share.min.session.timeout.ms int 45000
group.share.partition.max.record.locks int 200
group.share.record.lock.duration.ms int 30000
group.share.session.timeout.ms int 45000
host.name str -
initial.broker.registration.timeout.ms int 60000
inter.broker.protocol.version str 3.9-IV0
kafka.metrics.polling.interval.secs int 10
kafka.metrics.reporters list empty
log.dir.failure.timeout.ms int 30000
log.message.format.version str 3.0-IV1
metadata.log.dir str -
metadata.log.max.record.bytes.between.snapshots int 20971520
metadata.log.max.snapshot.interval.ms int 3600000
metadata.log.segment.bytes int 1073741824
metadata.log.segment.ms int 604800000
metadata.max.idle.interval.ms int 500
metadata.max.retention.bytes int 104857600
metadata.max.retention.ms int 604800000
metric.reporters list empty cluster
metrics.num.samples int 2
metrics.recording.level str INFO
metrics.sample.window.ms int 30000
num.io.threads int>=1 8 cluster
num.network.threads int>=1 3 cluster
num.recovery.threads.per.data.dir int>=1 1 cluster
num.replica.alter.log.dirs.threads int -
num.replica.fetchers int 1 cluster
password.encoder.cipher.algorithm str AES/CBC/PKCS5Padding
password.encoder.iterations int 4096
password.encoder.key.length int 128
password.encoder.keyfactory.algorithm str -
password.encoder.old.secret password -
password.encoder.secret password -
port str -
producer.purgatory.purge.interval.requests int 1000
remote.fetch.max.wait.ms int>=1 500 cluster
remote.log.index.file.cache.total.size.bytes int>=1 1073741824 cluster
remote.log.manager.copier.thread.pool.size int -1
remote.log.manager.copy.max.bytes.per.second int>=1 9223372036854775807 cluster
remote.log.manager.copy.quota.window.num int 11
remote.log.manager.copy.quota.window.size.seconds int 1
remote.log.manager.expiration.thread.pool.size int -1
remote.log.manager.fetch.max.bytes.per.second int>=1 9223372036854775807 cluster
remote.log.manager.fetch.quota.window.num int 11
remote.log.manager.fetch.quota.window.size.seconds int 1
remote.log.manager.task.interval.ms int 30000
remote.log.manager.thread.pool.size int 10
remote.log.metadata.custom.metadata.max.bytes int 128
remote.log.metadata.manager.class.name str org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager
remote.log.metadata.manager.class.path str -
remote.log.metadata.manager.impl.prefix str rlmm.config.
remote.log.metadata.manager.listener.name str -
remote.log.reader.max.pending.tasks int 100
remote.log.reader.threads int 10
remote.log.storage.manager.class.name str -
remote.log.storage.manager.class.path str -
remote.log.storage.manager.impl.prefix str rsm.config.
replica.lag.max.messages str -
replica.selector.class str -
replica.socket.receive.buffer.bytes int 65536
socket.connection.setup.timeout.max.ms int 30000
socket.connection.setup.timeout.ms int 10000
socket.listen.backlog.size int 50
socket.nagle.disable str -
socket.receive.buffer.bytes int 102400
socket.send.buffer.bytes int 102400
telemetry.max.bytes int 1048576
zookeeper.clientCnxnSocket str -
zookeeper.max.in.flight.requests int 10
zookeeper.sync.time.ms str -
"""  # noqa: E501 - class names of Java
"""Name, kind, default (``-`` is none), and the scope where it may change at run time."""

_LIMIT: Final = """\
alter.log.dirs.replication.quota.window.num int 11
alter.log.dirs.replication.quota.window.size.seconds int 1
client.quota.callback.class str -
max.request.partition.size.limit int>=1 2000
queued.max.requests int>=1 500
quota.consumer.default int 9223372036854775807
quota.producer.default int 9223372036854775807
replica.alter.log.dirs.io.max.bytes.per.second int>=0 9223372036854775807 cluster
"""

_SECURITY: Final = """\
principal.builder.class str org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder node
sasl.client.callback.handler.class str -
sasl.kerberos.kinit.cmd str /usr/bin/kinit node
sasl.kerberos.min.time.before.relogin int 60000 node
sasl.kerberos.principal.to.local.rules list DEFAULT node
sasl.kerberos.service.name str - node
sasl.kerberos.ticket.renew.jitter float 0.05 node
sasl.kerberos.ticket.renew.window.factor float 0.8 node
sasl.login.callback.handler.class str -
sasl.login.class str -
sasl.login.connect.timeout.ms int -
sasl.login.read.timeout.ms int -
sasl.login.refresh.buffer.seconds int 300 node
sasl.login.refresh.min.period.seconds int 60 node
sasl.login.refresh.window.factor float 0.8 node
sasl.login.refresh.window.jitter float 0.05 node
sasl.login.retry.backoff.max.ms int 10000
sasl.login.retry.backoff.ms int 100
sasl.mechanism.controller.protocol str GSSAPI
sasl.oauthbearer.token.endpoint.url str -
sasl.server.callback.handler.class str -
security.inter.broker.protocol str PLAINTEXT
security.providers str -
ssl.engine.factory.class str - node
ssl.keymanager.algorithm str SunX509 node
ssl.provider str - node
ssl.secure.random.implementation str - node
ssl.trustmanager.algorithm str PKIX node
zookeeper.ssl.crl.enable bool false
zookeeper.ssl.ocsp.enable bool false
"""  # noqa: E501 - class names of Java

_MISLEADING: Final = """\
alter.config.policy.class.name str -
control.plane.listener.name str -
controller.listener.names str -
controller.quorum.bootstrap.servers list empty
controller.quorum.voters list empty
create.topic.policy.class.name str -
node.id int -1
process.roles list empty
remote.log.storage.system.enable bool false
zookeeper.metadata.migration.enable bool false
"""

REASONS: Final[Mapping[str, str]] = {
    "alter.config.policy.class.name": "names a Java class, which cannot be loaded here",
    "control.plane.listener.name": "is not separate here; see inter.broker.listener.name",
    "controller.listener.names": "belongs to KRaft; see inter.broker.listener.name",
    "controller.quorum.bootstrap.servers": "belongs to KRaft; ZooKeeper elects here",
    "controller.quorum.voters": "belongs to KRaft; Barnabas elects its controller in ZooKeeper",
    "create.topic.policy.class.name": "names a Java class, which cannot be loaded here",
    "node.id": "belongs to KRaft; say broker.id",
    "process.roles": "is Kafka's KRaft switch; say node.roles=broker,coordinator instead",
    "remote.log.storage.system.enable": "is not built; all segments stay on local disks",
    "ssl.engine.factory.class": "names a Java class, which cannot be loaded here",
    "ssl.keymanager.algorithm": "names an algorithm of Java's; OpenSSL has its own",
    "ssl.provider": "names a Java class, which cannot be loaded here",
    "ssl.secure.random.implementation": "names an algorithm of Java's; the kernel's is taken",
    "ssl.trustmanager.algorithm": "names an algorithm of Java's; OpenSSL has its own",
    "security.inter.broker.protocol": (
        "promises security that is not built yet; nodes prove the cluster.secret to each other"
    ),
    "zookeeper.metadata.migration.enable": "is Kafka's way to KRaft, which Barnabas does not go",
}
"""More about single names: what to say instead."""

HIDDEN_NAMES: Final = frozenset(
    """
    advertised.host.name advertised.port host.name port
    quota.consumer.default quota.producer.default replica.lag.max.messages socket.nagle.disable
    zookeeper.sync.time.ms follower.replication.throttled.rate
    leader.replication.throttled.rate replica.alter.log.dirs.io.max.bytes.per.second
    """.split()  # noqa: SIM905 - a list literal would fill a page
)
"""Names that a Kafka 3.9 does not tell unless they are set: older ones, and those of plug-ins."""

_KINDS: Final[Mapping[str, Any]] = {
    "bool": bool,
    "float": float | None,
    "int": int | None,
    "list": tuple[str, ...],
    "password": str | None,
    "str": str | None,
}


def _read(table: str, treatment: Treatment) -> Iterator[UnsupportedSetting]:
    for line in filter(None, table.splitlines()):
        name, kind, default, *scope = line.split()
        kind, _, least = kind.partition(">=")
        item = Setting(
            name=name,
            field="",
            kind=_KINDS[kind],
            default=None,
            meaning=REASONS.get(name, treatment.value),
            least=int(least) if least else None,
            most=None,
            choices=(),
        )
        if default != "-":
            item = replace(item, default=_default(item, default))
        yield UnsupportedSetting(
            item, treatment, Scope(scope[0]) if scope else None, kind == "password"
        )


def _default(item: Setting, text: str) -> Any:
    if text == "empty":
        return () if item.kind == tuple[str, ...] else ""
    return parsed(item, text)


UNSUPPORTED_SETTINGS: Final[Mapping[str, UnsupportedSetting]] = {
    entry.setting.name: entry
    for table, treatment in (
        (_IDLE, Treatment.IDLE),
        (_LIMIT, Treatment.LIMIT),
        (_SECURITY, Treatment.SECURITY),
        (_MISLEADING, Treatment.MISLEADING),
    )
    for entry in _read(table, treatment)
}
"""Every name of Kafka's that is none of ours."""
