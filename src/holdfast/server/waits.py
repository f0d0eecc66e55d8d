"""How long a call waits for what happens elsewhere, as its caller asks."""

WAIT_MAX_MS = 3_600_000
_BROKERS_WITHIN_MS = 60_000


def wait_ms(given_ms: int | None, default_ms: int) -> int:
    return default_ms if given_ms is None else max(0, min(given_ms, WAIT_MAX_MS))


def brokers_within_ms(given_ms: int | None, *, waits: bool) -> int:
    """0: the call does not wait for them."""
    return wait_ms(given_ms, _BROKERS_WITHIN_MS) if waits else 0
