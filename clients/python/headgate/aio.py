"""The client for asyncio."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Mapping, Optional, Sequence, Type

from . import _wire
from ._wire import Answer, Check, Decision, Settlement, Unavailable


class _Connection(asyncio.Protocol):
    """A connection, for one call after the other. What arrives between them is no answer: it ends."""

    def __init__(self) -> None:
        self._answer, self._done = Answer(), asyncio.get_running_loop().create_future()
        self._done.cancel()  # no call yet

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            if self._done.done():
                self._transport.abort()
            elif self._answer.feed(data):
                self._done.set_result(None)
        except Unavailable as e:
            self._done.set_exception(e)

    def eof_received(self) -> None:
        self.data_received(b"")

    def connection_lost(self, exc: Optional[Exception]) -> None:
        if exc and not self._done.done():
            self._done.set_exception(exc)
        self.data_received(b"")

    def usable(self) -> bool:
        return not self._transport.is_closing() and not _wire.readable(self._transport.get_extra_info("socket"))

    async def ask(self, request: bytes) -> Answer:
        self._answer, self._done = Answer(), asyncio.get_running_loop().create_future()
        self._transport.write(request)
        await self._done
        return self._answer

    def end(self) -> None:
        self._transport.abort()


class AsyncClient(_wire.Base):
    """Client for asyncio: the same methods, to await. It keeps connections open."""

    def _begin(self) -> None:
        self._idle: list[_Connection] = []
        self._loop: Optional[asyncio.AbstractEventLoop] = None

    async def check(self, domain: str, attributes: Mapping[str, str], *, cost: int = 1, peek: bool = False) -> Decision:
        try:
            return _wire.one(await self._post("/v1/check", Check(domain, attributes, cost, peek).body()))
        except Unavailable as e:
            return self._failed(e)

    async def check_many(self, checks: Sequence[Check]) -> list[Decision]:
        try:
            return _wire.many(await self._post("/v1/check", _wire.batch(checks)), len(checks))
        except Unavailable as e:
            return [self._failed(e)] * len(checks)

    async def reserve(
        self, domain: str, attributes: Mapping[str, str], *, cost: int = 1, ttl_ms: Optional[int] = None,
    ) -> Decision:
        try:
            return _wire.one(await self._post("/v1/reserve", _wire.reserving(Check(domain, attributes, cost), ttl_ms)))
        except Unavailable as e:
            return self._failed(e)

    async def commit(self, reservation: str, cost: int) -> Settlement:
        return await self._settle("commit", "committed", {"reservation": reservation, "cost": cost})

    async def cancel(self, reservation: str) -> Settlement:
        return await self._settle("cancel", "cancelled", {"reservation": reservation})

    async def release(self, lease: str) -> Settlement:
        return await self._settle("release", "released", {"lease": lease})

    async def renew(self, lease: str) -> Settlement:
        return await self._settle("renew", "renewed", {"lease": lease})

    async def report(
        self, token: str, *, status: Optional[int] = None, headers: Optional[Mapping[str, str]] = None,
    ) -> Settlement:
        return await self._settle("report", "reported", _wire.reported(token, status, headers))

    async def close(self) -> None:
        """Closes idle connections."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.end()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], e: Optional[BaseException], at: Optional[TracebackType]) -> None:
        await self.close()

    async def _settle(self, action: str, verb: str, body: Mapping[str, Any]) -> Settlement:
        return _wire.settlement((await self._post("/v1/" + action, body)).value(), verb)

    async def _post(self, path: str, body: Mapping[str, Any]) -> Answer:
        try:
            return await asyncio.wait_for(self._exchange(self._request(path, body)), self._timeout)
        except (TimeoutError, asyncio.TimeoutError):  # two types before Python 3.11
            raise Unavailable("timeout", f"no answer in {self._timeout * 1000:g} ms") from None
        except OSError as e:
            raise Unavailable("unreachable", str(e)) from e

    async def _exchange(self, request: bytes) -> Answer:
        loop = asyncio.get_running_loop()
        connection = self._kept(loop)
        if connection is None:
            _, connection = await loop.create_connection(_Connection, self._host, self._port, ssl=self._tls)
        try:
            answer = await connection.ask(request)
        except BaseException:
            connection.end()
            raise
        if answer.keeps and self._loop is loop and len(self._idle) < self._max_idle:
            self._idle.append(connection)
        else:
            connection.end()
        return answer

    def _kept(self, loop: asyncio.AbstractEventLoop) -> Optional[_Connection]:
        """Returns an idle connection that the server has not closed."""
        if self._loop is not loop:  # connections belong to their loop
            self._idle, self._loop = [], loop
        while self._idle:
            connection = self._idle.pop()
            if connection.usable():
                return connection
            connection.end()
        return None
