"""Spark sessions: starting one on this machine, and what a session we are given must offer."""

import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Any
from zipimport import zipimporter

from pyspark import SparkContext
from pyspark.sql import SparkSession

from holdfast.engines.spark.java import require_java
from holdfast.host import descendants

_WORKER_PYTHON = "PYSPARK_PYTHON"
_GATEWAY = b"pyspark-shell"
"""What PySpark calls the program that it launches, in all of its processes."""
_DEFAULT_HEAP = 1 << 30
_LISTING_TASKS, _LISTING_TASKS_DEFAULT = "spark.sql.sources.parallelPartitionDiscovery.parallelism", "10000"
_LISTING_TASKS_PER_CORE = 4
_QUERY_SETTINGS = {
    "spark.driver.maxResultSize": "256m",
    "spark.sql.variable.substitute": "false",
    # Spark tells of tasks at once. Of those that begin together it would tell with the next heartbeat, in ten
    # seconds, and whoever asks what goes on of a query that was stopped would hear of none.
    "spark.ui.liveUpdate.period": "0",
}


def local_session(
    app_name: str, *, master: str = "local[*]", settings: Mapping[str, str] = MappingProxyType({})
) -> SparkSession:
    """Start Spark in this process, quietly. `InvalidRequest` if Java is missing or too old."""
    require_java()
    builder = (
        SparkSession.builder.appName(app_name)
        .master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.log.level", "ERROR")
    )
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _redirect_stderr(), _end_jvm_on_failure():
        session: SparkSession = builder.getOrCreate()
    if _WORKER_PYTHON not in os.environ:
        session.sparkContext.pythonExec = sys.executable
    return session


def session_at(app_name: str, address: str) -> SparkSession:
    """The session of a master or of a Spark Connect server; `local…` starts one here."""
    if address.startswith("local"):
        return local_session(app_name, master=address)
    builder = SparkSession.builder.appName(app_name)
    if address.startswith("sc://"):
        remote: SparkSession = builder.remote(address).getOrCreate()
        return remote
    require_java()
    session: SparkSession = builder.master(address).getOrCreate()
    return session


def query_session(address: str) -> SparkSession:
    """A session for the statements of strangers.

    A statement's text is what it says: Spark would put its settings and the
    environment in the place of `${…}`.
    """
    if address.startswith("local"):
        session = local_session("holdfast-broker", master=address, settings=_QUERY_SETTINGS)
    else:
        session = session_at("holdfast-broker", address)
    session.conf.set("spark.sql.variable.substitute", "false")
    return session


def end_local_jvm() -> None:
    """End the JVM behind the local session of this process, whatever it does, so that a new one can start."""
    gateway = SparkContext._gateway
    with SparkContext._lock:
        SparkContext._active_spark_context = None
        SparkContext._gateway = None
        SparkContext._jvm = None
        SparkSession._instantiatedSession = None
    if gateway is not None:
        gateway.proc.kill()
        gateway.proc.wait()


@contextmanager
def _end_jvm_on_failure() -> Iterator[None]:
    """Leave no JVM behind that this process began to start and does not wait for any more.

    PySpark keeps no hold of the process that it launches until it has answered.
    """
    before = set(descendants(os.getpid()))
    try:
        yield
    except BaseException:
        later = [each for each in descendants(os.getpid()) if each not in before]
        launched = [each for each in later if _is_launched_by_spark(each)]
        for process in launched:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        if launched:
            end_local_jvm()
        raise


def _is_launched_by_spark(process: int) -> bool:
    """Whether it is the script or the JVM of a session; the program may have started others meanwhile."""
    try:
        with open(f"/proc/{process}/cmdline", "rb") as file:
            return _GATEWAY in file.read()
    except OSError:
        return False


def heap_bytes(session: SparkSession) -> int:
    """The heap of the driver or of an executor, whichever is smaller."""
    context = getattr(session, "_sc", None)
    if context is None:
        return _DEFAULT_HEAP  # A server of Spark Connect does not tell.
    driver = int(context._jvm.java.lang.Runtime.getRuntime().maxMemory())
    if context.master.startswith("local"):
        return driver
    return min(driver, int(context._jsc.sc().executorMemory()) << 20)


@contextmanager
def _redirect_stderr() -> Iterator[None]:
    """Send what the JVM prints, while it starts and later, to a file that is not shown.

    It is shown if the start fails. The JVM inherits the descriptor when it is
    launched; this process gets its own back.
    """
    sys.stderr.flush()
    ours = os.dup(2)
    with tempfile.TemporaryFile() as aside:
        os.dup2(aside.fileno(), 2)
        try:
            yield
        except Exception:
            aside.seek(0)
            os.write(ours, aside.read())
            raise
        finally:
            os.dup2(ours, 2)
            os.close(ours)


@contextmanager
def own_interpreter(session: SparkSession) -> Iterator[None]:
    """On this machine, let workers run the Python that runs the driver, unless told otherwise.

    Spark starts whichever `python3` comes first in PATH, which in a virtual
    environment that was not activated is one without the packages a task needs.
    """
    # A session of Spark Connect has no context; its workers are the server's affair.
    context: Any = getattr(session, "_sc", None)
    is_chosen = _WORKER_PYTHON in os.environ or context is None
    if is_chosen or not str(context.master).startswith("local"):
        yield
        return
    before = context.pythonExec
    context.pythonExec = sys.executable
    try:
        yield
    finally:
        context.pythonExec = before


@contextmanager
def setting_for_now(session: SparkSession, name: str, value: str, *, default: str) -> Iterator[None]:
    """Another setting than Spark's default while the block runs. Another value is left alone: it was chosen.

    So of two threads at it one leaves it to the other, and in the end it is the default again.
    """
    if session.conf.get(name) != default:
        yield
        return
    session.conf.set(name, value)
    try:
        yield
    finally:
        session.conf.set(name, default)


@contextmanager
def listing_few_tasks(session: SparkSession) -> Iterator[None]:
    """Let Spark look at many files in few tasks.

    It does so in a job when there are more than 32, by default with a task for
    each of up to 10,000: half a minute for something that takes half a second.
    """
    context: Any = getattr(session, "_sc", None)
    if context is None:  # A server of Spark Connect does it later, and by itself.
        yield
        return
    tasks = str(_LISTING_TASKS_PER_CORE * context.defaultParallelism)
    with setting_for_now(session, _LISTING_TASKS, tasks, default=_LISTING_TASKS_DEFAULT):
        yield


def spare_archives() -> None:
    """In a worker: let Spark not read the directories of its archives anew before the next task.

    PySpark 4.0 invalidates the import system before each, and Python before
    3.12 then reads thousands of names in Spark's own jar at once: a tenth of a
    second. Importers that are gone are made again from what was read already.
    """
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[path]
