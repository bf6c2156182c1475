"""What a node says when it ends because something around it failed."""

from __future__ import annotations

from barnabas.broker import daemon
from barnabas.client.zookeeper.interface import ConnectionLost


def test_a_connection_lost_while_it_starts_is_named_though_it_says_nothing() -> None:
    """The last line was "barnabas: " and nothing else."""
    group = BaseExceptionGroup(
        "tasks", [ConnectionLost(""), OSError("no space"), OSError("no space")]
    )
    assert str(daemon._explained(group)) == "ConnectionLost; no space"


def test_a_bug_of_ours_is_not_taken_for_a_failure_around_the_node() -> None:
    group = BaseExceptionGroup("tasks", [ConnectionLost(""), KeyError("bug")])
    assert daemon._explained(group) is group
