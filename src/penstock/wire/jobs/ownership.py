"""Messages between an embedded store's owner and its clients, beyond those of the job API."""

from __future__ import annotations

import msgspec


class OwnerView(msgspec.Struct, frozen=True, kw_only=True):
    """The process that owns the database file."""

    version: str
    """Its version of Penstock."""
    schema: int
    """The newest schema of the database that it knows."""
    pid: int
    number: int
    """How many owners the file has had, this one included."""


class HandOver(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A newer client asks the owner to end, so that it can start one of its own version."""

    schema: int
    """The newest schema that the client knows."""


class HandOverView(msgspec.Struct, frozen=True, kw_only=True):
    """The owner's answer."""

    handing_over: bool
    """Whether it ends. It does not if the client is no newer, or if an operator runs it with `penstock serve`."""
