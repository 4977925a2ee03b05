"""Serves an application behind the middleware, for the conformance test."""

import asyncio
import threading
import time
from socketserver import ThreadingMixIn
from urllib.parse import parse_qs
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import headgate


def answer(path, query, marks):
    asked = parse_qs(query)
    if "fail" in asked:
        raise RuntimeError("the application failed")
    over = f" over {', '.join(marks)}" if marks else ""
    return int(asked.get("status", ["200"])[0]), f"hello {path}{over}".encode()


def dripping():
    """Goes on until the client goes."""
    while True:
        yield b"."
        time.sleep(0.01)


def wsgi(client):
    def app(environ, start_response):
        status, body = answer(environ["PATH_INFO"], environ["QUERY_STRING"], environ["headgate.soft"])
        start_response(f"{status} Said", [("Content-Type", "text/plain")])
        return dripping() if "stream" in environ["QUERY_STRING"] else [body]

    class Server(ThreadingMixIn, WSGIServer):
        daemon_threads = True

    class Handler(WSGIRequestHandler):
        def log_message(self, *_):
            pass

        def get_stderr(self):
            return open("/dev/null", "w")

    user = lambda environ: {"user": environ.get("HTTP_X_PLAN", "nobody")}
    server = make_server("127.0.0.1", 0, headgate.WSGIMiddleware(app, client, "api", user), Server, Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def asgi(client):
    async def app(scope, receive, send):
        status, body = answer(scope["path"], scope["query_string"].decode(), scope["headgate.soft"])
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"text/plain")]})
        while b"stream" in scope["query_string"]:
            await send({"type": "http.response.body", "body": b".", "more_body": True})
            await asyncio.sleep(0.01)
        await send({"type": "http.response.body", "body": body})

    user = lambda scope: {"user": dict(scope["headers"]).get(b"x-plan", b"nobody").decode()}
    limited = headgate.ASGIMiddleware(app, client, "api", user)

    async def connected(reader, writer):
        lines = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        method, target, _ = lines[0].split(b" ")
        raw, _, query = target.partition(b"?")
        headers = [(n.strip().lower(), v.strip()) for n, _, v in (line.partition(b":") for line in lines[1:] if line)]
        scope = {
            "type": "http", "method": method.decode(), "path": raw.decode(), "raw_path": raw, "query_string": query,
            "headers": headers, "client": writer.get_extra_info("peername"),
        }

        async def send(message):
            if message["type"] == "http.response.start":
                writer.write(b"HTTP/1.1 %d Said\r\nConnection: close\r\n" % message["status"])
                for name, value in message["headers"]:
                    writer.write(name + b": " + value + b"\r\n")
                writer.write(b"\r\n")
            else:
                writer.write(message["body"])
            await writer.drain()

        try:
            await limited(scope, None, send)
        except RuntimeError:
            writer.write(b"HTTP/1.1 500 Failed\r\nConnection: close\r\n\r\n")
        except OSError:
            pass  # the client has gone
        writer.close()

    async def serve():
        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        started.append(server.sockets[0].getsockname()[1])
        ready.set()
        await server.serve_forever()

    started, ready = [], threading.Event()
    threading.Thread(target=lambda: asyncio.run(serve()), daemon=True).start()
    ready.wait()
    return f"http://127.0.0.1:{started[0]}"


def serve(framework, client):
    return {"wsgi": wsgi, "asgi": asgi}[framework](client)
