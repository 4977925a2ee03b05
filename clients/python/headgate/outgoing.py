"""Calls to other services, no faster than they allow."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from datetime import timezone
from email.utils import parsedate_to_datetime
from itertools import count
from typing import Any, Awaitable, Callable, Mapping, Optional, TypeVar
from urllib.error import HTTPError

from ._fields import exhausted
from ._wire import HeadgateError

Answered = TypeVar("Answered")


class Limited(HeadgateError):
    """A call that was not sent, as the service asked to wait longer than `max_wait`."""

    def __init__(self, origin: str, seconds: float) -> None:
        super().__init__(f"{origin} asks to wait {seconds:g} s")
        self.seconds = seconds


_LONGEST = 3600.0  # of a wait, so that a wrong time does not end all calls


def wait_asked(status: int, headers: Mapping[str, str], now: float) -> float:
    """Returns how many seconds an answer asks to wait: by Retry-After, or by RateLimit fields of
    which nothing remains. `now` is the Unix time."""
    if status in (429, 503) and (after := headers.get("Retry-After")):
        if re.fullmatch(r"\s*[0-9]{1,30}\s*", after):
            return _seconds(int(after), headers, now)
        if (then := _date(after)) is not None:
            return max(0.0, then - _served(headers, now))
    lines = getattr(headers, "get_all", None)
    field = ", ".join(lines("RateLimit") or ()) if lines else headers.get("RateLimit") or ""
    return max((_seconds(n, headers, now) for n in exhausted(field)), default=0.0)


def _seconds(number: int, headers: Mapping[str, str], now: float) -> float:
    """Reads a number of seconds. Some services send a time of day instead: a number that would be
    31 years or more is in Unix seconds, or in milliseconds or finer."""
    if number < 1_000_000_000:
        return float(number)
    while number >= 1_000_000_000_000:
        number = number // 1000 + 1
    return max(0.0, number - _served(headers, now))


def _served(headers: Mapping[str, str], now: float) -> float:
    """When the answer was sent, by the service's clock if it says so."""
    date = _date(headers.get("Date") or "")
    return now if date is None else date


def _date(text: str) -> Optional[float]:
    try:
        then = parsedate_to_datetime(text)
        return (then if then.tzinfo else then.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


class Pace:
    """Remembers for each service how long it asked to wait, and waits before the next call.

    A call answered with 429 or 503 and a time to wait is sent again, up to `retries` times. A wait
    above `max_wait` seconds raises Limited before the call. A service is remembered for at most an
    hour, or `max_wait` if that is longer. Threads can share a Pace."""

    def __init__(
        self, *, retries: int = 2, max_wait: float = 60.0,
        clock: Callable[[], float] = time.time, sleep: Callable[[float], None] = time.sleep,
        asleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._retries, self._max_wait, self._clock, self._sleep, self._asleep = retries, max_wait, clock, sleep, asleep
        self._until: dict[str, float] = {}
        self._lock = threading.Lock()

    def call(self, origin: str, send: Callable[[], Answered]) -> Answered:
        """Calls `send`, which returns an answer with `headers` and `status` or `status_code`, or raises
        an HTTPError as urlopen does. It may be called several times. `origin` names the service, such
        as its host."""
        for attempt in count():
            if wait := self._wait(origin):
                self._sleep(wait)
            try:
                answer = send()
            except HTTPError as e:
                self._raised(origin, e, attempt)
            else:
                if not self._again(origin, answer) or attempt == self._retries:
                    return answer
        raise AssertionError

    async def acall(self, origin: str, send: Callable[[], Awaitable[Answered]]) -> Answered:
        """Is `call` for asyncio."""
        for attempt in count():
            if wait := self._wait(origin):
                await self._asleep(wait)
            try:
                answer = await send()
            except HTTPError as e:
                self._raised(origin, e, attempt)
            else:
                if not self._again(origin, answer) or attempt == self._retries:
                    return answer
        raise AssertionError

    def _wait(self, origin: str) -> float:
        with self._lock:
            wait = max(0.0, self._until.get(origin, 0.0) - self._clock())
            if wait == 0:
                self._until.pop(origin, None)
        if wait > self._max_wait:
            raise Limited(origin, wait)
        return wait

    def _raised(self, origin: str, e: HTTPError, attempt: int) -> None:
        """Closes an answer that was raised, or raises it again unless the call is to be sent again."""
        if not self._again(origin, e) or attempt == self._retries:
            raise e
        e.close()

    def _again(self, origin: str, answer: Any) -> bool:
        status: Optional[int] = getattr(answer, "status", None) or getattr(answer, "status_code", None)
        asked = min(wait_asked(status or 0, answer.headers, now := self._clock()), max(_LONGEST, self._max_wait))
        if asked:
            with self._lock:
                self._until[origin] = max(self._until.get(origin, 0.0), now + asked)
        return status in (429, 503) and 0 < asked <= self._max_wait
