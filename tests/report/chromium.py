"""A headless Chromium driven over its debugging pipe (NUL-ended JSON on descriptors 3 and 4): no other library."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

EXECUTABLE = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe")  # fmt: skip
PATIENCE = 60.0  # seconds


class Chromium:
    """One page. ``requests`` are the addresses it asked for, ``complaints`` all that its console and errors said."""

    def __init__(self) -> None:
        assert EXECUTABLE is not None, "no Chromium on this machine: apt-get install chromium"
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        command = [EXECUTABLE, *FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"]
        # The shell puts the two ends where Chromium looks for them, whatever their numbers are here.
        wired = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        self._process = subprocess.Popen(
            ["bash", "-c", wired, "bash", *command],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer, self._sent, self._session = b"", 0, ""
        self.requests: list[str] = []
        self.complaints: list[str] = []
        pages = [t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page"]
        attached = self.call("Target.attachToTarget", targetId=pages[0]["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Chromium:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)
        self._profile.cleanup()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send one command and return its result; what happens meanwhile is noted."""
        self._sent += 1
        message: dict[str, Any] = {"id": self._sent, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._sent:
            self._note(answer)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def open(self, path: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[theme])
        self.call("Page.navigate", url=path.resolve().as_uri())
        deadline = time.monotonic() + PATIENCE
        while self.run("document.readyState") != "complete" or self.run("location.protocol") != "file:":
            assert time.monotonic() < deadline, "the page does not finish loading"

    def run(self, script: str) -> Any:
        """The JSON value of an expression; a promise is awaited."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def screenshot(self, path: Path) -> None:
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], PATIENCE)
            assert ready, f"Chromium says nothing for {PATIENCE:g} s"
            part = os.read(self._in, 1 << 20)
            assert part, f"Chromium ended with code {self._process.wait()}"
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def _note(self, event: dict[str, Any]) -> None:
        method, about = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        elif method == "Log.entryAdded":
            self.complaints.append(about["entry"]["text"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(about["exceptionDetails"])[:500])
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(json.dumps(about["args"])[:500])
