"""A release as a service: exported once, then served by onnxruntime, Pillow and numpy, without torch.

    python examples/serve_onnx.py

Exports the bundled release with its head, starts an HTTP server, asks it about some test digits, and says how many it
got right, and how fast. `--port 8000` serves until Ctrl-C: `curl --data-binary @digit.png localhost:8000`.
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from PIL import Image, ImageOps


class Classifier:
    """An exported file with its ``preprocessing.json``. This class is all that a service needs to copy."""

    def __init__(self, folder: Path) -> None:
        about = json.loads((folder / "preprocessing.json").read_text())
        self.images, self.classes = about["preprocessing"], about["classes"]
        self.session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])

    def prepared(self, file: bytes) -> NDArray[np.uint8]:
        """uint8 [3, S, S]: upright, RGB, the shorter side resized, the square in the middle."""
        image = ImageOps.exif_transpose(Image.open(io.BytesIO(file))).convert("RGB")
        kernel = Image.Resampling[self.images["interpolation"].upper()]
        resize, size, short = self.images["resize"], self.images["size"], min(image.size)
        image = image.resize((resize * image.width // short, resize * image.height // short), kernel)
        left, top = round((image.width - size) / 2), round((image.height - size) / 2)
        return np.asarray(image.crop((left, top, left + size, top + size))).transpose(2, 0, 1)

    def __call__(self, files: list[bytes]) -> list[dict[str, float]]:
        """For each image, the probability of each class."""
        (logits,) = self.session.run(None, {"images": np.stack([self.prepared(file) for file in files])})
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares = odds / odds.sum(axis=1, keepdims=True)
        return [dict(zip(self.classes, map(float, row), strict=True)) for row in shares]


def server(classify: Classifier, port: int) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            try:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                code, answer = 200, json.dumps(classify([body])[0])
            except Exception as error:  # a service answers, whatever it was sent
                code, answer = 400, json.dumps({"error": str(error)})
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(answer.encode())

        def log_message(self, *words: Any) -> None:
            pass

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


def main(argv: list[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("release", nargs="?", default="directpred-digits")
    parser.add_argument("--head", default="digits")
    parser.add_argument("--port", type=int, help="serve there until Ctrl-C")
    arguments = parser.parse_args(argv)

    import ssl_hub  # to export, and for test images: a service has only the two files

    with tempfile.TemporaryDirectory() as folder:
        print(ssl_hub.export(arguments.release, folder, head=arguments.head).text())
        serving = server(Classifier(Path(folder)), arguments.port or 0)
    if arguments.port:
        serving.serve_forever()
    threading.Thread(target=serving.serve_forever, daemon=True).start()
    scores = asked(f"http://127.0.0.1:{serving.server_port}")
    serving.shutdown()
    print(f"{scores['right']:.1%} of 100 test digits right, {scores['answers a second']:.0f} answers a second")
    return scores


def asked(address: str, count: int = 100) -> dict[str, float]:
    """What a client sees: PNG files in, probabilities out."""
    from ssl_hub.data.sources import open_source

    digits = open_source("digits", "test")
    assert digits.labels is not None and digits.classes is not None
    right, start = 0, time.perf_counter()
    for row in range(count):
        file = io.BytesIO()
        digits.image(row % len(digits)).save(file, "PNG")
        with urllib.request.urlopen(urllib.request.Request(address, file.getvalue())) as answer:
            shares = json.load(answer)
        right += max(shares, key=shares.get) == digits.classes[digits.labels[row % len(digits)]]
    return {"right": right / count, "answers a second": count / (time.perf_counter() - start)}


if __name__ == "__main__":
    main()
