"""Tasks that cannot be declared as they are: each is refused by the decorator, or when a worker starts."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from penstock import Penstock, Worker, errors
from penstock.client.errors import TaskExists, TaskInvalid, TaskNotFound, WorkerInvalid


@pytest.fixture
def app() -> Penstock:
    """An app that opens nothing, because nothing is enqueued."""
    return Penstock("memory:")


def work(n: int = 1) -> int:
    return n


async def work_async(n: int = 1) -> int:
    return n


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


class Shop:
    def sell(self, n: int) -> int:
        return n

    @classmethod
    def close(cls) -> None: ...

    @staticmethod
    def price(n: int) -> int:
        return n

    def __call__(self) -> None: ...


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (Shop.sell, "is a method. A worker has no object to call it on: use a function"),
        (Shop().sell, "is a method"),
        (Shop.close, "is a method"),
        (Shop.__dict__["close"], "is a method"),
        (Shop.__dict__["price"], "is a method"),
        (generator, "is a generator. A task returns its result"),
        (async_generator, "is a generator"),
        (Shop, "has to be a function, not <class"),
        (Shop(), "has to be a function"),
        (functools.partial(work, 1), "has to be a function"),
        ("work", "has to be a function, not 'work'"),
        (lambda *numbers: numbers, r"has a parameter \*numbers. Arguments are sent by name"),
        (lambda **numbers: numbers, r"has a parameter \*\*numbers"),
        (getattr, "Python does not know the parameters of"),
    ],
)
def test_what_a_worker_cannot_call_is_no_task(app: Penstock, function: Any, said: str) -> None:
    with pytest.raises(TaskInvalid, match=said):
        app.task(name="work")(function)
    assert app.tasks == {}


def test_a_function_of_a_class_without_an_object_is_a_task(app: Penstock) -> None:
    assert app.task(Shop.price).name == f"{__name__}.Shop.price"


def test_what_has_no_place_to_be_imported_from_needs_a_name(app: Penstock) -> None:
    def inner() -> None: ...

    with pytest.raises(TaskInvalid, match=r'made inside a function.*name it: @app.task\(name="inner"\)'):
        app.task(inner)
    with pytest.raises(TaskInvalid, match=r"made inside a function"):
        app.task(lambda: None)
    assert app.task(name="inner")(inner).name == "inner"


def test_a_task_of_the_main_module_needs_a_name(app: Penstock) -> None:
    def main() -> None: ...

    main.__module__, main.__qualname__ = "__main__", "main"
    with pytest.raises(TaskInvalid, match=r'in the program that runs now.*name it: @app.task\(name="main"\)'):
        app.task(main)


def test_options_have_names(app: Penstock) -> None:
    decorate: Any = app.task
    with pytest.raises(TaskInvalid, match=r"A task is made of a function, not of 'mail'. Options have names"):
        decorate("mail")


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", "a\ud800", 5, b"work"])
def test_a_name_is_up_to_200_printable_characters(app: Penstock, name: Any) -> None:
    with pytest.raises(TaskInvalid, match="The name of a task is 1 to 200 printable characters"):
        app.task(name=name)(work)
    with pytest.raises(TaskInvalid, match="The name of a task is 1 to 200 printable characters"):
        app.task(name="work", aliases=[name])(work)
    assert app.tasks == {}
    assert app.task(name="x" * 200)(work).name == "x" * 200


def test_aliases_are_a_list(app: Penstock) -> None:
    with pytest.raises(TaskInvalid, match=r"aliases is a list of names, such as \['old'\]"):
        app.task(name="work", aliases="old")(work)


def test_two_tasks_of_one_name_are_refused(app: Penstock) -> None:
    app.task(name="work", aliases=["job"])(work)
    said = rf"There are two tasks named 'job': {__name__}.work and {__name__}.work_async"
    with pytest.raises(TaskExists, match=said):
        app.task(name="job")(work_async)
    with pytest.raises(TaskExists, match="There are two tasks named 'work'"):
        app.batch_task(name="other", aliases=["work"])(lengths)
    assert sorted(app.tasks) == ["job", "work"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"run_in": "fibre"}, 'run_in is "thread" or "process"'),
        ({"priority": 10}, "priority is from 0 to 9"),
        ({"queue": "a b"}, "queue has letters and digits"),
        ({"queu": "mail"}, "There is no option 'queu'"),
        ({"delay": 5}, "There is no option 'delay'"),
        ({"timeout": -1}, "timeout cannot be negative"),
    ],
)
def test_wrong_options_are_refused_by_the_decorator(app: Penstock, options: dict[str, Any], said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        app.task(name="work", **options)(work)
    assert app.tasks == {}


def test_an_async_task_cannot_run_in_a_process(app: Penstock) -> None:
    with pytest.raises(TaskInvalid, match="is async and runs on the event loop"):
        app.task(name="work", run_in="process")(work_async)


@pytest.mark.parametrize(
    ("expression", "zone", "said"),
    [
        ("0 0 30 2 *", "UTC", "is invalid"),
        ("0 0 31 4,6,9,11 *", "UTC", "never fires|is invalid"),
        ("61 * * * *", "UTC", "is invalid"),
        ("every day", "UTC", "has 5 fields"),
        ("", "UTC", "has 5 fields"),
        ("@never", "UTC", "has 5 fields"),
        (5, "UTC", "A cron expression is a text"),
        (work, "UTC", r'such as @app.cron\("0 3 \* \* \*"\)'),
        ("0 3 * * *", "Mars/Olympus", "There is no time zone 'Mars/Olympus'"),
        ("0 3 * * *", "../UTC", "There is no time zone"),
        ("0 3 * * *", None, "zone is the name of a time zone"),
    ],
)
def test_a_schedule_that_never_fires_is_refused(app: Penstock, expression: Any, zone: Any, said: str) -> None:
    with pytest.raises(TaskInvalid, match=said):
        app.cron(expression, zone=zone)
    assert app.crons == []


def test_a_task_by_the_clock_takes_no_arguments(app: Penstock) -> None:
    def needs(day: str) -> None: ...

    unchecked: Any = needs
    with pytest.raises(TaskInvalid, match="runs by the clock, so nobody gives it its day"):
        app.cron("0 3 * * *", name="nightly")(unchecked)
    assert app.crons == []
    assert app.cron("0 3 * * *", name="default")(work).name == "default"


def lengths(texts: list[str]) -> list[int]:
    return [len(text) for text in texts]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"size": 0}, "The size of batch task lengths is a whole number from 1 to 500, not 0"),
        ({"size": 501}, "from 1 to 500"),
        ({"size": "5"}, "from 1 to 500"),
        ({"size": True}, "from 1 to 500"),
        ({"linger": -1}, "linger cannot be negative"),
        ({"linger": 6}, "can linger for at most 5 seconds"),
        ({"aliases": "old"}, "aliases is a list"),
    ],
)
def test_a_batch_has_bounds(app: Penstock, options: dict[str, Any], said: str) -> None:
    with pytest.raises((TaskInvalid, ValueError), match=said):
        app.batch_task(name="lengths", **options)(lengths)
    assert app.tasks == {}


def of_one(text: str) -> list[int]:
    return [len(text)]


def to_one(texts: list[str]) -> int:
    return len(texts)


def of_two(texts: list[str], others: list[str]) -> list[int]:
    return [len(texts), len(others)]


def by_name(*, texts: list[str]) -> list[int]:
    return lengths(texts)


def unresolved(texts: list[Nowhere]) -> list[int]:  # type: ignore[name-defined]  # noqa: F821
    return lengths(texts)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (of_one, r"takes a list in text; its annotation has to be list\[…\]"),
        (to_one, r"returns a list; its annotation has to be list\[…\]"),
        (of_two, "needs exactly one parameter, a list"),
        (by_name, "needs exactly one parameter, a list"),
        (unresolved, "does not have at run time"),
        (generator, "is a generator"),
        (5, "has to be a function"),
    ],
)
def test_a_batch_task_takes_a_list_and_returns_one(app: Penstock, function: Any, said: str) -> None:
    with pytest.raises(TaskInvalid, match=said):
        app.batch_task(name="lengths")(function)
    assert app.tasks == {}


def test_a_middleware_and_a_failure_hook_can_be_called(app: Penstock) -> None:
    nothing: Any = None
    with pytest.raises(TaskInvalid, match="A middleware is a function"):
        app.middleware(nothing)
    with pytest.raises(TaskInvalid, match="A failure hook is a function"):
        app.on_failure(nothing)


# -- finding ------------------------------------------------------------------------------------------


def test_a_task_that_is_not_known_is_not_found(app: Penstock) -> None:
    app.task(name="work")(work)
    with pytest.raises(TaskNotFound, match=r"There is no task 'wrok'. Import its module.*Known are: work"):
        app.find_task("wrok")


def test_a_module_that_cannot_be_imported_is_named(app: Penstock) -> None:
    app.include("penstock_shop.tasks")
    with pytest.raises(ModuleNotFoundError, match="penstock_shop") as caught:
        Worker(app).plan()
    assert caught.value.__notes__ == ["It was imported because of app.include('penstock_shop.tasks')."]
    with pytest.raises(ModuleNotFoundError):
        app.find_task("work")


@pytest.mark.parametrize("module", [5, "", ".tasks"])
def test_included_modules_have_names(app: Penstock, module: Any) -> None:
    with pytest.raises(TaskInvalid, match="include takes the names of modules"):
        app.include(module)


# -- workers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"queues": {"mail": 0}}, "The slots of queue 'mail' are a whole number from 1 to 500, not 0"),
        ({"queues": {"mail": 501}}, "from 1 to 500"),
        ({"queues": {"mail": "2"}}, "from 1 to 500"),
        ({"queues": {"mail": True}}, "from 1 to 500"),
        ({"queues": {5: 1}}, "The name of a queue is a text"),
        ({"queues": {"a b": 1}}, "The name of a queue has letters"),
        ({"queues": ["mail"]}, 'such as {"mail": 2}'),
        ({"queues": {}}, "Leave it out for all queues"),
        ({"max_jobs": 0}, "max_jobs is a whole number from 1 on"),
        ({"max_rss": "1G"}, "max_rss is a whole number"),
        ({"health": "8081x"}, "The address for health is HOST:PORT"),
        ({"name": "x" * 201}, "The name of a worker is a text"),
        ({"grace": -1}, "grace cannot be negative"),
    ],
)
def test_a_worker_that_cannot_run_is_refused_as_it_is_made(app: Penstock, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Worker(app, **options)


def test_a_worker_needs_an_app(app: Penstock) -> None:
    url: Any = "memory:"
    with pytest.raises(WorkerInvalid, match="A worker runs the tasks of a Penstock, not of 'memory:'"):
        Worker(url)


async def test_a_worker_without_tasks_is_refused(app: Penstock) -> None:
    with pytest.raises(WorkerInvalid, match=r"The app has no tasks. Import the modules that declare them"):
        await Worker(app).run()


async def test_a_worker_finds_types_that_it_cannot_read_before_the_first_job(app: Penstock) -> None:
    def takes(shop: Shop) -> None: ...

    app.task(name="takes")(takes)
    with pytest.raises(TaskInvalid, match="Parameter shop of task takes has the type Shop, which JSON cannot hold"):
        await Worker(app).run()


# -- where an event loop runs ---------------------------------------------------------------------------

BLOCKING: dict[str, Callable[[Penstock, Any], object]] = {
    "work.enqueue_sync": lambda app, task: task.enqueue_sync(1),
    "enqueue_sync": lambda app, task: task.call(1).then(task).enqueue_sync(),
    "enqueue_many_sync": lambda app, task: app.enqueue_many_sync([task.call(1)]),
    "fan_out_sync": lambda app, task: app.fan_out_sync([task.call(1)], then=task),
    "result_sync": lambda app, task: task.job("5").result_sync(),
    "cancel_sync": lambda app, task: task.job("5").cancel_sync(),
    "retry_sync": lambda app, task: task.job("5").retry_sync(),
    "view_sync": lambda app, task: task.job("5").view_sync(),
    "events_sync": lambda app, task: task.job("5").events_sync(),
    "run_sync": lambda app, task: Worker(app).run_sync(),
    "app.sync": lambda app, task: app.sync.jobs.get("5"),
}


@pytest.mark.parametrize("method", BLOCKING)
async def test_a_blocking_call_is_refused_on_a_running_loop(app: Penstock, method: str) -> None:
    task = app.task(name="work")(work)
    instead = "the async method" if method == "app.sync" else method.rpartition(".")[2].removesuffix("_sync")
    with pytest.raises(errors.WrongThread, match=rf"^{method} would block the event loop.*Await {instead} instead"):
        BLOCKING[method](app, task)
    assert asyncio.get_running_loop().is_running()


def test_a_function_with_attributes_is_a_task_like_any_other(app: Penstock) -> None:
    def decorated(n: int) -> int:
        return n

    vars(decorated).update(result="theirs", signature="theirs", call="theirs", app="theirs")
    task = app.task(name="decorated")(decorated)
    assert task.call(5).payload == b'{"n":5}'
    assert task.result.decode(b"5") == 5
    assert task.app is app


def test_what_is_no_function_is_refused_as_such_without_a_name(app: Penstock) -> None:
    given: Any = functools.partial(work, 1)
    with pytest.raises(TaskInvalid, match=r"has to be a function, not functools\.partial"):
        app.task(given)


def test_an_included_module_may_look_for_tasks(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    imported: list[str] = []

    def import_module(name: str) -> None:
        if name not in imported:
            imported.append(name)
            app.import_tasks()

    monkeypatch.setattr("penstock.client.tasks.app.import_module", import_module)
    app.include("one", "two", "three")
    app.import_tasks()
    assert imported == ["one", "two", "three"]
