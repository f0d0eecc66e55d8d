"""What Spark failed at, in a sentence: its errors bring the stack of every process that saw them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.errors import HoldfastError

_ENGINE_MODULES = ("pyspark.", "py4j.")
_JAVA_REASON = re.compile(r"^(?:Caused by)?: [\w.$]+: (.+?)\.?(?:\s+SQLSTATE: \w+)?$", re.MULTILINE)
"""The first line of each exception in the text of a Java stack trace."""
_LONGEST = 500


def is_spark_failure(error: BaseException) -> bool:
    return any(kind.__module__.startswith(_ENGINE_MODULES) for kind in type(error).__mro__)


def spark_reasons(error: BaseException) -> str:
    """The reasons in the text of the error, outermost first; without any its first line."""
    text = str(error)
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    return ("; ".join(dict.fromkeys(_JAVA_REASON.findall(text))) or first)[:_LONGEST]


@contextmanager
def spark_failures_as_ours() -> Iterator[None]:
    """Raise what Spark failed at as an error of ours, with Spark's as its cause."""
    try:
        yield
    except Exception as error:
        if not is_spark_failure(error):
            raise
        raise HoldfastError("Spark failed", cause=spark_reasons(error)) from error
