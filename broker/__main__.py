"""``python -m barnabas.broker FILE``: one node in the foreground until a signal.

Source: docs/spec/cluster.md §5; precedence of settings as in Kafka's images: file, environment,
--set.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import uvloop

from barnabas.broker.storage.segment.open_files import raise_limit
from barnabas.client.option_parser import OptionParser
from barnabas.client.os_errors import describe_os_error
from barnabas.protocol.settings import ConfigError

from . import daemon
from .metrics.process_families import release
from .runtime import gc_tuning, thread_switching
from .runtime.compiled_modules import kind_of_build
from .runtime.freed_memory import keep_freed_memory
from .runtime.json_log import JsonFormatter
from .runtime.unblocked_log import standard_error
from .security.file_review import check_files
from .settings.node_config import NodeConfig, load
from .settings.properties import (
    from_assignments,
    from_environment,
    parse_properties,
    unread_files,
    variables,
)

log = logging.getLogger(__name__)

FAILED: Final = 1
MISUSED: Final = 2
LOG_FORMAT: Final = "%(asctime)s %(levelname).1s %(name)s %(message)s"
LOG_TIME: Final = "%Y-%m-%d %H:%M:%S"


def main(
    arguments: Sequence[str],
    defaults: Mapping[str, str] | None = None,
    program: str = "barnabas broker",
) -> int:
    """Run one node; returns the exit code: 0 stopped, 1 failed, 2 wrong settings.

    ``defaults`` are settings that the file may still change.
    """
    chosen = _parser(program).parse_args(arguments)
    logging.basicConfig(
        format=LOG_FORMAT,
        datefmt=LOG_TIME,
        level=chosen.log_level,
        handlers=[standard_error()],
    )
    logging.getLogger("kazoo").setLevel(logging.ERROR)
    try:
        config = _configured(chosen, defaults or {})
    except ConfigError as error:
        sys.stderr.write(f"barnabas: {error.listing()}\n")
        return MISUSED
    except UnicodeDecodeError:
        sys.stderr.write(f"barnabas: {chosen.file} is no text in UTF-8\n")
        return MISUSED
    except OSError as error:
        sys.stderr.write(f"barnabas: {describe_os_error(error)}\n")
        return MISUSED
    if config.node.log_format == "json":
        node_id = config.node.broker_id
        for handler in logging.getLogger().handlers:
            handler.setFormatter(JsonFormatter(node_id if node_id >= 0 else None))
    for warning in (*config.warnings, *unread_files(os.environ)):
        log.warning("%s", warning)
    log.info("starting version=%s build=%s", release(), kind_of_build())
    thread_switching.shorten_switch_interval()
    keep_freed_memory()
    raise_limit()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(config, chosen.ready_fd))
    except daemon.NodeFailed as error:
        sys.stderr.write(f"barnabas: {error}\n")
        return FAILED
    except asyncio.CancelledError:
        log.info("stopped before it served")
    except BaseExceptionGroup as group:
        log.critical("ended because a part failed", exc_info=group)
        return FAILED
    return 0


async def _serve(config: NodeConfig, ready_descriptor: int | None) -> None:
    stop, serves = asyncio.Event(), asyncio.Event()
    loop, this = asyncio.get_running_loop(), asyncio.current_task()
    assert this is not None

    def end() -> None:
        """A start is broken off, whatever it waits for: there is nothing to hand over yet."""
        stop.set()
        if not serves.is_set():
            this.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)

    renew = asyncio.Event()
    if config.listener_tls:
        loop.add_signal_handler(signal.SIGHUP, renew.set)

    def ready(ports: Mapping[str, int]) -> None:
        serves.set()
        gc_tuning.tune()
        if ready_descriptor is not None:
            words = " ".join(f"{name}:{port}" for name, port in ports.items())
            os.write(ready_descriptor, f"{words}\n".encode())
            os.close(ready_descriptor)

    await daemon.run(config, stop, ready=ready, lease_clock=daemon.boot_clock, renew=renew)


def _configured(chosen: argparse.Namespace, defaults: Mapping[str, str]) -> NodeConfig:
    if not __debug__:
        raise ConfigError("python -O: assertions guard the data here, run without -O")
    values = dict(defaults)
    if chosen.file is not None:
        values |= parse_properties(chosen.file.read_text(encoding="utf-8"))
    values |= from_environment(os.environ)
    typed = from_assignments(chosen.settings)
    named = variables(os.environ)
    config = load(values | typed, {name: named[name] for name in named.keys() - typed.keys()})
    check_files(config, chosen.file)
    return config


def _parser(program: str) -> argparse.ArgumentParser:
    parser = OptionParser(prog=program, description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE", help="server.properties")
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="one more setting, on top of file and environment",
    )
    parser.add_argument(
        "--ready-fd",
        type=int,
        metavar="N",
        help="write LISTENER:port words and a newline to this descriptor once the node serves",
    )
    parser.add_argument(
        "--log-level", default="INFO", choices=("DEBUG", "INFO", "WARNING", "ERROR")
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
