"""Prometheus' text format, line by line."""

from __future__ import annotations

from barnabas.broker.metrics.exposition import family, histogram, single


def test_a_family_says_what_it_is_before_its_samples() -> None:
    text = "".join(family("a_total", "counter", "What.", [({"t": "x", "p": 3}, 7), ({}, 0.5)]))
    assert text == (
        '# HELP a_total What.\n# TYPE a_total counter\na_total{t="x",p="3"} 7\na_total 0.5\n'
    )


def test_labels_are_escaped() -> None:
    *_, line = family("a", "gauge", "What.", [({"group": 'a"b\\c\nd'}, 1)])
    assert line == 'a{group="a\\"b\\\\c\\nd"} 1\n'


def test_a_single_value_needs_no_labels() -> None:
    assert list(single("a", "gauge", "What.", 3))[-1] == "a 3\n"


def test_a_histogram_counts_upwards_and_ends_without_a_bound() -> None:
    lines = list(histogram("a", "What.", (0.1, 1.0), [({"api": "x"}, [2, 0, 1], 3.5)]))
    assert lines[2:] == [
        'a_bucket{api="x",le="0.1"} 2\n',
        'a_bucket{api="x",le="1.0"} 2\n',
        'a_bucket{api="x",le="+Inf"} 3\n',
        'a_sum{api="x"} 3.5\n',
        'a_count{api="x"} 3\n',
    ]
