"""Notes each signal in a file, so that a test sees those of another process."""

import os
from pathlib import Path

from django.apps import AppConfig


def note(word):
    def receive(sender, task_result, **kwargs):
        line = f"{word} {task_result.id} {task_result.status} {task_result.attempts} {len(task_result.errors)}\n"
        with Path(os.environ["SHOP_LEDGER"]).open("a") as ledger:
            ledger.write(line)

    return receive


def fail(sender, task_result, **kwargs):
    raise RuntimeError("a receiver that fails must not harm the task")


class ShopConfig(AppConfig):
    name = "shop"

    def ready(self):
        from penstock.django.framework import task_finished, task_started

        if "SHOP_LEDGER" in os.environ:
            for word, signal in {"started": task_started, "finished": task_finished}.items():
                signal.connect(note(word), weak=False)
                signal.connect(fail)
