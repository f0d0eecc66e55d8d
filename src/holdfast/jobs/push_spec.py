"""A push job however it is given: a file, a mapping as one would read from it, or the value itself."""

import os
from collections.abc import Mapping
from typing import Any

from holdfast.config.push_job import PushJob, load_push_job, parse_push_job


def push_job_of(spec: str | os.PathLike[str] | Mapping[str, Any] | PushJob) -> PushJob:
    match spec:
        case PushJob():
            return spec
        case Mapping():
            return parse_push_job(spec, os.getcwd())
        case _:
            return load_push_job(spec)
