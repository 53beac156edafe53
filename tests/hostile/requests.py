"""Malformed requests to the whole application, the page's own addresses included: no 5xx, and every answer is JSON."""

import base64
import json
import random
from collections import Counter
from typing import Any

import capsnet
from capsnet.explorer import create_app
from tests.hostile.attacks import SMALL, absurd, mutated, pictures
from tests.serving.helpers import HOME, TestClient

KINDS = ("application/json", "image/png", "application/octet-stream", "text/plain", "multipart/form-data", "", "\x7f")


def ask(count: int, seed: int) -> tuple[Counter[str], list[str]]:
    """The answers' classes (2xx, 4xx, 5xx), and what was wrong."""
    network = capsnet.create_model("capsnet", image_size=(20, 20), **SMALL).eval()
    answers: Counter[str] = Counter()
    wrong: list[str] = []
    with TestClient(create_app({"small": network}), base_url=HOME, raise_server_exceptions=False) as client:
        paths = client.get("/api/openapi.json").json()["paths"]
        routes = [(method, path) for path, methods in paths.items() for method in methods]
        for number in range(count):
            request = made(random.Random(f"request {seed} {number}"), routes)
            response = client.request(**request)
            answers[f"{response.status_code // 100}xx"] += 1
            clear = response.status_code < 400 or (
                response.headers.get("content-type", "").startswith("application/json") and "error" in response.json()
            )
            if response.status_code >= 500 or not clear:
                wrong.append(
                    f"request {seed} {number}: {response.status_code} {response.text[:200]} to {request}"[:600]
                )
    return answers, wrong


def made(chance: random.Random, routes: list[tuple[str, str]]) -> dict[str, Any]:
    method, path = chance.choice(routes)
    if chance.random() < 0.1:
        method, path = (
            chance.choice(("get", "put", "delete", "patch")),
            path + chance.choice(("", "/", "x", "/../..", "%00")),
        )
    for part in ("{name}", "{model}", "{number}", "{index}"):
        path = path.replace(part, chance.choice(("small", "0", "-1", "x" * 300, "%2e%2e")))
    pixels = {"width": 20, "height": 20, "channels": 1, "data": base64.b64encode(chance.randbytes(400)).decode()}
    for key in chance.sample(sorted(pixels), chance.randrange(3)):
        pixels[key] = absurd(chance)
    fields = ("image", "images", "seen", "model", "poses", "pose", "capsule", "strokes", "iterations", "centre")
    body: Any = {key: chance.choice((pixels, [pixels], absurd(chance))) for key in chance.sample(fields, 3)}
    content = chance.choice((json.dumps(body).encode(), json.dumps(pixels).encode(), chance.choice(pictures())))
    return {
        "method": method,
        "url": path,
        "params": {"model": chance.choice(("small", "small", "", "x")), "threshold": str(absurd(chance))},
        "headers": {"content-type": chance.choice(KINDS)},
        "content": mutated(content, chance) if chance.random() < 0.7 else content,
    }
