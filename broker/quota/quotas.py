"""All quotas of one node: what is in force, and where it is read from.

Source: docs/spec/security.md §4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from barnabas.broker.settings.quota_settings import QuotaSettings
from barnabas.broker.settings.topic_configs import TopicConfigs
from barnabas.client.zookeeper.interface import ZooKeeper

from .client_quotas import ClientQuotas
from .controller_mutation import ControllerMutationQuotas
from .ip_connection_rates import IpConnectionRates
from .quota_store import KINDS, QuotaStore
from .rate import Windows
from .replication_quotas import ReplicationQuotas


class Quotas:
    """Clients, addresses, changes of the cluster, and replication."""

    def __init__(
        self,
        settings: QuotaSettings,
        zookeeper: ZooKeeper,
        node_id: int,
        now: Callable[[], float],
    ) -> None:
        windows = Windows(settings.window_num, settings.window_size_s)
        self.clients = ClientQuotas(windows)
        self.addresses = IpConnectionRates(windows)
        of_controller = Windows(settings.controller_window_num, settings.controller_window_size_s)
        self.mutations = ControllerMutationQuotas(self.clients.mutations, of_controller, now)
        of_replication = Windows(
            settings.replication_window_num, settings.replication_window_size_s
        )
        self.replication = ReplicationQuotas(of_replication, now)
        self.store = QuotaStore(zookeeper, self.clients, self.addresses)
        self._node_id = node_id
        self.use_rates(settings)

    def follow(self, configs: TopicConfigs) -> None:
        """Hear of changed quotas, and of the replicas that topics throttle."""
        for kind in KINDS:
            configs.on_entities.setdefault(kind, []).append(self.store.announced)
        configs.on_change.append(lambda topic: self._use_topic(topic, configs.overrides(topic)))
        for topic, overrides in configs.all_overrides().items():
            self._use_topic(topic, overrides)

    def use_rates(self, settings: QuotaSettings) -> None:
        """Have replication throttled to what the node's settings say now."""
        self.replication.leader.use_rate(settings.leader_throttled_rate)
        self.replication.follower.use_rate(settings.follower_throttled_rate)

    def _use_topic(self, topic: str, overrides: Mapping[str, str]) -> None:
        for side, quota in (
            ("leader", self.replication.leader),
            ("follower", self.replication.follower),
        ):
            text = overrides.get(f"{side}.replication.throttled.replicas", "")
            words = [word.strip() for word in text.split(",")]
            quota.use_topic(topic, words, self._node_id)
