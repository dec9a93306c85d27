"""Who calls the job API, and what they may do."""

from __future__ import annotations

import hashlib
import secrets
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.domain.errors import AccessDenied
from penstock.domain.glob import matches
from penstock.domain.job_errors import NotAuthenticated

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.wire.http import Request


class Scope(StrEnum):
    """What a caller may do."""

    ENQUEUE = "enqueue"
    WORK = "work"
    READ = "read"
    ADMIN = "admin"


OF_ONE_TENANT = frozenset({Scope.ENQUEUE, Scope.READ})
"""What can be kept to one tenant: workers are offered the jobs of all, and settings are everybody's."""


class Permission(msgspec.Struct, frozen=True):
    """What it takes to use a place of the API."""

    scope: Scope
    of_tenant: bool = False
    """Open to callers of one tenant too: it makes, shows and changes jobs of that tenant alone."""


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who calls. With a `tenant` they see and make jobs of that tenant alone, with `queues` of those alone."""

    name: str = ""
    scopes: frozenset[Scope] = frozenset(Scope)
    tenant: str | None = None
    queues: tuple[str, ...] | None = None
    """Names of queues, in which `*` stands for any text and `?` for any character; None is all."""

    def need(self, permission: Permission) -> None:
        """Raise `AccessDenied` unless this was given to them."""
        if permission.scope not in self.scopes:
            raise AccessDenied(f"This takes the scope {permission.scope.value!r}.")
        if self.tenant is not None and not permission.of_tenant:
            raise AccessDenied("This is about all tenants, and the token is for one of them.")

    def need_queue(self, name: str) -> None:
        """Raise `AccessDenied` unless they may use this queue."""
        if not self.sees_queue(name):
            raise AccessDenied(f"The token is not for the queue {name!r}.")

    def tenant_for(self, asked: str) -> str:
        """Return the tenant that a request is about; raises `AccessDenied` for another's."""
        if self.tenant is None or asked == self.tenant:
            return asked
        if asked:
            raise AccessDenied("The token is for another tenant.")
        return self.tenant

    def sees(self, tenant: str) -> bool:
        """Tell whether jobs of a tenant are shown to them."""
        return self.tenant is None or self.tenant == tenant

    def sees_queue(self, name: str) -> bool:
        """Tell whether a queue is one of theirs."""
        return self.queues is None or any(matches(pattern, name) for pattern in self.queues)


class ApiToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token of the job API and what it is good for. The token itself is not kept, and its digest is never shown."""

    caller: Caller
    digest: bytes
    """SHA-256."""

    def __repr__(self) -> str:
        return f"ApiToken({self.caller.name!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("name", self.caller.name)]


ANYBODY = Caller()


class Access:
    """Identifies callers by their tokens. Unless it is `required`, everybody may do everything."""

    def __init__(self, tokens: Iterable[ApiToken] = (), *, required: bool = False) -> None:
        # What is looked up is a digest under a key that nobody knows, so how long a lookup takes says nothing about any
        # token: the comparison need not take the same time for all.
        self._key = secrets.token_bytes(32)
        self._callers = {self._blinded(token.digest): token.caller for token in tokens}
        self.required = required or bool(self._callers)

    def identify(self, request: Request) -> Caller:
        """Tell who makes a request, or raise `NotAuthenticated`."""
        if not self.required:
            return ANYBODY
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer":
            raise NotAuthenticated("This takes a token: Authorization: Bearer TOKEN.")
        caller = self._callers.get(self._blinded(digest_of(token.strip())))
        if caller is None:
            raise NotAuthenticated("This token is not known here.")
        return caller

    def _blinded(self, digest: bytes) -> bytes:
        return hashlib.blake2b(digest, key=self._key, digest_size=32).digest()


def digest_of(token: str) -> bytes:
    """Digest a token, as it is kept."""
    return hashlib.sha256(token.encode()).digest()
