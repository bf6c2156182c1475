"""A Kafka cluster for tests and notebooks: ``with Cluster(brokers=3) as cluster: ...``

The fixtures ``kafka_cluster``, ``kafka_topic``, ``kafka_group`` and ``kafka_bootstrap`` need no
import: pytest finds them. docs/testing.md tells about both.
"""

from __future__ import annotations

from barnabas.console.command_line.failure import Failure
from barnabas.console.development.cluster import Cluster
from barnabas.console.development.secured_user import SecuredUser

__all__ = ["Cluster", "Failure", "SecuredUser"]
