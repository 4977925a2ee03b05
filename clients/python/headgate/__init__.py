"""A client of the Headgate rate limiter. README.md shows how to use it."""

from ._wire import Check, Decision, HeadgateError, Mistake, Settlement, Unavailable
from .aio import AsyncClient
from .client import Client
from .middleware import ASGIMiddleware, WSGIMiddleware
from .outgoing import Limited, Pace

__all__ = [
    "ASGIMiddleware", "AsyncClient", "Check", "Client", "Decision", "HeadgateError", "Limited", "Mistake", "Pace",
    "Settlement", "Unavailable", "WSGIMiddleware",
]
