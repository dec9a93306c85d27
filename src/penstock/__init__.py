"""Durable queues and jobs for Python, with an SQS-compatible server."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.client import errors
    from penstock.client.app import Penstock
    from penstock.client.requests import NewJob, value_of

__version__ = "0.1.0"
"""Written here because to look it up among installed packages takes longer than to import all of this."""
__all__ = ["NewJob", "Penstock", "__version__", "errors", "value_of"]

# Whoever imports a part of the server must not pay for the client, so what is exported is loaded when it is asked for.
_HOMES = {"NewJob": "requests", "Penstock": "app", "value_of": "requests"}


def __getattr__(name: str) -> object:
    if name == "errors":
        return import_module("penstock.client.errors")
    if name in _HOMES:
        return getattr(import_module(f"penstock.client.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
