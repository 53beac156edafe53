"""Every routing test runs twice: on the plain form, and on the fast one if there is one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from capsnet import kernels


@pytest.fixture(autouse=True, params=["plain", "fast"])
def path(request: pytest.FixtureRequest) -> Iterator[str]:
    with kernels.using(request.param):
        yield request.param


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Compile once: compilers do not see which path is in use, and compiling takes long."""

    def again(item: pytest.Item) -> bool:
        return item.path.is_relative_to(Path(__file__).parent) and "[fast-" in item.name and "compiles" in item.name

    dropped = [item for item in items if again(item)]
    config.hook.pytest_deselected(items=dropped)
    items[:] = [item for item in items if not again(item)]
