"""Requests and answers, without input and output."""

from __future__ import annotations

import json
import select
import ssl
from dataclasses import dataclass, field, fields
from typing import Any, Callable, Generator, Iterable, Mapping, Optional
from urllib.parse import urlsplit

MAX_ANSWER = 8 << 20  # bytes; a batch of 1000 takes about 200 KiB


class HeadgateError(Exception):
    """What all errors of this package are."""


class Unavailable(HeadgateError):
    """Headgate did not answer. `kind` is timeout, unreachable, status or malformed."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"headgate: {message}")
        self.kind = kind


class Mistake(HeadgateError):
    """Headgate refused the call itself, such as for a wrong token or an invalid field."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"headgate: {status}: {detail}")
        self.status, self.detail = status, detail


@dataclass(frozen=True)
class Check:
    """A request to check. A cost of 0 is a dry run; a peek charges nothing."""

    domain: str
    attributes: Mapping[str, str]
    cost: int = 1
    peek: bool = False

    def body(self) -> dict[str, Any]:
        body: dict[str, Any] = {"domain": self.domain, "attributes": dict(self.attributes), "cost": self.cost}
        if self.peek:
            body["peek"] = True
        return body


@dataclass(frozen=True)
class Decision:
    """The answer to a check. The fields are those of the HTTP API; times are in milliseconds."""

    allowed: bool
    reason: str
    rule: Optional[str] = None
    limit: Optional[int] = None
    remaining: Optional[int] = None
    retry_after_ms: Optional[int] = None  # None if refused: waiting does not help
    reset_after_ms: Optional[int] = None
    action: Optional[str] = None
    delay_ms: int = 0
    lease: Optional[str] = None
    report: Optional[str] = None
    reservation: Optional[str] = None
    created_at: Optional[str] = None
    changed_at: Optional[str] = None
    shadow: list[str] = field(default_factory=list)
    #: The rules that mark the request: it passes, and is over a soft limit.
    soft: list[str] = field(default_factory=list)
    #: The rate limit fields of the answer, for your own answer.
    headers: Mapping[str, str] = field(default_factory=dict, compare=False)
    #: Why Headgate did not decide; `allowed` is then what the client was told to assume.
    error: Optional[Unavailable] = None


@dataclass(frozen=True)
class Settlement:
    """How a reservation, a report or a lease ended. If not `done`, `reason` says why."""

    done: bool
    reason: Optional[str] = None
    in_debt: bool = False
    counted: Optional[bool] = None
    lease: Optional[str] = None
    rules_gone: list[str] = field(default_factory=list)


# The types of the members that are known; others are ignored.
_NUMBERS = {"limit", "remaining", "retry_after_ms", "reset_after_ms", "delay_ms"}
_LISTS = {"shadow", "soft", "rules_gone"}
_FLAGS = {"allowed", "in_debt", "counted"}
_DECISION = {f.name for f in fields(Decision)} - {"headers", "error"}
_SETTLEMENT = {f.name for f in fields(Settlement)} - {"done"}


def _members(value: Any, names: set[str]) -> dict[str, Any]:
    """Returns the members of a JSON object that are known, and checks their types."""
    if not isinstance(value, dict):
        raise Unavailable("malformed", "the answer is not an object")
    known = {name: v for name, v in value.items() if name in names and v is not None}
    for name, v in known.items():
        if name in _LISTS:
            right = isinstance(v, list) and all(isinstance(s, str) for s in v)
        else:
            right = type(v) is (int if name in _NUMBERS else bool if name in _FLAGS else str)
        if not right:
            raise Unavailable("malformed", f"{name} in the answer is invalid")
    return known


def decision(value: Any, headers: Optional[Mapping[str, str]] = None) -> Decision:
    known = _members(value, _DECISION)
    if "allowed" not in known or "reason" not in known:
        raise Unavailable("malformed", "the answer has no decision")
    return Decision(**known, headers=headers or {})


def settlement(value: Any, verb: str) -> Settlement:
    known = _members(value, _SETTLEMENT)
    done = value.get(verb)
    if type(done) is not bool:
        raise Unavailable("malformed", f"the answer does not say {verb}")
    return Settlement(done=done, **known)


class Answer:
    """An HTTP/1.1 answer that arrives in pieces. The work is linear in its size, however small they are."""

    def __init__(self) -> None:
        self.status, self.headers, self.body, self.keeps = 0, dict[str, str](), b"", False
        self._data, self._size, self._ended = bytearray(), 0, False  # what is still to be read
        self._reading = self._read()

    def feed(self, data: bytes) -> bool:
        """Takes what has arrived, nothing at the end, and reports whether the answer is complete."""
        self._data += data
        self._size, self._ended = self._size + len(data), not data
        if self._size > MAX_ANSWER:
            raise Unavailable("malformed", "the answer is too large")
        try:
            next(self._reading)
        except StopIteration:
            if self._data:
                raise Unavailable("malformed", "there is more than one answer") from None
            return True
        except (ValueError, IndexError):
            raise Unavailable("malformed", "the answer is not HTTP") from None
        if self._ended:
            raise Unavailable("unreachable", "the connection was closed before the answer was complete")
        return False

    def _read(self) -> Generator[None, None, None]:
        """Reads the answer, and yields when it needs more."""
        version, lines, self.status = "", list[str](), 100
        while 100 <= self.status < 200:  # more is to come
            first, *lines = (yield from self._until(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            version, status = first.split(" ")[:2]
            if not version.startswith("HTTP/1."):
                raise ValueError(version)
            self.status = int(status)
        self.headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        self.keeps = version == "HTTP/1.1" and self.headers.get("connection", "").lower() != "close"
        length = "0" if self.status in (204, 304) else self.headers.get("content-length")
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            yield from self._chunks()
        elif length is not None:
            self.body = yield from self._take(int(length))
        else:
            while not self._ended:
                yield
            self.keeps, self.body = False, (yield from self._take(len(self._data)))

    def _chunks(self) -> Generator[None, None, None]:
        parts: list[bytes] = []
        while size := int((yield from self._until(b"\r\n")).split(b";")[0], 16):
            parts.append((yield from self._take(size)))
            if (yield from self._take(2)) != b"\r\n":
                raise ValueError("a chunk is longer than announced")
        while (yield from self._until(b"\r\n")):
            pass  # trailers
        self.body = b"".join(parts)

    def _until(self, end: bytes) -> Generator[None, None, bytes]:
        looked = 0
        while (at := self._data.find(end, looked)) < 0:
            looked = max(0, len(self._data) - len(end) + 1)
            yield
        found = yield from self._take(at)
        del self._data[: len(end)]
        return found

    def _take(self, size: int) -> Generator[None, None, bytes]:
        if size < 0:
            raise ValueError(size)
        while len(self._data) < size:
            yield
        taken = bytes(self._data[:size])
        del self._data[:size]
        return taken

    def value(self) -> Any:
        """The JSON of an answer that is one: 200, or 429 for a check."""
        if 400 <= self.status < 500 and self.status not in (408, 429):
            try:
                raise Mistake(self.status, str(json.loads(self.body)["detail"]))
            except (ValueError, KeyError, TypeError, RecursionError):
                pass  # something between here and Headgate answers
        if self.status not in (200, 429):
            raise Unavailable("status", f"status {self.status}")
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            raise Unavailable("malformed", "the answer is not JSON") from None

    def limits(self) -> dict[str, str]:
        return {n: v for n, v in self.headers.items() if n.startswith(("ratelimit", "x-ratelimit", "retry-after"))}


def readable(sock: Any) -> bool:
    """Reports whether a connection on which nobody waits has something to read, such as its end."""
    if hasattr(select, "poll"):  # select fails for large descriptors
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([sock], [], [], 0)[0])


class Base:
    """What both clients share: settings, requests, and what a failure means."""

    def __init__(
        self, url: str = "http://127.0.0.1:8080", *, token: Optional[str] = None, timeout: float = 0.05,
        fail_open: bool = True, on_failure: Optional[Callable[[Unavailable], None]] = None,
        tls: Optional[ssl.SSLContext] = None, max_idle: int = 64,
    ) -> None:
        """`timeout` is in seconds, for a whole call. If Headgate does not answer in it, a check is
        allowed, or refused without `fail_open`, and `on_failure` is called with the reason."""
        at = urlsplit(url)
        if "@" in at.netloc:  # not shown, as it may have a password
            raise ValueError("the address has a user: want one such as http://127.0.0.1:8080")
        if at.scheme not in ("http", "https") or not at.hostname or at.query or at.fragment:
            raise ValueError(f"{url!r} is not an address such as http://127.0.0.1:8080")
        at.hostname.encode("idna")  # raises a ValueError for a name that cannot be looked up
        if token is not None and (not token.isascii() or not token.isprintable()):
            raise ValueError("the token has characters that a header field cannot have")
        if not timeout > 0:
            raise ValueError(f"invalid timeout {timeout!r}: want seconds above 0, such as 0.05")
        self._host, self._port = at.hostname, at.port or (443 if at.scheme == "https" else 80)
        self._tls = (tls or ssl.create_default_context()) if at.scheme == "https" else None
        self._timeout, self._fail_open, self._on_failure, self._max_idle = timeout, fail_open, on_failure, max_idle
        self._path = at.path.rstrip("/")
        self._head = f"Host: {at.netloc}\r\nContent-Type: application/json\r\n"
        if token:
            self._head += f"Authorization: Bearer {token}\r\n"
        self._begin()

    def _begin(self) -> None:
        """Prepares what a client keeps."""
        raise NotImplementedError

    def _request(self, path: str, body: Mapping[str, Any]) -> bytes:
        text = json.dumps(body, separators=(",", ":")).encode()
        return f"POST {self._path}{path} HTTP/1.1\r\n{self._head}Content-Length: {len(text)}\r\n\r\n".encode() + text

    def _failed(self, error: Unavailable) -> Decision:
        if self._on_failure:
            self._on_failure(error)
        reason = "fail_open" if self._fail_open else "fail_closed"
        return Decision(allowed=self._fail_open, reason=reason, error=error)


def one(answer: Answer) -> Decision:
    d = decision(answer.value(), answer.limits())
    if d.allowed != (answer.status == 200):
        raise Unavailable("malformed", "status and body of the answer disagree")
    return d


def many(answer: Answer, number: int) -> list[Decision]:
    value = answer.value()
    results = value.get("results") if isinstance(value, dict) else None
    if not isinstance(results, list) or len(results) != number:
        raise Unavailable("malformed", f"the answer does not have {number} results")
    return [decision(r) for r in results]


def batch(checks: Iterable[Check]) -> dict[str, Any]:
    return {"checks": [c.body() for c in checks]}


def reserving(check: Check, ttl_ms: Optional[int]) -> dict[str, Any]:
    return check.body() if ttl_ms is None else {**check.body(), "ttl_ms": ttl_ms}


def reported(token: str, status: Optional[int], headers: Optional[Mapping[str, str]]) -> dict[str, Any]:
    body: dict[str, Any] = {"report": token}
    if status is not None:
        body["status"] = status
    if headers is not None:
        body["headers"] = dict(headers)
    return body
