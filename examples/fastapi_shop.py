"""A shop whose web server also runs the jobs: enqueue in a request, follow the progress as server-sent events.

    uvicorn fastapi_shop:api --app-dir examples

    curl -X POST 'localhost:8000/orders/17/invoice?pages=5'
    curl -N localhost:8000/jobs/ID/events
    curl localhost:8000/jobs/ID

The jobs are in the file shop.db, unless PENSTOCK_URL says otherwise. `app.lifespan(worker=True)` runs a worker on the
event loop of the web server; on SIGTERM it finishes what runs, or gives it back.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI, HTTPException, Response
from fastapi.responses import StreamingResponse

from penstock import Penstock, current, errors

app = Penstock(os.environ.get("PENSTOCK_URL", "sqlite:shop.db"))
PAGE_S = float(os.environ.get("SHOP_PAGE_S", "0.2"))
"""How long a page takes."""


@app.task(queue="invoices", timeout=60)
async def render_invoice(order: int, pages: int = 3) -> dict[str, int]:
    """Stand in for work that takes a while and can say how far it is."""
    for page in range(1, pages + 1):
        await asyncio.sleep(PAGE_S)
        current().progress(page, of=pages)
    return {"order": order, "pages": pages}


jobs = app.lifespan(worker=True, queues={"invoices": 4}, grace=10)
api = FastAPI(lifespan=jobs)


@api.post("/orders/{order}/invoice", status_code=202)
async def request_invoice(order: int, pages: int = 3) -> dict[str, str]:
    """Enqueue. The same order asks for one invoice only, however often somebody clicks."""
    job = await render_invoice.opts(unique=f"invoice-{order}").enqueue(order, pages)
    return {"job": job.id}


@api.get("/jobs/{job_id}")
async def show(job_id: str) -> dict[str, Any]:
    """Return the state of a job, and its result if it has one."""
    try:
        view = await render_invoice.job(job_id).view()
    except errors.JobNotFound:
        raise HTTPException(404, "There is no such job.") from None
    done = view.state == "succeeded"
    return {"state": view.state, "result": await render_invoice.job(job_id).result() if done else None}


@api.get("/jobs/{job_id}/events")
async def follow(job_id: str, after: int = 0) -> StreamingResponse:
    """Send each event of the job as it comes, until the job has ended."""
    try:
        await render_invoice.job(job_id).view()
    except errors.JobNotFound:
        raise HTTPException(404, "There is no such job.") from None

    async def lines() -> AsyncIterator[bytes]:
        async for event in render_invoice.job(job_id).events(after=after):
            # A browser that reconnects sends the last id; pass it on as `after` and it misses nothing.
            yield b"id: %d\nevent: %b\ndata: %b\n\n" % (event.seq, event.kind.encode(), bytes(event.data))

    return StreamingResponse(lines(), media_type="text/event-stream")


@api.get("/healthz")
async def healthz(response: Response) -> dict[str, Any]:
    """Be healthy while the worker takes jobs."""
    response.status_code = 200 if jobs.healthy else 503
    return jobs.health()
