"""The server's address and the key: from arguments, else from the environment. Never shows a
key."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from .errors import InvalidRequest, SandboxUnavailable

URL_DEFAULT = "http://127.0.0.1:5555"
NAMESPACE_DEFAULT = "default"

#: The first that is set is used; the first SDKs read the second.
URL_VARIABLES = ("BURROW_URL", "MSB_SERVER_URL")
KEY_VARIABLE = "BURROW_API_KEY"
KEY_FILE_VARIABLE = "BURROW_API_KEY_FILE"
OTHER_KEY_VARIABLE = "MSB_API_KEY"
NAMESPACE_VARIABLE = "BURROW_NAMESPACE"
CA_FILE_VARIABLE = "BURROW_CA_FILE"


class Key:
    """A key that cannot be shown by accident: it is not printed, formatted, pickled or compared."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        if not text or not text.isascii() or any(c <= " " or c == "\x7f" for c in text):
            raise InvalidRequest("the API key is empty or has characters that no key has")
        self._text = text

    def header(self) -> str:
        """The key itself, for the wire only."""
        return f"Bearer {self._text}"

    def __repr__(self) -> str:
        return "Key(…)"

    def __reduce__(self) -> str:
        raise TypeError("a key is not pickled")


@dataclass(frozen=True)
class Address:
    """Where the server listens."""

    #: The host of a TCP address.
    host: str
    port: int
    #: Before every path of the API, without a slash at its end.
    prefix: str = ""
    is_tls: bool = False
    #: A Unix socket, used instead of TCP.
    socket: str | None = None

    @property
    def authority(self) -> str:
        """The value of the `Host` header."""
        if self.socket is not None:
            return "localhost"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.is_tls else 80) else f"{host}:{self.port}"

    def __str__(self) -> str:
        if self.socket is not None:
            return f"unix:{self.socket}"
        return f"{'https' if self.is_tls else 'http'}://{self.authority}{self.prefix}"


def parse_address(url: str) -> Address:
    """Parses `http://`, `https://` and `unix:/path`."""
    if url.startswith("unix:"):
        path = url[len("unix:") :]
        path = path[2:] if path.startswith("///") else path
        if not path.startswith("/"):
            raise InvalidRequest("the URL of a Unix socket is unix: and an absolute path")
        return Address(host="", port=0, socket=path)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise InvalidRequest("the URL of the server cannot be read") from None
    if parts.scheme not in ("http", "https") or not host:
        raise InvalidRequest("the URL of the server begins with http://, https:// or unix:")
    # A password there would end up in messages.
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise InvalidRequest("the URL of the server has a host, a port and a path and nothing else")
    is_tls = parts.scheme == "https"
    path = parts.path.rstrip("/")
    if any(c <= " " or c == "\x7f" for c in host + path) or not path.isascii():
        raise InvalidRequest("the URL of the server has characters that no URL has")
    return Address(host, port or (443 if is_tls else 80), path, is_tls)


@dataclass(frozen=True)
class Settings:
    """Everything that a connection needs."""

    address: Address
    key: Key | None = field(repr=False)
    namespace: str
    tls: ssl.SSLContext | None = field(repr=False)


def settings(
    url: str | None = None,
    *,
    api_key: str | None = None,
    api_key_file: os.PathLike[str] | str | None = None,
    namespace: str | None = None,
    ca_file: os.PathLike[str] | str | None = None,
    ssl_context: ssl.SSLContext | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """Prefers arguments to variables, a key to a key file, and our own variables to others'."""
    known = os.environ if environment is None else environment

    def first(*names: str) -> str | None:
        return next((known[name] for name in names if known.get(name)), None)

    address = parse_address(url or first(*URL_VARIABLES) or URL_DEFAULT)
    # An empty key means that there is none, even if another place has one.
    text = api_key
    if text is None and api_key_file is not None:
        text = _read_key(api_key_file)
    if text is None:
        text = first(KEY_VARIABLE)
    if text is None:
        named = first(KEY_FILE_VARIABLE)
        text = _read_key(named) if named else first(OTHER_KEY_VARIABLE)
    tls = ssl_context
    if address.is_tls and tls is None:
        file = ca_file or first(CA_FILE_VARIABLE)
        tls = ssl.create_default_context(cafile=os.fspath(file) if file else None)
    own = namespace or first(NAMESPACE_VARIABLE) or NAMESPACE_DEFAULT
    return Settings(address, Key(text) if text else None, own, tls)


def _read_key(path: os.PathLike[str] | str) -> str:
    try:
        text = Path(path).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise SandboxUnavailable(f"the API key in {os.fspath(path)!r}: {reason}") from None
    if not text:
        raise SandboxUnavailable(f"the API key in {os.fspath(path)!r}: the file is empty")
    return text
