"""Names of Kafka's own settings that Barnabas does not act on: accepted, with one warning each.

Source: the names that Kafka 3.9 knows in ZooKeeper mode; cluster.md section 5.
"""

from __future__ import annotations

from typing import Final

WITHOUT_MEANING: Final = frozenset(
    """
    advertised.host.name advertised.port alter.log.dirs.replication.quota.window.num
    alter.log.dirs.replication.quota.window.size.seconds auto.include.jmx.reporter
    background.threads broker.heartbeat.interval.ms broker.session.timeout.ms
    client.quota.callback.class connection.failed.authentication.delay.ms
    connections.max.reauth.ms controller.quorum.append.linger.ms
    controller.quorum.election.backoff.max.ms controller.quorum.election.timeout.ms
    controller.quorum.fetch.timeout.ms controller.quorum.request.timeout.ms
    controller.quorum.retry.backoff.ms controller.quota.window.num
    controller.quota.window.size.seconds delegation.token.expiry.check.interval.ms
    delegation.token.expiry.time.ms delegation.token.master.key delegation.token.max.lifetime.ms
    delegation.token.secret.key delete.records.purgatory.purge.interval.requests
    early.start.listeners eligible.leader.replicas.enable
    fetch.purgatory.purge.interval.requests group.consumer.assignors
    group.consumer.heartbeat.interval.ms group.consumer.max.heartbeat.interval.ms
    group.consumer.max.session.timeout.ms group.consumer.max.size
    group.consumer.min.heartbeat.interval.ms group.consumer.min.session.timeout.ms
    group.consumer.session.timeout.ms group.coordinator.append.linger.ms
    group.coordinator.rebalance.protocols group.coordinator.threads
    group.share.delivery.count.limit group.share.heartbeat.interval.ms group.share.max.groups
    group.share.max.heartbeat.interval.ms group.share.max.record.lock.duration.ms
    group.share.max.session.timeout.ms group.share.max.size
    group.share.min.heartbeat.interval.ms group.share.min.record.lock.duration.ms
    group.share.min.session.timeout.ms group.share.partition.max.record.locks
    group.share.record.lock.duration.ms group.share.session.timeout.ms host.name
    initial.broker.registration.timeout.ms inter.broker.protocol.version
    kafka.metrics.polling.interval.secs kafka.metrics.reporters
    log.dir.failure.timeout.ms log.local.retention.bytes log.local.retention.ms
    log.message.format.version log.message.timestamp.difference.max.ms
    max.connection.creation.rate
    max.connections.per.ip.overrides max.request.partition.size.limit metadata.log.dir
    metadata.log.max.record.bytes.between.snapshots metadata.log.max.snapshot.interval.ms
    metadata.log.segment.bytes metadata.log.segment.ms metadata.max.idle.interval.ms
    metadata.max.retention.bytes metadata.max.retention.ms metric.reporters metrics.num.samples
    metrics.recording.level metrics.sample.window.ms num.io.threads num.network.threads
    num.recovery.threads.per.data.dir num.replica.alter.log.dirs.threads num.replica.fetchers
    password.encoder.cipher.algorithm password.encoder.iterations password.encoder.key.length
    password.encoder.keyfactory.algorithm password.encoder.old.secret password.encoder.secret
    port principal.builder.class producer.purgatory.purge.interval.requests queued.max.requests
    quota.window.num quota.window.size.seconds remote.fetch.max.wait.ms
    remote.log.index.file.cache.total.size.bytes remote.log.manager.copier.thread.pool.size
    remote.log.manager.copy.max.bytes.per.second remote.log.manager.copy.quota.window.num
    remote.log.manager.copy.quota.window.size.seconds
    remote.log.manager.expiration.thread.pool.size remote.log.manager.fetch.max.bytes.per.second
    remote.log.manager.fetch.quota.window.num remote.log.manager.fetch.quota.window.size.seconds
    remote.log.manager.task.interval.ms remote.log.manager.thread.pool.size
    remote.log.metadata.custom.metadata.max.bytes remote.log.metadata.manager.class.name
    remote.log.metadata.manager.class.path remote.log.metadata.manager.impl.prefix
    remote.log.metadata.manager.listener.name remote.log.reader.max.pending.tasks
    remote.log.reader.threads remote.log.storage.manager.class.name
    remote.log.storage.manager.class.path remote.log.storage.manager.impl.prefix
    replica.lag.max.messages replica.selector.class replica.socket.receive.buffer.bytes
    replication.quota.window.num replication.quota.window.size.seconds
    security.inter.broker.protocol security.providers socket.connection.setup.timeout.max.ms
    socket.connection.setup.timeout.ms socket.listen.backlog.size socket.nagle.disable
    socket.receive.buffer.bytes socket.send.buffer.bytes telemetry.max.bytes
    transaction.abort.timed.out.transaction.cleanup.interval.ms transaction.max.timeout.ms
    transaction.partition.verification.enable
    transaction.remove.expired.transaction.cleanup.interval.ms
    transaction.state.log.load.buffer.size transaction.state.log.min.isr
    transaction.state.log.num.partitions transaction.state.log.replication.factor
    transaction.state.log.segment.bytes transactional.id.expiration.ms
    zookeeper.clientCnxnSocket zookeeper.max.in.flight.requests zookeeper.ssl.cipher.suites
    zookeeper.ssl.crl.enable zookeeper.ssl.enabled.protocols
    zookeeper.ssl.endpoint.identification.algorithm zookeeper.ssl.keystore.location
    zookeeper.ssl.keystore.password zookeeper.ssl.keystore.type zookeeper.ssl.ocsp.enable
    zookeeper.ssl.protocol zookeeper.ssl.truststore.location zookeeper.ssl.truststore.password
    zookeeper.ssl.truststore.type zookeeper.sync.time.ms
""".split()  # noqa: SIM905 - a list literal of these would fill five pages
)
"""Tuning of parts that Barnabas has not; ``ssl.*`` and ``sasl.*`` belong here as well."""

REFUSED: Final = {
    "process.roles": "is Kafka's KRaft switch; say node.roles=broker,coordinator instead",
    "controller.quorum.voters": "belongs to KRaft; Barnabas elects its controller in ZooKeeper",
    "controller.quorum.bootstrap.servers": "belongs to KRaft; ZooKeeper elects here",
    "controller.listener.names": "belongs to KRaft; see inter.broker.listener.name",
    "control.plane.listener.name": "is not separate here; see inter.broker.listener.name",
    "node.id": "belongs to KRaft; say broker.id",
    "authorizer.class.name": "is not built yet; a node never runs more open than its file says",
    "zookeeper.set.acl": "is not built yet; a node never runs more open than its file says",
    "zookeeper.ssl.client.enable": "is not built yet; ZooKeeper is spoken to in plain text",
    "zookeeper.metadata.migration.enable": "is Kafka's way to KRaft, which Barnabas does not go",
    "remote.log.storage.system.enable": "is not built; all segments stay on local disks",
    "create.topic.policy.class.name": "names a Java class, which cannot be loaded here",
    "alter.config.policy.class.name": "names a Java class, which cannot be loaded here",
}
"""Names whose silence would mislead, each with what to do instead."""

SWITCHES: Final = frozenset(
    {"zookeeper.set.acl", "zookeeper.ssl.client.enable"}
    | {"zookeeper.metadata.migration.enable", "remote.log.storage.system.enable"}
)
"""Refused names that may say false."""
