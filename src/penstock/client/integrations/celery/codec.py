"""Arguments and results of Celery tasks as JSON, written and read as Celery's own JSON serializer does."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from kombu.utils import json as kombu_json

from penstock.client.errors import ArgumentsInvalid, ResultInvalid
from penstock.client.tasks.codec import Result, Signature

if TYPE_CHECKING:
    import msgspec

ABOUT = "$celery"
"""In a payload: what Celery knows of the call and a job has no field for. In a result: the job was sent back."""
SENT_BACK = {ABOUT: "sent back"}
"""The result of a job that was handed to Celery instead of being run."""

celery_json: Any = kombu_json  # It has types only here and there.
_WRONG = (TypeError, ValueError, OverflowError, RecursionError)


class CeleryArguments(Signature):
    """The parameters of a Celery task as JSON, an object by their names.

    Annotations are not checked, because Celery does not check them. Dates, decimals, UUIDs and bytes arrive as what
    they were, in the envelope that Celery's JSON has for them.
    """

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """Write arguments as a payload; raises `ArgumentsInvalid`. What is under `ABOUT` goes along."""
        named = {name: value for name, value in kwargs.items() if name != ABOUT}
        try:
            bound = self._signature.bind(*args, **named).arguments
        except TypeError as wrong:
            raise ArgumentsInvalid(f"Wrong arguments for task {self._name}{self._signature}: {wrong}.") from None
        if ABOUT in kwargs:
            bound = {**bound, ABOUT: kwargs[ABOUT]}
        try:
            return _written(bound)
        except _WRONG as error:
            raise self._not_json(bound, error) from None

    def decode(self, payload: bytes | msgspec.Raw) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Read a payload as what the task is called with, with what is under `ABOUT`; raises `ArgumentsInvalid`."""
        try:
            given = celery_json.loads(bytes(payload))
        except _WRONG as error:
            raise ArgumentsInvalid(f"Task {self._name} does not take these arguments: {error}.") from None
        if not isinstance(given, dict):
            raise ArgumentsInvalid(f"Task {self._name} takes an object of its arguments by name, not {given!r}.")
        about = {ABOUT: given.pop(ABOUT)} if ABOUT in given else {}
        self._check_names(given)
        bound = inspect.BoundArguments(
            self._signature, {name: given[name] for name in self._signature.parameters if name in given}
        )
        return bound.args, bound.kwargs | about

    def named(self, payload: bytes | msgspec.Raw) -> dict[str, Any]:
        """Read a payload as arguments by name, defaults included; raises `ArgumentsInvalid`."""
        args, kwargs = self.decode(payload)
        kwargs.pop(ABOUT, None)
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.arguments

    def _check_names(self, given: dict[str, Any]) -> None:
        parameters = self._signature.parameters
        unknown = [name for name in given if name not in parameters]
        missing = [
            name
            for name, parameter in parameters.items()
            if parameter.default is inspect.Parameter.empty and name not in given
        ]
        if unknown or missing:
            wrong = f"unknown {', '.join(unknown)}" if unknown else f"missing {', '.join(missing)}"
            raise ArgumentsInvalid(f"Wrong arguments for task {self._name}{self._signature}: {wrong}.")

    def _not_json(self, bound: dict[str, Any], error: Exception) -> ArgumentsInvalid:
        for name, value in bound.items():
            try:
                _written(value)
            except _WRONG as wrong:
                return ArgumentsInvalid(
                    f"Argument {name} of task {self._name} cannot be sent as JSON: {wrong}. "
                    "Send its id or its fields instead; pickle is not supported."
                )
        return ArgumentsInvalid(f"The arguments of task {self._name} cannot be sent as JSON: {error}.")


class CeleryResult(Result):
    """What a Celery task returns, as JSON."""

    def __init__(self, name: str) -> None:
        super().__init__(name, Any)

    def encode(self, value: Any) -> bytes:  # noqa: ANN401 - whatever the task returned
        """Write a result; raises `ResultInvalid`."""
        try:
            return _written(value)
        except _WRONG as error:
            raise ResultInvalid(f"The result of task {self._name} cannot be written as JSON: {error}.") from None

    def decode(self, written: bytes | msgspec.Raw) -> Any:  # noqa: ANN401 - whatever the task returned
        """Read a result; raises `ResultInvalid`."""
        try:
            return celery_json.loads(bytes(written))
        except _WRONG as error:
            raise ResultInvalid(f"The result of task {self._name} cannot be read: {error}.") from None


def _written(value: object) -> bytes:
    text: str = celery_json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.encode()
