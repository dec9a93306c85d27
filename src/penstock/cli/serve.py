"""`penstock serve`: runs the server in the foreground."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, ArgumentCollection, Group, Parameter
from cyclopts.config import Dict

if TYPE_CHECKING:
    from penstock.cli.terminal.screen import Screen
    from penstock.server.config import StartFailure

_FILE = Group.create_ordered("configuration file")
_NETWORK = Group.create_ordered("network")
_STORAGE = Group.create_ordered("storage and time")
_SQS = Group.create_ordered("SQS")
_LOGS = Group.create_ordered("logs and metrics")


def serve(  # noqa: PLR0913 - one for each flag
    *,
    config: Annotated[str | None, Parameter(group=_FILE, metavar="FILE")] = None,
    host: Annotated[str, Parameter(group=_NETWORK, metavar="ADDRESS")] = "127.0.0.1",
    port: Annotated[int, Parameter(group=_NETWORK, metavar="N")] = 9324,
    socket: Annotated[str | None, Parameter(group=_NETWORK, metavar="PATH")] = None,
    insecure: Annotated[bool, Parameter(group=_NETWORK, negative="")] = False,
    tls_certificate: Annotated[str | None, Parameter(group=_NETWORK, metavar="FILE")] = None,
    tls_key: Annotated[str | None, Parameter(group=_NETWORK, metavar="FILE")] = None,
    allowed_host: Annotated[tuple[str, ...], Parameter(group=_NETWORK, metavar="NAME", negative="")] = (),
    allowed_origin: Annotated[tuple[str, ...], Parameter(group=_NETWORK, metavar="URL", negative="")] = (),
    connections_max: Annotated[int, Parameter(group=_NETWORK, metavar="N")] = 10_000,
    request_memory: Annotated[int, Parameter(group=_NETWORK, metavar="MIB")] = 256,
    client_timeout: Annotated[float, Parameter(group=_NETWORK, metavar="S")] = 60,
    workers: Annotated[int, Parameter(group=_NETWORK, metavar="N")] = 1,
    store: Annotated[str, Parameter(group=_STORAGE, metavar="URL")] = "sqlite:./data/penstock.db",
    clock: Annotated[Literal["system", "manual"], Parameter(group=_STORAGE, metavar="KIND")] = "system",
    public_url: Annotated[str | None, Parameter(group=_SQS, metavar="URL")] = None,
    region: Annotated[str, Parameter(group=_SQS, metavar="NAME")] = "us-east-1",
    account: Annotated[str, Parameter(group=_SQS, metavar="ID")] = "000000000000",
    purge_interval: Annotated[int, Parameter(group=_SQS, metavar="S")] = 60,
    name_reuse_delay: Annotated[int, Parameter(group=_SQS, metavar="S")] = 60,
    monitoring_token: Annotated[str | None, Parameter(group=_LOGS, metavar="TOKEN")] = None,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Parameter(group=_LOGS, metavar="LEVEL")
    ] = "info",
    log_format: Annotated[Literal["console", "json"], Parameter(group=_LOGS, metavar="KIND")] = "console",
    color: Annotated[Literal["auto", "always", "never"], Parameter(group=_LOGS, metavar="WHEN")] = "auto",
) -> int:
    """Run the server until you stop it.

    Parameters
    ----------
    config
        TOML file with any of these settings, with access keys and tokens, and with queues to create at the start.
    host
        Address to listen on. Non-loopback addresses require keys or tokens in the file, or --insecure.
    port
        Port to listen on. 0 picks a free one.
    socket
        Unix socket to listen on instead of a host and port, for users who can read and write the store's file. With a
        SQLite store, embedded clients of that file find this server and start none of their own.
    insecure
        Let anyone who can reach the address use the server, without keys or tokens.
    tls_certificate
        File with the server's certificate and its chain (PEM). Serves HTTPS.
    tls_key
        File with the certificate's private key.
    allowed_host
        Another host name of this server, or *.SUFFIX for all names that end in it. Can be repeated. Without keys and
        tokens, requests for a host that is not allowed are refused, which keeps web pages out. Always allowed: IP
        addresses, names without a dot, localhost, *.localhost, *.internal, *.svc.cluster.local and the host of
        --public-url.
    allowed_origin
        Origin, such as https://app.example.com, whose web pages may use this server. Can be repeated. Pages of other
        origins are refused.
    connections_max
        Maximum number of open connections per process. Further ones get 503.
    request_memory
        Maximum memory, in MiB per process, for requests in progress. Requests that do not fit get 503. Each connection
        has another 32 KiB, so small requests always fit.
    client_timeout
        Seconds that a client may take to send a request or to read the response, and that an idle connection stays
        open. The time the server needs to respond does not count.
    workers
        Number of server processes on the port. More than one needs PostgreSQL.
    store
        Where everything is stored: sqlite:PATH, postgresql://HOST/DATABASE, or memory: until the process ends.
    clock
        system or manual. With manual, time moves only by POST /_penstock/clock/advance {"seconds": 30}. For tests.
    public_url
        URL at which clients reach this server, used in queue URLs. By default each client gets the host that it used.
    region
        Region of requests whose signature has none.
    account
        Account of all queues if there are no keys. With keys, each key has its account.
    purge_interval
        Seconds between two purges of a queue. 0 allows any number.
    name_reuse_delay
        Seconds before the name of a deleted queue can be used again. 0 allows it at once.
    monitoring_token
        Token that gives access to /metrics, /stats and the messages in queues (Authorization: Bearer TOKEN). If there
        are keys or tokens, these routes are closed without it. Set PENSTOCK_MONITORING_TOKEN instead: other users of
        the machine can read the command line.
    log_level
        Minimum severity to log: debug, info, warning or error.
    log_format
        console or json. Where there is no terminal, console is logfmt. Logs go to stderr.
    color
        auto, always or never. With auto, colours are used in a terminal unless NO_COLOR is set.
    """
    from penstock.cli.starting import Starting
    from penstock.cli.terminal.screen import Screen
    from penstock.cli.terminal.server_lines import set_up_logs, set_up_logs_of_child
    from penstock.domain.errors import PenstockError
    from penstock.server.config import ServerConfig, StartFailure
    from penstock.server.config_file import ConfigFile
    from penstock.server.process import run

    screen = Screen(sys.stderr, color=color)
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
            color=color,
            keys=() if file is None else file.keys,
            tokens=() if file is None else file.tokens,
            queues=() if file is None else file.queues(region, account),
        )
        set_up_logs(settings)
        starting = Starting(screen, settings)
        run(settings, starting.announce, opened=starting.look, set_up_logs=set_up_logs_of_child)
    except StartFailure as failure:
        return _fail(screen, failure)
    except PenstockError as error:
        return _fail(screen, StartFailure(error.reason))
    return 0


def settings_of_file(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Use the settings of the file that --config names where neither flags nor the environment have any."""
    from penstock.cli.terminal.screen import Screen
    from penstock.server.config import StartFailure
    from penstock.server.config_file import ConfigFile

    argument, _, _ = arguments.match("--config")
    if not argument.tokens:
        return
    path = argument.tokens[-1].value
    try:
        settings = ConfigFile(path).settings
    except StartFailure as failure:
        raise SystemExit(_fail(Screen(sys.stderr), failure)) from None
    Dict(settings, source=path, use_commands_as_keys=False)(app, commands, arguments)


def _fail(screen: Screen, failure: StartFailure) -> int:
    from penstock.cli.starting import start_failure

    screen.write(start_failure(screen, failure))
    return 1
