"""What the owner of a database file must know about its machine: the running kernel and the kind of file system."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

from penstock.domain.errors import StoreUnavailable

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_STATFS_BYTES = 256
"""More than the kernel writes."""

NETWORK_FILE_SYSTEMS = {
    0x6969: "NFS",
    0x517B: "SMB",
    0xFF534D42: "SMB",
    0xFE534D42: "SMB",
    0x01021997: "9p",
}
"""By the type that statfs(2) gives. SQLite's log needs memory that all openers share, which these do not have."""


def boot_id() -> str:
    """Return the id of the running kernel, the same in all its containers; empty where there is none."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def file_system_type(path: str) -> int:
    """Return the type of the file system that a path is on, as statfs(2) gives it; 0 where that is not known."""
    if sys.platform != "linux":
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    found = ctypes.create_string_buffer(_STATFS_BYTES)
    if libc.statfs(os.fsencode(path), found) != 0:
        return 0
    return ctypes.c_ulong.from_buffer(found).value & 0xFFFFFFFF


def check_file_system(path: str, kind: int) -> None:
    """Raise `StoreUnavailable` if processes cannot share a database file on this type of file system."""
    name = NETWORK_FILE_SYSTEMS.get(kind)
    if name is not None:
        raise StoreUnavailable(
            f"The store {path} is on a network file system ({name}), where SQLite cannot keep its log. "
            "Move the file to a local disk, or use PostgreSQL."
        )
