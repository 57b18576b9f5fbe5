"""One file over the net, with a progress bar."""

import http.client
import urllib.request

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

CHUNK_BYTES = 1 << 16
TIMEOUT_SECONDS = 30.0


def download(url: str, size: int) -> bytes:
    """The bytes at `url`, which should be `size`: more are not waited for.

    Fails with an OSError that says what the net said.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    console = Console(stderr=True)
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        task = progress.add_task(url.rsplit("/", 1)[-1], total=size)
        content = bytearray()
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as answer:
                while len(content) <= size and (chunk := answer.read(CHUNK_BYTES)):
                    content += chunk
                    progress.update(task, completed=len(content))
        except http.client.HTTPException as failure:
            raise OSError(f"the answer broke off ({failure!r})") from failure
    return bytes(content)
