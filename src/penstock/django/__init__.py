"""Penstock as a backend of Django's tasks framework, and `manage.py penstock_worker`.

INSTALLED_APPS = [..., "penstock.django"]
TASKS = {"default": {"BACKEND": "penstock.django.PenstockBackend", "OPTIONS": {"url": "http://queue:9324"}}}
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.django.backend import PenstockBackend
    from penstock.django.configuration import options

__all__ = ["PenstockBackend", "options"]

# Django imports this package before its settings can be used.
_HOMES = {"PenstockBackend": "backend", "options": "configuration"}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(f"penstock.django.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
