"""Making the log durable: an fdatasync that the event loop begins and hears the end of.

On Linux the kernel does it (`io_submit`) and tells the loop through an eventfd. A thread would do as well, and does
elsewhere; but it has to have the interpreter's lock before it can say that it is done, and takes it from the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import platform
import queue
import struct
import sys
import threading
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    Synced = Callable[[OSError | None], None]
    """Is told, on the event loop, that all that was written before is durable, or why it is not."""

# By machine: io_setup, io_destroy, io_getevents, io_submit. Other machines take the thread.
_NUMBERS = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}

# From linux/aio_abi.h, little-endian: data, key, rw_flags, opcode, reqprio, fildes, buf, nbytes, offset, reserved,
# flags, resfd.
_IOCB = "<QIIHhIQQqQII"
_IOCB_CMD_FDSYNC = 3
_IOCB_FLAG_RESFD = 1
# data, obj, res, res2
_EVENT = "<QQqq"


class LogSync(Protocol):
    """Syncs one file, one time after the other."""

    def start(self, synced: Synced) -> None:
        """Begin, and have `synced` called at the end. The one before must have ended."""

    def close(self) -> None:
        """Let go of the file. Nothing may be under way."""


def open_log_sync(path: str) -> LogSync:
    """Open a file to sync it, by the kernel if it can, or else by a thread."""
    file = os.open(path, os.O_RDWR)
    with contextlib.suppress(OSError):
        return KernelSync(file)
    return ThreadSync(file)


class KernelSync:
    """Lets Linux do it in the background. Raises `OSError` where it does not, and leaves the file open then."""

    def __init__(self, file: int) -> None:
        numbers = _NUMBERS.get(platform.machine())
        if sys.platform != "linux" or sys.byteorder != "little" or numbers is None:
            raise OSError("the kernel's asynchronous files are not known here")
        self._file = file
        self._setup, self._destroy, self._get_events, self._submit = numbers
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall
        self._syscall.restype = ctypes.c_long
        self._synced: Synced | None = None
        self._context = ctypes.c_ulong(0)
        self._call(self._setup, ctypes.c_long(1), ctypes.byref(self._context))
        self._told = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            # Both are read by the kernel, so they live as long as this object.
            self._request = ctypes.create_string_buffer(
                struct.pack(_IOCB, 0, 0, 0, _IOCB_CMD_FDSYNC, 0, file, 0, 0, 0, 0, _IOCB_FLAG_RESFD, self._told)
            )
            self._requests = (ctypes.c_void_p * 1)(ctypes.addressof(self._request))
            self._event = ctypes.create_string_buffer(struct.calcsize(_EVENT))
            # Old kernels and some file systems say no to the first one.
            self._begin()
            self._end()
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._told, self._heard)
        except OSError:
            self._let_go()
            raise

    def start(self, synced: Synced) -> None:
        assert self._synced is None, "one at a time"
        self._synced = synced
        try:
            self._begin()
        except OSError as error:
            self._synced = None
            self._loop.call_soon(synced, error)

    def close(self) -> None:
        assert self._synced is None, "nothing is under way"
        self._loop.remove_reader(self._told)
        self._let_go()
        os.close(self._file)

    def _heard(self) -> None:
        os.eventfd_read(self._told)
        synced, self._synced = self._synced, None
        if synced is None:
            return  # It was the very first one, whose end was waited for.
        try:
            self._end()
        except OSError as error:
            synced(error)
        else:
            synced(None)

    def _begin(self) -> None:
        self._call(self._submit, self._context, ctypes.c_long(1), self._requests)

    def _end(self) -> None:
        """Take what came of it, waiting if it is not done, and raise if it failed."""
        self._call(self._get_events, self._context, ctypes.c_long(1), ctypes.c_long(1), self._event, None)
        result = struct.unpack(_EVENT, self._event.raw)[2]
        if result < 0:
            raise OSError(-result, os.strerror(-result))

    def _call(self, *arguments: object) -> None:
        if self._syscall(*arguments) < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def _let_go(self) -> None:
        os.close(self._told)
        self._call(self._destroy, self._context)


class ThreadSync:
    """Has a thread do it."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._sync = getattr(os, "fdatasync", os.fsync)
        self._loop = asyncio.get_running_loop()
        self._asked: queue.SimpleQueue[Synced | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._sync_all, name="penstock-sync", daemon=True)
        self._thread.start()

    def start(self, synced: Synced) -> None:
        self._asked.put(synced)

    def close(self) -> None:
        self._asked.put(None)
        self._thread.join()
        os.close(self._file)

    def _sync_all(self) -> None:
        # A loop that is closed has nobody left to tell.
        with contextlib.suppress(RuntimeError):
            while (synced := self._asked.get()) is not None:
                failure = None
                try:
                    self._sync(self._file)
                except OSError as error:
                    failure = error
                self._loop.call_soon_threadsafe(synced, failure)
