"""The process that a job runs in: its Spark session, and the signals that stop it.

The first signal stops the job, later ones do not stop its clean-up.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, NoReturn, TypeVar

from holdfast.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

Result = TypeVar("Result")

_NUMBERS = (signal.SIGINT, signal.SIGTERM)
_LOOK_AGAIN_S = 0.5
_CANCEL_AGAIN_S = 0.5
_PATIENCE_S = 10.0


class Terminated(KeyboardInterrupt):
    """The process was asked to end."""


@contextmanager
def stoppable() -> Iterator[None]:
    """Let SIGTERM raise, as Ctrl-C does, so that what a job began is taken back.

    If the program handles it already, its handler stays.
    """
    # Python gives signals to the main thread only, and only there handlers can be set.
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def ignore_signals() -> Iterator[None]:
    """No signal interrupts the block; it must end by itself, and soon."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _pass_over) for number in _NUMBERS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def start_in_thread(act: Callable[[], Result], *, name: str) -> Future[Result]:
    """Run it in a thread of its own, where no signal interrupts it; the process may end before it."""
    running: Future[Result] = Future()

    def run() -> None:
        try:
            running.set_result(act())
        except BaseException as error:  # noqa: BLE001  # raised where the result is waited for
            running.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return running


def wait_or_cancel(
    running: Future[Result], *, cancel: Callable[[], None], patience_s: float = _PATIENCE_S
) -> Result:
    """The result. When the wait is interrupted, the work is cancelled, and not waited for much longer.

    `running` tells afterwards whether it has ended.
    """
    try:
        # In short waits: the system may give a signal to any thread, and then it does not wake this one.
        while not running.done():
            wait([running], timeout=_LOOK_AGAIN_S)
        return running.result()
    except BaseException:
        if not running.done():
            with ignore_signals():
                # Beside this thread, too: a server that is gone may let the call wait.
                start_in_thread(lambda: _cancel_until_done(running, cancel), name="holdfast-cancel")
                wait([running], timeout=patience_s)
        raise


def _cancel_until_done(running: Future[Result], cancel: Callable[[], None]) -> None:
    while not running.done():
        try:
            cancel()
        except Exception as error:  # noqa: BLE001  # it must not take the place of the interruption
            log.warning("job.not_cancelled", extra={"cause": str(error)})
        # Again: a Spark job that is being planned is missed.
        wait([running], timeout=_CANCEL_AGAIN_S)


def _terminate(_number: int, _frame: FrameType | None) -> NoReturn:
    raise Terminated


def _pass_over(_number: int, _frame: FrameType | None) -> None:
    """The job is being taken back already."""


def spark_session(app_name: str, master: str = "local[*]") -> SparkSession:
    """The session of this process, started if there is none. Times without a zone are UTC in it."""
    # Loaded here because Spark is large, and most commands never need it.
    try:
        from holdfast.engines.spark.session import session_at
    except ModuleNotFoundError as error:
        hint = "pip install 'holdfast-lake[spark]'"
        raise InvalidRequest("Spark is not installed", missing=error.name, hint=hint) from error
    session = session_at(app_name, master)
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return session
