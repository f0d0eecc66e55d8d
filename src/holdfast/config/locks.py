"""Settings of the lock that keeps other writers out, Hudi's own among them."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Self

from holdfast.errors import InvalidOption

LOCK_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "provider": ("hoodie.write.lock.provider",),
    "wait_ms": ("hoodie.write.lock.wait_time_ms",),
    "retry_wait_ms": ("hoodie.write.lock.wait_time_ms_between_retry",),
    "retry_wait_ms_max": ("hoodie.write.lock.max_wait_time_ms_between_retry",),
    "connection_retries": ("hoodie.write.lock.num_retries",),
    "client_wait_ms": ("hoodie.write.lock.client.wait_time_ms_between_retry",),
    "client_retries": ("hoodie.write.lock.client.num_retries",),
    "file_folder": ("hoodie.write.lock.filesystem.path",),
    "file_expiry_minutes": ("hoodie.write.lock.filesystem.expire",),
    "storage_validity_s": ("hoodie.write.lock.storage.validity.timeout.secs",),
    "storage_renewal_s": (
        "hoodie.write.lock.storage.renew.interval.secs",
        "hoodie.write.lock.storage.heartbeat.poll.secs",
    ),
    "zookeeper_url": ("hoodie.write.lock.zookeeper.url",),
    "zookeeper_port": ("hoodie.write.lock.zookeeper.port",),
    "zookeeper_base_path": ("hoodie.write.lock.zookeeper.base_path",),
    "zookeeper_lock_key": ("hoodie.write.lock.zookeeper.lock_key",),
    "zookeeper_session_timeout_ms": ("hoodie.write.lock.zookeeper.session_timeout_ms",),
    "zookeeper_connection_timeout_ms": ("hoodie.write.lock.zookeeper.connection_timeout_ms",),
}
"""Setting → its option names, newest spelling first."""

_VALIDITY_PER_RENEWAL = 10


class LockProvider(StrEnum):
    """Where the lock is; the names are the last parts of Hudi's class names."""

    IN_PROCESS = "InProcessLockProvider"
    FILE = "FileSystemBasedLockProvider"
    STORAGE = "StorageBasedLockProvider"
    ZOOKEEPER = "ZookeeperBasedLockProvider"
    ZOOKEEPER_BY_TABLE = "ZookeeperBasedImplicitBasePathLockProvider"
    """As ZOOKEEPER, at a path that follows from the table's own."""

    @property
    def is_zookeeper(self) -> bool:
        return self in (LockProvider.ZOOKEEPER, LockProvider.ZOOKEEPER_BY_TABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockSettings:
    provider: LockProvider
    wait_ms: int = 60_000
    retry_wait_ms: int = 1_000
    """The first pause between two looks at a lock that is held; each is up to twice as long as the last."""
    retry_wait_ms_max: int = 16_000
    connection_retries: int = 15
    client_wait_ms: int = 5_000
    client_retries: int = 50
    file_folder: str = ""
    """Where the lock file is; the table's `.hoodie` if empty."""
    file_expiry_minutes: int = 0
    """After this long without a sign of life a lock file is free; 0 means never."""
    storage_validity_s: int = 300
    storage_renewal_s: int = 30
    zookeeper_url: str = ""
    zookeeper_port: int = 2181
    zookeeper_base_path: str = ""
    zookeeper_lock_key: str = ""
    """The table's name if empty."""
    zookeeper_session_timeout_ms: int = 60_000
    zookeeper_connection_timeout_ms: int = 15_000

    def __post_init__(self) -> None:
        for setting, least in (
            ("wait_ms", 0),
            ("retry_wait_ms", 1),
            ("retry_wait_ms_max", self.retry_wait_ms),
            ("connection_retries", 0),
            ("client_wait_ms", 0),
            ("client_retries", 0),
            ("file_expiry_minutes", 0),
            ("storage_validity_s", max(10, _VALIDITY_PER_RENEWAL * self.storage_renewal_s)),
            ("storage_renewal_s", 1),
            ("zookeeper_port", 1),
            ("zookeeper_session_timeout_ms", 1),
            ("zookeeper_connection_timeout_ms", 1),
        ):
            if getattr(self, setting) < least:
                raise _invalid(setting, getattr(self, setting), f"at least {least}")
        if self.provider.is_zookeeper and not self.zookeeper_url:
            raise _missing("zookeeper_url", self.provider)
        if self.provider is LockProvider.ZOOKEEPER and not self.zookeeper_base_path.startswith("/"):
            if not self.zookeeper_base_path:
                raise _missing("zookeeper_base_path", self.provider)
            raise _invalid("zookeeper_base_path", self.zookeeper_base_path, "a path that begins with /")

    @property
    def patience_ms(self) -> int:
        """How long a writer waits for the lock: every wait that Hudi would make, added up."""
        return self.wait_ms * (self.client_retries + 1) + self.client_wait_ms * self.client_retries

    @classmethod
    def from_options(cls, options: Mapping[str, str] | None) -> Self | None:
        """The lock that the options ask for, among options of any kind; None if they ask for none."""
        given = _by_setting(options or {})
        if not given:
            return None
        if "provider" not in given:
            raise InvalidOption(
                "options of a lock are given, but no lock provider",
                options=", ".join(sorted(LOCK_OPTIONS[setting][0] for setting in given)),
                hint=f"set {LOCK_OPTIONS['provider'][0]} to one of {_providers()}",
            )
        provider = _provider(given.pop("provider"))
        kinds = {field.name: type(field.default) for field in fields(cls)}
        return cls(
            provider=provider, **{name: _converted(name, text, kinds[name]) for name, text in given.items()}
        )


def _by_setting(options: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for setting, names in LOCK_OPTIONS.items():
        name = next((name for name in names if name in options), None)
        if name is not None:
            found[setting] = str(options[name]).strip()
    return found


def _provider(text: str) -> LockProvider:
    try:
        return LockProvider(text.rpartition(".")[2])
    except ValueError:
        raise InvalidOption(
            "this lock provider is not supported",
            option=LOCK_OPTIONS["provider"][0],
            value=text,
            hint=f"use one of {_providers()}; every writer of the table must use the same",
        ) from None


def _providers() -> str:
    return ", ".join(LockProvider)


def _converted(setting: str, text: str, kind: type[Any]) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise _invalid(setting, text, "a whole number") from None


def _invalid(setting: str, value: object, wanted: str) -> InvalidOption:
    return InvalidOption(
        "option has a value that cannot be used", option=LOCK_OPTIONS[setting][0], value=value, wanted=wanted
    )


def _missing(setting: str, provider: LockProvider) -> InvalidOption:
    return InvalidOption(
        "the lock provider needs another option", provider=provider, option=LOCK_OPTIONS[setting][0]
    )
