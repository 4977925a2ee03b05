"""Runs the steps of clients/conformance with this client: one a line, as JSON, from standard input."""

import asyncio
import json
import math
import ssl
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, is_dataclass

import headgate
from serve import serve


def shown(value):
    """An outcome as JSON."""
    if isinstance(value, list):
        return {"results": [shown(v) for v in value]}
    if isinstance(value, headgate.Mistake):
        return {"mistake": value.status, "detail": value.detail}
    if isinstance(value, headgate.Unavailable):
        return {"unavailable": value.kind}
    if is_dataclass(value):
        error, members = getattr(value, "error", None), {f: getattr(value, f) for f in value.__dataclass_fields__}
        return {**members, "error": error.kind if error else None} if isinstance(value, headgate.Decision) else asdict(value)
    return value


class Runner:
    def __init__(self, asynchronous):
        self.asynchronous, self.clients, self.failures = asynchronous, {}, []
        self.ahead, self.waits = 0.0, []
        self.pace = headgate.Pace(clock=lambda: time.time() + self.ahead, sleep=self.sleep, asleep=self.asleep)

    def sleep(self, seconds):
        self.ahead += seconds
        self.waits.append(math.ceil(seconds))

    async def asleep(self, seconds):
        self.sleep(seconds)

    def client(self, options):
        key = json.dumps(options)
        if key not in self.clients:
            settings = {"on_failure": lambda e: self.failures.append(e.kind), "fail_open": options.get("fail_open", True), "token": options.get("token")}
            if options["timeout_ms"]:
                settings["timeout"] = options["timeout_ms"] / 1000
            if options["url"].startswith("https"):
                settings["tls"] = ssl.create_default_context(cafile=options["ca"])
            kind = headgate.AsyncClient if self.asynchronous else headgate.Client
            self.clients[key] = kind(options["url"], **settings)
        return self.clients[key]

    def call(self, step):
        client, given = self.client(step["client"]), dict(step["with"] or {})
        if step["do"] == "check_many":
            return client.check_many([headgate.Check(**c) for c in given["checks"]])
        if step["do"] == "report":
            return client.report(given.pop("report"), **given)
        if step["do"] in ("check", "reserve"):
            return getattr(client, step["do"])(given.pop("domain"), given.pop("attributes"), **given)
        return getattr(client, step["do"])(*given.values()) if "cost" not in given else client.commit(**given)

    def run(self, step):
        self.failures, self.waits, started = [], [], time.monotonic()
        if step["do"] == "call":
            outcome = self.called(step)
        elif step["do"] == "serve":
            outcome = {"url": serve(step["framework"], self.client({**step["client"], "serving": len(self.clients)}))}
        else:
            try:
                self.client(step["client"])
            except ValueError as e:
                outcome = {"invalid": str(e)}
            else:
                outcome = self.several(step)
        if isinstance(outcome, dict):
            outcome |= {"failures": self.failures, "took_ms": int((time.monotonic() - started) * 1000)}
        return outcome

    def several(self, step):
        def once(_=None):
            try:
                return self.call(step)
            except headgate.HeadgateError as e:
                return e

        if step["parallel"]:
            with ThreadPoolExecutor(step["parallel"]) as pool:
                return shown(list(pool.map(once, range(step["parallel"]))))
        results = [once() for _ in range(step["series"])]
        return shown(results if step["series"] > 1 else results[0])

    def called(self, step):
        url = step["client"]["url"]
        try:
            with self.pace.call(url, lambda: urllib.request.urlopen(url)) as answer:
                return {"status": answer.status, "waits": self.waits}
        except urllib.error.HTTPError as e:
            with e:
                return {"status": e.status, "waits": self.waits}
        except headgate.Limited as e:
            return {"limited": e.seconds, "waits": self.waits}


class AsyncRunner(Runner):
    """Does the same with one event loop for all steps."""

    def __init__(self):
        super().__init__(asynchronous=True)
        self.loop = asyncio.new_event_loop()

    def several(self, step):
        async def once():
            try:
                return await self.call(step)
            except headgate.HeadgateError as e:
                return e

        async def all():
            if step["parallel"]:
                return list(await asyncio.gather(*(once() for _ in range(step["parallel"]))))
            results = [await once() for _ in range(step["series"])]
            return results if step["series"] > 1 else results[0]

        return shown(self.loop.run_until_complete(all()))

    def called(self, step):
        async def send():
            try:
                return urllib.request.urlopen(step["client"]["url"])
            except urllib.error.HTTPError as e:
                return e

        async def call():
            with await self.pace.acall(step["client"]["url"], send) as answer:
                return {"status": answer.status, "waits": self.waits}

        try:
            return self.loop.run_until_complete(call())
        except headgate.Limited as e:
            return {"limited": e.seconds, "waits": self.waits}


if __name__ == "__main__":
    runner = AsyncRunner() if sys.argv[1] == "async" else Runner(asynchronous=False)
    for line in sys.stdin:
        print(json.dumps(runner.run(json.loads(line))), flush=True)
