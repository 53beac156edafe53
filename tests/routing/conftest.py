"""Every routing test runs twice: on the plain form, and on the fast one if there is one."""

from collections.abc import Iterator

import pytest

from capsnet import kernels


@pytest.fixture(autouse=True, params=["plain", "fast"])
def path(request: pytest.FixtureRequest) -> Iterator[str]:
    with kernels.using(request.param):
        yield request.param
