"""Who calls, and what they may do."""

import base64
import datetime as dt

import pytest

from holdfast.config.server import Limits, Role, ServerSettings, User
from holdfast.server.auth import ANONYMOUS, OPEN, Access, Authenticator, On, Principal, authorise
from holdfast.server.errors import AccessDenied, LoginRequired, TooMany
from holdfast.server.secrets import hash_secret


class Time:
    def __init__(self):
        self.at_ms = 1_800_000_000_000

    def now_ms(self):
        return self.at_ms

    monotonic_ms = now_ms


def _user(name, secret, *, is_token=False, **more):
    return User(
        name=name, secret_hash=str(hash_secret(secret)), is_token=is_token, roles={"*": Role.READ}, **more
    )


def _basic(name, secret):
    return "Basic " + base64.b64encode(f"{name}:{secret}".encode()).decode()


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def users(time):
    expiring = dt.datetime.fromtimestamp(time.at_ms / 1000 + 60, dt.UTC)
    return Authenticator(
        ServerSettings(
            users=(
                _user("ana", "sésame"),
                _user("job", "t0ken", is_token=True),
                _user("guest", "brief", expires_at=expiring),
            ),
            limits=Limits(failed_logins_per_minute=3),
        ),
        time,
    )


def test_a_user_is_known_by_password_and_a_job_by_token(users):
    assert users.principal(_basic("ana", "sésame"), "a").name == "ana"
    assert users.principal(_basic("ana", "sésame").rstrip("="), "a").name == "ana"
    assert users.principal("Bearer job.t0ken", "a").name == "job"
    assert users.principal("bearer  job.t0ken ", "a").name == "job"


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Basic",
        "Basic !!!",
        "Basic " + base64.b64encode(b"\xff\xfe").decode(),
        _basic("ana", "wrong"),
        _basic("nobody", "sésame"),
        _basic("job", "t0ken"),
        "Bearer ana.sésame",
        "Bearer job",
        "Bearer .t0ken",
        "Digest job.t0ken",
        "Basic " + "A" * 10_000,
    ],
)
def test_everybody_else_is_unknown(users, header):
    with pytest.raises(LoginRequired):
        users.principal(header, "a")


def test_an_address_that_guesses_is_no_longer_listened_to_for_a_minute(users, time):
    for _ in range(3):
        with pytest.raises(LoginRequired):
            users.principal(_basic("ana", "guess"), "bad")

    with pytest.raises(TooMany):
        users.principal(_basic("ana", "sésame"), "bad")
    assert users.principal(_basic("ana", "sésame"), "good").name == "ana"
    time.at_ms += 60_000
    assert users.principal(_basic("ana", "sésame"), "bad").name == "ana"


def test_who_was_let_in_before_is_not_locked_out_by_others_behind_the_same_address(users):
    users.principal(_basic("ana", "sésame"), "proxy")
    for _ in range(3):
        with pytest.raises(LoginRequired):
            users.principal(_basic("ana", "guess"), "proxy")

    assert users.principal(_basic("ana", "sésame"), "proxy").name == "ana"


def test_credentials_expire_also_when_they_were_used_before(users, time):
    users.principal(_basic("guest", "brief"), "a")
    time.at_ms += 60_000

    with pytest.raises(LoginRequired, match="expired"):
        users.principal(_basic("guest", "brief"), "a")


def test_without_users_everybody_is_anonymous(time):
    assert Authenticator(ServerSettings(), time).principal(None, "a") is ANONYMOUS


SOME = Principal("some", {"orders": Role.WRITE, "*": Role.READ})
ONE = Principal("one", {"orders": Role.OPERATE})


@pytest.mark.parametrize(
    ("principal", "access", "table", "is_allowed"),
    [
        (SOME, OPEN, None, True),
        (SOME, Access(Role.WRITE), "orders", True),
        (SOME, Access(Role.WRITE), "orders_OFFLINE", True),
        (SOME, Access(Role.WRITE), "orders_REALTIME", True),
        (SOME, Access(Role.WRITE), "orders2", False),
        (SOME, Access(Role.OPERATE), "orders", False),
        (SOME, Access(Role.READ), "anything", True),
        (SOME, Access(Role.WRITE), None, False),
        (SOME, Access(Role.READ, On.EVERY), None, True),
        (SOME, Access(Role.WRITE, On.EVERY), None, False),
        (SOME, Access(Role.WRITE, On.SOME), None, True),
        (SOME, Access(Role.OPERATE, On.SOME), None, False),
        (ONE, Access(Role.READ, On.EVERY), None, False),
        (ONE, Access(Role.READ), "other", False),
        (ONE, Access(Role.READ), "db.orders", False),
        (ONE, Access(Role.OPERATE, On.QUERY_OR_EVERY), "orders", True),
        (ONE, Access(Role.OPERATE, On.QUERY_OR_EVERY), None, False),
        (ONE, Access(Role.OPERATE, On.QUERY), None, False),
    ],
)
def test_a_role_is_held_on_the_table_that_the_route_is_about(principal, access, table, is_allowed):
    if is_allowed:
        authorise(principal, access, table)
    else:
        with pytest.raises(AccessDenied):
            authorise(principal, access, table)


def test_a_smaller_role_by_name_goes_before_the_one_for_every_table():
    principal = Principal("p", {"secret": Role.READ, "*": Role.ADMIN})

    assert not principal.may(Role.WRITE, "secret")
    assert not principal.may_everywhere(Role.WRITE)


def test_many_guesses_at_once_are_all_counted(users, monkeypatch):
    """A guess is counted before it is compared, which takes long enough for hundreds to come meanwhile."""
    from concurrent.futures import ThreadPoolExecutor

    def guess(number):
        try:
            users.principal(_basic("ana", f"guess {number}"), "bad")
        except (LoginRequired, TooMany) as error:
            return type(error)

    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(guess, range(32)))

    assert answers.count(LoginRequired) == 3


def test_all_addresses_of_a_network_are_counted_together(users):
    for number in range(3):
        with pytest.raises(LoginRequired):
            users.principal(_basic("ana", "guess"), f"2001:db8::{number}")

    with pytest.raises(TooMany):
        users.principal(_basic("ana", "guess"), "2001:db8::ffff:1")
    with pytest.raises(LoginRequired):
        users.principal(_basic("ana", "guess"), "2001:db8:0:1::1")


@pytest.mark.parametrize(
    "name", ["orders_REALTIME_OFFLINE", "orders_OFFLINE_OFFLINE", "orders_OFFLINE_REALTIME"]
)
def test_a_type_is_taken_off_a_name_once(name):
    principal = Principal("ana", {"orders": Role.READ})

    with pytest.raises(AccessDenied):
        authorise(principal, Access(Role.READ, On.PATH), name)
    authorise(principal, Access(Role.READ, On.PATH), "orders_OFFLINE")
