"""Endurance test of ``/api/v1/predict``: many connections for a minute, no 5xx, and memory that stays.

    python -m benchmarks.load [--connections 200] [--seconds 60] [--requests 5000]

The server is the one of ``capsnet explore``, its limits included, in a process of its own, one thread per batch. This
process holds the connections, each of which waits for its answer before it asks again, until both the seconds and the
requests are over. The plain loop calls ``capsnet.predict`` on one image after the other, without a server, before and
after. The server's memory (RSS) is read when it listens, after one answer on each connection, and at the end.

Exits with 1 if an answer is not a 200, or if the memory at the end differs by more than 10 % from that after one
answer on each connection.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import torch

from benchmarks.serving import alone, find, pictures, png
from capsnet.training.run import processor

ALLOWED = 0.10  # of the memory, that it may grow or shrink by


class Clients:
    """Connections that ask without pause: what was answered, and after how many seconds."""

    def __init__(self, port: int, bodies: list[bytes]) -> None:
        head = "POST /api/v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: image/png\r\nContent-Length: "
        self.port, self.requests = port, [f"{head}{len(body)}\r\n\r\n".encode() + body for body in bodies]
        self.latencies: list[float] = []
        self.statuses: Counter[int | str] = Counter()

    async def ask(self, number: int, until: float, least: int) -> None:
        """One connection, until the time is over and all together have ``least`` answers."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        while time.perf_counter() < until or sum(self.statuses.values()) < least:
            sent = time.perf_counter()
            writer.write(self.requests[number % len(self.requests)])
            try:
                header = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                length = re.search(r"content-length: (\d+)", header.lower())
                await reader.readexactly(int(length[1]) if length else 0)
            except (OSError, asyncio.IncompleteReadError) as error:
                self.statuses[type(error).__name__] += 1
                return
            self.latencies.append(time.perf_counter() - sent)
            self.statuses[int(header.split()[1])] += 1
            number += 1
        writer.close()

    async def ask_all(self, connections: int, seconds: float, least: int) -> float:
        """All connections at once; returns the seconds that passed."""
        self.latencies, self.statuses, began = [], Counter(), time.perf_counter()
        await asyncio.gather(*(self.ask(7 * number, began + seconds, least) for number in range(connections)))
        return time.perf_counter() - began


@contextmanager
def server(model: str) -> Iterator[tuple[int, int]]:
    """The port and the process of a server."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "benchmarks.load", "--serve", model, str(port)]
    process = subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"})
    try:
        give_up = time.monotonic() + 120
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if time.monotonic() > give_up or process.poll() is not None:
                    raise
                time.sleep(0.1)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait(30)


def serve(model: str, port: int) -> None:
    from capsnet.serving.app import create_app
    from capsnet.serving.server import serve

    network = find(model)
    make = partial(create_app, {model: network})
    serve(make, title=model, host="127.0.0.1", port=port, browser=False, token=None, names=(), say=lambda line: None)


def resident(process: int) -> float:
    """MB that a process has in memory."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) / 1e3


def measure(args: argparse.Namespace) -> bool:
    images, model = pictures(256, 1), find(args.model)

    def plain() -> None:
        load = alone(images, model, args.plain, 1)
        p50, p99 = 1e3 * np.percentile(load.latencies, (50, 99))
        print(f"plain loop: {load.rate:.0f} answers/s, p50 {p50:.1f} ms, p99 {p99:.1f} ms", flush=True)

    plain()
    with server(args.model) as (port, process):
        clients, memory = Clients(port, [png(image) for image in images]), [resident(process)]
        asyncio.run(clients.ask_all(args.connections, 0, args.connections))
        memory.append(resident(process))
        seconds = asyncio.run(clients.ask_all(args.connections, args.seconds, args.requests))
        memory.append(resident(process))
    p50, p99 = 1e3 * np.percentile(clients.latencies, (50, 99))
    count = len(clients.latencies)
    print(f"server, {args.connections} connections for {seconds:.0f} s: {count:,} answers, {count / seconds:.0f}/s, "
          f"p50 {p50:.0f} ms, p99 {p99:.0f} ms, longest {1e3 * max(clients.latencies):.0f} ms")  # fmt: skip
    growth = memory[2] / memory[1] - 1
    print(f"statuses: {dict(clients.statuses)}")
    print(f"memory: {memory[0]:.0f} MB at first, {memory[1]:.0f} MB after one answer on each connection, "
          f"{memory[2]:.0f} MB at the end ({growth:+.1%})", flush=True)  # fmt: skip
    plain()
    return set(clients.statuses) == {200} and abs(growth) <= ALLOWED


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description="Endurance test of the server.")
    parser.add_argument("--connections", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60, help="at least")
    parser.add_argument("--requests", type=int, default=5000, help="at least")
    parser.add_argument("--plain", type=float, default=5, help="seconds of the plain loop, before and after")
    parser.add_argument("--model", default="capsnet-small-mnist")
    parser.add_argument("--serve", nargs=2, metavar=("MODEL", "PORT"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve[0], int(arguments.serve[1]))
        return 0
    torch.set_num_threads(1)
    print(f"{processor()}, {os.cpu_count()} cores, torch {torch.__version__}, {arguments.model}")
    return 0 if measure(arguments) else 1


if __name__ == "__main__":
    sys.exit(main())
