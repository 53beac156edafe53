"""Load test of ``/api/v1/predict``: a real server on loopback against plain loops in one process.

python -m benchmarks.serving [--seconds S] [--connections 8 32] [--many 64] [--models ...]

The server runs in another process, one thread per batch; the clients are threads of this one, each with its own
connection that stays open. The plain loops call ``capsnet.predict`` without any server, with one thread: on one image
after the other, and on batches of 32, as large as the server's.

Images are in MNIST's form and go straight to the network: the small bundled one, and one of the paper's size (not
trained, which does not change its speed). In larger drawings the ink has to be found first, which takes far longer than
the small network: batches cannot gain much then. ``--scale 4`` shows that.
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image

import capsnet
from capsnet.data.preprocess import already_framed
from capsnet.serving.images import to_wire
from capsnet.training.run import processor

HEADERS = {"content-type": "image/png"}
JSON = {"content-type": "application/json"}
BATCH = 32  # images: the largest batch of the server


class Load(NamedTuple):
    """Seconds of each answer, and of all together."""

    latencies: np.ndarray
    elapsed: float
    many: int = 1  # images of each
    refused: int = 0

    @property
    def rate(self) -> float:
        """Images per second."""
        return self.many * len(self.latencies) / self.elapsed

    def line(self, what: str, plain: float) -> str:
        p50, p95, p99 = 1e3 * np.percentile(self.latencies, (50, 95, 99))
        share = f"{self.rate / plain:>6.0%}"
        return f"{what:<46} {self.rate:>7.0f} {share}   {p50:>7.1f} {p95:>7.1f} {p99:>7.1f}   {self.refused:>5}"


def pictures(count: int, scale: int) -> list[np.ndarray]:
    """Test digits: in MNIST's format, or enlarged ink on paper."""
    digits = capsnet.data.load("mnist", "test")
    assert isinstance(digits, capsnet.data.ArrayDataset)
    chosen: list[np.ndarray] = []
    for picture in digits.images[:, 0]:
        framed = already_framed(np.repeat(picture[:, :, None].astype(np.float32) / 255, 3, axis=2), 28, 28) is not None
        if len(chosen) < count and (scale > 1 or framed):
            chosen.append(picture if scale == 1 else np.kron(255 - picture, np.ones((scale, scale), np.uint8)))
    return chosen


def png(picture: np.ndarray) -> bytes:
    content = io.BytesIO()
    Image.fromarray(picture).save(content, "PNG")
    return content.getvalue()


def requests(images: list[np.ndarray], many: int) -> list[bytes]:
    """Bodies of ``many`` images each: a file, or JSON with the pixels of several."""
    if many == 1:
        return [png(image) for image in images]
    pixels = [to_wire(image[:, :, None]) for image in images]
    return [json.dumps({"images": (pixels * 2)[k : k + many]}).encode() for k in range(0, len(pixels), many)]


def find(name: str) -> capsnet.Model:
    """A trained model, or an untrained one by its registered name, for digits."""
    if name in capsnet.list_weights():
        return capsnet.load(name)
    model = capsnet.create_model(name).eval()
    model.preprocessing = capsnet.data.Preprocess().model_dump()
    return model


def alone(images: list[np.ndarray], model: capsnet.Model, seconds: float, many: int) -> Load:
    """So many pictures at a time, no server."""
    latencies, start = [], time.perf_counter()
    while time.perf_counter() - start < seconds:
        sent = time.perf_counter()
        first = many * len(latencies) % (len(images) - many)
        capsnet.predict(images[first : first + many], model, batch_size=many)
        latencies.append(time.perf_counter() - sent)
    return Load(np.array(latencies), time.perf_counter() - start, many)


def together(bodies: list[bytes], port: int, connections: int, seconds: float, many: int) -> Load:
    """Clients that each wait for an answer before the next request."""
    latencies: list[float] = []
    refused: list[int] = []
    start = time.perf_counter()

    def ask(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        while time.perf_counter() - start < seconds:
            number += connections
            sent = time.perf_counter()
            connection.request("POST", "/api/v1/predict", bodies[number % len(bodies)], JSON if many > 1 else HEADERS)
            response = connection.getresponse()
            response.read()
            if response.status == 200:
                latencies.append(time.perf_counter() - sent)
            else:
                refused.append(response.status)
        connection.close()

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Load(np.array(latencies), time.perf_counter() - start, many, len(refused))


@contextmanager
def server(model: str, largest: int) -> Iterator[int]:
    """The port of a server in a new process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "benchmarks.serving", "--serve", model, str(port), str(largest)]
    process = subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"})
    try:
        give_up = time.monotonic() + 60
        while time.monotonic() < give_up:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        process.wait(20)


def serve(model: str, port: int, largest: int) -> None:
    import uvicorn

    from capsnet.serving.app import create_app

    app = create_app({model: find(model)})
    for batcher in app.state.batchers.values():
        batcher.limits.largest = largest
        batcher.limits.wait = batcher.limits.wait if largest > 1 else 0
    uvicorn.run(app, port=port, log_level="error", access_log=False)


def compare(name: str, args: argparse.Namespace) -> None:
    """The plain loops, and the server with single images and with several per request."""
    images, model = pictures(256, args.scale), find(name)
    print(f"\n{name}, pictures of {28 * args.scale} x {28 * args.scale}:")
    print(f"{'':<46} {'images/s':>7} {'share':>6}   {'p50':>7} {'p95':>7} {'p99':>7} ms refused")
    alone(images, model, 0.5, BATCH)
    plain = alone(images, model, args.seconds, BATCH)
    print(plain.line(f"plain loop, batches of {BATCH}", plain.rate), flush=True)
    print(alone(images, model, args.seconds, 1).line("plain loop, one image at a time", plain.rate), flush=True)
    with server(name, BATCH) as port:
        for many, counts in ((1, args.connections), (args.many, (2, 4))):
            bodies = requests(images, many)
            together(bodies, port, 4, 0.5, many)
            for connections in counts:
                load = together(bodies, port, connections, args.seconds, many)
                what = f"server, requests of {many:>2}, {connections:>2} connections"
                print(load.line(what, plain.rate), flush=True)
    print(f"{'':<46} (plain loop again: {alone(images, model, args.seconds, BATCH).rate:.0f})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description="Load test of /api/v1/predict.")
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 8, 32], help="with one image per request")
    parser.add_argument("--many", type=int, default=64, help="images of a request with several")
    parser.add_argument("--models", nargs="+", default=["capsnet-small-mnist", "capsnet"])
    parser.add_argument("--scale", type=int, default=1, help="size of the pictures / 28")
    parser.add_argument("--serve", nargs=3, metavar=("MODEL", "PORT", "LARGEST"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        name, port, largest = arguments.serve
        return serve(name, int(port), int(largest))
    torch.set_num_threads(1)
    print(f"{processor()}, {os.cpu_count()} cores, torch {torch.__version__}")
    for name in arguments.models:
        compare(name, arguments)
    return None


if __name__ == "__main__":
    main()
