"""Hand-made histories of the scenarios that take seconds: each with its protection, and without it."""

from __future__ import annotations

from penstock.lab.checkers.evidence import Left
from tests.support.lab.script import Script


def happy(script: Script) -> None:
    for n in range(5):
        message, start = f"m-{n + 1}", 150 * n
        script.send(start, message, what=f"order {1041 + n}")
        if not script.broken:
            script.work(start + 300, "AB"[n % 2], message, for_ms=500)
            continue
        for count in (1, 2, 3):
            t_ms = start + 300 + (count - 1) * 2_100
            script.receive(t_ms, "AB"[n % 2], message, count)
            script.at(t_ms + 500, "AB"[n % 2], "effect", message=message, what="call written")
    if script.broken:
        script.left = Left(count=5, messages=tuple(f"m-{n + 1}" for n in range(5)))


def crash(script: Script) -> None:
    script.send(0, "m-1", what="order 1041")
    script.receive(800, "A", "m-1")
    if script.broken:
        script.at(900, "A", "delete", message="m-1", receipt="m-1.1.A", what="acknowledged on receipt")
    script.at(2_600, "A", "crash", "info", message="m-1", fault="kill -9 after the receive")
    if not script.broken:
        script.work(10_800, "B", "m-1", 2, for_ms=1_500)
    else:
        script.at(13_000, "runner", "sample", depth=0, in_flight=0)


def duplicates(script: Script) -> None:
    for n in range(5):
        message, start = f"m-{n + 1}", 350 + 300 * n
        script.send(60 * n, message, what=f"order {1041 + n}")
        script.receive(start, "A", message)
        script.at(start + 20, "A", "check", message=message, what="not on record")
        script.receive(start + 2_120, "B", message, 2)
        script.at(start + 2_140, "B", "check", message=message, what="not on record")
        script.at(start + 3_000, "A", "effect", message=message, what="call written")
        script.at(
            start + 3_300, "A", "delete", message=message, receipt=f"{message}.1.A", what="old handle, changes nothing"
        )
        if script.broken:
            script.at(start + 3_470, "B", "effect", message=message, what="call written")
        else:
            script.at(start + 3_470, "B", "effect", "fail", message=message, what="refused: key is taken")
        script.at(start + 3_770, "B", "delete", message=message, receipt=f"{message}.2.B", what="message deleted")


def business_idempotency(script: Script) -> None:
    for n in range(6):
        message, key, start = f"m-{n + 1}", f"{1041 + n // 2}", 120 * n
        script.send(start, message, key=key)
        who = "AB"[n % 2]
        script.receive(start + 350, who, message, key=key)
        refused = n % 2 == 1 and not script.broken
        said = "refused: the order is on record" if refused else "call written"
        script.at(start + 1_100, who, "effect", "fail" if refused else "ok", message, key=key, what=said)
        script.at(start + 1_180, who, "delete", message=message, receipt=f"{message}.1.{who}")


def poison(script: Script) -> None:
    bad = ("m-2", "m-4")
    for n in range(5):
        message = f"m-{n + 1}"
        script.send(40 * n, message, poison=message in bad)
        if message not in bad:
            script.work(300 + 100 * n, "A", message)
            continue
        rounds = 9 if script.broken and message == "m-2" else 7 if script.broken else 2
        for count in range(1, rounds + 1):
            script.receive(300 + 100 * n + (count - 1) * 10_050, "A", message, count)
        if not script.broken:
            script.at(21_000 + 100 * n, "runner", "dead", message=message)
    if script.broken:
        script.left = Left(count=2, messages=bad)
    else:
        script.dead = Left(count=2, messages=bad)


def partial_batch(script: Script) -> None:
    sent = [f"m-{n + 1}" for n in range(50)]
    bad = [message for n, message in enumerate(sent) if n % 3 == 2]
    for n, message in enumerate(sent):
        script.send(5 * n, message, poison=message in bad)
        start = 400 + n // 10 * 300
        script.receive(start, "A", message)
        if message not in bad:
            script.at(start + 50 + n % 10, "A", "effect", message=message)
            if not script.broken:
                script.at(start + 100 + n % 10, "A", "delete", message=message)
        if message in bad or script.broken:
            script.receive(start + 10_000, "A", message, 2)
            if message in bad:
                script.at(start + 21_000, "runner", "dead", message=message)
            else:
                script.at(start + 10_050 + n % 10, "A", "effect", message=message)
                script.at(start + 10_100 + n % 10, "A", "delete", message=message)
    script.dead = Left(count=len(bad), messages=tuple(bad))


def side_effects(script: Script) -> None:
    order = ["start", "check", "effect", "", "complete", "delete"]
    for n in range(3):
        message = f"m-{n + 1}"
        script.send(30 * n, message)
        called = False
        for attempt in range(1, 8):
            t_ms = 200 + 30 * n + (attempt - 1) * 10_100
            script.receive(t_ms, "A", message, attempt)
            for step, f in enumerate(order, 1):
                now = t_ms + step * 100
                if attempt == step:
                    script.at(now, "A", "crash", "info", message=message, step=step, fault=f"crash at step {step}")
                    break
                if f == "effect":
                    refused = called and not script.broken
                    said = "left out: on record" if refused else "call written"
                    script.at(now, "A", f, "fail" if refused else "ok", message=message, step=step, what=said)
                    called = True
                elif f:
                    script.at(now, "A", f, message=message, step=step)


def graceful_shutdown(script: Script) -> None:
    for n, message in enumerate(("m-1", "m-2", "m-3")):
        script.send(100 * n, message)
    script.receive(300, "A", "m-1")
    script.receive(400, "A", "m-2")
    script.at(2_000, "A", "signal", "info", what="SIGTERM")
    if script.broken:
        script.at(2_050, "A", "exit", code=143)
        script.left = Left(count=3, messages=("m-1", "m-2", "m-3"))
        return
    for n, message in enumerate(("m-1", "m-2")):
        script.at(4_400 + 600 * n, "A", "effect", message=message, what="call written")
        script.at(4_480 + 600 * n, "A", "delete", message=message, receipt=f"{message}.1.A")
    script.at(5_120, "A", "exit", code=0)
    script.left = Left(count=1, messages=("m-3",))


def fifo_order(script: Script) -> None:
    wild = [2, 1, 4, 3, 5, 7, 6, 9, 10, 8]
    for n in range(10):
        message = f"m-{n + 1}"
        script.send(30 * n, message, sequence=n + 1, group="g1")
        who = f"c{n % 5 + 1}"
        if script.broken:
            start = 400 + 260 * wild.index(n + 1)
            for_ms = 700
        else:
            start, for_ms = 400 + 300 * n, 200
        script.receive(start, who, message, sequence=n + 1, group="g1")
        script.at(start + for_ms, who, "effect", message=message, sequence=n + 1, group="g1")
        script.at(start + for_ms + 40, who, "delete", message=message, receipt=f"{message}.1.{who}")
