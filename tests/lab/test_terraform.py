"""The Terraform files: they parse, and declare what `penstock lab up` makes through boto3."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hcl2
import pytest

from penstock.lab.environment import PROJECT, names_of
from penstock.lab.provisioning import Wanted, environment_of, provision, wanted
from penstock.lab.run import PICTURES
from penstock.lab.scenarios import NAMES
from penstock.lab.tables.places import DynamoPlace

FOLDER = Path(__file__).parents[2] / "terraform"
FILES = sorted(FOLDER.glob("*.tf"))
TERRAFORM = shutil.which("terraform")

needs_terraform = pytest.mark.skipif(TERRAFORM is None, reason="no terraform here")


def plain(value: Any) -> Any:
    """Return a parsed value without the quotes and marks that the parser leaves."""
    if isinstance(value, dict):
        return {plain(key): plain(one) for key, one in value.items() if not key.startswith("__")}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return value[1:-1] if isinstance(value, str) and value.startswith('"') else value


def blocks(kind: str) -> Iterator[tuple[str, Any]]:
    for file in FILES:
        with file.open(encoding="utf-8") as text:
            for block in plain(hcl2.load(text)).get(kind, []):
                yield from block.items()


def declared_names(local: str) -> list[str]:
    locals_ = dict(blocks("locals"))
    return re.findall(r'"([a-z-]+)"', locals_[local])


def resources(kind: str) -> dict[str, Any]:
    return {name: body for found, named in blocks("resource") if found == kind for name, body in named.items()}


def rendered(template: str, one: Wanted) -> str:
    suffix = ".fifo" if one.fifo else ""
    known = {
        "var.project_name": PROJECT,
        "each.key": one.scenario,
        "each.value.scenario": one.scenario,
        "each.value.suffix": suffix,
    }
    return re.sub(r"\$\{([a-z_.]+)\}", lambda found: known[found[1]], template)


@pytest.mark.skipif(len(NAMES) < len(PICTURES), reason="not every scenario is there yet")
def test_every_scenario_is_declared_with_its_kinds_of_queues() -> None:
    assert declared_names("scenarios") == list(NAMES)
    needed = wanted()
    assert {one.scenario for one in needed if one.fifo} == set(declared_names("fifo"))
    first = {one.scenario: one.fifo for one in reversed(needed)}
    assert {name for name, fifo in first.items() if fifo} == set(declared_names("ordered"))


def test_every_scenario_that_is_there_is_declared() -> None:
    assert [name for name in declared_names("scenarios") if name in NAMES] == list(NAMES)
    assert declared_names("scenarios") == list(PICTURES)
    assert {one.scenario for one in wanted() if one.fifo} <= set(declared_names("fifo"))


def test_queues_and_tables_are_what_boto3_makes(sqs: Any, dynamodb: Any) -> None:
    variables = {name: body["default"] for name, body in blocks("variable")}
    queues, tables = resources("aws_sqs_queue"), resources("aws_dynamodb_table")
    assert set(queues) == {"main", "dead_letters"}
    assert set(tables) == {"message_status", "message_side_effects"}
    assert queues["main"]["visibility_timeout_seconds"] == "${var.queue_visibility_timeout}"
    assert queues["main"]["receive_wait_time_seconds"] == "${var.queue_receive_wait}"
    assert "aws_sqs_queue.dead_letters[each.key].arn" in queues["main"]["redrive_policy"]
    needed = [Wanted(scenario="happy"), Wanted(scenario="fifo-order", fifo=True)]
    for one, made in zip(needed, provision(sqs, DynamoPlace(dynamodb), needed), strict=True):
        names = names_of(PROJECT, one.scenario, fifo=one.fifo)
        assert rendered(queues["main"]["name"], one) == names.queue == made.queue_url.rpartition("/")[2]
        assert rendered(queues["dead_letters"]["name"], one) == names.dlq == made.dlq_arn.rpartition(":")[2]
        attributes = sqs.get_queue_attributes(QueueUrl=made.queue_url, AttributeNames=["All"])["Attributes"]
        assert int(attributes["VisibilityTimeout"]) == variables["queue_visibility_timeout"]
        assert int(attributes["ReceiveMessageWaitTimeSeconds"]) == variables["queue_receive_wait"]
        assert (attributes.get("FifoQueue") == "true") is one.fifo
        policy = {"deadLetterTargetArn": made.dlq_arn, "maxReceiveCount": dict(blocks("locals"))["receives_max"]}
        assert json.loads(attributes["RedrivePolicy"]) == policy
        dead = sqs.get_queue_attributes(QueueUrl=made.queue_url.replace("-queue", "-dlq"), AttributeNames=["All"])
        assert int(dead["Attributes"]["MessageRetentionPeriod"]) == queues["dead_letters"]["message_retention_seconds"]
        for resource, name in (
            ("message_status", names.status_table),
            ("message_side_effects", names.side_effects_table),
        ):
            body = tables[resource]
            assert rendered(body["name"], one) == name
            table = dynamodb.describe_table(TableName=name)["Table"]
            assert table["KeySchema"] == [{"AttributeName": body["hash_key"], "KeyType": "HASH"}]
            [attribute] = body["attribute"]
            assert table["AttributeDefinitions"] == [
                {"AttributeName": attribute["name"], "AttributeType": attribute["type"]}
            ]
            assert table["BillingModeSummary"]["BillingMode"] == body["billing_mode"]


def test_outputs_are_those_that_the_scripts_read(sqs: Any) -> None:
    names = [name for name, _ in blocks("output")]
    assert names == [
        "queue_url",
        "dlq_arn",
        "message_status_table",
        "message_side_effects_table",
        "aws_region",
        "scenarios",
    ]
    [happy] = provision(sqs, None, [Wanted(scenario="happy")])
    assert {name.upper() for name in names} - {"SCENARIOS"} == set(environment_of(happy))


def test_defaults_are_those_of_the_lab() -> None:
    defaults = {name: body["default"] for name, body in blocks("variable")}
    assert defaults == {
        "aws_region": "us-west-1",
        "project_name": "sqs-demo",
        "queue_visibility_timeout": 10,
        "queue_receive_wait": 10,
    }


def terraform(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    assert TERRAFORM is not None
    environment = os.environ | {"CHECKPOINT_DISABLE": "1", "TF_IN_AUTOMATION": "1"}
    return subprocess.run(
        [TERRAFORM, f"-chdir={folder}", *arguments], capture_output=True, text=True, env=environment, check=False
    )


@needs_terraform
def test_files_are_formatted() -> None:
    assert terraform(FOLDER, "fmt", "-check", "-recursive").returncode == 0


@needs_terraform
@pytest.mark.slow
def test_terraform_makes_the_same_names_of_it(tmp_path: Path) -> None:
    """Without the provider, which is fetched from the network, the names of queues can be worked out."""
    text = (FOLDER / "main.tf").read_text(encoding="utf-8")
    locals_ = text[text.index("locals {") : text.index('resource "')]
    template = resources("aws_sqs_queue")["main"]["name"].replace("each.value", "queue")
    shutil.copy(FOLDER / "variables.tf", tmp_path)
    (tmp_path / "names.tf").write_text(
        f'{locals_}\noutput "names" {{\n  value = [for queue in local.queues : "{template}"]\n}}\n'
        'output "first" {\n  value = local.first\n}\n'
    )
    assert terraform(tmp_path, "init", "-input=false").returncode == 0
    assert terraform(tmp_path, "apply", "-input=false", "-auto-approve").returncode == 0
    found = json.loads(terraform(tmp_path, "output", "-json").stdout)
    needed = {names_of(PROJECT, one.scenario, fifo=one.fifo).queue for one in wanted()}
    assert needed <= set(found["names"]["value"])
    for name in NAMES:
        fifo = wanted([name])[0].fifo
        assert found["first"]["value"][name] == (f"{name}.fifo" if fifo else name)
    refused = terraform(tmp_path, "apply", "-input=false", "-auto-approve", "-var", "project_name=no good")
    assert refused.returncode == 1
    assert "project_name has 1 to 40 letters" in refused.stderr
