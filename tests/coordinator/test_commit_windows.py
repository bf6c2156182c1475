"""The latest commits as somebody sees them who looks now and then."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordinator.commit_windows import CommitWindows
from barnabas.coordinator.group_health import CommitSample, HealthRules


def test_a_commit_that_was_seen_before_is_counted_once() -> None:
    windows: CommitWindows[str] = CommitWindows()
    windows.add_sample("a", 7, CommitSample(1, 100, 5))
    windows.add_sample("a", 7, CommitSample(1, 100, 9))
    windows.add_sample("a", 8, CommitSample(1, 200, 9))
    assert windows.samples("a") == [CommitSample(1, 100, 5), CommitSample(1, 200, 9)]


def test_what_is_not_kept_is_forgotten() -> None:
    windows: CommitWindows[str] = CommitWindows()
    windows.add_sample("a", 1, CommitSample(1, 1, 1))
    windows.add_sample("b", 1, CommitSample(2, 2, 2))
    windows.retain({"b"})
    assert windows.samples("a") == []
    assert len(windows) == 1


@given(
    looks=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3))), commits=st.integers(1, 4)
)
def test_a_window_holds_the_latest_commits_of_each_partition(
    looks: list[tuple[str, int]], commits: int
) -> None:
    windows: CommitWindows[str] = CommitWindows(HealthRules(commits=commits))
    seen: dict[str, list[tuple[int, CommitSample]]] = {"a": [], "b": []}
    for turn, (key, record) in enumerate(looks):
        step = CommitSample(turn, turn, turn)
        windows.add_sample(key, record, step)
        if not seen[key] or seen[key][-1][0] != record:
            seen[key].append((record, step))
    for key, expected in seen.items():
        assert windows.samples(key) == [step for _, step in expected[-commits:]]
