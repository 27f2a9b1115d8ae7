"""Find out what broke a call on its way (the connection, a proxy, or a body that is not an answer) and what to do.

This is derived from the causes of the error and from the body, because LiteLLM raises the same classes for all of them.
"""

from __future__ import annotations

import errno
import json
import re
import socket
import ssl
from typing import NamedTuple
from urllib.parse import urlsplit

from ops.config import Worker
from ops.core.errors import iterate_causes
from ops.workers.reply_body import ReplyBody

_UNTRUSTED_CODES = (18, 19, 20, 21)
"""OpenSSL's error codes (X509_V_ERR_…) for a certificate that is self-signed or whose authority is unknown."""
_EXPIRED, _NOT_YET, _OTHER_NAME, _OTHER_ADDRESS = 10, 9, 62, 64
_PLAIN = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE")
_NO_ROUTE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN)
_RECEIVED = re.compile(r"(?:Received: |Original Response: )'?(.{0,300})", re.DOTALL)
_HTML = re.compile(r"\s*(?:<!doctype html|<html|<head|<body|<\?xml|<!--)", re.IGNORECASE)
_SHOWN_KEYS = 5


class NetworkFault(NamedTuple):
    """What broke a call, and what the user can do about it."""

    what: str
    remedy: str
    is_unbilled: bool = False
    """True if no provider can have worked on the call."""


def find_network_fault(error: BaseException, worker: Worker, body: ReplyBody) -> NetworkFault | None:
    """Return what broke the call; None if the provider answered, successfully or with an error."""
    import aiohttp
    import httpx

    chain = list(iterate_causes(error))
    host = _find_host(chain, worker)
    for cause in chain:
        if isinstance(cause, ssl.SSLCertVerificationError) and hasattr(cause, "verify_code"):  # not aiohttp's own
            return _certificate_fault(cause, host)
    for cause in chain:
        if isinstance(cause, (aiohttp.ClientProxyConnectionError, aiohttp.ClientHttpProxyError, httpx.ProxyError)):
            return _proxy_fault(f"the proxy at {host} cannot be reached")
        if isinstance(cause, httpx.HTTPStatusError):
            return _find_status_fault(cause.response, worker)
        if isinstance(cause, ssl.SSLError) and hasattr(cause, "reason"):
            return _tls_fault(cause, host)
        if isinstance(cause, (socket.gaierror, aiohttp.ClientConnectorDNSError)):
            return NetworkFault(
                f"no host is found under the name {host.rpartition(':')[0]}",
                "Correct the host in api_base, or check this machine's network and DNS",
                is_unbilled=True,
            )
        if isinstance(cause, ConnectionRefusedError):
            return NetworkFault(f"nothing listens at {host}", "Start the server, or correct api_base", is_unbilled=True)
        if isinstance(cause, OSError) and cause.errno in _NO_ROUTE:
            return NetworkFault(
                f"there is no route to {host}", "Check this machine's network, VPN and firewall", is_unbilled=True
            )
        if isinstance(cause, (aiohttp.ConnectionTimeoutError, httpx.ConnectTimeout)):
            return NetworkFault(
                f"no connection to {host} within {min(worker.connect_timeout_s, worker.timeout_s):g} s",
                "Check host, port and firewall, and that api_base begins with https:// only if the server speaks TLS; "
                "raise connect_timeout_s for a slow network",
                is_unbilled=True,
            )
        if isinstance(cause, httpx.TooManyRedirects | aiohttp.TooManyRedirects):
            return NetworkFault(
                f"{host} redirects in a circle", "Write the address of the API in api_base", is_unbilled=True
            )
    return _find_connection_fault(chain, worker, host) or _find_body_fault(chain, body, host)


def _find_connection_fault(chain: list[BaseException], worker: Worker, place: str) -> NetworkFault | None:
    import aiohttp
    import httpx
    from aiohttp.http_exceptions import BadStatusLine, HttpProcessingError

    for cause in chain:
        if isinstance(cause, BadStatusLine | HttpProcessingError) and not isinstance(cause, aiohttp.ClientPayloadError):
            return NetworkFault(
                f"what answers at {place} does not speak HTTP",
                "Correct the port in api_base; if the server speaks TLS, write https://",
                is_unbilled=True,
            )
        if isinstance(cause, ConnectionResetError | BrokenPipeError | ConnectionAbortedError):
            return NetworkFault(
                f"{place} reset the connection",
                "If every call ends so, read the server's log, and write https:// in api_base if it speaks TLS",
            )
        if isinstance(cause, aiohttp.ServerDisconnectedError | httpx.RemoteProtocolError):
            return NetworkFault(
                f"{place} closed the connection without an answer", "If every call ends so, read the server's log"
            )
        if isinstance(cause, aiohttp.ClientPayloadError):
            return NetworkFault(
                "the reply broke off or was too long to be one", "If every call ends so, read the server's log"
            )
        if isinstance(cause, TimeoutError | httpx.TimeoutException):
            return NetworkFault(
                f"no answer within {worker.timeout_s:g} s",
                "Raise timeout_s, or lower concurrency or max_tokens",
            )
    return None


def _find_host(chain: list[BaseException], worker: Worker) -> str:
    """Return the "HOST:PORT" at which the call broke."""
    for cause in chain:
        host, port = getattr(cause, "host", None), getattr(cause, "port", None)
        if isinstance(host, str) and host:
            return f"{host}:{port}"
    for cause in chain:
        if (url := getattr(getattr(cause, "_request", None), "url", None)) is not None:
            return f"{url.host}:{url.port or {'http': 80}.get(url.scheme, 443)}"
    if worker.api_base:
        parts = urlsplit(worker.api_base)
        return f"{parts.hostname}:{parts.port or {'http': 80}.get(parts.scheme, 443)}"
    return f"the provider of {worker.model}"


def _certificate_fault(error: ssl.SSLCertVerificationError, place: str) -> NetworkFault:
    code = error.verify_code
    if code in (_OTHER_NAME, _OTHER_ADDRESS):
        return NetworkFault(
            f"the certificate of {place} is made out to another name",
            "Write the host in api_base that the certificate names, or have one made out to this host",
            is_unbilled=True,
        )
    if code in (_EXPIRED, _NOT_YET):
        return NetworkFault(
            f"the certificate of {place} {'has expired' if code == _EXPIRED else 'is not valid yet'}",
            "Renew it, or set this machine's clock",
            is_unbilled=True,
        )
    why = "is signed by an authority that this machine does not know" if code in _UNTRUSTED_CODES else "is not valid"
    return NetworkFault(
        f"the certificate of {place} {why} ({error.verify_message})",
        "If it is your own, start the command with SSL_CERT_FILE set to a file with the authority's certificate",
        is_unbilled=True,
    )


def _tls_fault(error: ssl.SSLError, place: str) -> NetworkFault:
    reason = error.reason or ""
    if reason in _PLAIN:
        return NetworkFault(
            f"{place} does not speak TLS", "Write http:// in api_base, or correct its port", is_unbilled=True
        )
    return NetworkFault(
        f"no TLS connection with {place} ({reason or 'handshake failed'})",
        "Check that host and port in api_base are those of an HTTPS server",
        is_unbilled=True,
    )


def _proxy_fault(what: str) -> NetworkFault:
    return NetworkFault(
        what, "Check HTTPS_PROXY, HTTP_PROXY and NO_PROXY, and the account that the proxy asks for", is_unbilled=True
    )


def _find_status_fault(response: object, worker: Worker) -> NetworkFault | None:
    """Return the fault if an error status does not come from the provider's API; None if it does."""
    status, headers = getattr(response, "status_code", 0), getattr(response, "headers", {})
    if status == 407:
        return _proxy_fault("the proxy asks for an account (407)")
    if 300 <= status < 400:
        host = urlsplit(str(headers.get("location") or "")).hostname
        return NetworkFault(
            f"the address redirects{f' to {host}' if host else ''} ({status})",
            "Write the address of the API itself in api_base",
            is_unbilled=True,
        )
    if status == 400 and worker.api_base and worker.api_base.startswith("http:"):
        body_text = str(getattr(response, "text", ""))[:2000] if getattr(response, "is_closed", False) else ""
        if re.search(
            r"plain HTTP request was sent to HTTPS port|client sent an HTTP request to an HTTPS", body_text, re.I
        ):
            return NetworkFault(
                "the server at api_base speaks TLS (400)", "Write https:// in api_base", is_unbilled=True
            )
    return None


def _find_body_fault(chain: list[BaseException], body: ReplyBody, place: str) -> NetworkFault | None:
    """Return what is wrong with a body that came with status 200 and could not be read as an answer; None if nothing
    is."""
    received = body.text
    if not received and body.content is None:
        texts = [cause.doc for cause in chain if isinstance(cause, json.JSONDecodeError)]
        texts += [match[1] for cause in chain if (match := _RECEIVED.search(str(cause))) is not None]
        if not texts:
            return None
        received = texts[0]
    api = "api_base must be the address of the API, for example https://HOST/v1"
    if _HTML.match(received):
        return NetworkFault(
            f"{place} sends an HTML page with status 200",
            f"{api}; a proxy or a page to sign in may stand before it",
            is_unbilled=True,
        )
    if not received.strip() and body.content is None:
        return NetworkFault(f"{place} sends an empty body with status 200", api)
    content = body.read()
    if content is None and received.lstrip().startswith(("{", "[")):
        return NetworkFault(f"{place} sends JSON that breaks off", "If every call ends so, read the server's log")
    if content is None:
        return NetworkFault(f"{place} sends text that is no JSON with status 200", api)
    if isinstance(content, dict) and content.get("error"):
        return None  # the provider reports an error in its own words
    keys = ", ".join(sorted(str(key) for key in content)[:_SHOWN_KEYS]) if isinstance(content, dict) else ""
    shape = f"with {keys}" if keys else "without fields"
    return NetworkFault(
        f"{place} sends JSON of another form with status 200 ({shape})", f"{api} that the model's prefix names"
    )
