"""Signals while a job is under way: the first stops it, later ones do not stop its tidying up."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

_NUMBERS = (signal.SIGINT, signal.SIGTERM)


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


def _terminate(_number: int, _frame: FrameType | None) -> NoReturn:
    raise Terminated


def _pass_over(_number: int, _frame: FrameType | None) -> None:
    """The job is being taken back already."""
