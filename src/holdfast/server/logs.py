"""Events of the service as lines of JSON: time, level, name, facts."""

import datetime as dt
import json
import logging
from typing import TextIO

_OF_EVERY_RECORD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def write_events(stream: TextIO, level: str) -> None:
    """Write what Holdfast logs, from this level on."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Lines())
    log = logging.getLogger("holdfast")
    log.addHandler(handler)
    log.setLevel(level.upper())
    log.propagate = False


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = dt.datetime.fromtimestamp(record.created, dt.UTC)
        event: dict[str, object] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        event |= {name: value for name, value in vars(record).items() if name not in _OF_EVERY_RECORD}
        if record.exc_info:
            event["trace"] = self.formatException(record.exc_info)
        return json.dumps(event, default=str)
