"""SQS services that consumers are tested on: ours on both stores, with a clock that tests move, and moto's."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.validate import ParamValidator

from penstock.client.sqs import heartbeats
from penstock.domain.clock import SystemClock
from penstock.server.config import ServerConfig
from penstock.testing import RunningServer, serve
from tests.support.moto_server import moto_server
from tests.support.postgres import PostgresServer

REGION = "us-east-1"
PATIENCE_S = 20.0
SESSION = boto3.session.Session(aws_access_key_id="any", aws_secret_access_key="any", region_name=REGION)
"""One for all: each reads the models of AWS anew."""
ONCE = Config(proxies={}, retries={"total_max_attempts": 1}, max_pool_connections=20)


class SqsService:
    """One service, with a client of it whose calls and answers are checked against botocore's model."""

    def __init__(self, url: str, server: RunningServer | None = None) -> None:
        self.url = url
        self._server = server
        self.client = self.new_client()
        self._names = 0

    @property
    def ours(self) -> bool:
        return self._server is not None

    def new_client(self, **settings: Any) -> Any:
        client = SESSION.client("sqs", endpoint_url=self.url, config=settings.pop("config", ONCE), **settings)
        client.meta.events.register("after-call.sqs", check_answer)
        return client

    def advance(self, seconds: float) -> None:
        """Let time pass in the service."""
        if self._server is None:
            time.sleep(seconds)
        else:
            self._server.clock.advance(seconds=seconds)

    def create(self, name: str, **attributes: str) -> str:
        """Create a queue of a name that begins like this, and return its URL."""
        self._names += 1
        stem, dot, suffix = name.partition(".")
        if suffix == "fifo":
            attributes = {"FifoQueue": "true", **attributes}
        made = self.client.create_queue(QueueName=f"{stem}-{self._names}{dot}{suffix}", Attributes=attributes)
        return str(made["QueueUrl"])

    def create_with_dlq(self, name: str, receives_max: int) -> tuple[str, str]:
        """Create a queue and its dead-letter queue."""
        dead = self.create(f"dead-{name}")
        arn = self.client.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        policy = f'{{"deadLetterTargetArn": "{arn}", "maxReceiveCount": "{receives_max}"}}'
        return self.create(name, RedrivePolicy=policy), dead

    def send(self, url: str, *bodies: str, group: str = "g") -> None:
        for body in bodies:
            once = hashlib.sha256(body.encode()).hexdigest()
            more = {"MessageGroupId": group, "MessageDeduplicationId": once} if url.endswith(".fifo") else {}
            self.client.send_message(QueueUrl=url, MessageBody=body, **more)

    def bodies(self, url: str, **parameters: Any) -> list[str]:
        """Receive what is visible, and return the bodies."""
        answer = self.client.receive_message(QueueUrl=url, MaxNumberOfMessages=10, **parameters)
        return [message["Body"] for message in answer.get("Messages", [])]

    def counts(self, url: str) -> tuple[int, int]:
        """Return how many messages are visible and how many are hidden."""
        attributes = self.client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        return int(attributes["ApproximateNumberOfMessages"]), int(attributes["ApproximateNumberOfMessagesNotVisible"])


@functools.cache
def _aio_session() -> Any:
    from aiobotocore.session import get_session  # noqa: PLC0415 - only some tests need it

    return get_session()  # One for all: each reads the models of AWS anew.


@contextlib.asynccontextmanager
async def aio_client(sqs: SqsService) -> AsyncIterator[Any]:
    """Open a client of aiobotocore."""
    from aiobotocore.config import AioConfig  # noqa: PLC0415 - as above

    async with _aio_session().create_client(
        "sqs",
        endpoint_url=sqs.url,
        region_name=REGION,
        aws_access_key_id="any",
        aws_secret_access_key="any",
        config=AioConfig(proxies={}),
    ) as client:
        yield client


def check_answer(http_response: Any, parsed: dict[str, Any], model: Any, **_: Any) -> None:
    """Raise unless an answer has the shape that botocore's model gives it.

    AWS leaves empty lists out, although the model asks for them.
    """
    if http_response.status_code == 200 and model.output_shape is not None:
        said = {name: value for name, value in parsed.items() if name != "ResponseMetadata"}
        said = {name: [] for name in model.output_shape.required_members} | said
        report = ParamValidator().validate(said, model.output_shape)
        assert not report.has_errors(), report.generate_report()


def quick_clock(times: int = 20) -> SystemClock:
    """Make a clock that goes faster than time does, so that a consumer's pauses are short."""
    return SystemClock(
        elapsed_ns=lambda: times * time.monotonic_ns(),
        call_later=lambda delay_s, callback: asyncio.get_running_loop().call_later(delay_s / times, callback),
    )


async def until(condition: Callable[[], object]) -> None:
    """Return once a condition holds. How long that takes decides nothing, unless it takes forever."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in other threads too
            await asyncio.sleep(0.005)


class Refusing:
    """Makes calls of a client fail: whole ones with a status, or entries of batches, as often as it is told to.

    Entries are taken out of the request, so what failed was not done.
    """

    def __init__(
        self, client: Any, operation: str, *, times: int, code: str = "InternalError", status: int = 500
    ) -> None:
        self._client = client
        self._operation = operation
        self.left = times
        self.calls: list[dict[str, Any]] = []
        self._code = code
        self._status = status
        self._entries: Callable[[dict[str, Any]], bool] | None = None
        self._taken: list[dict[str, Any]] = []
        client.meta.events.register(f"provide-client-params.sqs.{operation}", self._take)
        client.meta.events.register(f"before-call.sqs.{operation}", self._answer)
        client.meta.events.register(f"after-call.sqs.{operation}", self._add)

    def entries(self, chosen: Callable[[dict[str, Any]], bool]) -> Refusing:
        """Refuse only these entries of batches."""
        self._entries = chosen
        return self

    def _take(self, params: dict[str, Any], **_: Any) -> dict[str, Any] | None:
        self.calls.append(params)
        if self._entries is None or self.left <= 0:
            return None
        self._taken = [entry for entry in params["Entries"] if self._entries(entry)]
        if not self._taken or len(self._taken) == len(params["Entries"]):
            return None
        self.left -= 1
        return {**params, "Entries": [entry for entry in params["Entries"] if entry not in self._taken]}

    def _answer(self, **_: Any) -> Any:
        if self.left <= 0:
            return None
        if self._entries is None:
            self.left -= 1
            error = {"Error": {"Code": self._code, "Message": "refused by a test"}}
            return _Http(self._status), {**error, "ResponseMetadata": {"HTTPStatusCode": self._status}}
        if self._taken and len(self._taken) == len(self.calls[-1]["Entries"]):
            self.left -= 1
            return _Http(200), {"Successful": [], "ResponseMetadata": {"HTTPStatusCode": 200}}
        return None

    def _add(self, parsed: dict[str, Any], **_: Any) -> None:
        refused = [
            {"Id": entry["Id"], "Code": self._code, "Message": "refused by a test", "SenderFault": False}
            for entry in self._taken
        ]
        self._taken = []
        if refused:
            parsed["Failed"] = parsed.get("Failed", []) + refused


class _Http:
    def __init__(self, status: int) -> None:
        self.status_code = status


@pytest.fixture(autouse=True)
def quick_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have heartbeats notice at once that a test has moved their clock."""
    monkeypatch.setattr(heartbeats, "TICK_S", 0.01)


@pytest.fixture(scope="session")
def sqlite_sqs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqsService]:
    store = f"sqlite:{tmp_path_factory.mktemp('sqs') / 'penstock.db'}"
    with serve(ServerConfig(port=0, store=store, clock="manual", log_level="error")) as server:
        service = SqsService(server.url, server)
        yield service
        service.client.close()


@pytest.fixture(scope="session")
def postgres_sqs(postgres_server: PostgresServer) -> Iterator[SqsService]:
    database = postgres_server.create_database()
    store = postgres_server.dsn(database)
    with serve(ServerConfig(port=0, store=store, clock="manual", log_level="error")) as server:
        service = SqsService(server.url, server)
        yield service
        service.client.close()
    postgres_server.drop_database(database)


@pytest.fixture(scope="session")
def moto_sqs() -> Iterator[SqsService]:
    with moto_server() as url:
        service = SqsService(url)
        yield service
        service.client.close()


@pytest.fixture(params=["sqlite_sqs", "postgres_sqs"])
def ours(request: pytest.FixtureRequest) -> SqsService:
    """Our server, on each store."""
    service: SqsService = request.getfixturevalue(request.param)
    return service


@pytest.fixture(params=["sqlite_sqs", "postgres_sqs", "moto_sqs"])
def sqs(request: pytest.FixtureRequest) -> SqsService:
    """Our server on each store, and moto's."""
    service: SqsService = request.getfixturevalue(request.param)
    return service
