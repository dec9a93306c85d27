"""The page about consumers has every setting and every counter."""

from __future__ import annotations

import dataclasses
import inspect
import re

from penstock import SqsConsumer
from penstock.client.sqs.events import Counters
from tests.docs.pages import page

TEXT = page("docs/sqs-consumers.md").text


def test_the_table_has_every_setting_with_its_default() -> None:
    [table] = re.findall(r"\| setting \| default \| meaning \|.*?\n\n", TEXT, re.DOTALL)
    rows = [row.split("|")[1:3] for row in table.splitlines()[2:] if row]
    shown = [name for names, _ in rows for name in re.findall(r"`(\w+)`", names)]
    parameters = list(inspect.signature(SqsConsumer).parameters.values())[3:]
    assert sorted(shown) == sorted(parameter.name for parameter in parameters)
    numbers = {
        name: value.strip()
        for names, values in rows
        for name, value in zip(names.split(","), values.split(","), strict=False)
    }
    defaults = {f"`{parameter.name}`": str(parameter.default) for parameter in parameters}
    for name, value in numbers.items():
        if value.isdecimal():
            assert defaults[name.strip()] == value


def test_all_counters_are_named() -> None:
    [line] = re.findall(r"`consumer\.counters` has.*", TEXT)
    assert set(re.findall(r"`(\w+)`", line)) == {field.name for field in dataclasses.fields(Counters)}
