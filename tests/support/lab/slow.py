"""Hand-made histories of the scenarios that take minutes, or look at the wire: each with its protection and without."""

from __future__ import annotations

import random

from penstock.lab.checkers.evidence import Left
from tests.support.lab.script import Script


def backpressure(script: Script) -> None:
    """A queue of 5 messages per second; each consumer does 2."""
    waiting: list[tuple[str, int]] = []
    consumers, low, made, done = 1, 0, 0, 0
    for tick in range(60):
        t_ms = tick * 1_000
        for n in range(5 if tick < 40 else 1):
            made += 1
            script.send(t_ms + n * 150, f"m-{made}")
            waiting.append((f"m-{made}", t_ms + n * 150))
        for slot in range(consumers * 2):
            if waiting:
                message, sent = waiting.pop(0)
                who, start = f"c{slot % consumers + 1}", max(t_ms + 500, sent + 10)
                script.work(start, who, message, for_ms=300)
                done += 1
        script.at(t_ms + 990, "runner", "sample", depth=len(waiting), in_flight=min(consumers, 2), consumers=consumers)
        if not script.broken:
            low = low + 1 if len(waiting) < 10 else 0
            if len(waiting) >= 10 and consumers < 4:
                consumers += 1
            elif low >= 12 and consumers > 1:
                consumers, low = consumers - 1, 0
    script.left = Left(count=len(waiting), messages=tuple(message for message, _ in waiting))


def purge_timing(script: Script) -> None:
    """As Amazon SQS does it: what is sent soon after a purge may go with it."""
    for n in range(10):
        script.send(n * 10, f"old-{n + 1}")
    script.at(500, "runner", "purge")
    script.at(20_500, "runner", "purge", "fail", what="one purge is allowed every 60 s")
    batches = {200: 2, 5_000: 6} if script.broken else {5_000: 7, 15_000: 8, 30_000: 9, 45_000: 10, 65_000: 10}
    left = []
    for delay, alive in batches.items():
        for n in range(10):
            message = f"new-{delay}-{n + 1}"
            relied = delay == (200 if script.broken else 65_000)
            script.send(500 + delay, message, phase="relied-on" if relied else "probe")
            if n < alive:
                script.receive(500 + delay + 6_000, "A", message)
                left.append(message)
    script.left = Left(count=len(left), messages=tuple(left))


def out_of_order(script: Script) -> None:
    arrival = [2, 4, 3, 6, 5, 7, 1, 10, 8, 9]
    for version in range(1, 11):
        script.send(version * 20, f"m-{version}", entity="account-7", version=version)
    highest = 0
    for place, version in enumerate(arrival):
        t_ms, message = 400 + place * 300, f"m-{version}"
        script.receive(t_ms, "A", message, entity="account-7", version=version)
        stale = version < highest and not script.broken
        said = "stale, left out" if stale else "applied"
        script.at(
            t_ms + 40, "A", "apply", "fail" if stale else "ok", message, entity="account-7", version=version, what=said
        )
        script.at(t_ms + 80, "A", "delete", message=message)
        highest = max(highest, version)
    script.state = {"account-7": arrival[-1] if script.broken else 10}


def backlog_drain(script: Script) -> None:
    total, stale_ms = 120, 20_000
    script.at(5_000, "runner", "outage", "invoke")
    script.at(40_000, "runner", "outage")
    arrivals = {f"m-{n + 1}": n * 500 for n in range(total)}
    free, finished = 0, {}
    for message, sent in arrivals.items():
        script.send(sent, message)
        start = max(sent + 50, free)
        if 5_000 <= start < 40_000:
            start = 40_000
        free = start + 200
        finished[message] = free
        script.receive(start, "A", message)
        stale = start - sent > stale_ms and not script.broken
        script.at(
            start + 120,
            "A",
            "effect",
            "fail" if stale else "ok",
            message,
            what="stale, counted" if stale else "call written",
        )
        script.at(start + 190, "A", "delete", message=message)
        if message == "m-100":
            script.receive(start + 130, "B", message, 2)
    for t_ms in range(0, 70_000, 1_000):
        inside = [sent for message, sent in arrivals.items() if sent <= t_ms < finished[message]]
        oldest = t_ms - min(inside, default=t_ms)
        script.at(t_ms, "runner", "sample", depth=len(inside), in_flight=0, oldest_ms=oldest, consumers=1)


def dlq_redrive(script: Script) -> None:
    messages = tuple(f"m-{n + 1}" for n in range(5))
    for n, message in enumerate(messages):
        script.send(50 * n, message)
        for count in (1, 2):
            script.receive(300 + 50 * n + (count - 1) * 10_000, "A", message, count)
        script.at(21_000, "runner", "dead", message=message)
        moved = 23_000 if script.broken else 26_000
        script.at(moved + 10 * n, "runner", "move", message=message)
        if script.broken:
            for count in (1, 2):
                script.receive(23_500 + 50 * n + (count - 1) * 10_000, "A", message, count)
            script.at(44_000, "runner", "dead", message=message)
        else:
            script.work(26_500 + 100 * n, "B", message)
    script.at(46_000 if script.broken else 25_000, "runner", "fix", what="the consumer understands version 2")
    if script.broken:
        script.dead = Left(count=5, messages=messages)


def double_send(script: Script) -> None:
    for n in range(4):
        message, call, start = f"m-{n + 1}", f"call {n + 1}", 800 * n
        script.at(start, "producer", "send", "invoke", message, call=call, attempt=1)
        script.at(start + 30, "producer", "send", "info", message, call=call, attempt=1, fault="cut after the commit")
        again = f"q-{message}-2" if script.broken else f"q-{message}"
        script.send(start + 230, message, call=call, attempt=2, message_id=again)
        for place, stored in enumerate(dict.fromkeys([f"q-{message}", again])):
            script.receive(4_000 + 200 * n + 50 * place, "A", message, message_id=stored, call=call)
            script.at(4_100 + 200 * n + 50 * place, "A", "delete", message=message)


def lost_response(script: Script) -> None:
    for n in range(3):
        message, call, start = f"m-{n + 1}", f"receive {n + 1}", 300 + 1_000 * n
        script.send(40 * n, message)
        script.at(start, "A", "receive", "info", call=call, attempt=1, fault="answer cut off")
        if script.broken:
            script.work(start + 30_050, "A", message, 2, call=f"later {n + 1}")
        else:
            script.work(start + 200, "A", message, 1, call=call, attempt=2, until_ms=start + 30_000)


def lease_theft(script: Script) -> None:
    for n in range(3):
        message, start = f"m-{n + 1}", 300 + 400 * n
        script.send(50 * n, message)
        script.receive(start, "A", message)
        script.receive(start + 2_100, "B", message, 2)
        if script.broken:
            script.at(start + 3_000, "A", "effect", message=message, what="call written")
        script.at(
            start + 3_050,
            "A",
            "report",
            "ok" if script.broken else "fail",
            message,
            receipt=f"{message}.1.A",
            what="late",
        )
        script.at(start + 3_500, "B", "effect", message=message, what="call written")
        script.at(start + 3_600, "B", "report", message=message, receipt=f"{message}.2.B")


def noisy_neighbour(script: Script) -> None:
    def one(t_ms: int, wait_ms: int, tenant: str, phase: str, number: int) -> None:
        message = f"{tenant}-{phase}-{number}"
        script.send(t_ms, message, tenant=tenant, phase=phase)
        script.work(t_ms + wait_ms, "A", message, for_ms=10, tenant=tenant)

    for n in range(10):
        one(n * 300, 150 + 5 * (n % 4), "quiet", "alone", n)
        wait = 2_400 + 60 * n if script.broken else 300 + 15 * (n % 5)
        one(5_000 + n * 400, wait, "quiet", "shared", n)
        for tenant in range(5):
            one(5_000 + n * 60, 2_000 + 110 * n + 40 * tenant, f"loud-{tenant + 1}", "shared", n)


def retry_storm(script: Script) -> None:
    """The same seed every time, as in the lab."""
    chance = random.Random(7)
    for n in range(60):
        message = f"m-{n + 1}"
        script.send(0, message)
        t_ms = 100
        for count in range(1, 5):
            script.receive(t_ms, "A", message, count, until_ms=t_ms + 50)
            if script.broken:
                t_ms += 3_000
            else:
                t_ms += 300 + int(chance.random() * 3_000 * 2 ** (count - 1))
        script.work(t_ms, "A", message, 5, for_ms=20)
