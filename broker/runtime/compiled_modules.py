"""Which modules a compiled wheel has compiled, and whether this installation has them so.

The one list: hatch_build.py and tests read it too. docs/decisions/0012 says how it was chosen.
Source: docs/decisions/0012.
"""

from __future__ import annotations

from importlib.machinery import ExtensionFileLoader
from importlib.util import find_spec
from typing import Final

COMPILED_MODULES: Final = (
    "barnabas.broker.coordination.coordinator_ports",
    "barnabas.broker.handlers.call",
    "barnabas.broker.handlers.duplicate_partitions",
    "barnabas.broker.handlers.groups",
    "barnabas.broker.handlers.produce",
    "barnabas.broker.metrics.request_meter",
    "barnabas.broker.net.connection",
    "barnabas.broker.net.connection_scheduler",
    "barnabas.broker.net.dispatch",
    "barnabas.broker.net.framing",
    "barnabas.broker.net.request_order",
    "barnabas.broker.replication.partition",
    "barnabas.broker.replication.purgatory",
    "barnabas.broker.replication.replica_manager",
    "barnabas.broker.replication.state_log_port",
    "barnabas.broker.storage.log.log",
    "barnabas.broker.storage.producers.ongoing_transactions",
    "barnabas.broker.storage.segment.segment",
    "barnabas.broker.storage.segment.segment_indexes",
    "barnabas.coordinator.bulk_commit",
    "barnabas.coordinator.bulk_offsets",
    "barnabas.coordinator.commit_columns",
    "barnabas.coordinator.commit_record",
    "barnabas.coordinator.consumer_groups.consumer_group",
    "barnabas.coordinator.group",
    "barnabas.coordinator.offset_commit",
    "barnabas.coordinator.offset_fetch",
    "barnabas.coordinator.offsets",
    "barnabas.coordinator.offsets_journal",
    "barnabas.protocol.codec.rows",
    "barnabas.protocol.frame",
    "barnabas.protocol.records.batch",
    "barnabas.protocol.records.builder",
    "barnabas.protocol.records.equal_records",
    "barnabas.protocol.records.record_rows",
    "barnabas.protocol.records.rewrite",
    "barnabas.protocol.records.section_check",
    "barnabas.protocol.records.validate",
)
"""Full names. A class of theirs and its subclasses have to be on the list together: of a compiled
class that an interpreted one derives from no object can be made. Nor can objects of a compiled
class be pickled: what goes to another process is declared elsewhere (records/produce_rules.py)."""


def kind_of_build() -> str:
    """``compiled`` or ``interpreted``; in a broken installation how many modules are compiled.

    Their files are looked at: an extension module is what Python imports where there is one.
    """
    compiled = sum(is_extension(name) for name in COMPILED_MODULES)
    if compiled == len(COMPILED_MODULES):
        return "compiled"
    if not compiled:
        return "interpreted"
    return f"compiled in part ({compiled} of {len(COMPILED_MODULES)} modules)"


def is_extension(module: str) -> bool:
    """Whether Python finds an extension module under this name."""
    spec = find_spec(module)
    return spec is not None and isinstance(spec.loader, ExtensionFileLoader)
