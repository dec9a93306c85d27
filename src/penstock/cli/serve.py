"""`penstock serve`: runs the server in the foreground."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

from cyclopts import App, ArgumentCollection, Group, Parameter
from cyclopts.config import Dict

_FILE = Group.create_ordered("Configuration file")
_NETWORK = Group.create_ordered("Network")
_STORAGE = Group.create_ordered("Storage and time")
_SQS = Group.create_ordered("SQS")
_LOGS = Group.create_ordered("Logs and metrics")


def serve(  # noqa: PLR0913 - one for each flag
    *,
    config: Annotated[str | None, Parameter(group=_FILE)] = None,
    host: Annotated[str, Parameter(group=_NETWORK)] = "127.0.0.1",
    port: Annotated[int, Parameter(group=_NETWORK)] = 9324,
    socket: Annotated[str | None, Parameter(group=_NETWORK)] = None,
    insecure: Annotated[bool, Parameter(group=_NETWORK, negative="")] = False,
    tls_certificate: Annotated[str | None, Parameter(group=_NETWORK)] = None,
    tls_key: Annotated[str | None, Parameter(group=_NETWORK)] = None,
    allowed_host: Annotated[tuple[str, ...], Parameter(group=_NETWORK, negative="")] = (),
    allowed_origin: Annotated[tuple[str, ...], Parameter(group=_NETWORK, negative="")] = (),
    connections_max: Annotated[int, Parameter(group=_NETWORK)] = 10_000,
    request_memory: Annotated[int, Parameter(group=_NETWORK)] = 256,
    client_timeout: Annotated[float, Parameter(group=_NETWORK)] = 60,
    workers: Annotated[int, Parameter(group=_NETWORK)] = 1,
    store: Annotated[str, Parameter(group=_STORAGE)] = "sqlite:./data/penstock.db",
    clock: Annotated[Literal["system", "manual"], Parameter(group=_STORAGE)] = "system",
    public_url: Annotated[str | None, Parameter(group=_SQS)] = None,
    region: Annotated[str, Parameter(group=_SQS)] = "us-east-1",
    account: Annotated[str, Parameter(group=_SQS)] = "000000000000",
    purge_interval: Annotated[int, Parameter(group=_SQS)] = 60,
    name_reuse_delay: Annotated[int, Parameter(group=_SQS)] = 60,
    monitoring_token: Annotated[str | None, Parameter(group=_LOGS)] = None,
    log_level: Annotated[Literal["debug", "info", "warning", "error"], Parameter(group=_LOGS)] = "info",
    log_format: Annotated[Literal["console", "json"], Parameter(group=_LOGS)] = "console",
) -> int:
    """Run the server until it is told to stop.

    Parameters
    ----------
    config
        A TOML file with any of these settings (host = "0.0.0.0"), with access keys and tokens, and with queues to
        make at the start. Flags go before the environment, and the environment goes before the file.
    host
        The address to listen on. Others than those of this machine alone need keys or tokens in the file, or
        --insecure.
    port
        The port to listen on; 0 takes any free one.
    socket
        A Unix socket to listen on instead of a host and port, for users who may read and write the store's file. With
        a SQLite store this server is the owner that embedded clients of the file find; no client starts another one.
    insecure
        Listen on an address that other machines reach, although nobody has to prove who they are.
    tls_certificate
        A file with the server's certificate (PEM, with its chain), to speak HTTPS.
    tls_key
        A file with the certificate's key.
    allowed_host
        A further name of this server, or *.SUFFIX for all that end so. Without keys and tokens the server answers to IP
        addresses, names without a dot, localhost, *.localhost, *.internal, *.svc.cluster.local and the host of
        --public-url only, so that no web page can reach it by a name of its own. Can be repeated.
    allowed_origin
        An origin (https://app.example.com) whose web pages may use this server, as with an SDK for browsers. Pages of
        all other origins are refused. Can be repeated.
    connections_max
        How many connections a process serves at a time. Further ones are answered with 503 and closed.
    request_memory
        How many MiB of requests that are not answered yet a process holds. What does not fit is answered with 503. Each
        connection may hold 32 KiB besides, so small requests always fit.
    client_timeout
        How many seconds a client may take to send a request or to read its answer, and how long a connection is kept
        that brings none. The server itself may take as long as it needs.
    workers
        How many processes to serve with, all behind the one port. More than one needs PostgreSQL.
    store
        Where everything is kept: sqlite:PATH, postgresql://HOST/DATABASE, or memory: to keep nothing.
    clock
        manual: time stands still until POST /_penstock/clock/advance {"seconds": 30} moves it. For tests only.
    public_url
        How clients reach this server, for the queue URLs that it gives out. Unset, each client gets the host it used.
    region
        The region of requests that name none in their signature.
    account
        The account that queues belong to where there are no keys, each of which has its own.
    purge_interval
        How many seconds after a purge the next one of that queue is refused; 0 lets all through.
    name_reuse_delay
        For how many seconds after a queue was deleted its name stays taken; 0 frees it at once.
    monitoring_token
        What clients of /metrics, /stats and /v1/queues have to send (Authorization: Bearer TOKEN); who has it can read
        messages. Once there are keys or tokens, these are closed without it. Better in the environment than on the
        command line, where others can read it.
    log_level
        The least that is worth a line.
    log_format
        For people or for machines. Logs go to stderr.
    """
    from penstock.domain.errors import PenstockError
    from penstock.server.config import ServerConfig, StartFailure
    from penstock.server.config_file import ConfigFile
    from penstock.server.logs import configure_logging
    from penstock.server.process import run

    configure_logging(level=log_level, form=log_format)
    try:
        file = None if config is None else ConfigFile(config)
        settings = ServerConfig(
            host=host,
            port=port,
            socket=socket,
            store=store,
            clock=clock,
            insecure=insecure,
            region=region,
            account=account,
            public_url=public_url,
            tls_certificate=tls_certificate,
            tls_key=tls_key,
            allowed_host=allowed_host,
            allowed_origin=allowed_origin,
            connections_max=connections_max,
            request_memory_mib=request_memory,
            client_timeout_s=client_timeout,
            workers=workers,
            purge_interval_s=purge_interval,
            name_reuse_s=name_reuse_delay,
            monitoring_token=monitoring_token,
            log_level=log_level,
            log_format=log_format,
            keys=() if file is None else file.keys,
            tokens=() if file is None else file.tokens,
            queues=() if file is None else file.queues(region, account),
        )
        run(settings, _announce)
    except StartFailure as failure:
        return _fail(str(failure))
    except PenstockError as error:
        return _fail(error.reason)
    return 0


def settings_of_file(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Let the file that --config names stand in for what neither flags nor the environment say."""
    from penstock.server.config import StartFailure
    from penstock.server.config_file import ConfigFile

    argument, _, _ = arguments.match("--config")
    if not argument.tokens:
        return
    path = argument.tokens[-1].value
    try:
        settings = ConfigFile(path).settings
    except StartFailure as failure:
        raise SystemExit(_fail(str(failure))) from None
    Dict(settings, source=path, use_commands_as_keys=False)(app, commands, arguments)


def _announce(url: str) -> None:
    sys.stdout.write(f"penstock is ready at {url}\n")
    sys.stdout.flush()


def _fail(reason: str) -> int:
    sys.stderr.write(f"penstock: {reason}\n")
    return 1
