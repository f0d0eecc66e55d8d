"""Signals while a job is under way: the first stops it, later ones do not stop its tidying up."""

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn, TypeVar

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

    Whoever handles it already decides what it means.
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
def undisturbed() -> Iterator[None]:
    """Let no signal cut off the block; it must end by itself, and soon."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _pass_over) for number in _NUMBERS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def begun_beside(act: Callable[[], Result], *, name: str) -> Future[Result]:
    """Begin it on a thread of its own, where no signal cuts it off; the process may end before it."""
    running: Future[Result] = Future()

    def run() -> None:
        try:
            running.set_result(act())
        except BaseException as error:  # noqa: BLE001  # whoever waits for the result gets it
            running.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return running


def result_of(
    running: Future[Result], *, cancel: Callable[[], None], patience_s: float = _PATIENCE_S
) -> Result:
    """What comes of it. When the wait is interrupted, it is cancelled, and not waited for much longer.

    Whoever gets the interruption can see from `running` whether it has ended.
    """
    try:
        # A signal that the system gives to another thread does not wake this one, which has to obey it.
        while not running.done():
            wait([running], timeout=_LOOK_AGAIN_S)
        return running.result()
    except BaseException:
        if not running.done():
            with undisturbed():
                # Beside this thread, too: a server that is gone may let the call wait.
                begun_beside(lambda: _cancel_until_done(running, cancel), name="holdfast-cancel")
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
