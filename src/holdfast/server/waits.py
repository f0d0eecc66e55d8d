"""How long a call waits for what happens elsewhere, as its caller asks."""

from holdfast.server.endpoints import Call, Parameter, flag

WAIT_MAX_MS = 3_600_000
_BROKERS_WITHIN_MS = 60_000

BROKER_PARAMETERS = (
    flag("waitForBrokers", "Answer when every broker has switched."),
    Parameter("brokerTimeoutMs", "How long to wait for that.", kind="integer"),
)


def wait_ms(call: Call, name: str, default_ms: int) -> int:
    given = call.whole(name)
    return default_ms if given is None else max(0, min(given, WAIT_MAX_MS))


def brokers_within_ms(call: Call) -> int:
    """0: the call does not wait for them."""
    return wait_ms(call, "brokerTimeoutMs", _BROKERS_WITHIN_MS) if call.flag("waitForBrokers") else 0
