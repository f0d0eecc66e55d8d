"""Certificates for tests, each signed by itself."""

import os
import subprocess
from pathlib import Path

from holdfast.config.server import Tls


def make_certificate(folder: Path, name: str = "server") -> Tls:
    """A new certificate of the loopback address, and its key, which only its owner reads."""
    certificate, key = str(folder / f"{name}.pem"), str(folder / f"{name}-key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate,
         "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    os.chmod(key, 0o600)
    return Tls(certificate=certificate, key=key)
