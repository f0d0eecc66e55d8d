"""Settings of the lock that keeps other writers out, Hudi's own among them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from holdfast.config.choices import LockProvider
from holdfast.config.option import Area, Option
from holdfast.config.option_table import LockOptions, check_settings, options_of, parse_settings
from holdfast.errors import InvalidOption

_VALIDITY_PER_RENEWAL = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class LockSettings(LockOptions):
    """The lock of a write, by the options of the option table."""

    def __post_init__(self) -> None:
        check_settings(Area.LOCK, self)
        for setting, least in (
            ("retry_wait_ms_max", self.retry_wait_ms),
            ("storage_validity_s", _VALIDITY_PER_RENEWAL * self.storage_renewal_s),
        ):
            if getattr(self, setting) < least:
                raise _option(setting).refuse(getattr(self, setting), f"at least {least}")
        if self.provider.is_zookeeper and not self.zookeeper_url:
            raise _missing("zookeeper_url", self.provider)
        if self.provider is LockProvider.ZOOKEEPER and not self.zookeeper_base_path.startswith("/"):
            if not self.zookeeper_base_path:
                raise _missing("zookeeper_base_path", self.provider)
            raise _option("zookeeper_base_path").refuse(self.zookeeper_base_path, "a path that begins with /")

    @property
    def patience_ms(self) -> int:
        """How long a writer waits for the lock: every wait that Hudi would make, added up."""
        return self.wait_ms * (self.client_retries + 1) + self.client_wait_ms * self.client_retries

    @classmethod
    def from_options(cls, options: Mapping[str, str] | None) -> Self | None:
        """The lock that the options ask for, among options of any kind; None if they ask for none."""
        given = parse_settings(Area.LOCK, options)
        if not given:
            return None
        if "provider" not in given:
            raise InvalidOption(
                "options of a lock are given, but no lock provider",
                options=", ".join(sorted(_option(setting).name for setting in given)),
                hint=f"set {_option('provider').name} to one of {_providers()}",
            )
        return cls(provider=_provider(given.pop("provider")), **given)


def _provider(text: str) -> LockProvider:
    try:
        return LockProvider(text.rpartition(".")[2])
    except ValueError:
        raise InvalidOption(
            "this lock provider is not supported",
            option=_option("provider").name,
            value=text,
            hint=f"use one of {_providers()}; every writer of the table must use the same",
        ) from None


def _providers() -> str:
    return ", ".join(LockProvider)


def _option(setting: str) -> Option:
    return options_of(Area.LOCK)[setting]


def _missing(setting: str, provider: LockProvider) -> InvalidOption:
    return InvalidOption(
        "the lock provider needs another option", provider=provider, option=_option(setting).name
    )
