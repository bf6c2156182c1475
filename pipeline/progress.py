"""A group told how far a stream is, once the stream has ended.

Spark tells a source of a batch when it plans the next one, so the last batch of a query is never
told: whoever waits for a query calls this then. Source: docs/spec/pipeline.md §1.3 trap 7.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.pipeline.source.address import address_of
from barnabas.pipeline.source.checkpoint import Checkpoint
from barnabas.pipeline.source.offsets_json import Offsets

from . import cluster_requests
from .blocking_client import client_for


def finished_offsets(checkpoint: str) -> Offsets:
    """Where the topics end in the newest batch that is done; empty before the first is."""
    kept = Checkpoint(checkpoint)
    done = kept.done()
    return {} if done is None else kept.topic_ends(done)


def commit_progress(
    checkpoint: str,
    bootstrap: str,
    group: str,
    *,
    options: Mapping[str, str] | None = None,
) -> Offsets:
    """Commit what a checkpoint says is done, and return it; repeating it is harmless.

    ``options`` for TLS and a login are those of the stream: ``kafka.security.protocol``, or
    ``commandConfig``. Raises KafkaError, UNKNOWN_MEMBER_ID when the group has members of its own.
    """
    offsets = finished_offsets(checkpoint)
    client = client_for(*address_of(bootstrap, options))
    client.run(cluster_requests.commit(client.cluster, group, offsets))
    return offsets
