"""Requests generated from the OpenAPI schema, valid and invalid: never a 5xx, always as declared."""

import base64
from typing import Any

import numpy as np
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

import capsnet
from capsnet.explorer import create_app
from tests.explorer.conftest import BUNDLED

pytestmark = pytest.mark.filterwarnings("ignore")
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
CALL: dict[str, Any] = {"checks": CHECKS, "headers": {"host": "localhost"}, "timeout": 300}  # seconds: CI may be busy
APP = create_app({BUNDLED: capsnet.load(BUNDLED)})
SCHEMA = schemathesis.openapi.from_asgi("/api/openapi.json", APP, headers=CALL["headers"])
PICTURE = np.random.default_rng(0).integers(0, 256, 28 * 28, dtype=np.uint8).tobytes()
BUDGET = settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)


def sensible(value: Any) -> Any:
    """The same request with a known model and valid pictures: random ones hardly ever are."""
    if isinstance(value, list):
        return [sensible(item) for item in value]
    if not isinstance(value, dict):
        return value
    if {"width", "height", "channels", "data"} <= value.keys():
        return {"width": 28, "height": 28, "channels": 1, "data": base64.b64encode(PICTURE).decode()}
    changed = {key: sensible(item) for key, item in value.items()}
    if "model" in changed:
        changed["model"] = BUNDLED
    for key in ("class", "classes"):
        if key in changed:
            changed[key] = 3 if key == "class" else [3]
    for key in ("pose", "poses"):
        if key in changed:
            changed[key] = [0.25] * 16 if key == "pose" else [[0.25] * 16]
    return changed


@SCHEMA.parametrize()
@BUDGET
def test_generated_requests_are_answered_as_declared(case: schemathesis.Case) -> None:
    case.call_and_validate(**CALL)


def answer_as_declared(case: schemathesis.Case) -> None:
    case.body = sensible(case.body)
    case.query = sensible(dict(case.query or {}))
    case.call_and_validate(**CALL)


@SCHEMA.parametrize()
@BUDGET
def test_generated_requests_to_a_known_model_are_answered_as_declared(case: schemathesis.Case) -> None:
    answer_as_declared(case)


@pytest.mark.slow
@SCHEMA.parametrize()
@settings(BUDGET, max_examples=200)
def test_many_generated_requests_are_answered_as_declared(case: schemathesis.Case) -> None:
    answer_as_declared(case)
