"""Reports of the lab in a real browser: nothing to complain about, for the console, for axe, or at any width."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable
from typing import Literal

import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, Route

from penstock.lab.report.index import index_report, summary_of
from penstock.lab.report.page import run_report
from penstock.lab.report.style import content_security_policy
from tests.end_to_end.browsing import browsing, find_chromium
from tests.support.campaigns import campaign, trials
from tests.support.lab.runs import WRITTEN, hostile_run, run_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(360), pytest.mark.asyncio(loop_scope="module")]

SITE = "http://lab.example"
WIDTHS = (390, 1280)


@functools.cache
def pages() -> dict[str, str]:
    """Every report, the index, and a run whose every text is markup."""
    runs = {name: run_of(name) for name in WRITTEN}
    links = {name: f"{name}.html" for name in WRITTEN}
    made = {name: run_report(run, links=links) for name, run in runs.items()}
    hostile = hostile_run()
    made["hostile"] = run_report(hostile)
    made["index"] = index_report(
        [summary_of(run, f"{name}.html") for name, run in runs.items()] + [summary_of(hostile, "h")]
    )
    made["empty"] = index_report([])
    return made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with browsing(find_chromium()) as made:
        yield made


async def opened(browser: Browser, made: dict[str, str], complaints: list[str]) -> Page:
    """Open a tab in which the reports are a site of their own, under the policy that they are served with."""
    page = await browser.new_page()
    page.on("console", lambda message: complaints.append(f"{page.url}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(f"{page.url}: {error}"))
    page.on("dialog", lambda dialog: complaints.append(f"{page.url}: dialog {dialog.message}"))

    async def answer(route: Route) -> None:
        name = route.request.url.removeprefix(f"{SITE}/").split("#", maxsplit=1)[0].removesuffix(".html")
        if name not in made:
            complaints.append(f"asked for {route.request.url}")
            await route.abort()
            return
        headers = {"content-security-policy": content_security_policy()}
        await route.fulfill(content_type="text/html; charset=utf-8", headers=headers, body=made[name])

    await page.route("**/*", answer)
    return page


async def test_reports_are_sound_at_every_width(browser: Browser) -> None:
    made = pages()
    complaints: list[str] = []
    page = await opened(browser, made, complaints)
    for name in made:
        await page.goto(f"{SITE}/{name}.html")
        for width in WIDTHS:
            await page.set_viewport_size({"width": width, "height": 900})
            wide = await page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, f"{name} is {wide} px wide at {width} px"
        assert await page.evaluate("getComputedStyle(document.body).margin") == "0px", f"{name} has no style"
    assert complaints == []


@campaign
async def test_axe_finds_nothing_that_some_people_cannot_read(
    browser: Browser, record_property: Callable[[str, object], None]
) -> None:
    """All pages in both themes as evidence; elsewhere the two that have most kinds of parts, in one theme each."""
    made = pages()
    page = await opened(browser, made, [])
    axe = Axe()
    looks: list[tuple[str, Literal["dark", "light"]]] = [("index", "light"), ("duplicates", "dark")]
    looks += [(name, "light") for name in made] + [(name, "dark") for name in made]
    tried = looks[: trials(len(looks))]
    for name, theme in tried:
        await page.emulate_media(color_scheme=theme)
        await page.goto(f"{SITE}/{name}.html")
        found = await axe.run(page)
        assert found.violations_count == 0, f"{name}, {theme}: {found.generate_report()}"
    record_property("evidence", f"axe-core found nothing in {len(tried)} looks at reports")


async def test_a_witness_is_one_click_away_without_scripts(browser: Browser) -> None:
    complaints: list[str] = []
    page = await opened(browser, pages(), complaints)
    await page.goto(f"{SITE}/duplicates.html")
    # The history is folded; a link to one of its events opens it.
    row = page.locator("#p22")
    assert not await row.is_visible()
    await page.locator("td a[href='#p22']").first.click()
    await row.wait_for(state="visible")
    assert "effect" in await row.inner_text()
    await page.locator("header a", has_text="business-idempotency").click()
    await page.wait_for_url("**/business-idempotency.html")
    assert complaints == []


async def test_markup_in_a_run_is_shown_and_never_runs(browser: Browser) -> None:
    complaints: list[str] = []
    page = await opened(browser, pages(), complaints)
    await page.goto(f"{SITE}/hostile.html")
    assert await page.locator("script, img, iframe, base").count() == 0
    assert await page.evaluate("window.hacked") is None
    assert "<img src=x onerror=" in await page.inner_text("main")
    assert complaints == []
