"""Middleware for WSGI and ASGI applications."""

from __future__ import annotations

import asyncio
import json
import re
import time
from typing import Any, Awaitable, Callable, Iterable, Iterator, Mapping, Optional
from urllib.parse import quote

from ._fields import joined
from ._wire import Decision, HeadgateError, Unavailable
from .aio import AsyncClient
from .client import Client

Attributes = Callable[[Any], Mapping[str, str]]

_PROBLEMS = "https://iana.org/assignments/http-problem-types#"


def refusal(d: Decision) -> tuple[int, dict[str, str], bytes]:
    """Status, header fields and body for a refused request, as Headgate's own doors answer."""
    failed = d.reason == "fail_closed"
    hidden = d.action == "shadow_ban"
    reduced = failed or d.reason == "headroom" and not hidden
    status = 503 if reduced else 429
    kind, title = "quota-exceeded", "Request quota exceeded"
    if reduced:
        kind, title = "temporary-reduced-capacity", "Capacity temporarily reduced"
    elif d.reason == "banned" and not hidden:
        kind, title = "abnormal-usage-detected", "Abnormal usage detected"
    problem: dict[str, Any] = {"type": _PROBLEMS + kind, "title": title, "status": status, "detail": "Try again later."}
    if d.rule and not hidden:
        problem["violated-policies"] = [d.rule]
    if d.retry_after_ms is not None and not hidden:
        problem["retry_after_ms"] = d.retry_after_ms
    headers = {} if hidden else dict(d.headers)
    if failed:
        headers["retry-after"] = "1"
    headers |= {"content-type": "application/problem+json", "cache-control": "no-store"}
    return status, headers, json.dumps(problem, ensure_ascii=False).encode()


_SOFT = "headgate.soft"  # no header field becomes a member of this name


def _mark(request: dict[str, Any], d: Decision) -> None:
    """Tells the application which rules mark a request, after those of an outer middleware."""
    request[_SOFT] = [*request.get(_SOFT, ()), *d.soft]


def _described(method: str, path: str, host: str, address: str) -> dict[str, str]:
    path = re.sub(r"^[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*", "", path) or "/"  # of a request to a proxy
    known = {"method": method, "path": path, "host": host, "client_ip": address.partition("%")[0]}
    return {name: value for name, value in known.items() if value}


def _failure(e: HeadgateError) -> Unavailable:
    """What the hook receives when a request has ended: the answer is out, and must not fail for a
    slot that Headgate forgot when it restarted."""
    return e if isinstance(e, Unavailable) else Unavailable("status", str(e))


class WSGIMiddleware:
    """Checks each request of a WSGI application. `attributes` gets the environ and returns
    further attributes, or others than method, path, host and client_ip of the connection. The
    rules that mark a request are in `environ["headgate.soft"]`, a list that is usually empty."""

    def __init__(self, app: Any, client: Client, domain: str, attributes: Optional[Attributes] = None) -> None:
        self._app, self._client, self._domain, self._attributes = app, client, domain, attributes

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        path = quote((environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")).encode("latin-1")) or "/"
        described = _described(environ["REQUEST_METHOD"], path, environ.get("HTTP_HOST", ""), environ.get("REMOTE_ADDR", ""))
        if self._attributes:
            described |= self._attributes(environ)
        d = self._client.check(self._domain, described)
        if not d.allowed:
            status, headers, body = refusal(d)
            headers["content-length"] = str(len(body))
            start_response(f"{status} {'Too Many Requests' if status == 429 else 'Service Unavailable'}", list(headers.items()))
            return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]
        _mark(environ, d)
        answered = [500]

        def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            answered[0] = int(status.split(" ", 1)[0])
            return start_response(status, _with_limits(headers, d.headers), *rest)

        try:
            if d.delay_ms > 0:
                time.sleep(d.delay_ms / 1000)
            return _Body(self._app(environ, start), lambda: self._end(d, answered[0]))
        except BaseException:
            self._end(d, 500)
            raise

    def _end(self, d: Decision, status: int) -> None:
        try:
            if d.lease:
                self._client.release(d.lease)
            if d.report:
                self._client.report(d.report, status=status)
        except HeadgateError as e:
            self._client._failed(_failure(e))


class _Body:
    """The body of an answer, which ends when the server closes it."""

    def __init__(self, body: Iterable[bytes], end: Callable[[], None]) -> None:
        self._body, self._end = body, end

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._body)

    def close(self) -> None:
        try:
            if close := getattr(self._body, "close", None):
                close()
        finally:
            self._end()


Message = dict[str, Any]


class ASGIMiddleware:
    """Checks each HTTP request and WebSocket of an ASGI application. `attributes` gets the scope
    and returns further attributes, or others than method, path, host and client_ip of the connection.
    The rules that mark a request are in `scope["headgate.soft"]`, a list that is usually empty."""

    def __init__(self, app: Any, client: AsyncClient, domain: str, attributes: Optional[Attributes] = None) -> None:
        self._app, self._client, self._domain, self._attributes = app, client, domain, attributes

    async def __call__(
        self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]],
    ) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self._app(scope, receive, send)  # type: ignore[no-any-return]
        host = next((v.decode("latin-1") for n, v in scope["headers"] if n == b"host"), "")
        path = scope.get("raw_path") or quote(scope["path"]).encode()
        described = _described(scope.get("method", "GET"), path.decode("latin-1"), host, (scope.get("client") or [""])[0])
        if self._attributes:
            described |= self._attributes(scope)
        d = await self._client.check(self._domain, described)
        if not d.allowed:
            return await self._refuse(scope, d, send)
        _mark(scope, d)
        answered = [500]

        async def started(message: Message) -> None:
            if message["type"] == "websocket.accept":
                answered[0] = 101
            elif message["type"] == "websocket.close" and answered[0] == 500:
                answered[0] = 403
            elif message["type"] in ("http.response.start", "websocket.http.response.start"):
                answered[0] = message["status"]
                theirs = [(n.decode("latin-1"), v.decode("latin-1")) for n, v in message.get("headers", [])]
                message = {**message, "headers": _encoded(_with_limits(theirs, d.headers))}
            await send(message)

        try:
            await asyncio.sleep(d.delay_ms / 1000)
            await self._app(scope, receive, started)
        finally:
            await self._end(d, answered[0])

    async def _refuse(self, scope: Message, d: Decision, send: Callable[[Message], Awaitable[None]]) -> None:
        if scope["type"] == "websocket":
            return await send({"type": "websocket.close", "code": 1013})
        status, headers, body = refusal(d)
        headers["content-length"] = str(len(body))
        await send({"type": "http.response.start", "status": status, "headers": _pairs(headers)})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    async def _end(self, d: Decision, status: int) -> None:
        try:
            if d.lease:
                await self._client.release(d.lease)
            if d.report:
                await self._client.report(d.report, status=status)
        except HeadgateError as e:
            self._client._failed(_failure(e))


def _with_limits(theirs: list[tuple[str, str]], ours: Mapping[str, str]) -> list[tuple[str, str]]:
    """The header fields of an answer. Of a field that is in both, one value remains."""
    names = {name.lower() for name in ours}
    kept = [(name, value) for name, value in theirs if name.lower() not in names]
    return kept + [(name, joined([v for n, v in theirs if n.lower() == name.lower()], name, value)) for name, value in ours.items()]


def _encoded(headers: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]


def _pairs(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return _encoded(headers.items())
