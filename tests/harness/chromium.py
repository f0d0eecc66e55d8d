"""Debian's Chromium, driven by Playwright: pages as people see them, and what the browser complains of."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

CHROMIUM = os.environ.get("HOLDFAST_CHROMIUM")
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def chromium() -> Iterator:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(_FLAGS))
        try:
            yield browser
        finally:
            browser.close()


class Watched:
    """A page, with everything that the browser complained of and asked for meanwhile."""

    def __init__(self, browser, url: str, **context) -> None:
        self.url = url
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **context})
        self.page = self.context.new_page()
        self.page.set_default_timeout(60_000)
        self.complaints: list[str] = []
        self.hosts: set[str] = set()
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.hosts.add(urlsplit(request.url).netloc))

    def __enter__(self) -> "Watched":
        return self

    def __exit__(self, *_) -> None:
        self.context.close()

    def _hear(self, message) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def go(self, path: str):
        answer = self.page.goto(self.url + path, wait_until="load")
        assert answer is not None
        return answer

    def shoot(self, folder: Path, name: str, *, whole: bool = True) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.png"
        self.page.screenshot(path=str(path), full_page=whole)
        return path

    def check(self) -> None:
        """Nothing went wrong in the browser, and nobody else was asked for anything."""
        assert self.complaints == []
        assert self.hosts <= {urlsplit(self.url).netloc}
        # As wide as the window: nothing has to be scrolled sideways but what scrolls by itself.
        wide = self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert wide <= 0, f"{wide} pixels too wide"
