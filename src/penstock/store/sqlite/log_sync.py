"""Making the log durable: an fdatasync that the event loop begins and hears the end of.

On Linux the kernel does it (`io_submit`) and tells the loop through an eventfd. A thread would do as well, and does
elsewhere; but it has to have the interpreter's lock before it can say that it is done, and takes it from the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
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

# By machine, of 64 bits: io_setup, io_destroy, io_getevents, io_submit. Other machines take the thread.
_NUMBERS = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}
_POINTER_BYTES = struct.calcsize("P")

_CANNOT = frozenset({errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.EAGAIN, errno.EOPNOTSUPP})
"""How a kernel, or who watches over its calls, says that there is no such thing here, or no room for more."""

# From linux/aio_abi.h, little-endian: data, key, rw_flags, opcode, reqprio, fildes, buf, nbytes, offset, reserved,
# flags, resfd.
_IOCB = "<QIIHhIQQqQII"
_IOCB_CMD_FDSYNC = 3
_IOCB_FLAG_RESFD = 1
# data, obj, res, res2
_EVENT = "<QQqq"


_sync = getattr(os, "fdatasync", os.fsync)


class LogSync(Protocol):
    """Syncs one file, one time after the other."""

    def start(self, synced: Synced) -> None:
        """Begin, and have `synced` called at the end. The one before must have ended."""

    def close(self) -> None:
        """Let go of the file. Nothing may be under way."""


def open_log_sync(path: str) -> LogSync:
    """Open a file to sync it, by the kernel if it can, or else by a thread; and sync what is in it already."""
    file = os.open(path, os.O_RDWR)
    try:
        _sync(file)
        try:
            return KernelSync(file)
        except OSError as error:
            if error.errno not in _CANNOT:
                raise
            return ThreadSync(file)
    except BaseException:
        os.close(file)
        raise


class KernelSync:
    """Lets Linux do it in the background. Raises `OSError` where it does not, and leaves the file open then."""

    def __init__(self, file: int) -> None:
        numbers = _NUMBERS.get(platform.machine())
        if sys.platform != "linux" or (sys.byteorder, _POINTER_BYTES) != ("little", 8) or numbers is None:
            raise OSError(errno.ENOSYS, "the kernel's asynchronous files are not known here")
        self._file = file
        self._setup, self._destroy, self._get_events, self._submit = numbers
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall
        self._syscall.restype = ctypes.c_long
        self._synced: Synced | None = None
        self._context = ctypes.c_ulong(0)
        # Both are read or written by the kernel, so they live as long as this object.
        self._request = ctypes.create_string_buffer(struct.calcsize(_IOCB))
        self._requests = (ctypes.c_void_p * 1)(ctypes.addressof(self._request))
        self._event = ctypes.create_string_buffer(struct.calcsize(_EVENT))
        self._told = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            self._call(self._setup, ctypes.c_long(1), ctypes.byref(self._context))
            # Old kernels and some file systems say no to the first one, of which the loop is not told.
            self._describe(0)
            self._begin()
            self._end()
            self._describe(_IOCB_FLAG_RESFD)
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._told, self._heard)
        except OSError:
            self._let_go()
            raise

    def _describe(self, flags: int) -> None:
        values = (0, 0, 0, _IOCB_CMD_FDSYNC, 0, self._file, 0, 0, 0, 0, flags, self._told)
        struct.pack_into(_IOCB, self._request, 0, *values)

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
        assert synced is not None
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
        while True:
            try:
                self._call(self._get_events, self._context, ctypes.c_long(1), ctypes.c_long(1), self._event, None)
                break
            except InterruptedError:
                pass  # A signal came first.
        result = struct.unpack(_EVENT, self._event.raw)[2]
        if result < 0:
            raise OSError(-result, os.strerror(-result))

    def _call(self, *arguments: object) -> None:
        if self._syscall(*arguments) < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def _let_go(self) -> None:
        os.close(self._told)
        if self._context.value:
            self._call(self._destroy, self._context)


class ThreadSync:
    """Has a thread do it."""

    def __init__(self, file: int) -> None:
        self._file = file
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
                    _sync(self._file)
                except OSError as error:
                    failure = error
                self._loop.call_soon_threadsafe(synced, failure)
