"""Tasks of all kinds that the contract names."""

import asyncio
import os
import threading
import time
from pathlib import Path

from django.db import connection

from penstock import Discard, Retry, Snooze, current
from penstock.django import options
from shop.models import Order

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task


class OutOfStock(Exception):
    pass


@task
def add(a, b=0):
    return a + b


@task(priority=10, queue_name="mail")
def greet(name):
    return f"hello {name}"


@task
async def aadd(a, b):
    await asyncio.sleep(0)
    return a + b


@task
def echo(*args, **kwargs):
    return {"args": args, "kwargs": kwargs}


@task
def fail(message):
    try:
        raise KeyError(message)
    except KeyError as error:
        raise OutOfStock(message) from error


@task
async def afail():
    raise ValueError("of a coroutine")


@task
def divide(by):
    return 1 / by


@task
def returns_what_json_has_not():
    return object()


@task(takes_context=True)
def with_context(context, number, *, word="none"):
    result = context.task_result
    return {
        "attempt": context.attempt,
        "id": result.id,
        "status": str(result.status),
        "args": result.args,
        "kwargs": result.kwargs,
        "priority": result.task.priority,
        "queue": result.task.queue_name,
        "workers": result.worker_ids,
        "number": number,
        "word": word,
    }


@task(takes_context=True)
async def awith_context(context):
    return context.attempt


@task(queue_name="ordered")
def note_order(word):
    with Path(os.environ["SHOP_LEDGER"]).open("a") as ledger:
        ledger.write(f"ran {word}\n")


@task(takes_context=True)
@options(retry=Retry(attempts=3, backoff=0.01))
def flaky(context, good_attempt):
    if context.attempt < good_attempt:
        raise ConnectionError(f"attempt {context.attempt}")
    return [str(error.exception_class.__name__) for error in context.task_result.errors]


@task
@options(retry=Retry(attempts=9, permanent=(ZeroDivisionError,)))
def permanently(by):
    return 1 / by


@task(takes_context=True)
def snoozing(context):
    if context.attempt == 1:
        raise Snooze(0.01)
    return context.attempt


@task
def discarding():
    raise Discard("nothing to do")


@task
@options(timeout=0.2)
async def too_long():
    await asyncio.sleep(60)


@task
def until_file(path):
    while not Path(path).exists() and not current().cancelled:
        time.sleep(0.01)
    return "seen"


@task
def confirm(number):
    """Say whether the connection was open before, which thread this is, and change the order."""
    was_open = connection.connection is not None
    Order.objects.filter(number=number).update(confirmed=True)
    return {"was_open": was_open, "thread": threading.get_ident(), "is_open": connection.connection is not None}


@task
async def aconfirm(number):
    order = await Order.objects.aget(number=number)
    order.confirmed = True
    await order.asave()
    return order.confirmed


@task
def again(number):
    """Enqueue another task."""
    return add.enqueue(number, 1).id


@task(backend="retried")
def of_another_backend():
    raise ConnectionError("again")


def undecorated(a):
    return a


named_otherwise = task(undecorated)
