"""A file server with ranges, in a process of its own, whose faults go by the first part of the path:

``/plain/``; ``/cut/`` ends the first three answers to each range after 1000 bytes; ``/busy/`` answers 503 first;
``/slow/`` pauses before each range; ``/stalled/`` sends half of it and then nothing; ``/denied/`` is 403; ``/whole/``
knows no ranges.
"""

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

CUT_AFTER = 1000
TRIES = 3


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    folder: Path
    seen: ClassVar[Counter[tuple[str, str]]] = Counter()

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        fault, _, name = self.path.lstrip("/").partition("?")[0].partition("/")
        asked = self.headers.get("Range", "")
        again = self.seen[self.path, f"{self.command} {asked}"]
        self.seen[self.path, f"{self.command} {asked}"] += 1
        file = self.folder / name
        status = 403 if fault == "denied" else 503 if fault == "busy" and not again else 200 if file.is_file() else 404
        content = file.read_bytes() if status == 200 else b""
        size = len(content)
        if asked and status == 200 and fault != "whole":
            first, last = (int(text) for text in asked.removeprefix("bytes=").split("-"))
            status, content = 206, content[first : last + 1]
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Accept-Ranges", "none" if fault == "whole" else "bytes")
        if status == 206:
            self.send_header("Content-Range", f"bytes {first}-{first + len(content) - 1}/{size}")
        self.end_headers()
        if self.command == "HEAD":
            return
        if fault == "slow":
            time.sleep(0.2)
        if fault == "stalled" and asked:
            self.wfile.write(content[: len(content) // 2])
            self.wfile.flush()
            time.sleep(600)
        if fault == "cut" and asked and again < TRIES and len(content) > CUT_AFTER:
            content = content[:CUT_AFTER]
            self.close_connection = True
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a server of ``folder``, to which a fault and a name are added."""
    process = subprocess.Popen([sys.executable, __file__, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


if __name__ == "__main__":
    Handler.folder = Path(sys.argv[1])
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    print(server.server_port, flush=True)
    server.serve_forever()
