"""What a parent and a child send each other: messages, and the length-prefixed frames around them."""

from __future__ import annotations

import struct

import msgspec

from penstock.client.worker.processes.errors import FrameTooLarge

FRAME_BYTES_MAX = 16 * 1024 * 1024
TEXT_CHARACTERS_MAX = 64 * 1024
"""The longest message or traceback that is handed over; the rest is cut off."""
EXIT_S = 5.0
"""How long a child may take to exit once its socket is closed."""

_HEAD = struct.Struct(">I")
HEAD_BYTES = _HEAD.size


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """One message. A child gets one `Setup`, and then one `Run` after the other."""


# -- from the parent ------------------------------------------------------------------------------


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a function in a child."""

    module: str
    """The module to import."""
    qualname: str
    """The function in it, or the object that has it as its attribute `function`."""
    call: bytes
    """Handed to the entry point as it is."""


class Setup(Message, frozen=True, kw_only=True):
    """What a child needs to know before its first assignment."""

    entry: str
    """The entry point, as `package.module:function`."""
    path: list[str]
    """The parent's `sys.path`."""
    python_path: str | None
    """The parent's environment variable `PYTHONPATH`."""


class Run(Message, frozen=True, kw_only=True):
    """Begin an assignment."""

    assignment: Assignment


class Cancel(Message, frozen=True, kw_only=True):
    """Set the channel of the assignment to cancelled."""


class Answer(Message, frozen=True, kw_only=True):
    """The answer to the last `Ask`."""

    value: bytes


class Refusal(Message, frozen=True, kw_only=True):
    """The last `Ask` raised an exception in the parent."""

    kind: str
    message: str


# -- from the child -------------------------------------------------------------------------------


class Ready(Message, frozen=True, kw_only=True):
    """The child has imported its entry point."""


class Ask(Message, frozen=True, kw_only=True):
    """The assignment waits for an answer to this."""

    request: bytes


class Result(Message, frozen=True, kw_only=True):
    """The assignment has ended well, and the child is idle."""

    value: bytes


class Failure(Message, frozen=True, kw_only=True):
    """The assignment or the setup raised an exception. After an assignment the child is idle."""

    kind: str
    message: str
    traceback: str


ToChild = Setup | Run | Cancel | Answer | Refusal
ToParent = Ready | Ask | Result | Failure

_encoder = msgspec.msgpack.Encoder()
decoder_in_child: msgspec.msgpack.Decoder[ToChild] = msgspec.msgpack.Decoder(ToChild)
decoder_in_parent: msgspec.msgpack.Decoder[ToParent] = msgspec.msgpack.Decoder(ToParent)


def frame_of(message: Message) -> bytes:
    """Encode a message as one frame; raise `FrameTooLarge` if it does not fit."""
    frame = bytearray(HEAD_BYTES)
    _encoder.encode_into(message, frame, HEAD_BYTES)
    length = len(frame) - HEAD_BYTES
    if length > FRAME_BYTES_MAX:
        name = type(message).__name__
        raise FrameTooLarge(f"{name} takes {length:,} bytes; at most {FRAME_BYTES_MAX:,} can be handed over.")
    _HEAD.pack_into(frame, 0, length)
    return bytes(frame)


def body_bytes(head: bytes | bytearray) -> int:
    """Return the length that a frame's head announces; raise `FrameTooLarge` if no frame has that length."""
    length: int = _HEAD.unpack_from(head)[0]
    if length > FRAME_BYTES_MAX:
        raise FrameTooLarge(f"The head of a frame announces {length:,} bytes.")
    return length


class FrameReader:
    """Cuts a stream of bytes into the bodies of frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Take in bytes, and return the bodies that they complete."""
        buffer = self._buffer
        buffer += data
        bodies: list[bytes] = []
        start = 0
        while len(buffer) - start >= HEAD_BYTES:
            begin = start + HEAD_BYTES
            end = begin + body_bytes(buffer[start:begin])
            if len(buffer) < end:
                break
            with memoryview(buffer) as view:
                bodies.append(bytes(view[begin:end]))
            start = end
        if start:
            del buffer[:start]
        return bodies


def text_of(text: str) -> str:
    """Return a text that can be encoded, and that is not too long."""
    # A file's name may hold bytes that are no UTF-8, and exceptions quote it.
    return text[:TEXT_CHARACTERS_MAX].encode("utf-8", "backslashreplace").decode()


def message_of(error: BaseException) -> str:
    """Return what an exception says, also if it fails to say it."""
    try:
        return text_of(str(error))
    except Exception:  # noqa: BLE001 - a user's class may raise anything in `__str__`
        return "<exception str() failed>"
