"""What the settings and `@options` say about a backend and its tasks, checked."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, Unpack

import msgspec

from penstock.client.app import TIMEOUT_S, Penstock
from penstock.client.errors import ClientError
from penstock.client.tasks.options import TaskOptions, check_queue, fields_of
from penstock.client.tasks.retries import Retry

ATTRIBUTE = "penstock_options"
"""What `@options` sets on a function."""
RETRY_DEFAULT = Retry(attempts=1)
"""A task that fails stays failed unless somebody says otherwise: so it is with all backends. Losses are repeated."""
_OF_DJANGO = ("queue", "priority")
"""Options that Django has names of its own for."""
_CONNECTION = ("url", "token", "token_file", "ca_file", "timeout")
KNOWN = (*_CONNECTION, "enqueue_on_commit", "task_options", "transaction")

F = TypeVar("F", bound=Callable[..., Any])


class OptionsInvalid(ClientError, ValueError):
    """The settings of a backend are wrong; the message says which, and what to write."""


class BackendOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What OPTIONS say."""

    connection: dict[str, Any]
    """Arguments of `Penstock`."""
    on_commit: str | None
    """The alias of the database whose commit enqueues; None enqueues at once."""
    transaction: str | None
    """The alias of the database in whose transactions tasks are enqueued."""
    task_options: TaskOptions
    """What all tasks have that do not say otherwise."""

    def connect(self) -> Penstock:
        """Return the app. Nothing is opened yet."""
        return Penstock(**self.connection)


def options(**given: Unpack[TaskOptions]) -> Callable[[F], F]:
    """Give a task options that Django has no name for, such as `@options(retry=Retry(attempts=5), timeout=30)`.

    It stands below `@task`, directly above the function. Raises `TypeError` or `ValueError` for a wrong option.
    """
    _check_task_options(given, "@options")

    def declare(function: F) -> F:
        if not hasattr(function, "__code__"):
            raise TypeError(f"@options stands below @task, directly above the function, not above {function!r}.")
        setattr(function, ATTRIBUTE, given)
        return function

    return declare


def read_options(alias: str, given: object) -> BackendOptions:
    """Read OPTIONS of a backend; raises `OptionsInvalid`."""
    where = f"OPTIONS of TASKS[{alias!r}]"
    if not isinstance(given, Mapping):
        raise OptionsInvalid(f"{where} is a dict, not {type(given).__name__}.")
    for name in given:
        if name not in KNOWN:
            raise OptionsInvalid(f"{where}: there is no option {name!r}. The options are {', '.join(sorted(KNOWN))}.")
    if given.get("transaction") and given.get("enqueue_on_commit"):
        raise OptionsInvalid(
            f"{where}: transaction and enqueue_on_commit exclude each other. The first is the stronger."
        )
    return BackendOptions(
        connection=_connection(where, given),
        on_commit=_database(where, "enqueue_on_commit", given),
        transaction=_transaction(where, given),
        task_options=_task_options(where, given.get("task_options", {})),
    )


def check_queues(alias: str, queues: object) -> None:
    """Raise `OptionsInvalid` unless a server can have queues with these names."""
    if isinstance(queues, str) or not isinstance(queues, list | tuple | set | frozenset):
        raise OptionsInvalid(f'QUEUES of TASKS[{alias!r}] is a list of names, such as ["default"], not {queues!r}.')
    for queue in queues:
        try:
            check_queue(queue, "The name of a queue")
        except (TypeError, ValueError) as error:
            raise OptionsInvalid(f"QUEUES of TASKS[{alias!r}]: {error}") from None


def _connection(where: str, given: Mapping[str, Any]) -> dict[str, Any]:
    connection = {name: given[name] for name in _CONNECTION if given.get(name) is not None}
    if not connection.get("url"):
        url = os.environ.get("PENSTOCK_URL")
        if not url:
            raise OptionsInvalid(
                f'{where} has no url. Write "OPTIONS": {{"url": "http://queue:9324"}}, or set PENSTOCK_URL.'
            )
        connection["url"] = url
        if not {"token", "token_file"} & connection.keys():
            connection |= {
                name: value for name in ("token", "token_file") if (value := os.environ.get(f"PENSTOCK_{name.upper()}"))
            }
    timeout = connection.setdefault("timeout", TIMEOUT_S)
    if type(timeout) not in {int, float} or not timeout > 0:
        raise OptionsInvalid(f"{where}: timeout is a number of seconds, not {timeout!r}.")
    for name in ("url", "token"):
        if not isinstance(connection.get(name, ""), str):
            raise OptionsInvalid(f"{where}: {name} is a text, not of the type {type(connection[name]).__name__}.")
    try:
        Penstock(**connection)  # It opens nothing, and knows what is wrong.
    except (ClientError, TypeError, ValueError) as error:
        raise OptionsInvalid(f"{where}: {error}") from None
    return connection


def _transaction(where: str, options_given: Mapping[str, Any]) -> str | None:
    from django.conf import settings

    database = _database(where, "transaction", options_given)
    if database is not None and "postg" not in settings.DATABASES[database].get("ENGINE", ""):
        raise OptionsInvalid(f"{where}: transaction needs PostgreSQL, and DATABASES[{database!r}] is none.")
    return database


def _database(where: str, name: str, options_given: Mapping[str, Any]) -> str | None:
    """Return the alias of the database that an option names."""
    from django.conf import settings
    from django.db import DEFAULT_DB_ALIAS

    given = options_given.get(name, False)
    if not isinstance(given, bool | str) or not given != "":
        raise OptionsInvalid(f"{where}: {name} is True, False or the alias of a database, not {given!r}.")
    if given is False:
        return None
    database: str = DEFAULT_DB_ALIAS if given is True else given
    if database not in settings.DATABASES:
        raise OptionsInvalid(f"{where}: {name} needs a database {database!r}, and DATABASES has none.")
    return database


def _task_options(where: str, given: object) -> TaskOptions:
    if not isinstance(given, Mapping):
        raise OptionsInvalid(f'{where}: task_options is a dict, such as {{"timeout": "5m"}}, not {given!r}.')
    made = dict(given)
    if isinstance(made.get("retry"), Mapping):
        try:
            made["retry"] = Retry(**made["retry"])
        except (TypeError, ValueError) as error:
            raise OptionsInvalid(f"{where}: retry in task_options: {error}") from None
    try:
        _check_task_options(made, "task_options")
    except (TypeError, ValueError) as error:
        raise OptionsInvalid(f"{where}: task_options: {error}") from None
    return made  # type: ignore[return-value] # They were checked.


def _check_task_options(given: Mapping[str, Any], where: str) -> None:
    for name in _OF_DJANGO:
        if name in given:
            named = "queue_name" if name == "queue" else name
            raise TypeError(f"{where} has no {name}: Django's own @task({named}=…) says that.")
    fields_of(given, TaskOptions)
