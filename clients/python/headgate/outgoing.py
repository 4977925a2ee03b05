"""Calls to other services, no faster than they allow."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from email.utils import parsedate_to_datetime
from typing import Any, Awaitable, Callable, Mapping, Optional, TypeVar

from ._wire import HeadgateError

Answered = TypeVar("Answered")


class Limited(HeadgateError):
    """A call that was not sent, as the service asked to wait longer than `max_wait`."""

    def __init__(self, origin: str, seconds: float) -> None:
        super().__init__(f"{origin} asks to wait {seconds:g} s")
        self.seconds = seconds


def wait_asked(status: int, headers: Mapping[str, str], now: float) -> float:
    """Returns how many seconds an answer asks to wait: by Retry-After, or by RateLimit fields of
    which nothing remains. `now` is the Unix time."""
    if status in (429, 503) and (after := headers.get("Retry-After")):
        if after.strip().isascii() and after.strip().isdigit():
            return float(after)
        try:
            return max(0.0, parsedate_to_datetime(after).timestamp() - now)
        except (ValueError, TypeError):
            pass
    waits = [0.0]
    for item in re.sub(r'"(?:[^"\\]|\\.)*"', "", headers.get("RateLimit") or "").split(","):
        known = dict(re.findall(r";\s*([rt])=(\d+)(?=\s*(?:;|$))", item))
        if known.get("r") == "0" and "t" in known:
            waits.append(float(known["t"]))
    return max(waits)


class Pace:
    """Remembers for each service how long it asked to wait, and waits before the next call.

    A call answered with 429 or 503 and a time to wait is sent again, up to `retries` times. A wait
    above `max_wait` seconds raises Limited before the call. Threads can share a Pace."""

    def __init__(
        self, *, retries: int = 2, max_wait: float = 60.0,
        clock: Callable[[], float] = time.time, sleep: Callable[[float], None] = time.sleep,
        asleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._retries, self._max_wait, self._clock, self._sleep, self._asleep = retries, max_wait, clock, sleep, asleep
        self._until: dict[str, float] = {}
        self._lock = threading.Lock()

    def call(self, origin: str, send: Callable[[], Answered]) -> Answered:
        """Calls `send`, which returns an answer with `headers` and `status` or `status_code`. It may
        be called several times. `origin` names the service, such as its host."""
        for attempt in range(self._retries + 1):
            if wait := self._wait(origin):
                self._sleep(wait)
            answer = send()
            if not self._again(origin, answer) or attempt == self._retries:
                break
        return answer

    async def acall(self, origin: str, send: Callable[[], Awaitable[Answered]]) -> Answered:
        """Is `call` for asyncio."""
        for attempt in range(self._retries + 1):
            if wait := self._wait(origin):
                await self._asleep(wait)
            answer = await send()
            if not self._again(origin, answer) or attempt == self._retries:
                break
        return answer

    def _wait(self, origin: str) -> float:
        with self._lock:
            wait = max(0.0, self._until.get(origin, 0.0) - self._clock())
            if wait == 0:
                self._until.pop(origin, None)
        if wait > self._max_wait:
            raise Limited(origin, wait)
        return wait

    def _again(self, origin: str, answer: Any) -> bool:
        status: Optional[int] = getattr(answer, "status", None) or getattr(answer, "status_code", None)
        asked = wait_asked(status or 0, answer.headers, now := self._clock())
        if asked:
            with self._lock:
                self._until[origin] = max(self._until.get(origin, 0.0), now + asked)
        return status in (429, 503) and 0 < asked <= self._max_wait
