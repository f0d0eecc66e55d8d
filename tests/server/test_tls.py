"""The key of TLS is looked at before it is used, when the service starts and when the key is renewed."""

import logging
import shutil
import ssl

import pytest

from harness.certificates import make_certificate
from holdfast.config.server import Tls
from holdfast.errors import InvalidOption
from holdfast.server.listeners import Renewal
from holdfast.server.tls import check_tls


@pytest.fixture
def tls(tmp_path):
    return make_certificate(tmp_path)


def shown_by(context):
    """The certificate that a server with this context shows."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client_context.check_hostname, client_context.verify_mode = False, ssl.CERT_NONE
    client = client_context.wrap_bio(incoming, outgoing)
    server = context.wrap_bio(outgoing, incoming, server_side=True)
    for side in (client, server, client, server):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return client.getpeercert(binary_form=True)


def test_files_that_fit_are_accepted(tls):
    check_tls(tls)
    check_tls(Tls())


@pytest.mark.parametrize("missing", ["certificate", "key"])
def test_a_missing_file_is_told_in_one_line(tls, missing):
    broken = Tls(**{"certificate": tls.certificate, "key": tls.key, missing: "/nowhere/k.pem"})

    with pytest.raises(InvalidOption, match="cannot be read") as refused:
        check_tls(broken)

    assert f"tls.{missing}" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_key_of_another_certificate_is_refused(tls, tmp_path):
    other = make_certificate(tmp_path, "other")

    with pytest.raises(InvalidOption, match="cannot be used"):
        check_tls(Tls(certificate=tls.certificate, key=other.key))


def test_a_renewed_certificate_is_used(tls, tmp_path):
    other = make_certificate(tmp_path, "other")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.certificate, tls.key)
    renewal, before = Renewal(tls, [context]), shown_by(context)

    renewal.look()
    assert shown_by(context) == before
    shutil.copy(other.certificate, tls.certificate)
    shutil.copy(other.key, tls.key)
    renewal.look()

    assert shown_by(context) != before


@pytest.mark.parametrize("harm", ["read by everybody", "of another", "gone"])
def test_a_renewed_key_that_is_not_in_order_is_not_used(tls, tmp_path, caplog, harm):
    other, third = make_certificate(tmp_path, "other"), make_certificate(tmp_path, "third")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.certificate, tls.key)
    renewal, before = Renewal(tls, [context]), shown_by(context)
    caplog.set_level(logging.ERROR)

    shutil.copy(other.certificate, tls.certificate)
    key = tmp_path / "server-key.pem"
    if harm == "gone":
        key.unlink()
    else:
        shutil.copy(third.key if harm == "of another" else other.key, key)
        key.chmod(0o644 if harm == "read by everybody" else 0o600)
    renewal.look()

    assert shown_by(context) == before
    assert "tls.not_renewed" in caplog.text
    shutil.copy(other.key, key)
    key.chmod(0o600)
    renewal.look()
    assert shown_by(context) != before, "the next look finds it in order"
