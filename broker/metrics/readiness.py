"""Whether a node serves all that it is asked for, and if not, why: the answer of /readyz.

Source: docs/spec/console.md §2.2 and §6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from barnabas.broker.liveness.liveness import Liveness
from barnabas.coordinator.group_coordinator import GroupCoordinator
from barnabas.coordinator.terms import LoadState
from barnabas.coordinator.transactions.service import TransactionCoordinator

from .node_sampler import NodeSampler


@dataclass(slots=True)
class ServingState:
    """How far a node has come; set by the node."""

    is_registered: Callable[[], bool]
    is_serving: bool = False
    """Its listeners answer and it is not about to stop."""


def reasons_against(
    state: ServingState,
    sampler: NodeSampler,
    liveness: Liveness,
    groups: GroupCoordinator,
    transactions: TransactionCoordinator,
) -> Iterator[str]:
    """Why the node is not ready, one sentence each; none when it is.

    What failed to load does not count: it needs an operator, and a restart would not help it.
    """
    if not state.is_registered():
        yield "not registered in ZooKeeper"
    if not state.is_serving:
        yield "does not serve yet, or stops"
    if not sampler.is_connected:
        yield f"the session with ZooKeeper is {sampler.session[0]}"
    if not liveness.lease.holds():
        yield "holds no lease"
    for what, terms in (
        ("__consumer_offsets", groups.registry.terms()),
        ("__transaction_state", transactions.registry.terms()),
    ):
        loading = sum(term.load_state is LoadState.LOADING for term in terms)
        if loading:
            yield f"loads {loading} partition{'s' * (loading > 1)} of {what}"
