"""The peers: what each is called, where it comes from, and how it is run without logging every request."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from benchmarks.peers.fetching import GoProgram, MavenLibrary, PythonPackages, Source

REGION = "us-east-1"
ACCOUNT = "000000000000"


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """How one server is run: a command, what it adds to the environment, and files that it reads."""

    command: list[str]
    settings: dict[str, str] = {}
    files: dict[str, str] = {}


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """One server that Penstock is compared to. Those that share a `source` differ in how they are run."""

    name: str
    title: str
    keeps: str
    """Where its messages are."""
    source: Source
    launch: Callable[[Path, Path, int], Launch]
    """From where it was fetched to, the folder it runs in, and its port."""
    warm_up_share: float = 0.1
    """How much of the longest warm-up it needs."""
    seconds_min: float = 0.0
    """In less, it does not come to do with a message what is counted."""
    connections_max: int = 1_000
    """More than that only wait for each other."""


ELASTICMQ = MavenLibrary(group="org.elasticmq", artifact="elasticmq-server_2.13", version="1.7.1")
GOAWS = GoProgram(module="github.com/Admiral-Piett/goaws", package="app/cmd", version="v0.5.4")
MOTO = PythonPackages(name="moto", version="5.2.5", requirements=["moto[server]==5.2.5"])
LOCALSTACK = PythonPackages(
    name="localstack",
    version="4.4.0",
    requirements=[
        "localstack-core[base-runtime]==4.4.0",
        "moto-ext==5.1.54",
        # Later ones of these dropped what this version calls. LocalStack 4.14.0 itself needs Python 3.12.
        "cbor2==5.6.5",
        "cryptography<45",
        "pyopenssl==24.3.0",
        "service-identity==24.2.0",
    ],
)


def _elasticmq(home: Path, port: int, *, stored: bool) -> Launch:
    storage = "enabled = false"
    if stored:
        storage = (
            'enabled = true, driver-class-name = "org.h2.Driver", uri = "jdbc:h2:./messages", username = "sa", '
            'password = "", prune-data-on-init = true'
        )
    configuration = f"""include classpath("application.conf")
node-address {{ protocol = http, host = 127.0.0.1, port = {port}, context-path = "" }}
rest-sqs {{ enabled = true, bind-port = {port}, bind-hostname = "127.0.0.1", sqs-limits = strict }}
rest-stats {{ enabled = false }}
messages-storage {{ {storage} }}
aws {{ region = {REGION}, accountId = {ACCOUNT} }}
"""
    name = "elasticmq.conf"
    command = ["java", f"-Dconfig.file={name}", "-cp", str(home / "lib" / "*"), "org.elasticmq.server.Main"]
    return Launch(command=command, files={name: configuration})


def _elasticmq_in_memory(home: Path, _folder: Path, port: int) -> Launch:
    return _elasticmq(home, port, stored=False)


def _elasticmq_stored(home: Path, _folder: Path, port: int) -> Launch:
    return _elasticmq(home, port, stored=True)


def _goaws(home: Path, _folder: Path, port: int) -> Launch:
    configuration = f"""Local:
  Host: 127.0.0.1
  Port: {port}
  Region: {REGION}
  AccountId: "{ACCOUNT}"
  LogToFile: false
  QueueAttributeDefaults:
    VisibilityTimeout: 30
    ReceiveMessageWaitTimeSeconds: 0
    MaximumMessageSize: 262144
"""
    command = [str(home / "program"), "-config", "goaws.yaml", "-loglevel", "error", "Local"]
    return Launch(command=command, files={"goaws.yaml": configuration})


def _moto(home: Path, _folder: Path, port: int) -> Launch:
    return Launch(command=[str(home / "bin" / "python"), "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)])


def _localstack(home: Path, folder: Path, port: int) -> Launch:
    address = f"127.0.0.1:{port}"
    return Launch(
        command=[str(home / "bin" / "python"), "-m", "localstack.runtime.main"],
        settings={
            "SERVICES": "sqs",
            "GATEWAY_LISTEN": address,
            "LOCALSTACK_HOST": address,
            "FILESYSTEM_ROOT": str(folder / "files"),
            "LS_LOG": "error",
            "DNS_ADDRESS": "0",
            "DISABLE_EVENTS": "1",
            "SKIP_SSL_CERT_DOWNLOAD": "1",
        },
    )


PEERS = {
    peer.name: peer
    for peer in (
        Peer(
            name="elasticmq",
            title=f"ElasticMQ {ELASTICMQ.version}",
            keeps="memory",
            source=ELASTICMQ,
            launch=_elasticmq_in_memory,
            warm_up_share=1.0,
            seconds_min=2.0,
        ),
        Peer(
            name="elasticmq-h2",
            title=f"ElasticMQ {ELASTICMQ.version}, H2",
            keeps="memory and an H2 file",
            source=ELASTICMQ,
            launch=_elasticmq_stored,
            warm_up_share=1.0,
            seconds_min=3.0,
        ),
        Peer(name="goaws", title=f"GoAWS {GOAWS.version}", keeps="memory", source=GOAWS, launch=_goaws),
        Peer(
            name="localstack",
            title=f"LocalStack {LOCALSTACK.version}",
            keeps="memory",
            source=LOCALSTACK,
            launch=_localstack,
            seconds_min=2.0,
        ),
        Peer(
            name="moto",
            title=f"moto {MOTO.version}",
            keeps="memory",
            source=MOTO,
            launch=_moto,
            seconds_min=4.0,
            connections_max=8,
        ),
    )
}
