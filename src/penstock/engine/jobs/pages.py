"""Pages of what is listed by name, of which a caller may see a part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Named(Protocol):
    """Something that is listed by its name."""

    @property
    def name(self) -> str:
        """What it is listed by."""


T = TypeVar("T", bound=Named)


def every_name(_name: str) -> bool:
    """See everything."""
    return True


def name_of(one: Named) -> str:
    """Return what something is listed by."""
    return one.name


async def read_page(
    read: Callable[[str, int], Awaitable[list[T]]],
    sees: Callable[[T], bool],
    after: str,
    limit: int,
    key: Callable[[T], str] = name_of,
) -> tuple[list[T], str | None]:
    """Read up to `limit` of those that are seen, and return the last one's key if more of them follow.

    `read` returns what comes after a key, up to a number.
    """
    seen: list[T] = []
    while True:
        found = await read(after, limit + 1)
        seen += [one for one in found if sees(one)]
        if len(seen) > limit:
            return seen[:limit], key(seen[limit - 1])
        if len(found) <= limit:
            return seen, None
        after = key(found[-1])
