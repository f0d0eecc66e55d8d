"""Who calls, and what they may do.

Basic credentials name a user and a password. A bearer token is
`<user>.<secret>`, so that one hash has to be checked and not all of them.
Where no users are configured, everybody who reaches the loopback address is
`anonymous` and may do everything.
"""

import base64
import binascii
import hashlib
import hmac
import logging
import os
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from threading import BoundedSemaphore, Lock

from holdfast.clock import Clock
from holdfast.config.server import EVERY_TABLE, Role, ServerSettings, User
from holdfast.server.errors import AccessDenied, LoginRequired
from holdfast.server.limits import FailureLimit
from holdfast.server.secrets import hash_secret, parse_hash
from holdfast.server.table_names import raw_name

log = logging.getLogger(__name__)

_KNOWN_MAX = 1000
_HEADER_MAX = 4096
_CHECKS_AT_ONCE = 2
"""Each takes a core and 16 MB for a moment; a flood of wrong passwords must not take them all."""


@dataclass(frozen=True, slots=True)
class Principal:
    name: str
    roles: Mapping[str, Role]

    def role_on(self, table: str) -> Role | None:
        """The role on a table, by its raw name; a role by name goes before the one for every table."""
        return self.roles.get(table, self.roles.get(EVERY_TABLE))

    def may(self, role: Role, table: str) -> bool:
        """On a table, by its raw name: the caller has taken the type off."""
        held = self.role_on(table)
        return held is not None and held >= role

    def may_everywhere(self, role: Role) -> bool:
        """On every table, those included that do not exist yet."""
        return EVERY_TABLE in self.roles and all(held >= role for held in self.roles.values())

    def may_somewhere(self, role: Role) -> bool:
        return any(held >= role for held in self.roles.values())

    def may_read(self, table: str) -> bool:
        return self.may(Role.READ, table)


ANONYMOUS = Principal("anonymous", {EVERY_TABLE: Role.ADMIN})


class On(Enum):
    """Which table a route's role must be held on."""

    PATH = "path"
    """The one that the path names as `table`."""
    QUERY = "query"
    """The one that the parameter `tableName` names; the parameter is required."""
    QUERY_OR_EVERY = "query or every"
    """As QUERY; every table if the parameter is absent."""
    EVERY = "every"
    SOME = "some"
    """At least one. The handler checks each table that it touches."""


@dataclass(frozen=True, slots=True)
class Access:
    """What a route asks of its caller. A role of None: nothing at all."""

    role: Role | None
    on: On = On.PATH


OPEN = Access(None)


class Authenticator:
    """Knows the users. Safe for many threads."""

    def __init__(self, settings: ServerSettings, clock: Clock) -> None:
        self._users = {
            user.name: (user, parse_hash(user.secret_hash, user=user.name)) for user in settings.users
        }
        self._clock = clock
        self._failures = FailureLimit(settings.limits.failed_logins_per_minute, clock)
        self._nobody = hash_secret("", salt=bytes(16))
        self._key = os.urandom(32)
        self._known: OrderedDict[bytes, str] = OrderedDict()
        self._lock = Lock()
        self._checks = BoundedSemaphore(_CHECKS_AT_ONCE)

    @property
    def is_on(self) -> bool:
        return bool(self._users)

    def principal(self, header: str | None, client: str) -> Principal:
        """The user with these credentials. `LoginRequired` if there is none.

        A secret that was right once is remembered as a keyed digest, so that
        only the first request of a client pays for the slow comparison, and
        a flood of wrong ones from its address does not lock it out.
        """
        remembered = self.recall(header)
        if remembered is not None:
            return remembered
        assert header is not None, "without one the login was refused"
        user = self._check(header, self._digest(header), client)
        self._refuse_expired(user)
        return Principal(user.name, user.roles)

    def recall(self, header: str | None) -> Principal | None:
        """As `principal`, but None where a secret would have to be compared: it takes no time."""
        if not self._users:
            return ANONYMOUS
        if header is None:
            raise LoginRequired("credentials are needed", code="LOGIN_REQUIRED")
        user = self._find_user(self._digest(header))
        if user is None:
            return None
        self._refuse_expired(user)
        return Principal(user.name, user.roles)

    def principal_named(self, name: str) -> Principal:
        """A user who has logged in before. `LoginRequired` if there is none any more."""
        user, _ = self._users.get(name, (None, self._nobody))
        if user is None:
            raise LoginRequired("the user is not known", code="LOGIN_FAILED")
        self._refuse_expired(user)
        return Principal(user.name, user.roles)

    def _digest(self, header: str) -> bytes:
        return hmac.digest(self._key, header.encode(errors="surrogatepass"), hashlib.sha256)

    def _find_user(self, digest: bytes) -> User | None:
        with self._lock:
            name = self._known.get(digest)
            if name is None:
                return None
            self._known.move_to_end(digest)
            return self._users[name][0]

    def _check(self, header: str, digest: bytes, client: str) -> User:
        self._failures.count(client)
        name, secret, is_token = _credentials(header)
        user, expected = self._users.get(name, (None, self._nobody))
        with self._checks:
            is_right = expected.matches(secret)
        if user is None or not is_right or user.is_token != is_token:
            log.warning("auth.denied", extra={"client": client})
            raise LoginRequired("the credentials are not known", code="LOGIN_FAILED")
        self._failures.forgive(client)
        with self._lock:
            self._known[digest] = user.name
            while len(self._known) > _KNOWN_MAX:
                self._known.popitem(last=False)
        return user

    def _refuse_expired(self, user: User) -> None:
        if user.expires_at is not None and user.expires_at.timestamp() * 1000 <= self._clock.now_ms():
            raise LoginRequired("the credentials have expired", code="LOGIN_EXPIRED")


def authorise(principal: Principal, access: Access, table: str | None) -> None:
    """`AccessDenied` unless the caller holds the role that the matched route asks for."""
    if access.role is None:
        return
    match access.on:
        case On.EVERY:
            is_allowed = principal.may_everywhere(access.role)
        case On.SOME:
            is_allowed = principal.may_somewhere(access.role)
        case On.QUERY_OR_EVERY if table is None:
            is_allowed = principal.may_everywhere(access.role)
        case On.PATH | On.QUERY | On.QUERY_OR_EVERY:
            is_allowed = table is not None and principal.may(access.role, raw_name(table))
    if not is_allowed:
        raise denial(access.role, table)


def require(principal: Principal, role: Role, table: str) -> None:
    """For a table that only the body of the request names."""
    if not principal.may(role, raw_name(table)):
        raise denial(role, table)


def denial(role: Role, table: str | None) -> AccessDenied:
    facts = {} if table is None else {"table": table}
    return AccessDenied("the user may not do this", needs=role.name.lower(), **facts, code="ACCESS_DENIED")


def _credentials(header: str) -> tuple[str, str, bool]:
    """Name, secret and whether it is a token; impossible ones if the header is malformed."""
    scheme, _, text = header.strip().partition(" ")
    text = text.strip()
    if len(header) > _HEADER_MAX:
        return "", "", False
    match scheme.lower():
        case "basic":
            name, _, secret = _decode(text).partition(":")
            return name, secret, False
        case "bearer":
            name, _, secret = text.partition(".")
            return name, secret, True
    return "", "", False


def _decode(text: str) -> str:
    # Pinot's clients may leave the padding out.
    padded = text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4)
    try:
        return base64.b64decode(padded, validate=True).decode()
    except (binascii.Error, ValueError):
        return ""
