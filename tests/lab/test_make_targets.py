"""Make targets and scripts of the lab: what they run, what they load, and what they say when something is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.lab.produce import produce
from penstock.cli.lab.run import run
from penstock.lab.consumer_settings import VARIABLES
from penstock.lab.env_file import KEYS, read
from penstock.lab.run import PICTURES
from penstock.lab.scenarios import NAMES, scenario

ROOT = Path(__file__).parents[2]
OUTPUTS = {key.lower(): f"{key.lower()} of terraform" for key in KEYS}
TERRAFORM = f"""\
#!{sys.executable}
import sys
outputs = {OUTPUTS!r}
words = [word for word in sys.argv[1:] if not word.startswith("-")]
open("calls", "a").write(" ".join(words) + "\\n")
if words[0] == "version":
    print("Terraform v1.9.0")
elif words[0] == "output":
    sys.stdout.write(outputs[words[1]])
"""

pytestmark = pytest.mark.skipif(not shutil.which("make"), reason="no make here")


class Project:
    """A copy of the scripts with this interpreter's environment, in a folder where nothing else is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "project with spaces"
        self.elsewhere = folder / "elsewhere"
        self.bin = folder / "bin"
        for made in (self.folder / "terraform", self.elsewhere, self.bin):
            made.mkdir(parents=True)
        shutil.copytree(ROOT / "scripts", self.folder / "scripts")
        (self.folder / "Makefile").write_text("venv:\n\t@:\n")
        (self.folder / ".venv").symlink_to(sys.prefix)
        for tool in ("bash", "env", "dirname", "tr", "grep", "sed", "sort", "head", "mv", "rm", "touch", "make"):
            (self.bin / tool).symlink_to(shutil.which(tool) or "")

    def terraform(self) -> None:
        """Put a program into the path that answers as Terraform does."""
        (self.bin / "terraform").write_text(TERRAFORM)
        (self.bin / "terraform").chmod(0o755)

    @property
    def calls(self) -> list[str]:
        """What Terraform was asked to do."""
        file = self.elsewhere / "calls"
        return file.read_text().splitlines() if file.exists() else []

    def __call__(self, script: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a script from another directory, with these variables alone."""
        return subprocess.run(
            [str(self.folder / "scripts" / script), *arguments],
            cwd=self.elsewhere,
            env={
                "PATH": str(self.bin),
                "HOME": str(self.elsewhere),
                "AWS_EC2_METADATA_DISABLED": "true",
                "PYTHON": sys.executable,
                **variables,
            },
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


CREDENTIALS = {"AWS_ACCESS_KEY_ID": "one", "AWS_SECRET_ACCESS_KEY": "hush"}


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL"}}
    return subprocess.run(
        ["make", "--dry-run", *arguments], cwd=ROOT, capture_output=True, text=True, env=environment, check=False
    )


def test_there_is_a_target_for_every_scenario() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    listed = makefile[makefile.index("SCENARIOS := ") :].split("\n\n")[0].replace("\\\n", " ").split()[2:]
    assert listed == list(PICTURES)
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert all(name in shown.split() for name in PICTURES)
    assert max(len(line) for line in shown.splitlines()) <= 110


@pytest.mark.parametrize(
    ("target", "command"),
    [
        (["scenario-happy", "ARGS=--count 10"], "penstock lab run happy  --count 10"),
        (["scenario-fifo-order", "TARGET=aws"], "penstock lab run fifo-order --endpoint aws"),
        (["scenarios"], "penstock lab run --all"),
        (["scenarios-fast", "ARGS=--seed 3"], "penstock lab run --fast  --seed 3"),
        (["scenarios-slow"], "penstock lab run --slow"),
        (["infra-up"], "penstock lab up"),
        (["infra-down"], "penstock lab down"),
        (["infra-up", "TARGET=aws", "ARGS=-auto-approve"], "scripts/infra_aws.sh up -auto-approve"),
        (["infra-down", "TARGET=aws"], "scripts/infra_aws.sh down"),
        (["validate", "TARGET=aws"], "penstock lab validate --endpoint aws"),
        (["preflight", "TARGET=aws"], 'TARGET="aws" scripts/preflight.sh'),
    ],
)
def test_a_target_runs_its_command(target: list[str], command: str) -> None:
    shown = make(*target)
    assert shown.returncode == 0
    assert command in shown.stdout


def test_another_target_is_refused() -> None:
    refused = make("infra-up", "TARGET=gcp")
    assert refused.returncode == 2
    assert "TARGET must be local or aws, not gcp" in refused.stderr


def test_slow_scenarios_are_those_that_take_minutes() -> None:
    slow = {name for name in NAMES if scenario(name).slow}
    assert slow <= {"backpressure", "purge-timing"}
    assert slow == {"backpressure", "purge-timing"} & set(NAMES)


def test_the_first_page_has_every_scenario_variable_and_flag() -> None:
    page = (ROOT / "docs/lab/README.md").read_text(encoding="utf-8")
    assert [name for name in PICTURES if f"[{name}]({name}.md)" not in page] == []
    assert [name for name in sorted(VARIABLES) if f"`{name}`" not in page] == []
    parameters = (parameter for command in (run, produce) for parameter in signature(command).parameters.values())
    flags = {f"--{name.name.strip('_').replace('_', '-')}" for name in parameters if name.kind is name.KEYWORD_ONLY}
    plain = {"--region", "--project", "--profile", "--knob"}
    assert sorted(flag for flag in flags - plain if f"`{flag}`" not in page) == []


# -- set_env.sh ---------------------------------------------------------------------------------------


def test_the_example_has_the_five_keys() -> None:
    assert tuple(read(ROOT / ".env.example")) == KEYS


def test_the_environment_comes_before_the_file_and_the_file_before_terraform(project: Project) -> None:
    project.terraform()
    (project.folder / "terraform/terraform.tfstate").write_text("{}")
    (project.folder / ".env").write_text("# a comment\nQUEUE_URL='http://h/1/a queue'\nDLQ_ARN=of the file\nrubbish\n")
    shown = project("set_env.sh", "env", DLQ_ARN="my own")
    assert shown.returncode == 0, shown.stderr
    found = dict(line.split("=", 1) for line in shown.stdout.splitlines())
    assert found["QUEUE_URL"] == "http://h/1/a queue"
    assert found["DLQ_ARN"] == "my own"
    assert found["AWS_REGION"] == "aws_region of terraform"


def test_terraform_is_not_asked_without_a_state(project: Project) -> None:
    project.terraform()
    assert project("set_env.sh").stdout == ""
    assert project.calls == []


def test_values_of_the_file_are_not_run(project: Project) -> None:
    (project.folder / ".env").write_text("QUEUE_URL=$(touch stolen)`touch stolen`;touch stolen\n")
    script = (
        f'set +eu; source "{project.folder}/scripts/set_env.sh"; false; echo "$QUEUE_URL"; echo "${{UNSET_NAME}}end"'
    )
    shown = subprocess.run(
        ["bash", "-c", script],
        cwd=project.elsewhere,
        env={"PATH": str(project.bin)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.stdout == "$(touch stolen)`touch stolen`;touch stolen\nend\n", "the shell's own options stay"
    assert list(project.elsewhere.iterdir()) == []


@pytest.mark.slow
def test_the_producer_runs_from_any_directory(project: Project, sqs: Any) -> None:
    url = sqs.create_queue(QueueName="orders")["QueueUrl"]
    (project.folder / ".env").write_text(f"QUEUE_URL={url}\nAWS_REGION=us-west-1\n")
    sent = project("run_producer.sh", "--n", "3", "--batch-size", "2")
    assert sent.returncode == 0, sent.stderr
    assert "3 messages sent" in sent.stderr
    counts = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert counts["ApproximateNumberOfMessages"] == "3"
    refused = project("run_producer.sh", "--n", "-1")
    assert refused.returncode == 2


# -- AWS ----------------------------------------------------------------------------------------------


def test_aws_needs_terraform(project: Project) -> None:
    ended = project("infra_aws.sh", "up", **CREDENTIALS)
    assert ended.returncode == 1
    assert "error: Terraform is not installed" in ended.stderr


def test_aws_needs_credentials(project: Project) -> None:
    project.terraform()
    ended = project("infra_aws.sh", "up")
    assert ended.returncode == 5
    assert "error: There are no credentials for AWS." in ended.stderr
    assert project.calls == []


def test_terraform_applies_and_its_outputs_are_written(project: Project) -> None:
    project.terraform()
    ended = project("infra_aws.sh", "up", "-auto-approve", **CREDENTIALS)
    assert ended.returncode == 0, ended.stderr
    assert project.calls[:2] == ["init", "apply"]
    assert read(project.folder / ".env") == {key: OUTPUTS[key.lower()] for key in KEYS}
    assert "hush" not in ended.stdout + ended.stderr
    (project.folder / ".env").write_text("QUEUE_URL=https://sqs.us-west-1.amazonaws.com/1/q\n")
    assert project("infra_aws.sh", "down", **CREDENTIALS).returncode == 0
    assert project.calls[-1] == "destroy"
    assert not (project.folder / ".env").exists()


def test_a_file_with_other_settings_is_kept(project: Project) -> None:
    project.terraform()
    (project.folder / ".env").write_text("QUEUE_URL=a\nSECRET=hush\n")
    ended = project("infra_aws.sh", "up", **CREDENTIALS)
    assert ended.returncode == 1
    assert ".env has other settings" in ended.stderr
    assert project.calls == []


def test_preflight_says_what_is_missing_for_which_target(project: Project) -> None:
    local = project("preflight.sh")
    assert local.returncode == 0, local.stderr
    assert "- terraform    not found: needed by make infra-up TARGET=aws" in local.stdout
    assert local.stdout.endswith("\nNothing is missing for TARGET=local; those marked - are for TARGET=aws.\n")
    aws = project("preflight.sh", TARGET="aws")
    assert aws.returncode == 1
    assert "2 missing." in aws.stderr
    project.terraform()
    all_there = project("preflight.sh", TARGET="aws", **CREDENTIALS)
    assert all_there.returncode == 0
    assert all_there.stdout.endswith("\nNothing is missing for TARGET=aws.\n")
    assert project("preflight.sh", PYTHON="no-python").returncode == 1
