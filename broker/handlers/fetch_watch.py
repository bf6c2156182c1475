"""What wakes a fetch that waits for more: its follower's session, or each partition it names.

Source: docs/spec/cluster.md §3.5 and §3.6.
"""

from __future__ import annotations

from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.purgatory import DelayedFetch
from barnabas.protocol.messages import fetch as messages

from .fetch_sessions import FetchContext
from .read_committed import wants_committed


class FetchWatch:
    """What wakes a request that waits: its follower's session, or each partition it names."""

    def __init__(
        self,
        context: FetchContext,
        request: messages.FetchRequest,
        wait: DelayedFetch,
        watched: list[Partition],
    ) -> None:
        self._wait = wait
        self._session = context.session
        self._watched = watched
        if self._session is not None and context.is_followers:
            # One wait for a whole session: a follower of ten thousand partitions would otherwise
            # enter and leave ten thousand lists with each fetch.
            self._session.wait = wait
        # Followers read to the log's end: each append is news to them. A consumer that it woke
        # could not read it yet; the high watermark has to pass it first
        # (test_a_follower_is_woken_by_an_append_and_a_consumer_by_its_commit).
        for partition in self._watched:
            if request.replica_id >= 0:
                partition.fetch_waiters.wait_for_append(wait)
            else:
                partition.fetch_waiters.wait(wait, is_committed=wants_committed(request))

    def stop(self) -> None:
        """Nothing wakes it any more."""
        # A later fetch may have put its own there: the peer retried on another connection.
        if self._session is not None and self._session.wait is self._wait:
            self._session.wait = None
        for partition in self._watched:
            partition.fetch_waiters.forget(self._wait)
