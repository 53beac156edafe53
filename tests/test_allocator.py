"""``keep_freed_memory``: a block that is allocated again causes no page faults."""

import subprocess
import sys
import textwrap

import pytest

COUNT = textwrap.dedent(
    """
    import resource, sys
    import torch
    from capsnet import keep_freed_memory

    def faults():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(10):
            torch.zeros(16 << 20)  # 64 MB, touched and freed
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    accepted = keep_freed_memory() if sys.argv[1] == "keep" else None
    faults()
    print(accepted, faults())
    """
)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems have other allocators")
def test_freed_memory_is_reused_without_page_faults() -> None:
    def count(how: str) -> list[str]:
        done = subprocess.run([sys.executable, "-c", COUNT, how], capture_output=True, text=True, check=True)
        return done.stdout.split()

    accepted, few = count("keep")
    if accepted == "False":
        pytest.skip("another C library than glibc")
    _, many = count("leave")
    assert int(few) < 100 < 1000 < int(many)
