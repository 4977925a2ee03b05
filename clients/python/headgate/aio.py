"""The client for asyncio."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Mapping, Optional, Sequence, Type

from . import _wire
from ._wire import Answer, Check, Decision, Settlement, Unavailable

_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


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
        for _, writer in idle:
            writer.close()

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
        answer, (reader, writer) = Answer(), self._kept() or await self._connect()
        try:
            writer.write(request)
            while not answer.feed(await reader.read(65536)):
                pass
        except BaseException:
            writer.close()
            raise
        if answer.keeps and len(self._idle) < self._max_idle:
            self._idle.append((reader, writer))
        else:
            writer.close()
        return answer

    async def _connect(self) -> _Connection:
        return await asyncio.open_connection(self._host, self._port, ssl=self._tls)

    def _kept(self) -> Optional[_Connection]:
        """Returns an idle connection that the server has not closed."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # connections belong to their loop
            self._idle, self._loop = [], loop
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof() and not writer.is_closing():
                return reader, writer
            writer.close()
        return None
