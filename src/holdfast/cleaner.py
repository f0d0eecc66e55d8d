"""The cleaner as a program of its own, with the options of Hudi's HoodieCleaner.

    python -m holdfast.cleaner --target-base-path lake/trips --hoodie-conf hoodie.clean.commits.retained=10
    spark-submit --master yarn cleaner.py --target-base-path s3://lake/trips --props clean.properties

It deletes from the process it runs in, with threads; under spark-submit that
is the driver. It needs no Spark.
"""

import argparse
import logging
import sys
from collections.abc import Mapping, Sequence

from holdfast.clock import SystemClock
from holdfast.config.option import Area
from holdfast.config.option_table import option_named, options_of, spellings
from holdfast.config.write import WriteSettings
from holdfast.errors import HoldfastError, InvalidRequest
from holdfast.format.malformed import Malformed
from holdfast.format.properties import parse_properties
from holdfast.host import SystemHost
from holdfast.model.reports import CleanReport
from holdfast.storage.open import location_of, open_store
from holdfast.table.opened import open_existing

log = logging.getLogger(__name__)

_OF_WRITES = (
    "failed_writes_policy",
    "heartbeat_interval_ms",
    "heartbeat_misses",
    "concurrency_mode",
)
"""Settings of a write that matter to a cleaner."""

_OPTIONS = frozenset(
    [
        *spellings([Area.CLEAN, Area.LOCK]),
        *(name for setting in _OF_WRITES for name in options_of(Area.WRITE)[setting].names),
    ]
)


def clean_settings(conf: Mapping[str, str], props: str | None = None) -> WriteSettings:
    """The settings of a clean from options, and from a properties file they win over.

    Such a file usually serves a whole pipeline, so what is not about cleaning
    is passed over in it; an option given by itself must be known.
    """
    shared = {} if props is None else _read_properties(props)
    options = {name: value for name, value in shared.items() if name in _OPTIONS}
    return WriteSettings.from_options({**_without_older_names(options, conf), **conf})


def run_cleaner(path: str, settings: WriteSettings) -> CleanReport:
    """Clean the table at the path."""
    # Loaded here because it needs Arrow, which a look at the options must not wait for.
    from holdfast.services.clean.clean import clean

    location = location_of(path, None)
    table = open_existing(open_store(location), location, clock=SystemClock(), host=SystemHost())
    return clean(table, settings)


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0 if the table was cleaned or there was nothing to do."""
    asked = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    path = asked.target_base_path
    try:
        report = run_cleaner(path, clean_settings(_pairs(asked.hoodie_conf), asked.props))
    except HoldfastError as error:
        log.error("clean.failed: table %s: %s", path, error, extra={"table": path})
        return 1
    if report.instant is None:
        log.info("clean.nothing: table %s", path, extra={"table": path})
        return 0
    for one in (*report.resumed, report):
        log.info(
            "clean.done: table %s, instant %s, deleted %d, failed %d, bytes freed %d",
            path,
            one.instant,
            len(one.deleted),
            len(one.failed),
            one.bytes_freed,
            extra={"table": path},
        )
    return 1 if report.failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="holdfast.cleaner", description="Clean a table.")
    parser.add_argument("--target-base-path", required=True, metavar="PATH", help="where the table is")
    parser.add_argument("--props", metavar="FILE", help="a properties file; options of cleaning are taken")
    parser.add_argument(
        "--hoodie-conf", action="append", default=[], metavar="KEY=VALUE", help="an option; repeats"
    )
    parser.add_argument(
        "--spark-master", metavar="MASTER", help="taken as Hudi's cleaner takes it; no Spark is started"
    )
    return parser


def _pairs(texts: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise InvalidRequest("an option is not KEY=VALUE", given=text)
        found[key.strip()] = value.strip()
    return found


def _read_properties(props: str) -> dict[str, str]:
    folder, _, name = props.rpartition("/")
    try:
        return parse_properties(open_store(location_of(folder or ".", None)).read(name))
    except FileNotFoundError:
        raise InvalidRequest("there is no such properties file", file=props) from None
    except Malformed as error:
        raise InvalidRequest("the properties file cannot be read", file=props, cause=error) from error


def _without_older_names(options: Mapping[str, str], conf: Mapping[str, str]) -> dict[str, str]:
    """The options without those that `conf` gives under another of their names."""
    found = [option for name in conf if (option := option_named(name)) is not None]
    given = {name for option in found for name in option.names}
    return {name: value for name, value in options.items() if name not in given}


if __name__ == "__main__":
    sys.exit(main())
