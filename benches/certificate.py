"""A throw-away certificate for the TLS servers under measurement, and contexts that go with it."""

from __future__ import annotations

import contextlib
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path

CHAIN, KEY, AUTHORITY = "cert.pem", "key.pem", "ca.pem"


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """Yield a folder with an ECDSA P-256 certificate for localhost, its key, and who signed it."""
    import trustme

    authority = trustme.CA()
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    with tempfile.TemporaryDirectory(prefix="pelton-cert-") as name:
        path = Path(name)
        (path / CHAIN).write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
        (path / KEY).write_bytes(certificate.private_key_pem.bytes())
        (path / KEY).chmod(0o600)
        (path / AUTHORITY).write_bytes(authority.cert_pem.bytes())
        yield path


def server_context(path: str | Path) -> ssl.SSLContext:
    """Return the context of a server that shows the certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(Path(path) / CHAIN, Path(path) / KEY)
    return context


def client_context(path: str | Path) -> ssl.SSLContext:
    """Return the context of a client that trusts the certificate."""
    return ssl.create_default_context(cafile=str(Path(path) / AUTHORITY))
