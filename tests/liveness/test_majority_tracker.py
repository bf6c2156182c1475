"""The newest round that a majority acknowledged, kept up: always what counting all anew gives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.liveness.controller_authority import ControllerAuthority
from barnabas.broker.liveness.voter_set import NEVER, MajorityTracker, VoterSet
from barnabas.broker.settings.liveness_settings import BeaconTimes

NODES = st.integers(1, 8)
ACKNOWLEDGEMENTS = st.lists(st.tuples(NODES, st.integers(0, 12)), max_size=60)
SETS = st.frozensets(NODES)


@given(SETS, ACKNOWLEDGEMENTS, st.integers(0, 20))
def test_it_is_what_counting_all_anew_gives(
    voters: frozenset[int], acknowledgements: list[tuple[int, int]], begin: int
) -> None:
    among, heard = VoterSet(voters, 6.0), dict[int, float]()
    tracker: MajorityTracker | None = None
    for number, (node, sent) in enumerate(acknowledgements):
        if number == begin:
            tracker = MajorityTracker(among, heard)
        if sent > heard.get(node, NEVER):
            heard[node] = sent
            if tracker is not None:
                tracker.acknowledged(node)
        if tracker is not None:
            assert tracker.sent == among.majority_sent(heard)


@given(st.lists(SETS, min_size=1, max_size=4), ACKNOWLEDGEMENTS)
def test_authority_ends_when_every_set_in_force_says_so(
    sets: list[frozenset[int]], acknowledgements: list[tuple[int, int]]
) -> None:
    """The oracle is the rule as it is written down: docs/beacons.md points 12 and 13."""
    times, now = BeaconTimes(), 100.0
    authority = ControllerAuthority(1, times, lambda: now)
    authority.begin(5, VoterSet(sets[0], 6.0), 6.0)
    authority.checked(99.0)
    authority.round_sent(0.0, vote=None)
    heard: dict[int, float] = {}
    for number, (node, sent) in enumerate(acknowledgements):
        authority.acknowledged(node, float(sent), is_final=False)
        heard[node] = max(heard.get(node, NEVER), float(sent))
        if number < len(sets):
            authority.intend(VoterSet(sets[number], 6.0))
        if number == 2 * len(sets):
            authority.confirmed(VoterSet(sets[-1], 6.0))
        ends = [one.authority_end(heard, 99.0, times) for one in authority.in_force]
        assert authority.end_at == min(99.0 + 6.0 * 0.9, *ends)
        assert authority.majority_sent == authority.voters.majority_sent(heard)
