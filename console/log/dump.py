"""``barnabas log dump``: the files of a log as kafka-dump-log prints them.

Batches and records, offset, time and transaction index, producer snapshot; checkpoints besides,
which Kafka's tool does not know. It compares indexes with their log on the way, as Kafka's does.
Source: docs/spec/users.md §2.1; DumpLogSegments of Kafka 3.9.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from barnabas.client.os_errors import describe_os_error
from barnabas.console.command_line.output import note
from barnabas.protocol.errors import CorruptRequest
from barnabas.protocol.log_files.aborted_transactions import BadTransactionIndex, parse_aborted
from barnabas.protocol.log_files.checkpoints import BadCheckpoint, parse_epochs, parse_offsets
from barnabas.protocol.log_files.producer_snapshot import BadSnapshot, parse_producers
from barnabas.protocol.records import batch
from barnabas.protocol.records.corrupt_records import CorruptRecords
from barnabas.protocol.records.header import CONTROL, Header
from barnabas.protocol.records.header_walk import HeaderWalk
from barnabas.protocol.records.record import Record
from barnabas.protocol.records.walk import Stop

from .dump_indexes import dump_offset_index, dump_time_index
from .dump_lines import Line, batch_line, line, producer_line, record_lines
from .record_decoders import Decoder, formatted_offset, plain
from .segment_files import base_offset, mapped, plain_name

INT32_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpOptions:
    """What to print; the names are those of kafka-dump-log."""

    print_data_log: bool = False
    deep_iteration: bool = False
    skip_record_metadata: bool = False
    index_sanity_check: bool = False
    verify_index_only: bool = False
    offsets_formatter: bool = False
    """Only the documents' line for each committed offset."""
    as_json: bool = False
    max_bytes: int = INT32_MAX
    decoder: Decoder = plain


@dataclass(slots=True)
class Dump:
    """One run over some files; ``code`` is what to exit with."""

    options: DumpOptions
    code: int = 0
    _mismatches: dict[str, list[str]] = field(default_factory=dict)

    def dump(self, path: Path) -> None:
        """Print one file; what cannot be read of it is told on standard error."""
        if not self.options.as_json and not self.options.offsets_formatter:
            print(f"Dumping {path}")
        try:
            self._dump(path)
        except UnicodeDecodeError:
            self.complain(f"{path}: is no text")
        except (BadSnapshot, BadTransactionIndex, BadCheckpoint) as bad:
            self.complain(f"{path}: {bad}")
        except BrokenPipeError:
            raise  # of the reader of what we print
        except OSError as refusal:  # one file that cannot be read keeps no other from it
            self.complain(describe_os_error(refusal))

    def finish(self) -> int:
        """Tell where indexes and logs disagree; the exit code."""
        for heading, lines in self._mismatches.items():
            note(heading)
            for mismatch in lines:
                note(f"  {mismatch}")
        return self.code

    def mismatch(self, heading: str, text: str) -> None:
        """Keep one disagreement for the end, under its heading."""
        self.code = 1
        self._mismatches.setdefault(heading, []).append(text)

    def show(
        self, path: Path, kind: str, fields: Line, *, prefix: str = "", suffix: str = ""
    ) -> None:
        """One thing of a file: Kafka's line, or a JSON document in a line."""
        if self.options.as_json:
            print(json.dumps({"file": str(path), kind: fields}))
        else:
            print(prefix + line(fields) + suffix)

    def complain(self, text: str) -> None:
        """Something is wrong with a file."""
        self.code = 1
        note(text)

    def say(self, text: str) -> None:
        """A line that has no place among JSON."""
        if not self.options.as_json:
            print(text)

    def _dump(self, path: Path) -> None:
        name = plain_name(path)
        suffix = Path(name).suffix
        if suffix == ".log":
            self._log(path)
        elif self.options.offsets_formatter:
            return
        elif suffix == ".index":
            dump_offset_index(self, path)
        elif suffix == ".timeindex":
            dump_time_index(self, path)
        elif suffix == ".snapshot":
            for producer in parse_producers(path.read_bytes()):
                # Kafka's blank, behind which the last batch would stand.
                blank = " " if producer.last_offset < 0 else ""
                self.show(path, "producer", producer_line(producer), suffix=blank)
        elif suffix == ".txnindex":
            self._transactions(path)
        elif name.endswith("-checkpoint"):
            self._checkpoint(path)
        else:
            path.stat()  # raises OSError for one that is not there
            note(f"Ignoring unknown file {path}")

    def _transactions(self, path: Path) -> None:
        for aborted in parse_aborted(path.read_bytes()):
            fields = {
                "version": 0,
                "producerId": aborted.producer_id,
                "firstOffset": aborted.first_offset,
                "lastOffset": aborted.last_offset,
                "lastStableOffset": aborted.last_stable_offset,
            }
            self.show(path, "aborted", fields)

    def _checkpoint(self, path: Path) -> None:
        text = path.read_bytes().decode()
        if path.name.startswith("leader-epoch"):
            for epoch, start in parse_epochs(text):
                self.show(path, "epoch", {"epoch": epoch, "startOffset": start})
            return
        for (topic, partition), offset in parse_offsets(text).items():
            fields = {"topic": topic, "partition": partition, "offset": offset}
            self.show(path, "checkpoint", fields)

    def _log(self, path: Path) -> None:
        if not self.options.offsets_formatter:
            self.say(f"Log starting offset: {base_offset(path)}")
        with mapped(path) as data:
            end = min(len(data), self.options.max_bytes)
            walk = HeaderWalk(data, end=end)
            last_offset = -1
            for position, head in walk:
                entry = data[position : walk.valid_bytes]
                last_offset = self._entry(path, position, head, entry, last_offset)
            if walk.valid_bytes < end and self.options.max_bytes == INT32_MAX:
                self.say(f"Found {end - walk.valid_bytes} invalid bytes at the end of {path.name}")
            if walk.stop is Stop.CORRUPT:
                self.complain(f"{path}: position {walk.valid_bytes}: {walk.reason}")

    def _entry(
        self, path: Path, position: int, head: Header, entry: bytes, last_offset: int
    ) -> int:
        """Print an entry; the last offset seen in the file so far."""
        options = self.options
        if not options.offsets_formatter:
            is_valid = batch.crc_is_valid(entry, 0, len(entry))
            self.show(path, "batch", batch_line(position, head, is_valid))
            if not options.deep_iteration and not options.print_data_log:
                return last_offset
        try:
            for fields, record in record_lines(head, entry):
                if last_offset not in (-1, record.offset - 1):
                    heading = f"Non-consecutive offsets in {path.absolute()}"
                    self._mismatches.setdefault(heading, []).insert(
                        0, f"{last_offset} is followed by {record.offset}"
                    )
                last_offset = record.offset
                self._record(path, head, fields, record)
        except (CorruptRecords, CorruptRequest) as bad:
            reason = bad.message if isinstance(bad, CorruptRecords) else bad
            self.complain(f"{path}: position {position}: {reason}")
        return last_offset

    def _record(self, path: Path, head: Header, fields: Line, record: Record) -> None:
        options, is_control = self.options, bool(head.magic == 2 and head.attributes & CONTROL)
        if options.offsets_formatter:
            formatted = None if is_control else formatted_offset(record)
            if formatted is not None:
                print(formatted)
            return
        shown = "" if options.skip_record_metadata else f"| {line(fields)}"
        key = payload = None
        if options.print_data_log and not is_control:
            key, payload = options.decoder(record)
        if options.as_json:
            self.show(path, "record", fields | {"key": key, "payload": payload})
            return
        shown += "" if key is None else f"{' ' if shown else '| '}key: {key}"
        print(shown + ("" if payload is None else f" payload: {payload}"))
