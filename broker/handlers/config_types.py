"""Which type DescribeConfigs tells of a setting, in Kafka's numbers.

Source: what a node of Apache Kafka 3.9.1 tells of its own, tests/golden/node-configs.json, "types".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from barnabas.protocol.settings import Setting

STRING: Final = 2
INT: Final = 3
SHORT: Final = 4
LONG: Final = 5
DOUBLE: Final = 6
LIST: Final = 7
CLASS: Final = 8
PASSWORD: Final = 9

INT_MAX: Final = 2**31 - 1
_BY_KIND: Final[Mapping[Any, int]] = {
    bool: 1,
    float: DOUBLE,
    float | None: DOUBLE,
    tuple[str, ...]: LIST,
}
_WHOLE: Final = (int, int | None)
_LEVELS: Final = frozenset(f"compression.{codec}.level" for codec in ("gzip", "lz4", "zstd"))
"""INT, though their bounds are narrower than those of one."""

_LONG: Final = """\
audit.log.max.bytes
connections.max.idle.ms
connections.max.reauth.ms
controlled.shutdown.retry.backoff.ms
delegation.token.expiry.check.interval.ms
delegation.token.expiry.time.ms
delegation.token.max.lifetime.ms
leader.imbalance.check.interval.seconds
log.cleaner.backoff.ms
log.cleaner.dedupe.buffer.size
log.cleaner.delete.retention.ms
log.cleaner.max.compaction.lag.ms
log.cleaner.min.compaction.lag.ms
log.dir.failure.timeout.ms
log.flush.interval.messages
log.flush.interval.ms
log.flush.scheduler.interval.ms
log.local.retention.bytes
log.local.retention.ms
log.message.timestamp.after.max.ms
log.message.timestamp.before.max.ms
log.message.timestamp.difference.max.ms
log.retention.bytes
log.retention.check.interval.ms
log.retention.ms
log.roll.jitter.ms
log.roll.ms
log.segment.delete.delay.ms
metadata.log.max.record.bytes.between.snapshots
metadata.log.max.snapshot.interval.ms
metadata.log.segment.ms
metadata.max.retention.bytes
metadata.max.retention.ms
metrics.sample.window.ms
offsets.retention.check.interval.ms
queued.max.request.bytes
remote.log.index.file.cache.total.size.bytes
remote.log.manager.copy.max.bytes.per.second
remote.log.manager.fetch.max.bytes.per.second
remote.log.manager.task.interval.ms
replica.high.watermark.checkpoint.interval.ms
replica.lag.time.max.ms
sasl.kerberos.min.time.before.relogin
sasl.login.retry.backoff.max.ms
sasl.login.retry.backoff.ms
sasl.oauthbearer.jwks.endpoint.refresh.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
socket.connection.setup.timeout.max.ms
socket.connection.setup.timeout.ms
"""
_CLASS: Final = """\
alter.config.policy.class.name
client.quota.callback.class
create.topic.policy.class.name
principal.builder.class
sasl.client.callback.handler.class
sasl.login.callback.handler.class
sasl.login.class
sasl.server.callback.handler.class
ssl.engine.factory.class
"""
_SHORT: Final = """\
group.share.max.groups
group.share.max.size
offsets.commit.required.acks
offsets.topic.replication.factor
sasl.login.refresh.buffer.seconds
sasl.login.refresh.min.period.seconds
transaction.state.log.replication.factor
"""
_STRING: Final = """\
log.dirs
max.connections.per.ip.overrides
"""
_LIST: Final = """\
zookeeper.ssl.cipher.suites
zookeeper.ssl.enabled.protocols
"""
_OF_NODES: Final[Mapping[str, int]] = {
    name: told
    for told, names in (
        (LONG, _LONG),
        (CLASS, _CLASS),
        (SHORT, _SHORT),
        (STRING, _STRING),
        (LIST, _LIST),
    )
    for name in names.split()
}
"""What the kind of a node's setting does not say: whole numbers are INT there."""


def config_type(item: Setting, name: str, *, is_of_node: bool, is_secret: bool) -> int:
    """The type of a setting, as it is called where it is told of."""
    if is_secret:
        return PASSWORD
    if is_of_node and name in _OF_NODES:
        return _OF_NODES[name]
    if item.kind in _WHOLE:
        is_int = is_of_node or item.most == INT_MAX or name in _LEVELS
        return INT if is_int else LONG
    return _BY_KIND.get(item.kind, STRING)
