"""Small processes for tests of the driver: each appends what it does to a file, with the time."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from penstock.lab.endpoints import sqs_of
from penstock.lab.observing import Observer


class Diary:
    def __init__(self) -> None:
        self.observer = Observer()
        self.pace = self.observer.pace
        self._file = Path(os.environ["DIARY"])

    def write(self, what: str) -> None:
        with self._file.open("a", encoding="utf-8") as file:
            file.write(f"{self.observer.now_ms()} {self.observer.process} {what}\n")


def sleeper(arguments: list[str]) -> int:
    """Sleeps for each of the numbers of milliseconds."""
    diary = Diary()
    diary.write("began")
    for ms in arguments:
        diary.pace.sleep(int(ms) / 1_000)
        diary.write(f"slept {ms}")
    return 0


def poller(arguments: list[str]) -> int:
    """Polls so often for so many seconds."""
    diary = Diary()
    url = os.environ["QUEUE_URL"]
    sqs = sqs_of(url)
    times, seconds = (int(argument) for argument in arguments)
    for _ in range(times):
        answer: dict[str, Any] = diary.pace.poll(
            seconds, lambda: sqs.receive_message(QueueUrl=url, WaitTimeSeconds=seconds)
        )
        diary.write(f"got {','.join(message['Body'] for message in answer.get('Messages', [])) or 'nothing'}")
    sqs.close()
    return 0


def sender(arguments: list[str]) -> int:
    """Sends each body at its instant: `500=hello`."""
    diary = Diary()
    url = os.environ["QUEUE_URL"]
    sqs = sqs_of(url)
    for argument in arguments:
        ms, _, body = argument.partition("=")
        diary.pace.sleep((int(ms) - diary.observer.now_ms()) / 1_000)
        sqs.send_message(QueueUrl=url, MessageBody=body)
        diary.write(f"sent {body}")
    sqs.close()
    return 0


def hanger(_: list[str]) -> int:
    """Never gives its turn back."""
    Diary()
    time.sleep(600)
    return 0


def failing(_: list[str]) -> int:
    """Ends with an error."""
    Diary()
    sys.stderr.write("no luck today\n")
    raise ValueError("as the test wanted")
