"""Every experiment, in the order in which a proof runs them: the short ones first.

Sizes: `pr` fits beside `make test`, `night` into eight hours on two cores, `week` into a weekend.
Source: docs/spec/reliability.md §4 to §9.
"""

from __future__ import annotations

from typing import Final

from tests.proof.experiment import Experiment
from tests.proof.runs import (
    campaign,
    endurance,
    faults,
    flipped,
    fuzzed,
    power_cuts,
    rolling,
    seeded,
    spoilt,
    unchanged,
)

EXPERIMENTS: Final = (
    Experiment(
        "leases-in-a-model-world",
        ("P4", "P8", "P19"),
        "shipped beacons, leases and voters; clocks that drift, cuts, freezes, stalls of ZooKeeper",
        "worlds",
        {"pr": 50, "night": 5_000, "week": 25_000},
        seeded(
            "tests/liveness/test_simulation.py",
            "tests/liveness/test_voting_simulation.py",
            keyword="no_node_answers",
        ),
    ),
    Experiment(
        "simulated-commits",
        ("P1", "P3", "P4", "P5", "P8"),
        "three shipped nodes on a seeded loop; crashes, cuts, expired sessions, planned moves",
        "histories",
        {"pr": 50, "night": 3_000, "week": 20_000},
        seeded("tests/sim/test_replicated_commits.py"),
    ),
    Experiment(
        "simulated-replication",
        ("P2", "P6", "P7", "P11", "P20"),
        "records acknowledged by all replicas; one node after the other hurt, or all without power",
        "histories",
        {"pr": 50, "night": 3_000, "week": 20_000},
        seeded("tests/sim/test_replication.py", keyword="survives or power_cut"),
    ),
    Experiment(
        "simulated-controllers",
        ("P8", "P20"),
        "sessions that end, orders that come late, twice or never, tools that interfere",
        "histories",
        {"pr": 50, "night": 3_000, "week": 20_000},
        seeded("tests/sim/test_controllers.py", keyword="whatever_befalls"),
    ),
    Experiment(
        "simulated-single-node",
        ("P1", "P2", "P11"),
        "the shipped daemon, power cuts between commits, each seed twice with one history",
        "histories",
        {"pr": 20, "night": 1_000, "week": 5_000},
        seeded("tests/sim/test_daemon.py"),
    ),
    Experiment(
        "simulated-classic-groups",
        ("P9",),
        "members, nodes and partitions that come and go in groups balanced through ZooKeeper",
        "histories",
        {"pr": 20, "night": 500, "week": 5_000},
        seeded("tests/sim/test_classic_groups.py"),
    ),
    Experiment(
        "simulated-migration",
        ("P14",),
        "a rolling migration of offsets there and back while consumers and nodes die",
        "histories",
        {"pr": 20, "night": 500, "week": 5_000},
        seeded("tests/sim/test_migration.py"),
    ),
    Experiment(
        "simulated-history-of-offsets",
        ("P1", "P5"),
        "changes by hand while nodes die: each is in the audit topic, in its order",
        "histories",
        {"pr": 20, "night": 500, "week": 5_000},
        seeded("tests/sim/test_audit.py"),
    ),
    Experiment(
        "flipped-bits",
        ("P12",),
        "a bit flipped in every byte of every file of a log directory, then served",
        "tests",
        {"pr": 1, "night": 1, "week": 1},
        unchanged("tests/storage/recovery/test_flipped_bits.py"),
    ),
    Experiment(
        "flipped-bits-of-a-directory",
        ("P12",),
        "a bit of any file of a whole data directory flipped, a node started on it, all of it read",
        "bits",
        {"pr": 400, "night": 8_192, "week": 65_536},
        flipped,
    ),
    Experiment(
        "models-of-the-log",
        ("P11", "P13", "P18"),
        "log, compaction and transactions against models; power cuts and full disks between",
        "tests",
        {"pr": 1, "night": 1, "week": 1},
        unchanged(
            "tests/storage/log/test_log_model.py",
            "tests/storage/compaction/test_compaction_model.py",
            "tests/storage/compaction/test_compaction_crashes.py",
            "tests/storage/producers/test_transactions_model.py",
            "tests/storage/test_node_model.py",
            "tests/storage/test_full_disk.py",
            "tests/sim/test_full_disk.py",
        ),
    ),
    Experiment(
        "spoilt-messages",
        ("P15",),
        "stored messages of every request and version, of records and datagrams, changed at random",
        "inputs",
        {"pr": 1_000, "night": 20_000, "week": 100_000},
        fuzzed("tests/fuzz"),
    ),
    Experiment(
        "spoilt-inputs",
        ("P15", "P16"),
        "good bytes changed at random before every decoder; CPU time and memory of each measured",
        "inputs",
        {"pr": 100_000, "night": 2_000_000, "week": 10_000_000},
        spoilt,
    ),
    Experiment(
        "simulated-hostile-znodes",
        ("P15",),
        "a node that runs, or starts, with a znode that somebody has spoilt",
        "histories",
        {"pr": 50, "night": 2_000, "week": 20_000},
        seeded("tests/sim/test_hostile_znodes.py", keyword="spoilt_at_random"),
    ),
    Experiment(
        "bounds-and-rights",
        ("P10", "P15", "P16", "P17"),
        "every request on every listener; floods, half-sent frames, slow readers; second nodes",
        "tests",
        {"pr": 1, "night": 1, "week": 1},
        unchanged(
            "tests/net",
            "tests/lifecycle/test_peer_compatibility.py",
            "tests/zookeeper/test_registration.py",
        ),
    ),
    Experiment(
        "loading-and-expiry",
        ("P5", "P21"),
        "fetches while offsets load; a wall clock that jumps",
        "tests",
        {"pr": 1, "night": 1, "week": 1},
        unchanged(
            "tests/coordinator/test_loading.py", "tests/coordinator/test_offset_expiration.py"
        ),
    ),
    Experiment(
        "replaced-coordinators",
        ("P4", "P8"),
        "a real coordinator paused, or cut off by packet filters, while clients still reach it",
        "tests",
        {"pr": 1, "night": 1, "week": 1},
        unchanged(
            "tests/chaos/test_leases.py", "tests/chaos/test_coordinator_isolation.py", marks=""
        ),
    ),
    Experiment(
        "power-cuts",
        ("P2", "P11"),
        "a writing process on an ext4 image whose power is cut, also while it recovers",
        "ends",
        {"pr": 200, "night": 10_000, "week": 20_000},
        power_cuts,
    ),
    Experiment(
        "rolling-upgrades",
        ("P1", "P3", "P4", "P6", "P7", "P19", "P20"),
        "three real nodes of the release before and of this one, moved one by one there and back",
        "moves",
        {"pr": 1, "night": 10, "week": 50},
        rolling,
    ),
    Experiment(
        "endurance",
        ("P1", "P6", "P13", "P16", "P20"),
        "three real nodes at work for long: restarts in turn, compaction, retention, rebalances, "
        "groups in thousands; memory, descriptors and logs judged from half an hour on",
        "minutes",
        {"pr": 2, "night": 100, "week": 240},
        endurance,
    ),
    Experiment(
        "faults-of-every-kind",
        ("P1", "P2", "P3", "P4", "P6", "P7", "P18", "P19", "P20", "P21"),
        "three real nodes, each in a network and on a disk of its own, under load of clients of "
        "five kinds: killed, paused, stopped, cut off one way and both, lossy links, expired "
        "sessions, a paused ZooKeeper, power cuts, full and failing disks, wrong wall clocks",
        "faults",
        {"pr": 8, "night": 100, "week": 500},
        faults,
    ),
    Experiment(
        "chaos-with-beacons",
        ("P1", "P3", "P4", "P6", "P7", "P19", "P20"),
        "kill -9, SIGSTOP, SIGTERM of three real nodes under load of clients of five libraries",
        "rounds",
        {"pr": 4, "night": 250, "week": 1_000},
        campaign(),
    ),
    Experiment(
        "chaos-without-beacons",
        ("P1", "P3", "P4", "P6", "P7", "P20"),
        "the same where leases are ZooKeeper sessions",
        "rounds",
        {"pr": 4, "night": 250, "week": 500},
        campaign("--no-beacons"),
    ),
    Experiment(
        "chaos-with-zookeeper-hurt",
        ("P1", "P3", "P4", "P6", "P7", "P20"),
        "the same beside three ZooKeeper servers, all stalled, restarted in turn, or one killed",
        "rounds",
        {"pr": 6, "night": 120, "week": 500},
        campaign("--zookeeper"),
    ),
    Experiment(
        "stalled-zookeeper",
        ("P1", "P4", "P6"),
        "stalls of 0.5 to 18 s, slow disk, restart, servers killed, with beacons and without: no "
        "answer but success below the session timeout",
        "tests",
        {"night": 1, "week": 1},
        unchanged("tests/chaos/test_stalled_zookeeper.py", marks=""),
    ),
)
