"""Response times of the explorer: a real server on this machine, the paper's network, one visitor and then ten.

python -m benchmarks.explorer [--visitors 1 10] [--strokes N] [--slides N]

Two figures. *slide*: a slider event to a new picture, the call of /api/decode. *stroke*: the end of a stroke to all
panels as the page does it: what the network sees, then the lengths, then sweep, routing and the two columns of the
comparison that are not the network itself, at the same time. Times are those of a client on the same machine,
connections kept open; drawing on the screen is not in them.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

import capsnet

CLAIMS = {"slide": (30, 80), "stroke": (150, None)}  # milliseconds: median, 95th percentile


class Visitor:
    """A client with its own connections, one for each concurrent request."""

    def __init__(self, port: int, model: str, number: int) -> None:
        self.port, self.model = port, model
        self.local = threading.local()
        self.panels = ThreadPoolExecutor(5)
        digits = capsnet.data.load("mnist", "test")
        assert isinstance(digits, capsnet.data.ArrayDataset)
        self.digits, self.next = digits.images[:, 0], 1000 * number
        self.answer = self.stroke_end()

    def canvas(self) -> dict:
        """Another digit at each call, as large as the page sends it."""
        drawn = np.kron(self.digits[self.next % len(self.digits)], np.ones((8, 8), dtype=np.uint8))
        self.next += 1
        return {"width": 224, "height": 224, "channels": 1, "data": base64.b64encode(drawn.tobytes()).decode("ascii")}

    def ask(self, path: str, **body: object) -> dict:
        if not hasattr(self.local, "connection"):
            self.local.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection: http.client.HTTPConnection = self.local.connection
        connection.request(
            "POST", path, json.dumps({"model": self.model, **body}), {"content-type": "application/json"}
        )
        response = connection.getresponse()
        answer = json.loads(response.read())
        if response.status != 200:
            raise RuntimeError(f"{path}: {response.status} {answer}")
        return answer

    def stroke_end(self) -> dict:
        seen = self.ask("/api/see", image=self.canvas(), centre=True)["seen"]
        answer = self.ask("/api/classify", seen=seen)
        best = answer["order"][0]
        panels = [
            self.panels.submit(self.ask, "/api/sweep", pose=answer["poses"][best], **{"class": best}),
            self.panels.submit(self.ask, "/api/trace", seen=seen, **{"class": best}),
            *(self.panels.submit(self.ask, "/api/classify", seen=seen, iterations=count) for count in (1, 10)),
        ]
        for panel in panels:
            panel.result()
        return answer

    def slide(self) -> None:
        best = self.answer["order"][0]
        self.ask("/api/decode", poses=[self.answer["poses"][best]], classes=[best])


def measure(visitors: list[Visitor], what: Callable[[Visitor], object], rounds: int) -> tuple[list[float], float]:
    """Milliseconds of every call of all concurrent visitors, and calls per second."""
    gate = threading.Barrier(len(visitors) + 1)

    def work(visitor: Visitor) -> list[float]:
        what(visitor)
        gate.wait()
        times = []
        for _ in range(rounds):
            start = time.perf_counter()
            what(visitor)
            times.append(1e3 * (time.perf_counter() - start))
        return times

    with ThreadPoolExecutor(len(visitors)) as pool:
        running = [pool.submit(work, visitor) for visitor in visitors]
        gate.wait()
        start = time.perf_counter()
        times = [t for future in running for t in future.result()]
    return times, len(times) / (time.perf_counter() - start)


def wait_for_profile(port: int) -> None:
    """Wait until a model that is not bundled has been profiled in the background."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    for _ in range(120):
        connection.request("GET", "/api/models")
        if json.loads(connection.getresponse().read())["models"][0]["ranges"]:
            return
        time.sleep(1)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.explorer", description="Times of the explorer.")
    parser.add_argument("--visitors", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--strokes", type=int, default=30, help="strokes of each visitor")
    parser.add_argument("--slides", type=int, default=200, help="slider events of each visitor")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(0)
        model = capsnet.create_model("capsnet")
        model.preprocessing = {"style": "digit", "height": 28, "width": 28, "channels": 1}
        capsnet.save(model, Path(folder) / "paper.safetensors")
        command = [sys.executable, "-m", "capsnet", "explore", f"{folder}/paper.safetensors", "--no-browser"]
        start = time.perf_counter()
        server = subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline().rsplit(":", 1)[1].strip().rstrip("/"))
            print(f"listening after {time.perf_counter() - start:.1f} s; {model.num_parameters():,} parameters")
            wait_for_profile(port)
            report(port, arguments)
        finally:
            server.terminate()
            server.wait()


def slide_among_strokes(visitors: list[Visitor], rounds: int) -> tuple[list[float], float]:
    """One visitor slides while all others draw without a pause."""
    done = threading.Event()

    def draw(visitor: Visitor) -> None:
        while not done.is_set():
            visitor.stroke_end()

    with ThreadPoolExecutor(len(visitors)) as pool:
        drawing = [pool.submit(draw, visitor) for visitor in visitors[1:]]
        try:
            return measure(visitors[:1], Visitor.slide, rounds)
        finally:
            done.set()
            for future in drawing:
                future.result()


def report(port: int, arguments: argparse.Namespace) -> None:
    print(f"{'':<10} {'visitors':>8} {'median ms':>10} {'p95 ms':>8} {'per second':>11}   asked of one visitor")
    for count in arguments.visitors:
        visitors = [Visitor(port, "paper", number) for number in range(count)]
        show("slide", count, *measure(visitors, Visitor.slide, arguments.slides))
        show("stroke", count, *measure(visitors, Visitor.stroke_end, arguments.strokes))
        if count > 1:
            show("slide", count, *slide_among_strokes(visitors, arguments.slides), note=" (the others draw)")


def show(name: str, count: int, times: list[float], rate: float, note: str = "") -> None:
    median, late = statistics.median(times), statistics.quantiles(times, n=20)[-1]
    claim = f"median {CLAIMS[name][0]}" + (f", p95 {CLAIMS[name][1]}" if CLAIMS[name][1] else "")
    print(f"{name:<10} {count:>8} {median:>10.1f} {late:>8.1f} {rate:>11.1f}   under {claim}{note}", flush=True)


if __name__ == "__main__":
    main()
