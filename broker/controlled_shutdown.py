"""A node that is about to stop asks the controller to do without it: to lead, and to follow.

Source: cluster.md section 2.8.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from barnabas.client.ensemble import SessionState, ZooKeeper
from barnabas.client.errors import KafkaError
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import controlled_shutdown as messages

from .config import ControllerSettings
from .controller.channel import Dial
from .metadata import MetadataCache

log = logging.getLogger(__name__)

VERSION = 3
WAIT_MS = 5000
"""How long one answer is waited for; a node that stops must not hang."""


class Departure:
    """Leaves in order, as far as a controller is there to arrange it."""

    def __init__(
        self,
        node_id: int,
        metadata: MetadataCache,
        dial: Dial,
        zookeeper: ZooKeeper,
        settings: ControllerSettings,
        internal_listener: str,
        *,
        shares_replicas: Callable[[], bool],
    ) -> None:
        """``shares_replicas`` says whether anything hosted here has a replica elsewhere."""
        self._node_id = node_id
        self._metadata = metadata
        self._dial = dial
        self._zookeeper = zookeeper
        self._settings = settings
        self._internal_listener = internal_listener
        self._shares_replicas = shares_replicas

    async def announce(self, broker_epoch: int) -> None:
        """Try until nothing that others could lead is led here, or the tries are used up.

        Without ZooKeeper no controller can arrange anything: then nothing is waited for.
        """
        if not self._settings.controlled_shutdown_enable or not self._shares_replicas():
            return
        over = asyncio.Event()
        self._zookeeper.on_state.append(lambda state: None if _is_there(state) else over.set())
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(self._ask_repeatedly(broker_epoch), name="announcement")
            asking.add_done_callback(lambda _: over.set())
            if _is_there(self._zookeeper.state):
                await over.wait()
            if not asking.done():
                log.warning("leaves without handing over: there is no connection to zookeeper")
                asking.cancel()

    async def _ask_repeatedly(self, broker_epoch: int) -> None:
        tries = self._settings.controlled_shutdown_max_retries + 1
        for left in reversed(range(tries)):
            try:
                remaining = await self._ask(broker_epoch)
            except (KafkaError, OSError) as error:
                log.warning("could not announce the shutdown tries_left=%d: %s", left, error)
            else:
                if not remaining:
                    return
                log.info("still leading partitions=%d tries_left=%d", len(remaining), left)
            if left:
                await self._await_change()

    async def _await_change(self) -> None:
        """Until the back-off is over, or another controller is known."""
        former = self._metadata.snapshot.controller_id
        await self._metadata.wait_until(
            lambda snapshot: snapshot.controller_id not in (former, None),
            self._settings.controlled_shutdown_retry_backoff_ms / 1000,
        )

    async def _ask(self, broker_epoch: int) -> Sequence[messages.RemainingPartition]:
        snapshot = self._metadata.snapshot
        if snapshot.controller_id is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "no controller is known")
        address = snapshot.endpoint(snapshot.controller_id, self._internal_listener)
        if address is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "the controller's address is unknown")
        link = await self._dial(*address)
        try:
            request = messages.ControlledShutdownRequest(
                broker_id=self._node_id, broker_epoch=broker_epoch
            )
            answer = await link.request(request, VERSION, WAIT_MS)
        finally:
            await link.close()
        if answer.error_code:
            raise KafkaError(answer.error_code, "the controller refused")
        remaining: Sequence[messages.RemainingPartition] = answer.remaining_partitions
        return remaining


def _is_there(state: SessionState) -> bool:
    return state is SessionState.CONNECTED
