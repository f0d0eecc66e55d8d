"""Secrets of users: kept as salted scrypt hashes, compared in constant time."""

import base64
import binascii
import hashlib
import hmac
import os
from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.config.server import User
from holdfast.errors import InvalidOption

_COST = 2**14
_BLOCKS = 8
_LANES = 1
_SALT_BYTES = 16
_MEMORY_MAX = 64 * 1024**2
"""What one comparison may take; a configuration that asks for more is refused."""


@dataclass(frozen=True, slots=True)
class SecretHash:
    """`scrypt$<cost>$<blocks>$<lanes>$<salt>$<hash>`, the last two in base64."""

    cost: int
    blocks: int
    lanes: int
    salt: bytes
    digest: bytes

    def __str__(self) -> str:
        salt, digest = (base64.b64encode(part).decode() for part in (self.salt, self.digest))
        return f"scrypt${self.cost}${self.blocks}${self.lanes}${salt}${digest}"

    def __repr__(self) -> str:
        return "SecretHash(***)"

    def matches(self, secret: str) -> bool:
        """Takes tens of milliseconds, on purpose."""
        return hmac.compare_digest(self._derive(secret), self.digest)

    def _derive(self, secret: str) -> bytes:
        return hashlib.scrypt(
            secret.encode(errors="surrogatepass"), salt=self.salt, n=self.cost, r=self.blocks, p=self.lanes,
            maxmem=_MEMORY_MAX + 1024**2, dklen=len(self.digest),
        )  # fmt: skip


def hash_secret(secret: str, salt: bytes | None = None) -> SecretHash:
    salt = os.urandom(_SALT_BYTES) if salt is None else salt
    empty = SecretHash(_COST, _BLOCKS, _LANES, salt, bytes(32))
    return SecretHash(_COST, _BLOCKS, _LANES, salt, empty._derive(secret))


def parse_hash(text: str, *, user: str) -> SecretHash:
    """A hash as the configuration holds it. Its text never enters the error."""
    kind, *rest = text.split("$")
    try:
        cost, blocks, lanes = (int(part) for part in rest[:3])
        salt, digest = (base64.b64decode(part, validate=True) for part in rest[3:])
    except (ValueError, binascii.Error) as error:
        raise _not_a_hash(user) from error
    is_cost = cost > 1 and cost & (cost - 1) == 0
    if kind != "scrypt" or not is_cost or min(blocks, lanes) < 1 or len(salt) < 8 or len(digest) < 16:
        raise _not_a_hash(user)
    if 128 * cost * blocks * lanes > _MEMORY_MAX:
        raise InvalidOption("the hash of a secret is too costly to check", user=user)
    return SecretHash(cost, blocks, lanes, salt, digest)


def check_hashes(users: Iterable[User]) -> None:
    """Refuse a secret that is not a hash, as the service does when it starts."""
    for user in users:
        parse_hash(user.secret_hash, user=user.name)


def _not_a_hash(user: str) -> InvalidOption:
    return InvalidOption(
        "the secret of a user is not a hash", user=user, hint="make one with holdfast serve --hash-secret"
    )
