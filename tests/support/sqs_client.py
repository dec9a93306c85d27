"""Clients that speak to an SQS endpoint in this process, through botocore's writers and readers."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from penstock.server.sqs import SqsEndpoint
from penstock.wire.http import Request, Response
from tests.support.sqs_model import read_response, result_of, write_request


class Refusal(Exception):
    """What an SDK raises when it is refused."""

    def __init__(self, status: int, error: dict[str, Any]) -> None:
        super().__init__(f"{error['Code']}: {error['Message']}")
        self.status = status
        self.code: str = error["Code"]
        self.message: str = error["Message"]


async def respond(endpoint: SqsEndpoint, request: Request) -> Response:
    """Have a request answered as the server does: without a coroutine where that can be done."""
    replied: asyncio.Future[Response | Coroutine[Any, Any, Response]] = asyncio.get_running_loop().create_future()
    if not endpoint.begin(request, replied.set_result):
        return await endpoint.answer(request)
    answer = await replied
    return answer if isinstance(answer, Response) else await answer


class Client:
    """Calls operations in one protocol, with these headers besides its own."""

    def __init__(self, endpoint: SqsEndpoint, protocol: str, **headers: str) -> None:
        self.protocol = protocol
        self._endpoint = endpoint
        self._headers = headers

    def with_headers(self, **headers: str) -> Client:
        return Client(self._endpoint, self.protocol, **{**self._headers, **headers})

    async def respond(self, operation: str, /, **parameters: Any) -> Response:
        return await respond(self._endpoint, write_request(self.protocol, operation, parameters, **self._headers))

    async def call(self, operation: str, /, **parameters: Any) -> dict[str, Any]:
        response = await self.respond(operation, **parameters)
        if response.status != 200:
            raise Refusal(response.status, read_response(self.protocol, operation, response)["Error"])
        return result_of(self.protocol, operation, response)

    async def create(self, name: str, **attributes: str) -> str:
        """Create a queue and return its URL."""
        if name.endswith(".fifo"):
            attributes = {"FifoQueue": "true", **attributes}
        url: str = (await self.call("CreateQueue", QueueName=name, Attributes=attributes))["QueueUrl"]
        return url

    async def receive(self, url: str, **parameters: Any) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = (await self.call("ReceiveMessage", QueueUrl=url, **parameters)).get(
            "Messages", []
        )
        return messages

    async def bodies(self, url: str, **parameters: Any) -> list[str]:
        return [message["Body"] for message in await self.receive(url, MaxNumberOfMessages=10, **parameters)]
