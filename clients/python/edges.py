"""What the steps of clients/conformance cannot say, as it is about Python alone. The argument is the
address of a Headgate. Fails with an AssertionError."""

import asyncio
import dataclasses
import os
import socket
import sys
import threading
import time

import headgate
from headgate.outgoing import wait_asked


def a_name_that_takes_long(url):
    """Looking up a name is part of the deadline, and of one lookup for all who wait."""
    asked, answered, looked_up = [], threading.Event(), socket.getaddrinfo

    def slow(*arguments, **named):
        asked.append(arguments)
        answered.wait()
        return looked_up(*arguments, **named)

    socket.getaddrinfo = slow
    gate, started = headgate.Client(url.replace("127.0.0.1", "localhost"), timeout=0.2), time.monotonic()
    assert [gate.check("api", {}).error.kind for _ in range(3)] == ["timeout"] * 3
    assert time.monotonic() - started < 5
    assert len(asked) == 1, asked
    socket.getaddrinfo = looked_up
    answered.set()
    with headgate.Client(url.replace("127.0.0.1", "localhost"), timeout=5) as gate:
        assert gate.check("api", {}).error is None


def loops_that_share_a_client(url):
    """A connection is only for the loop that it belongs to."""
    gate = headgate.AsyncClient(url, timeout=5)
    failed = []

    async def several():
        for _ in range(200):
            answers = await asyncio.gather(*(gate.check("api", {}) for _ in range(4)), return_exceptions=True)
            failed.extend(d for d in answers if isinstance(d, Exception) or d.error)

    threads = [threading.Thread(target=lambda: asyncio.run(several())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed[0]


def calls_that_are_cancelled(url):
    """A connection with half an answer is not used again, and nothing is left behind."""

    async def main():
        async with headgate.AsyncClient(url, timeout=5) as gate:
            for _ in range(20):
                calls = [asyncio.create_task(gate.check("api", {"path": f"/{i}"})) for i in range(32)]
                for call in calls[::2]:
                    await asyncio.sleep(0)
                    call.cancel()
                answers = await asyncio.gather(*calls, return_exceptions=True)
                assert all(d.error is None for d in answers[1::2]), answers
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main(), debug=True)


def the_status_of_a_websocket(url):
    """A WebSocket that was accepted is no failure of the application."""
    reported = []

    class Gate(headgate.AsyncClient):
        async def report(self, token, *, status=None, headers=None):
            reported.append(status)
            return await super().report(token, status=status, headers=headers)

    async def app(scope, receive, send):
        for message in scope["messages"]:
            await send({"type": message, "status": 418})

    async def send(message):
        pass

    async def main():
        gate = headgate.ASGIMiddleware(app, Gate(url, timeout=5), "api")
        for messages in (["websocket.accept", "websocket.close"], ["websocket.close"], ["websocket.http.response.start"], []):
            await gate({"type": "websocket", "path": "/failed-login", "headers": [], "client": ("192.0.2.77", 1), "messages": messages}, None, send)

    asyncio.run(main())
    assert reported == [101, 403, 418, 500], reported


def waits_that_are_cancelled(url):
    """A request that ends while it waits for its turn frees its slot, whatever ends it."""
    slot = ("api", {"path": "/slot", "client_ip": "192.0.2.79"})

    class Gate(headgate.AsyncClient):
        async def check(self, *_):
            d = dataclasses.replace(await super().check(*slot), delay_ms=600_000)
            waiting.append(d.lease)
            return d

    class ThreadedGate(headgate.Client):
        def check(self, *_):
            return dataclasses.replace(super().check(*slot), delay_ms=600_000)

    async def app(scope, receive, send):
        raise AssertionError("it was not its turn")

    async def cancelled(kind):
        middleware = headgate.ASGIMiddleware(app, Gate(url, timeout=5), "api")
        task = asyncio.create_task(middleware({"type": kind, "path": "/", "headers": []}, None, None))
        while not waiting and not task.done():
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    def stopped(_):
        raise SystemExit  # as a server stops a thread that is at work

    with headgate.Client(url, timeout=5) as gate:
        for kind in ("http", "websocket", "wsgi"):
            waiting = []
            if kind == "wsgi":
                sleep, time.sleep = time.sleep, stopped
                try:
                    headgate.WSGIMiddleware(app, ThreadedGate(url, timeout=5), "api")({"REQUEST_METHOD": "GET"}, None)
                except SystemExit:
                    pass
                finally:
                    time.sleep = sleep
            else:
                asyncio.run(cancelled(kind))
            free = gate.check(*slot)
            assert free.allowed and free.error is None, kind
            gate.release(free.lease)


def marks_of_several_middlewares(url):
    """An inner middleware adds its marks to those of an outer one, also of a WebSocket."""

    def attributes(path):
        return lambda _: {"path": path, "client_ip": "192.0.2.80"}

    seen = []

    def app(environ, start_response):
        seen.append(environ["headgate.soft"])
        return []

    async def async_app(scope, receive, send):
        seen.append(scope["headgate.soft"])

    paths = "/elsewhere", "/marked/once", "/marked/both"  # from the inner one
    with headgate.Client(url, timeout=5) as gate:
        for path in paths:
            app = headgate.WSGIMiddleware(app, gate, "api", attributes(path))
        for _ in range(2):
            app({"REQUEST_METHOD": "GET"}, None).close()

    async def main():
        application = async_app
        async with headgate.AsyncClient(url, timeout=5) as gate:
            for path in paths:
                application = headgate.ASGIMiddleware(application, gate, "api", attributes(path))
            for kind in ("http", "websocket"):
                await application({"type": kind, "path": "/", "headers": []}, None, None)

    asyncio.run(main())
    assert seen == [["fair-use"]] + [["fair-use", "most-used", "fair-use"]] * 3, seen


def dates_without_a_zone(_):
    """They are in UTC, wherever this runs."""
    zone = os.environ.get("TZ")
    os.environ["TZ"] = "America/Los_Angeles"
    time.tzset()
    try:
        for date in ("Sun Nov 29 10:00:30 2026", "Sun, 29 Nov 2026 10:00:30 -0000", "Sun, 29 Nov 2026 10:00:30 GMT"):
            asked = wait_asked(429, {"Retry-After": date}, 1795946400)
            assert asked == 30, (date, asked)
    finally:
        os.environ.pop("TZ") if zone is None else os.environ.update(TZ=zone)
        time.tzset()


def keys_of_broken_text(url):
    """Half a surrogate, as from a client's JSON, is the caller's mistake and not another error."""
    with headgate.Client(url, timeout=5) as gate:
        try:
            gate.check("api", {"user": "\ud800"})
        except headgate.Mistake as e:
            assert e.status == 400, e
        else:
            raise AssertionError("no error")


if __name__ == "__main__":
    for edge in (
        a_name_that_takes_long, loops_that_share_a_client, calls_that_are_cancelled, the_status_of_a_websocket,
        waits_that_are_cancelled, marks_of_several_middlewares, dates_without_a_zone, keys_of_broken_text,
    ):
        edge(sys.argv[1])
