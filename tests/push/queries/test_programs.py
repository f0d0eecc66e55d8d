"""The programs that the service starts beside itself end quietly when it is killed."""

import select

import pytest

from holdfast.push.queries import reader, wire
from holdfast.push.queries.processes import Process
from holdfast.push.uploads.inspection import process as inspection

MEMORY = 2 << 30
PROGRAMS = {
    "holdfast.push.queries.reader": lambda _: reader.Setup(MEMORY),
    "holdfast.push.queries.worker": lambda folder: wire.Setup(
        str(folder), {}, [str(folder)], network=False, memory_bytes=MEMORY, threads=1
    ),
    "holdfast.push.uploads.inspection.process": lambda _: inspection.Setup(MEMORY, MEMORY),
}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("is_ready", [False, True])
def test_a_program_says_nothing_when_the_service_is_gone(program, is_ready, tmp_path, capfd):
    started = Process(program, PROGRAMS[program](tmp_path))
    if is_ready:
        # What it sent is not read: closing then resets the connection.
        assert select.select([started._channel], [], [], 60)[0]
    started._channel.close()
    started._control.close()

    assert started._process.wait(60) == 0
    assert capfd.readouterr().err == ""
