"""Load test of ``/api/v1/predict``: a real server on loopback, with and without micro-batching, against a plain loop.

python -m benchmarks.serving [--seconds S] [--connections 1 8 32]

The server runs in another process, one thread per batch; the clients are threads of this one, each with its own
connection that stays open. The plain loop calls ``capsnet.predict`` on one picture after the other, without any server.

Images that are in MNIST's form already go straight to the network, so that the network is what is measured: the small
bundled one, and one of the paper's size (untrained; that does not change its speed). In larger drawings the ink has to
be found first, which takes far longer than the small network: batches cannot gain much then, and that is shown too.
"""

from __future__ import annotations

import argparse
import http.client
import io
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
from capsnet.training.run import processor

HEADERS = {"content-type": "image/png"}
CASES = (("capsnet-small-mnist", 1), ("capsnet", 1), ("capsnet-small-mnist", 4))  # model, size of the pictures / 28


class Load(NamedTuple):
    """Seconds of each answer, and of all together."""

    latencies: np.ndarray
    elapsed: float
    refused: int = 0

    def line(self, what: str) -> str:
        p50, p95, p99 = 1e3 * np.percentile(self.latencies, (50, 95, 99))
        rate = len(self.latencies) / self.elapsed
        return f"{what:<44} {rate:>8.0f} /s   {p50:>7.1f} {p95:>7.1f} {p99:>7.1f} ms   {self.refused:>5}"


def pictures(count: int, scale: int) -> list[bytes]:
    """Test digits as PNG files: in MNIST's format, or enlarged ink on paper."""
    digits = capsnet.data.load("mnist", "test")
    assert isinstance(digits, capsnet.data.ArrayDataset)
    files: list[bytes] = []
    for picture in digits.images[:, 0]:
        framed = already_framed(np.repeat(picture[:, :, None].astype(np.float32) / 255, 3, axis=2), 28, 28) is not None
        if len(files) == count or (scale == 1 and not framed):
            continue
        content = io.BytesIO()
        Image.fromarray(picture if scale == 1 else 255 - picture).resize((28 * scale, 28 * scale)).save(content, "PNG")
        files.append(content.getvalue())
    return files


def find(name: str) -> capsnet.Model:
    """A trained model, or an untrained one by its registered name, for digits."""
    if name in capsnet.list_weights():
        return capsnet.load(name)
    model = capsnet.create_model(name).eval()
    model.preprocessing = capsnet.data.Preprocess().model_dump()
    return model


def alone(files: list[bytes], model: capsnet.Model, seconds: float) -> Load:
    """One picture at a time, no server."""
    latencies, start = [], time.perf_counter()
    while time.perf_counter() - start < seconds:
        sent = time.perf_counter()
        capsnet.predict(files[len(latencies) % len(files)], model)
        latencies.append(time.perf_counter() - sent)
    return Load(np.array(latencies), time.perf_counter() - start)


def together(files: list[bytes], port: int, connections: int, seconds: float) -> Load:
    """Clients that each wait for an answer before the next request."""
    latencies: list[float] = []
    refused: list[int] = []
    start = time.perf_counter()

    def ask(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        while time.perf_counter() - start < seconds:
            number += connections
            sent = time.perf_counter()
            connection.request("POST", "/api/v1/predict", files[number % len(files)], HEADERS)
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
    return Load(np.array(latencies), time.perf_counter() - start, len(refused))


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


def compare(name: str, scale: int, seconds: float, counts: list[int]) -> None:
    """The plain loop, the server that computes one picture at a time, and the one that computes them together."""
    files, model = pictures(200, scale), find(name)
    print(f"\n{name}, pictures of {28 * scale} x {28 * scale}:")
    print(f"{'':<44} {'answers':>8}         {'p50':>7} {'p95':>7} {'p99':>7}      refused")
    alone(files, model, 0.5)
    print(alone(files, model, seconds).line("plain loop, one image at a time"), flush=True)
    for largest in (1, 32):
        with server(name, largest) as port:
            together(files, port, 4, 1)
            for connections in counts:
                load = together(files, port, connections, seconds)
                print(load.line(f"server, batches up to {largest:>2}, {connections:>3} connections"), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description="Load test of /api/v1/predict.")
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--serve", nargs=3, metavar=("MODEL", "PORT", "LARGEST"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        name, port, largest = arguments.serve
        return serve(name, int(port), int(largest))
    torch.set_num_threads(1)
    print(f"{processor()}, {os.cpu_count()} cores, torch {torch.__version__}")
    for name, scale in CASES:
        compare(name, scale, arguments.seconds, arguments.connections)
    return None


if __name__ == "__main__":
    main()
