"""What a worker process may touch: as little as the system lets us take away.

On Linux with Landlock it reads the interpreter and the segments, writes
nothing and opens no connection, whatever the engine inside it is talked into.
Elsewhere the limits on memory and files hold alone.
"""

import ctypes
import os
import resource
import sys
from collections.abc import Iterable, Sequence

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_PATH_BENEATH = 1
_NO_NEW_PRIVILEGES = 38

_EXECUTE, _READ_FILE, _READ_FOLDER = 1 << 0, 1 << 2, 1 << 3
_READ = _EXECUTE | _READ_FILE | _READ_FOLDER
_ALL_OF_VERSION = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
_ALL_NEWER = (1 << 16) - 1
_NETWORK_SINCE = 4
_TCP = 0b11

_SYSTEM = (
    "/usr",
    "/lib",
    "/lib64",
    "/opt/lib",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/dev/urandom",
    "/dev/null",
)
_FOR_NETWORK = (
    "/etc/ssl",
    "/etc/pki",
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
)


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def confine(readable: Sequence[str], *, network: bool) -> bool:
    """Give up everything but reading below `readable`. True if the kernel took part.

    It binds this thread and those it starts, so it comes before any other is started.
    """
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    version = libc.syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG)
    if version < 1:
        return False
    ruleset = _Ruleset(
        _ALL_OF_VERSION.get(version, _ALL_NEWER), 0 if network or version < _NETWORK_SINCE else _TCP
    )
    size = ctypes.sizeof(ruleset) if version >= _NETWORK_SINCE else 8
    rules = libc.syscall(_CREATE_RULESET, ctypes.byref(ruleset), size, 0)
    if rules < 0:
        return False
    try:
        for path in (*_interpreter(), *_SYSTEM, *(_FOR_NETWORK if network else ()), *readable):
            _allow(libc, rules, path)
        if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
            return False
        return bool(libc.syscall(_RESTRICT_SELF, rules, 0) == 0)
    finally:
        os.close(rules)


def limit_memory(extra_bytes: int) -> None:
    """Let the process grow by at most this much from here on."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        mapped = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + extra_bytes, mapped + extra_bytes))


def limit_files() -> None:
    """No core dump, and no file may grow."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def _interpreter() -> Iterable[str]:
    yield from {sys.prefix, sys.base_prefix, *(path for path in sys.path if path)}


def _allow(libc: ctypes.CDLL, rules: int, path: str) -> None:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        allowed = _READ if os.path.isdir(path) else _EXECUTE | _READ_FILE
        rule = _PathBeneath(allowed, opened)
        libc.syscall(_ADD_RULE, rules, _PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(opened)
