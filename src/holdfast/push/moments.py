"""Moments as callers write them."""

import datetime as dt


def moment_ms(text: str) -> int:
    """Milliseconds since the epoch, given as such or as an ISO time, which is of UTC unless it says.

    `ValueError` if it is neither.
    """
    if text.lstrip("-").isdigit():
        return int(text)
    moment = dt.datetime.fromisoformat(text)
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
    return round(aware.timestamp() * 1000)
