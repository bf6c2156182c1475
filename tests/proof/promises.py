"""The promises P1 to P22, a sentence each. Source: docs/spec/reliability.md §3."""

from __future__ import annotations

from typing import Final

PROMISES: Final = {
    "P1": "An acknowledged commit survives the loss of one node at a time, killed at any instant",
    "P2": "It survives a power cut of one node; of all at once where every record is flushed",
    "P3": "Commits of a group's partition take effect once, in real-time order, or not at all",
    "P4": "A fetched offset is never older than one that anybody was told before he asked",
    "P5": "While offsets are loaded a fetch is answered 14, never -1 and never in part",
    "P6": "A record that was acknowledged with acks=all survives the loss of one node, in order",
    "P7": "Idempotent producers leave no duplicates",
    "P8": "A node whose lease is over, or whose epoch is old, acknowledges and answers nothing",
    "P9": "A partition has at most one consumer in a group, and one soon after churn stops",
    "P10": "A second node with the same id does not start; a killed one comes back",
    "P11": "After a crash a log is a prefix of what was appended, with all that was synced",
    "P12": "A flipped byte is found or harmless; nothing wrong is served",
    "P13": "Compaction keeps the newest record of every key, offsets and order",
    "P14": "Migration of offsets from ZooKeeper and back loses no progress at any step",
    "P15": "Malformed input is answered with an error or a closed connection; others go on",
    "P16": "Memory stays within its bounds whatever clients send",
    "P17": "No listener serves what is not its own: no follower's fetch, no orders of a controller",
    "P18": "On a full disk nothing is acknowledged that is not kept; reads go on; space heals it",
    "P19": "Commits resume within half a second and an election when a coordinator is lost",
    "P20": "After the last fault everything leads, is in sync and serves within a minute",
    "P21": "A wall clock that jumps changes no election, session or expiry of a live group",
    "P22": "With a flush every M records or S seconds a lone node loses no more in a power cut",
}
