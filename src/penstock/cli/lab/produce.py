"""`penstock lab produce`: sends synthetic messages to a queue."""

from __future__ import annotations

import os
import sys
import time
from typing import Annotated

from cyclopts import Parameter

from penstock.cli.failures import USAGE, show
from penstock.cli.lab.failures import Sought, failure_of
from penstock.cli.lab.numbers import Whole
from penstock.cli.lab.place import no_queue, variables
from penstock.cli.terminal.screen import Screen
from penstock.cli.terminal.text import Span, harmless
from penstock.cli.terminal.values import counted, duration


def produce(
    *,
    n: Whole = 10,
    rate: Annotated[float, Parameter(show_default=False)] = 0.0,
    batch_size: Whole = 10,
    poison_count: Annotated[Whole, Parameter(show_default=False)] = 0,
    poison_every: Annotated[Whole, Parameter(show_default=False)] = 0,
    queue_url: Annotated[str | None, Parameter(metavar="URL")] = None,
    region: str | None = None,
    profile: Annotated[str | None, Parameter(metavar="NAME")] = None,
) -> int:
    """Send messages with an id and some work to a queue.

    Parameters
    ----------
    n
        How many messages to send; 0 is until you stop it.
    rate
        Messages per second; 0 is as fast as possible.
    batch_size
        Messages in one call, at most 10.
    poison_count
        How many of them are poison, at random places.
    poison_every
        Make every Nth message poison; overrides --poison-count.
    queue_url
        The queue. Without it, QUEUE_URL, or that of the .env that penstock lab up wrote into this folder.
    region
        The region. Without it, AWS_REGION.
    profile
        A profile of the AWS configuration. Without it, AWS_PROFILE.
    """
    from penstock.lab.producer import ProducerSettings
    from penstock.lab.producer import produce as send

    given = os.environ if queue_url else variables()
    url = queue_url or given.get("QUEUE_URL", "")
    if not url:
        return show(no_queue(USAGE))
    region = region or given.get("AWS_REGION", "")
    try:
        began_s = time.monotonic()
        sent = send(
            ProducerSettings(
                queue_url=url,
                n=n,
                rate=rate,
                batch_size=batch_size,
                poison_count=poison_count,
                poison_every=poison_every,
                region=region,
                profile=profile or "",
            )
        )
    except Exception as error:  # noqa: BLE001 - the outermost edge
        return show(failure_of(error, Sought(url, region, profile)))
    screen = Screen(sys.stderr)
    took = duration(time.monotonic() - began_s)
    said = f" {counted(sent, 'message')} sent in {took}"
    screen.write(
        [
            [screen.signs.of("done"), Span(said)],
            [Span("  "), Span("queue", "dim"), Span(f"  {harmless(url)}")],
        ]
    )
    return 0
