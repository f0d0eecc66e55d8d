"""The periodic run of retention in a serving process."""

import logging
import random
import threading

from holdfast.clock import Clock, Timer
from holdfast.errors import HoldfastError
from holdfast.push.calls import Caller
from holdfast.push.controller import Controller
from holdfast.server.metrics import Metrics

log = logging.getLogger(__name__)

_TICK_MS = 1000
_DELETIONS_MS = 10_000
_DELAY_SPREAD = 2.5
"""The first run comes after 1 to 2.5 times the configured delay, so not all controllers act at once."""
_BY = Caller(actor="RetentionManager")
_chance = random.SystemRandom()


class PeriodicRetention:
    """Runs retention once in every period; only the controller that leads does anything."""

    def __init__(
        self,
        controller: Controller,
        metrics: Metrics,
        clock: Clock,
        *,
        frequency_ms: int,
        initial_delay_ms: int,
    ) -> None:
        self._controller = controller
        self._metrics = metrics
        self._clock = clock
        self._frequency_ms = frequency_ms
        self._due_ms = clock.monotonic_ms() + int(initial_delay_ms * _chance.uniform(1, _DELAY_SPREAD))
        self._timers: list[Timer] = []
        self._lock = threading.Lock()

    def start(self) -> None:
        tick_ms = min(_TICK_MS, self._frequency_ms)
        self._timers = [
            self._clock.every_ms(tick_ms, self.tick, name="holdfast-retention"),
            self._clock.every_ms(_DELETIONS_MS, self.finish_deletions, name="holdfast-deletions"),
        ]

    def stop(self) -> None:
        """Returns when a run under way is over."""
        for timer in self._timers:
            timer.stop()

    def finish_deletions(self) -> None:
        """Delete what was waiting for brokers that have moved on; most of the time there is nothing."""
        for table in self._controller.views.tables():
            try:
                self._controller.upkeep.finish_deletions(table)
            except HoldfastError as error:
                log.warning("deletions.failed", extra={"table": table, "cause": str(error)})

    def tick(self) -> None:
        """Run if it is time."""
        with self._lock:
            if self._clock.monotonic_ms() < self._due_ms:
                return
            self._due_ms = self._clock.monotonic_ms() + self._frequency_ms
        try:
            reports = self._controller.upkeep.run_retention_everywhere(by=_BY)
        except HoldfastError as error:
            self._metrics.retention_runs.labels("failed").inc()
            log.warning("retention.failed", extra={"cause": str(error)})
            return
        self._metrics.retention_runs.labels("done").inc()
        self._metrics.retention_succeeded_at.set(self._clock.now_ms() / 1000)
        log.info("retention.cycle", extra={"tables": len(reports)})
