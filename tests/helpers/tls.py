"""A certificate for servers of tests, good for `receiver.test` and `mail.test` until the year 2126.

Made once with openssl; its key is here for all to see and guards nothing.
"""

from __future__ import annotations

import ssl
from pathlib import Path

CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBrTCCAVKgAwIBAgIUKg+dwK3vvhM0wLEqTGlcF2LMbDQwCgYIKoZIzj0EAwIw
GDEWMBQGA1UEAwwNcmVjZWl2ZXIudGVzdDAgFw0yNjExMjkyMTUyMTlaGA8yMTI2
MTEwNTIxNTIxOVowGDEWMBQGA1UEAwwNcmVjZWl2ZXIudGVzdDBZMBMGByqGSM49
AgEGCCqGSM49AwEHA0IABABKy68ox7MmStncCA2j6pkLy7yOz4LbQSq9Yy6sP6I4
RRxzpkznEYAnQEZz8ZIKpiee5Fbxyyc4i2TFKcgTq4ajeDB2MB0GA1UdDgQWBBR+
6OkPoFkKlD4Z8qCPStcrn/5IFzAfBgNVHSMEGDAWgBR+6OkPoFkKlD4Z8qCPStcr
n/5IFzAPBgNVHRMBAf8EBTADAQH/MCMGA1UdEQQcMBqCDXJlY2VpdmVyLnRlc3SC
CW1haWwudGVzdDAKBggqhkjOPQQDAgNJADBGAiEA6ubGwvH9k60TjHNkBsBAWevm
0+zMrBZdzAhKk+lQ4yoCIQCCJOEJ2gD3o0RjUnY2ago1WpR0L2zcKoXEB8fTYIum
KQ==
-----END CERTIFICATE-----
"""
KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgZGNiIt9Gz1LS9Vze
OX8vnXJYAn24zsgpEYVJ7u3UGN2hRANCAAQASsuvKMezJkrZ3AgNo+qZC8u8js+C
20EqvWMurD+iOEUcc6ZM5xGAJ0BGc/GSCqYnnuRW8csnOItkxSnIE6uG
-----END PRIVATE KEY-----
"""


def server_context(directory: Path) -> ssl.SSLContext:
    """For a server that shows the certificate."""
    chain = directory / "chain.pem"
    chain.write_text(CERTIFICATE + KEY, encoding="ascii")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    return context


def client_context() -> ssl.SSLContext:
    """For a client that trusts this certificate and no other, and checks names as always."""
    return ssl.create_default_context(cadata=CERTIFICATE)
