"""How far back quotas look, and how fast replicas that are being moved may be copied.

Source: docs/spec/security.md §4 (S59, S63, S66); Kafka 3.9 QuotaConfig, KIP-73.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from barnabas.protocol.settings import setting

UNLIMITED: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaSettings:
    """Windows of quotas, and the throttles of replication."""

    window_num: int = setting(
        "quota.window.num", 11, "windows that a client's rate is taken over", least=1
    )
    window_size_s: int = setting(
        "quota.window.size.seconds",
        1,
        "one of them; also the longest throttle of requests",
        least=1,
    )
    controller_window_num: int = setting(
        "controller.quota.window.num", 11, "windows whose mutations may come at once", least=1
    )
    controller_window_size_s: int = setting(
        "controller.quota.window.size.seconds", 1, "one of them", least=1
    )
    replication_window_num: int = setting(
        "replication.quota.window.num", 11, "windows that a throttled rate is taken over", least=1
    )
    replication_window_size_s: int = setting(
        "replication.quota.window.size.seconds", 1, "one of them", least=1
    )
    leader_throttled_rate: int = setting(
        "leader.replication.throttled.rate",
        UNLIMITED,
        "bytes a second to throttled replicas that are not in sync",
        least=0,
    )
    follower_throttled_rate: int = setting(
        "follower.replication.throttled.rate",
        UNLIMITED,
        "bytes a second from leaders for such replicas",
        least=0,
    )
