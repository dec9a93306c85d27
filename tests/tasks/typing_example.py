"""The whole task API as its users write it. Type checkers have to reject the lines marked `error`, and no others.

Nothing here is run: `test_typing.py` has mypy and pyright read it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import assert_type

from penstock import (
    AsyncTaskQueueHandler,
    BatchTask,
    Call,
    Context,
    Discard,
    DynamoEffects,
    DynamoRecords,
    Flow,
    Happened,
    Idempotency,
    Inbox,
    Job,
    Message,
    Next,
    Outbox,
    Penstock,
    PostgresRecords,
    Progress,
    Relay,
    Retry,
    RetryAfter,
    Snooze,
    SQLiteRecords,
    SqsConsumer,
    Task,
    TaskQueueHandler,
    Worker,
    current,
    errors,
    sqs_cost,
)
from penstock.client.errors import ClientError, JobEnded

app = Penstock("http://queue:9324", timeout=5, token_file="token")
shared = Penstock.embedded("jobs.db")
named = Penstock.from_env()
Penstock()  # error: no URL
Penstock("memory:", owner="nobody")  # error: no such owner


@dataclass
class Receipt:
    order: int
    paid: bool


# -- declaring ------------------------------------------------------------------------------------


@app.task
async def confirm(order: int, note: str = "") -> Receipt:
    return Receipt(order, paid=bool(note))


@app.task
def total(prices: list[float]) -> float:
    return sum(prices)


@app.task(queue="mail", timeout=30, retry=Retry(attempts=5, losses=5, backoff=1, max_backoff=60, permanent=(OSError,)))
async def mail(to: str, *, subject: str) -> None:
    current().publish("sent", {"to": to, "subject": subject})


@app.task(name="thumb", aliases=["thumbnail"], run_in="process", priority=9, tags=["image"], concurrency=("gpu", 2))
def thumbnail(image: bytes, /, width: int = 128) -> bytes:
    return image[:width]


@app.task(queu="mail")  # error: no such option
async def misspelt() -> None: ...


@app.task(timeout=[30])  # error: no duration
async def untimed() -> None: ...


@app.task(retry=5)  # error: no Retry
async def retried() -> None: ...


@app.task(run_in="fibre")  # error: no such place
def elsewhere() -> None: ...


@app.task(delay=5)  # error: an option of calls only
async def late() -> None: ...


assert_type(total([1.5]), int)  # error: it is a float
assert_type(total([1.5]), float)
assert_type(mail.name, str)
confirmed: Task[[int], object, Receipt] = confirm  # error: it has another parameter


# -- enqueueing -----------------------------------------------------------------------------------


async def enqueue() -> None:
    assert_type(await confirm(17), Receipt)
    assert_type(await confirm.enqueue(17), Job[Receipt])
    assert_type(await confirm.enqueue(order=17, note="gift"), Job[Receipt])
    assert_type(await total.enqueue([1, 2.5]), Job[float])
    assert_type(await thumbnail.enqueue(b"", 64), Job[bytes])
    assert_type(await (await confirm.enqueue(17)).result(timeout=20), Receipt)
    await mail.enqueue("ada@example.org", subject="hello")
    await confirm.enqueue("17")  # error: wrong argument
    await confirm.enqueue()  # error: missing argument
    await confirm.enqueue(17, "gift", 3)  # error: too many arguments
    await confirm.enqueue(17, colour="red")  # error: unknown argument
    await mail.enqueue("ada@example.org", "hello")  # error: by name only
    await thumbnail.enqueue(image=b"")  # error: by position only
    confirm.enqueue(17)  # error: not awaited
    wrong: Job[str] = await confirm.enqueue(17)  # error: wrong result
    text: str = await (await confirm.enqueue(17)).result()  # error: wrong result
    print(wrong, text)


def enqueue_sync() -> None:
    assert_type(confirm.enqueue_sync(17), Job[Receipt])
    assert_type(confirm.enqueue_sync(17).result_sync(20), Receipt)
    assert_type(total.enqueue_sync([1.5]).result_sync(), float)
    confirm.enqueue_sync("17")  # error: wrong argument
    confirm.enqueue_sync()  # error: missing argument
    number: int = total.enqueue_sync([1.5]).result_sync()  # error: wrong result
    print(number)


async def options(at: datetime) -> None:
    job = await confirm.opts(
        delay="1m",
        priority=9,
        tenant="t",
        concurrency=("api", 3),
        rate=("stripe", 10),
        expires="1h",
        retention=timedelta(days=7),
        key="order-17",
        unique="m-17",
        replace=True,
        tags=["x"],
        group="g",
        queue="slow",
        timeout=30.5,
        retry=Retry(3, factor=1.5, jitter=False),
    ).enqueue(17)
    assert_type(job, Job[Receipt])
    assert_type(confirm.opts(run_at=datetime(2026, 11, 18, tzinfo=UTC)).enqueue_sync(17), Job[Receipt])
    assert_type(confirm.opts(run_at=at, id="0198").call(17), Call[Receipt])
    assert_type(await confirm.opts(tx=object()).enqueue(17), Job[Receipt])
    await confirm.opts(delay=60).enqueue("17")  # error: wrong argument
    await confirm.opts(delay=60).enqueue()  # error: missing argument
    confirm.opts(delay=at)  # error: no duration
    confirm.opts(run_at="tomorrow")  # error: no datetime
    confirm.opts(prio=9)  # error: no such option
    confirm.opts(priority="high")  # error: no number
    confirm.opts(concurrency=3)  # error: no key
    confirm.opts(rate=("stripe", "10"))  # error: no rate
    confirm.opts(tags=[1])  # error: no texts
    Retry("5")  # error: no number
    Retry(5, permanent=(17,))  # error: no class of exceptions


async def many() -> None:
    assert_type(confirm.call(17), Call[Receipt])
    outcomes = await app.enqueue_many(confirm.call(order) for order in range(5))
    assert_type(outcomes, list[Job[Receipt] | ClientError])
    for outcome in outcomes:
        if isinstance(outcome, ClientError):
            raise outcome
        assert_type(await outcome.result(), Receipt)
    await app.enqueue_many([confirm.call(17), total.call([1.5])])
    await app.enqueue_many([confirm])  # error: a task is no call
    await app.enqueue_many(confirm.call("17") for _ in range(5))  # error: wrong argument
    await confirm.call(17).enqueue()
    confirm.call()  # error: missing argument


def many_sync() -> None:
    assert_type(app.enqueue_many_sync([total.call([1.5])]), list[Job[float] | ClientError])
    assert_type(confirm.call(17).enqueue_sync(), Job[Receipt])
    app.enqueue_many_sync([total])  # error: a task is no call


# -- handles --------------------------------------------------------------------------------------


async def handles(job: Job[Receipt]) -> None:
    anything: Job[object] = job
    assert_type(confirm.job(anything.id), Job[Receipt])
    assert_type((await job.view()).state == "dead", bool)
    await job.cancel()
    await job.retry()
    async for event in job.events(after=3):
        assert_type(event.kind, str)
    try:
        await job.result(timeout=timedelta(seconds=5))
        await job.result(timeout="5s")
        await job.result(timeout=[5])  # error: no duration
    except errors.JobDead as dead:
        if dead.failure is not None:
            assert_type(dead.failure.kind, str)
    except (errors.JobCancelled, errors.JobNotFound, TimeoutError):
        print(job.replayed, job.duplicate, job.replaced)
    app.job(17)  # error: an id is a text
    job.results()  # error: no such method


def handles_sync(job: Job[Receipt]) -> None:
    assert_type(job.result_sync(5), Receipt)
    job.cancel_sync()
    job.retry_sync()
    assert_type([event.seq for event in job.events_sync()], list[int])
    assert_type(app.sync.jobs.get(job.id).attempts, int)


# -- fan-out and chains ---------------------------------------------------------------------------


@app.task
async def extract(doc: str, field: int) -> int:
    return len(doc) + field


@app.task
async def add_up(results: list[int]) -> int:
    return sum(results)


@app.task
async def assemble(doc: str, results: list[int], title: str = "") -> str:
    return f"{title}{doc}: {results}"


@app.task
async def collect(results: list[int | JobEnded]) -> list[str]:
    return [str(one.failure) if isinstance(one, JobEnded) else str(one) for one in results]


@app.task
async def collect_of(doc: str, results: list[int | JobEnded]) -> Receipt:
    return Receipt(len(doc), paid=len(results) > 1)


@app.task
async def show(number: int) -> str:
    return str(number)


@app.task
async def nothing() -> None: ...


async def fan_out() -> None:
    calls = [extract.call("doc", field) for field in range(42)]
    assert_type(await app.fan_out(calls, then=add_up), Flow[int])
    assert_type(await app.fan_out(calls, then=add_up, on_error="fail", expires="2d"), Flow[int])
    assert_type(await app.fan_out(calls, entity="doc", then=assemble), Flow[str])
    assert_type(await app.fan_out(calls, then=collect, on_error="collect"), Flow[list[str]])
    flow = await app.fan_out(calls, entity="doc", then=collect_of, on_error="collect")
    assert_type(flow, Flow[Receipt])
    assert_type(await app.fan_out(calls, then=add_up.opts(priority=9)), Flow[int])
    assert_type(await app.fan_out((extract.call("doc", n) for n in range(3)), then=add_up), Flow[int])
    assert_type(await flow.progress(), Progress)
    assert_type(await flow.result(20), Receipt)
    assert_type(flow.job, Job[Receipt])
    await flow.cancel()
    await app.fan_out(calls, then=show)  # error: it takes no list
    await app.fan_out(calls, then=nothing)  # error: it takes nothing
    await app.fan_out(calls, then=add_up, on_error="collect")  # error: it takes no errors
    await app.fan_out(calls, then=add_up, on_error="ignore")  # error: no such policy
    await app.fan_out(calls, entity=17, then=assemble)  # error: the entity is no text
    await app.fan_out(calls, entity="doc", then=add_up)  # error: it takes no entity
    await app.fan_out(calls, then=assemble)  # error: it takes an entity
    await app.fan_out(calls)  # error: no continuation
    await app.fan_out([extract], then=add_up)  # error: a task is no call
    await app.fan_out([confirm.call(17)], then=add_up)  # error: other results


def fan_out_sync() -> None:
    calls = [extract.call("doc", field) for field in range(42)]
    flow = app.fan_out_sync(calls, entity="doc", then=assemble)
    assert_type(flow, Flow[str])
    assert_type(flow.result_sync(20), str)
    assert_type(app.fan_out_sync(calls, then=add_up), Flow[int])
    assert_type(app.fan_out_sync(calls, then=collect, on_error="collect"), Flow[list[str]])
    assert_type(app.fan_out_sync(calls, entity="doc", then=collect_of, on_error="collect"), Flow[Receipt])
    assert_type(flow.progress_sync().done, int)
    flow.cancel_sync()
    app.fan_out_sync(calls, then=show)  # error: it takes no list
    app.fan_out_sync(calls, entity=17, then=assemble)  # error: the entity is no text
    app.fan_out_sync(calls, then=add_up, on_error="collect")  # error: it takes no errors


async def chains() -> None:
    assert_type(await extract.call("doc", 1).then(show).enqueue(), Flow[str])
    assert_type(await extract.call("doc", 1).then(show).then(mail_to).enqueue(), Flow[None])
    assert_type(await extract.opts(delay=5).call("doc", 1).then(show.opts(priority=1)).enqueue(), Flow[str])
    assert_type(await (await extract.call("doc", 1).then(show).enqueue()).result(), str)
    extract.call("doc", 1).then(mail_to)  # error: it takes a text
    extract.call("doc", 1).then(show).then(show)  # error: it takes a number
    extract.call("doc", 1).then(print)  # error: no task


@app.task
async def mail_to(text: str) -> None:
    print(text)


# -- by the clock, and in batches -----------------------------------------------------------------


@app.cron("0 3 * * *", zone="Europe/Berlin", unique=True, queue="night", timeout="1h")
async def nightly() -> int:
    return 1


@app.cron("@hourly", name="sweep")
def sweep(limit: int = 100) -> None:
    print(limit)


@app.cron("0 3 * * *")  # error: nobody gives it an argument
async def of_a_day(day: str) -> None:
    print(day)


@app.cron(3)  # error: no expression
async def at_three() -> None: ...


@app.batch_task(size=64, linger=0.2, queue="embed")
async def embed(texts: list[str]) -> list[list[float] | Exception]:
    return [[float(len(text))] if text else ValueError("empty") for text in texts]


@app.batch_task()
def lengths(texts: list[str]) -> list[int]:
    return [len(text) for text in texts]


@app.batch_task(size=64)  # error: it takes no list
async def one_by_one(text: str) -> list[int]:
    return [len(text)]


@app.batch_task(size=64)  # error: it returns no list
async def counted(texts: list[str]) -> int:
    return len(texts)


@app.batch_task(size="64")  # error: no number
async def sized(texts: list[str]) -> list[int]:
    return [len(text) for text in texts]


async def batches() -> None:
    assert_type(await nightly.enqueue(), Job[str])  # error: it is an int
    assert_type(await nightly.enqueue(), Job[int])
    assert_type(await sweep.enqueue(), Job[None])
    assert_type(embed, BatchTask[str, list[float]])
    assert_type(lengths, BatchTask[str, int])
    assert_type(await embed.enqueue("text"), Job[list[float]])
    assert_type(lengths.enqueue_sync("text").result_sync(), int)
    assert_type(await lengths.opts(delay=5).enqueue("text"), Job[int])
    await app.fan_out([lengths.call(text) for text in "abc"], then=add_up)
    await embed.enqueue(["text"])  # error: one item
    await embed.enqueue(17)  # error: wrong argument
    await nightly.enqueue(1)  # error: it takes nothing


# -- inside a task --------------------------------------------------------------------------------


async def charge(order: int) -> Receipt:
    return Receipt(order, paid=True)


def ship(receipt: Receipt, carrier: str = "post") -> int:
    return receipt.order + len(carrier)


@app.task
async def fulfil(order: int) -> int:
    ctx = current()
    assert_type(ctx, Context)
    assert_type((ctx.id, ctx.attempt, ctx.cancelled, ctx.deadline), tuple[str, int, bool, float])
    await ctx.progress(3, of=10, note="charged")
    ctx.publish("seen", {"order": order})
    receipt = await ctx.step("charge", charge, order)
    assert_type(receipt, Receipt)
    assert_type(await ctx.step("ship", ship, receipt, carrier="rail"), int)
    await ctx.step("charge", charge, "17")  # error: wrong argument
    await ctx.step("charge", charge)  # error: missing argument
    await ctx.step(charge, order)  # error: no name
    await ctx.step("ship", ship, receipt, speed=9)  # error: unknown argument
    parcel: str = await ctx.step("ship", ship, receipt)  # error: wrong result
    ctx.progress("three")  # error: no number
    print(parcel)
    if order == 1:
        raise Snooze(60)
    if order == 2:
        raise RetryAfter("5m", "the service is down")
    raise Discard("the order is gone")


@app.task
def fulfil_in_thread(order: int) -> int:
    ctx = current()
    receipt = ctx.step_sync("pay", Receipt, order, paid=True)
    assert_type(receipt, Receipt)
    ctx.step_sync("ship", ship, order)  # error: wrong argument
    raise Snooze(None)  # error: no duration


@app.middleware
async def timing(ctx: Context, call_next: Next) -> object:
    print(ctx.task)
    return await call_next(ctx)


@app.middleware  # error: it has no call_next
async def alone(ctx: Context) -> object:
    return ctx.id


@app.on_failure
def report(ctx: Context, error: Exception) -> None:
    print(ctx.id, error)


@app.on_failure  # error: it takes no error
def careless(ctx: Context) -> None:
    print(ctx.id)


async def call_without(ctx: Context, call_next: Next) -> object:
    return await call_next()  # error: no context


# -- running --------------------------------------------------------------------------------------


async def run() -> None:
    app.include("shop.tasks", "shop.mail")
    assert_type(app.find_task("thumb").name, str)
    worker = Worker(app, queues={"docs": 10, "mail": 2}, grace=25, max_jobs=5_000, health="127.0.0.1:8081")
    await worker.run()
    worker.stop()
    Worker(app, queues=["docs"])  # error: slots are missing
    Worker(app, queues={"docs": "10"})  # error: no number
    Worker("http://queue:9324")  # error: a URL is no app
    Worker(app, grace=None)  # error: no duration
    worker.run()  # error: not awaited
    async with app:
        pass


async def sessions() -> AsyncIterator[Penstock]:
    async with shared as opened:
        yield opened
    with named as opened:
        opened.sync.queues.list()


async def transact(conn: object) -> None:
    outbox = Outbox()
    assert_type(await outbox.add(conn, confirm.call(17)), Job[Receipt])
    assert_type(outbox.add_sync(conn, confirm.call(17)), Job[Receipt])
    assert_type(await outbox.add_many(conn, [confirm.call(17)]), list[Job[Receipt]])
    async with current().once(conn) as first:
        assert_type(first, bool)
    with current().once(conn, "mail") as first_sync:
        assert_type(first_sync, bool)
    assert_type(await Inbox().sweep(conn, "90d"), int)
    assert_type(await Relay(app, "sqlite:shop.db", interval="1s").drain(), int)
    await outbox.add(conn, confirm)  # error: no call
    await outbox.add(conn, confirm.call("17"))  # error: wrong argument
    await Inbox().sweep(conn, None)  # error: no duration
    await Relay(17, "sqlite:shop.db").run()  # error: no server


# -- idempotency and SQS --------------------------------------------------------------------------

idem = Idempotency(SQLiteRecords("done.db"), ttl="7d", lease=60, lru=1_000)
effects = DynamoEffects(table="charges")


def charged(order: int) -> Happened[Receipt] | None:
    found = effects.find(f"order-{order}")
    return None if found is None else Happened(Receipt(order, paid=True))


@idem(key="{order}", verify=charged)
async def charge_once(order: int) -> Receipt:
    return Receipt(order, paid=True)


def order_of(message: Message) -> str:
    return str(message.json()["order"])


@idem(key=order_of)
def on_message(message: Message) -> None:
    print(message.body, message.receive_count)


async def once() -> None:
    assert_type(await charge_once(17), Receipt)
    assert_type(on_message.__name__, str)
    async with idem.lease("order-17", returns=Receipt) as lease:
        if not lease.done:
            lease.complete(Receipt(17, paid=True))
        assert_type(lease.attempts, int)
    with Idempotency(PostgresRecords("postgresql://db/shop")).lease(("order", 17)) as held:
        held.complete(None)
    Idempotency(DynamoRecords(table="message-status"), wait="5s")
    await charge_once("17")  # error: wrong argument
    on_message("body")  # error: no message
    Idempotency("done.db")  # error: no records
    Idempotency(SQLiteRecords("done.db"), ttl=None)  # error: no duration


async def consume(client: object, queue_url: str) -> None:
    consumer = SqsConsumer(client, queue_url, on_message, concurrency=5, visibility="2m", idempotency=idem)
    await consumer.run()
    assert_type(consumer.counters.done, int)
    handler = TaskQueueHandler(client, queue_url, dlq_url=None)
    assert_type(bool(handler.enqueue_tasks("doc-1", [{"name": "title"}]).failed), bool)
    assert_type(handler.get_queue_status(), dict[str, int])
    twin = AsyncTaskQueueHandler(client, queue_url)
    assert_type(await twin.get_queue_status(), dict[str, int])
    assert_type(sqs_cost(40_000).usd, float)
    SqsConsumer(client, queue_url)  # error: no handler
    SqsConsumer(client, queue_url, on_message, concurrency="5")  # error: no number
    handler.enqueue_tasks("doc-1", "title")  # error: no tasks
    sqs_cost("40,000")  # error: no number
