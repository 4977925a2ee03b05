"""The client for programs with threads."""

from __future__ import annotations

import os
import socket
import threading
import time
from concurrent import futures
from types import TracebackType
from typing import Any, Mapping, Optional, Sequence, Type

from . import _wire
from ._wire import Answer, Check, Decision, Settlement, Unavailable


_Address = tuple[Any, ...]  # as socket.getaddrinfo returns it
_Lookup = futures.Future[Sequence[_Address]]


class Client(_wire.Base):
    """A client that any number of threads can share. It keeps connections open."""

    def _begin(self) -> None:
        self._lock, self._process = threading.Lock(), os.getpid()
        self._idle: list[socket.socket] = []
        self._lookup: Optional[_Lookup] = None  # that is in progress

    def check(self, domain: str, attributes: Mapping[str, str], *, cost: int = 1, peek: bool = False) -> Decision:
        """Asks whether a request may pass."""
        try:
            return _wire.one(self._post("/v1/check", Check(domain, attributes, cost, peek).body()))
        except Unavailable as e:
            return self._failed(e)

    def check_many(self, checks: Sequence[Check]) -> list[Decision]:
        """Decides up to 1000 checks, one after the other."""
        try:
            return _wire.many(self._post("/v1/check", _wire.batch(checks)), len(checks))
        except Unavailable as e:
            return [self._failed(e)] * len(checks)

    def reserve(
        self, domain: str, attributes: Mapping[str, str], *, cost: int = 1, ttl_ms: Optional[int] = None,
    ) -> Decision:
        """Charges an estimate. If allowed, commit or cancel the `reservation` of the answer."""
        try:
            return _wire.one(self._post("/v1/reserve", _wire.reserving(Check(domain, attributes, cost), ttl_ms)))
        except Unavailable as e:
            return self._failed(e)

    def commit(self, reservation: str, cost: int) -> Settlement:
        """Charges the real cost. Raises Unavailable; trying again is safe, as it counts once."""
        return self._settle("commit", "committed", {"reservation": reservation, "cost": cost})

    def cancel(self, reservation: str) -> Settlement:
        """Refunds a reservation. Raises Unavailable; trying again is safe."""
        return self._settle("cancel", "cancelled", {"reservation": reservation})

    def release(self, lease: str) -> Settlement:
        """Frees the slot of a concurrency rule. Raises Unavailable."""
        return self._settle("release", "released", {"lease": lease})

    def renew(self, lease: str) -> Settlement:
        """Keeps a slot; the answer has its new `lease`. Raises Unavailable."""
        return self._settle("renew", "renewed", {"lease": lease})

    def report(
        self, token: str, *, status: Optional[int] = None, headers: Optional[Mapping[str, str]] = None,
    ) -> Settlement:
        """Says how a request was answered, for rules with charge_on. Raises Unavailable."""
        return self._settle("report", "reported", _wire.reported(token, status, headers))

    def close(self) -> None:
        """Closes idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for sock in idle:
            sock.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], e: Optional[BaseException], at: Optional[TracebackType]) -> None:
        self.close()

    def _settle(self, action: str, verb: str, body: Mapping[str, Any]) -> Settlement:
        return _wire.settlement(self._post("/v1/" + action, body).value(), verb)

    def _post(self, path: str, body: Mapping[str, Any]) -> Answer:
        deadline = time.monotonic() + self._timeout
        request, answer, sock = self._request(path, body), Answer(), None
        try:
            sock = self._kept() or self._connect(deadline)
            sock.settimeout(_left(deadline))
            sock.sendall(request)
            while not answer.feed(sock.recv(65536)):
                sock.settimeout(_left(deadline))
        except BaseException as e:
            if sock is not None:
                sock.close()
            if isinstance(e, (TimeoutError, futures.TimeoutError)):  # two types before Python 3.11
                raise Unavailable("timeout", f"no answer in {self._timeout * 1000:g} ms") from None
            if isinstance(e, OSError):
                raise Unavailable("unreachable", str(e)) from e
            raise
        self._keep(sock, answer)
        return answer

    def _connect(self, deadline: float) -> socket.socket:
        addresses = self._addresses(deadline)
        for i, (family, kind, protocol, _, address) in enumerate(addresses):
            sock = socket.socket(family, kind, protocol)
            try:
                sock.settimeout(_left(deadline) / (len(addresses) - i))  # so that each has its turn
                sock.connect(address)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._tls is None:
                    return sock
                sock.settimeout(_left(deadline))
                return self._tls.wrap_socket(sock, server_hostname=self._host)
            except BaseException as e:
                sock.close()
                if i == len(addresses) - 1 or not isinstance(e, OSError):
                    raise
        raise OSError(f"{self._host} has no address")

    def _addresses(self, deadline: float) -> Sequence[_Address]:
        """Looks the server's name up, in a thread: the system may take longer than the deadline. Calls
        that wait at the same time share it."""
        with self._lock:
            if self._lookup is None:
                self._lookup = _Lookup()
                threading.Thread(target=self._look_up, args=(self._lookup,), daemon=True).start()
            lookup = self._lookup
        return lookup.result(_left(deadline))

    def _look_up(self, lookup: _Lookup) -> None:
        try:
            lookup.set_result(socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM))
        except BaseException as e:
            lookup.set_exception(e)
        with self._lock:
            if self._lookup is lookup:
                self._lookup = None

    def _kept(self) -> Optional[socket.socket]:
        """Returns an idle connection that the server has not closed."""
        while True:
            with self._lock:
                if self._process != os.getpid():  # a fork must not share connections
                    self._idle, self._lookup, self._process = [], None, os.getpid()
                if not self._idle:
                    return None
                sock = self._idle.pop()
            if not _wire.readable(sock):
                return sock
            sock.close()

    def _keep(self, sock: socket.socket, answer: Answer) -> None:
        with self._lock:
            if answer.keeps and len(self._idle) < self._max_idle:
                self._idle.append(sock)
                return
        sock.close()


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
