"""Records written one after the other in a thread, each acknowledged before the next."""

from __future__ import annotations

import threading
from typing import Any, Final

from barnabas.client import ClientConfig, ProducerConfig, SyncProducer

from .waiting import eventually

WAIT_S: Final = 240.0


class SteadyLoad(threading.Thread):
    """Writes to one partition until told to end; ``settings`` are those of the client."""

    def __init__(self, bootstrap: str, topic: str, **settings: Any) -> None:
        super().__init__(daemon=True)
        self._address = bootstrap
        self._topic = topic
        self._config = ProducerConfig(delivery_timeout_ms=int(WAIT_S * 1000))
        self._client = ClientConfig(**settings)
        self._is_over = threading.Event()
        self.acknowledged: list[bytes] = []

    def run(self) -> None:
        with SyncProducer(self._address, self._config, client=self._client) as producer:
            while not self._is_over.is_set():
                value = f"record {len(self.acknowledged)}".encode()
                producer.send(self._topic, value)
                self.acknowledged.append(value)

    def reach(self, count: int) -> None:
        """Wait until so many more are acknowledged."""
        goal = len(self.acknowledged) + count

        def is_reached() -> bool:
            assert self.is_alive(), "the producer failed"
            return len(self.acknowledged) >= goal

        eventually(is_reached, within_s=WAIT_S, what=f"{goal} records")

    def end(self) -> list[bytes]:
        """Stop; all that was acknowledged, in order."""
        self._is_over.set()
        self.join(WAIT_S)
        assert not self.is_alive(), "the producer does not end"
        return self.acknowledged
