"""Hashes of secrets."""

import pytest

from holdfast.errors import InvalidOption
from holdfast.server.secrets import hash_secret, parse_hash


def test_a_hash_matches_its_secret_and_no_other():
    found = parse_hash(str(hash_secret("correct horse")), user="ana")

    assert found.matches("correct horse")
    assert not found.matches("correct horse ")
    assert not found.matches("")


def test_equal_secrets_have_different_hashes():
    assert str(hash_secret("same")) != str(hash_secret("same"))


def test_neither_the_secret_nor_the_hash_is_in_the_text_for_people():
    assert repr(hash_secret("canary")) == "SecretHash(***)"


@pytest.mark.parametrize(
    "text",
    [
        "plain-password-canary",
        "",
        "scrypt",
        "scrypt$16384$8$1$AAAA",
        "scrypt$16384$8$1$!!!$!!!",
        "md5$16384$8$1$AAAAAAAAAAAAAAAAAAAAAA==$AAAAAAAAAAAAAAAAAAAAAA==",
        "scrypt$3$8$1$AAAAAAAAAAAAAAAAAAAAAA==$AAAAAAAAAAAAAAAAAAAAAA==",
        "scrypt$16384$8$1$AA==$AAAAAAAAAAAAAAAAAAAAAA==",
        "scrypt$16384$8$1$AAAAAAAAAAAAAAAAAAAAAA==$AA==",
        "scrypt$1073741824$8$1$AAAAAAAAAAAAAAAAAAAAAA==$AAAAAAAAAAAAAAAAAAAAAA==",
    ],
)
def test_what_is_not_a_usable_hash_is_refused_without_being_shown(text):
    with pytest.raises(InvalidOption) as refused:
        parse_hash(text, user="ana")

    assert not text or text not in str(refused.value)
