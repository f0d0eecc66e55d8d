"""Sessions: who signed in, and the tokens that show that a form is one of ours.

A browser gets a random cookie with its first page. A form carries a digest of
it that nobody else can make, so a page of another site, which can neither read
the cookie nor make the digest, changes nothing. Signing in gives a new cookie.
Sessions live in the memory of one process, and end with it.
"""

import hashlib
import hmac
import os
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock

from holdfast.clock import Clock

COOKIE = "holdfast"
_TOKEN_BYTES = 32
_TOKEN_CHARS = 43
_SESSIONS_MAX = 10_000
_LIFE_MS = 8 * 3_600_000
_IDLE_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class _Session:
    user: str
    began_ms: int
    seen_ms: int


class Sessions:
    """Safe for many threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._key = os.urandom(32)
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()
        self._lock = Lock()

    def new_cookie(self) -> str:
        return secrets.token_urlsafe(_TOKEN_BYTES)

    def is_cookie(self, text: str | None) -> bool:
        """Whether it could be one that was given out."""
        return text is not None and len(text) == _TOKEN_CHARS and text.isascii()

    def token(self, cookie: str) -> str:
        """What the forms of this browser carry."""
        return hmac.digest(self._key, b"form" + cookie.encode(), hashlib.sha256).hex()

    def is_token(self, cookie: str, token: str) -> bool:
        return hmac.compare_digest(self.token(cookie).encode(), token.encode(errors="replace"))

    def begin(self, user: str) -> str:
        """The cookie of a new session."""
        cookie, now_ms = self.new_cookie(), self._clock.monotonic_ms()
        with self._lock:
            self._sessions[self._digest(cookie)] = _Session(user, now_ms, now_ms)
            while len(self._sessions) > _SESSIONS_MAX:
                self._sessions.popitem(last=False)
        return cookie

    def user(self, cookie: str) -> str | None:
        """Who signed in with this cookie; None if nobody did, or too long ago."""
        digest, now_ms = self._digest(cookie), self._clock.monotonic_ms()
        with self._lock:
            session = self._sessions.get(digest)
            if session is None:
                return None
            if now_ms - session.began_ms > _LIFE_MS or now_ms - session.seen_ms > _IDLE_MS:
                del self._sessions[digest]
                return None
            self._sessions[digest] = _Session(session.user, session.began_ms, now_ms)
            return session.user

    def end(self, cookie: str) -> None:
        with self._lock:
            self._sessions.pop(self._digest(cookie), None)

    def _digest(self, cookie: str) -> bytes:
        return hmac.digest(self._key, b"session" + cookie.encode(), hashlib.sha256)
