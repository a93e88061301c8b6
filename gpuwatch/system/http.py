"""HTTP POST through requests: bounded in time and size, no redirects, and errors that repeat no URL.

Import it only where it is used: requests costs 17 MiB (it lives in the sender child).
"""

from __future__ import annotations

import errno
import importlib
import os
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import requests
import requests.utils

CONNECT_S = 5.0
READ_S = 10.0
TOTAL_S = 20.0
MOST_ANSWER_BYTES = 65536

# The distributions' own bundles: they hold the site's CA where an admin added one.
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu
    "/etc/pki/tls/certs/ca-bundle.crt",  # RHEL, openEuler, Anolis
    "/etc/ssl/ca-bundle.pem",  # SUSE
)
# Loaded by Python only when a host name is first looked up or a body decoded; an unprivileged child may
# no longer be able to read them then.
_LATE_MODULES = ("encodings.idna", "encodings.latin_1", "encodings.ascii", "stringprep", "http.client", "zlib")


class HttpError(Exception):
    """No answer. The text names the host and what went wrong; never the path, the query, or credentials."""


@dataclass(frozen=True)
class Answer:
    """Status and the first MOST_ANSWER_BYTES of the body."""

    status: int
    body: bytes


class Poster:
    """Keeps its connections between posts. Proxies come from the environment; .netrc is never read."""

    def __init__(self, connect_s: float = CONNECT_S, read_s: float = READ_S, total_s: float = TOTAL_S) -> None:
        self._limits = (connect_s, read_s)
        self._total_s = total_s
        self._session = requests.Session()
        # Otherwise requests adds the credentials of a .netrc, and takes a CA bundle from the environment.
        self._session.trust_env = False
        self._verify = next((path for path in _BUNDLES if os.access(path, os.R_OK)), None) or True

    def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """The service's answer, whatever its status. Raises HttpError when there is none."""
        started = time.monotonic()
        try:
            with self._session.post(
                url,
                data=body,
                headers=dict(headers),
                timeout=self._limits,
                allow_redirects=False,
                stream=True,
                verify=self._verify,
                proxies=requests.utils.get_environ_proxies(url, no_proxy=None),
            ) as response:
                return Answer(response.status_code, self._read(response, started))
        except (requests.exceptions.RequestException, OSError, ValueError) as error:
            # `from None`: the chain holds the URL, and the URL holds the key.
            raise HttpError(f"{_host(url)}: {_words(error)}") from None

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def _read(self, response: requests.Response, started: float) -> bytes:
        data = b""
        # Byte by byte, so that a service that drips can't hold us longer than the deadline.
        for piece in response.iter_content(1):
            data += piece
            if len(data) >= MOST_ANSWER_BYTES:
                break
            if time.monotonic() - started > self._total_s:
                raise TimeoutError(errno.ETIMEDOUT, "the answer took too long")
        return data


def prepare() -> None:
    """Load what would be loaded late."""
    for name in _LATE_MODULES:
        importlib.import_module(name)
    "host.example".encode("idna")


def _host(url: str) -> str:
    try:
        parts = urlsplit(url)
        return parts.hostname or "no host" if parts.port is None else f"{parts.hostname}:{parts.port}"
    except ValueError:
        return "no usable address"


def _words(error: BaseException) -> str:
    """What went wrong, from the kind of error and the system's own number: no text of it is repeated."""
    for inner in _chain(error):
        if isinstance(inner, socket.gaierror):
            return "the host name can't be resolved"
        if isinstance(inner, ssl.SSLCertVerificationError):
            return f"the server's certificate is not accepted ({inner.verify_message})"
        if isinstance(inner, ssl.SSLError):
            continue  # its errno is OpenSSL's, not the system's
        if isinstance(inner, OSError) and inner.errno in _NETWORK:
            return os.strerror(inner.errno).lower()
    kinds = (
        (requests.exceptions.ConnectTimeout, "no connection in time"),
        (requests.exceptions.Timeout, "no answer in time"),
        (requests.exceptions.SSLError, "no TLS with this server"),
        (requests.exceptions.ProxyError, "the proxy does not let it through"),
        (requests.exceptions.ConnectionError, "the connection broke"),
        (requests.exceptions.InvalidURL, "the address is not usable"),
        (TimeoutError, "the answer took too long"),
    )
    return next((words for kind, words in kinds if isinstance(error, kind)), f"failed ({type(error).__name__})")


_NETWORK = frozenset(
    {
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.ENETUNREACH,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.EACCES,
        errno.EPERM,
        errno.EAFNOSUPPORT,
        errno.EADDRNOTAVAIL,
    }
)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what is behind it: causes, contexts, wrapped arguments and urllib3's `reason`."""
    seen: set[int] = set()
    waiting = [error]
    while waiting and len(seen) < 50:
        inner = waiting.pop(0)
        if id(inner) in seen:
            continue
        seen.add(id(inner))
        yield inner
        behind = (inner.__cause__, inner.__context__, getattr(inner, "reason", None), *inner.args)
        waiting.extend(each for each in behind if isinstance(each, BaseException))
