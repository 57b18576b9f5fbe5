"""A headless Chromium for tests of pages, driven through the DevTools protocol over two pipes.

Messages are JSON, each ended by a zero byte; nothing but the standard library is needed.
"""

import fcntl
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
    "--window-size=1180,1400",
    "--remote-debugging-pipe",
)
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
SECONDS = 60


def find_browser() -> str | None:
    """The path of a Chromium, if there is one."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Page:
    """One page in a browser of its own; what its console complains about is collected.

    Args:
        browser: Path of the program.
        address: What to open.
        folder: For the browser's profile.
    """

    def __init__(self, browser: str, address: str, folder: Path) -> None:
        theirs_in, self.send_to = os.pipe()
        self.read_from, theirs_out = os.pipe()
        # The program expects its ends as 3 and 4; above 9 nothing is in their way.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (theirs_in, theirs_out)]
        quiet = os.open(os.devnull, os.O_RDWR)
        self.process = os.posix_spawn(
            browser,
            [browser, *FLAGS, f"--user-data-dir={folder}", "about:blank"],
            {**os.environ, "HOME": str(folder)},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, quiet, 1),
                (os.POSIX_SPAWN_DUP2, quiet, 2),
                (os.POSIX_SPAWN_DUP2, ends[0], 3),
                (os.POSIX_SPAWN_DUP2, ends[1], 4),
            ],
            setpgroup=0,
        )
        for end in (theirs_in, theirs_out, quiet, *ends):
            os.close(end)
        self.buffer, self.count, self.session = b"", 0, None
        self.complaints: list[str] = []
        self.requests: list[str] = []
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(t["targetId"] for t in targets if t["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Runtime", "Log", "Page", "Network"):
            self.call(f"{domain}.enable")
        self.call("Page.navigate", url=address)
        self.wait("document.readyState === 'complete'")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command, and wait for its answer."""
        self.count += 1
        message: dict[str, Any] = {"id": self.count, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.send_to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self.count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._notice(answer)

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(f"{expression}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def wait(self, expression: str) -> None:
        """Until an expression is true."""
        until(lambda: self.ask(expression), expression)

    def close(self) -> None:
        """End the browser and all it started."""
        os.killpg(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)
        os.close(self.send_to)
        os.close(self.read_from)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read_from], [], [], SECONDS)
            received = os.read(self.read_from, 1 << 20) if ready else b""
            if not received:
                raise TimeoutError("The browser does not answer.")
            self.buffer += received
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def _notice(self, event: dict[str, Any]) -> None:
        method, parameters = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(parameters["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning"):
            self.complaints.append(str(parameters["args"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.complaints.append(str(parameters["entry"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])


def until(done: Callable[[], Any], what: str) -> None:
    """Ask again and again, for a minute at most."""
    end = time.monotonic() + SECONDS
    while not done():
        if time.monotonic() > end:
            raise TimeoutError(f"{what} did not come true in {SECONDS} s.")
        time.sleep(0.05)
