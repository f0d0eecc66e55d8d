"""The certificate of the service and its key: whether they can be used, and are kept as a key should be."""

import os
import ssl
import stat

from holdfast.config.server import Tls
from holdfast.errors import InvalidOption


def check_tls(tls: Tls) -> None:
    """Refuse files that are missing, that do not fit each other, and a key that every user can read."""
    if tls.certificate is None or tls.key is None:
        return
    for option, path in (("tls.certificate", tls.certificate), ("tls.key", tls.key)):
        try:
            mode = os.stat(path).st_mode
        except OSError as error:
            raise InvalidOption(
                "a file of TLS cannot be read", option=option, value=path, cause=error.strerror
            ) from error
        if option == "tls.key" and mode & stat.S_IROTH:
            raise InvalidOption(
                "everybody on this machine can read the key of TLS",
                option=option,
                value=path,
                hint=f"chmod 600 {path}",
            )
    try:
        # An empty password, so that OpenSSL does not ask for one: a service has no terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.certificate, tls.key, password="")
    except (OSError, ValueError) as error:
        cause = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        raise InvalidOption(
            "the certificate of TLS and its key cannot be used",
            option="tls.key",
            value=tls.key,
            cause=str(cause),
            hint="both in PEM, the key of this certificate and without a password",
        ) from error
