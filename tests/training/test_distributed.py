"""Two processes under torchrun, on the CPU, over the loopback device.

A start costs seconds, so most trainings are made in one (``together``), and each test looks at some of them.
"""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import capsnet
from capsnet.training import TrainConfig, loop
from capsnet.training.run import Run
from tests.training.test_resume import interrupt

ENVIRONMENT = os.environ | {
    "OMP_NUM_THREADS": "1",
    "CAPSNET_BF16": "1",
    "GLOO_SOCKET_IFNAME": "lo",
    "CAPSNET_TIMEOUT": "60",
}
SECONDS = 300  # more than any start needs on a busy machine
LONG = {"epochs": 4, "batch_size": 5, "checkpoint_every": 7}  # 160 steps: time enough to be killed in


def torchrun(given: dict, folder: Path, *flags: str, processes: int = 2) -> subprocess.Popen:
    jobs = folder / "jobs.json"
    jobs.write_text(json.dumps(given))
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "1", "--nproc-per-node", str(processes)]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", *flags]
    command += [str(Path(__file__).with_name("_together.py")), str(jobs)]
    return subprocess.Popen(command, env=ENVIRONMENT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def finish(process: subprocess.Popen) -> tuple[str, str]:
    try:
        return process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.terminate()  # torchrun ends its processes
        raise AssertionError(process.communicate(timeout=60)) from None


def wait_for(happened: Callable[[], bool], process: subprocess.Popen) -> None:
    until = time.monotonic() + SECONDS
    while not happened():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.02)


def write(config: TrainConfig, path: Path) -> str:
    path.write_text(config.to_json())
    return str(path)


@pytest.fixture(scope="module")
def configs(quick: TrainConfig, idx_folder: Path) -> dict[str, TrainConfig]:
    """What is trained by one process and by two. 200 examples: in batches of 51 the last one has 47."""
    plain = dataclasses.replace(quick, batch_size=51)
    efficient = {"channels": [2, 2, 2, 8], "decoder_widths": [8, 9]}
    # its growing margin counts steps, not micro-batches; EM lets rounding errors grow too far to compare
    matrix = {"widths": [2, 2, 2, 2], "margin_steps": 3, "routing": "dynamic"}
    few = {"batch_size": 3, "limit": 7, "clip": 0.1}  # 3 + 3 + 1: the second process has nothing in the last batch
    change = dataclasses.replace
    return {
        "plain": plain,
        "weighted": change(plain, class_weights=True, limit=95, weight_decay=0.01, optimizer="adamw"),
        "accumulated": change(plain, accumulate=4),
        "few": change(plain, **few),
        "few-accumulated": change(plain, **few, accumulate=3),
        "matrix": change(
            plain, model="matrix-capsnet-small", model_options=matrix, limit=40, batch_size=7, accumulate=2
        ),
        "pairs": change(plain, data=f"multimnist:{idx_folder}", limit=30, eval_limit=20, batch_size=7, augment=NOTHING),
        "normed": change(plain, model="efficient-capsnet", model_options=efficient, limit=40, batch_size=7),
        "bf16": change(plain, precision="bf16"),
        "long": change(plain, **LONG),
    }


NOTHING = capsnet.data.Augment()
ALIKE = ["plain", "weighted", "accumulated", "few", "few-accumulated", "matrix", "pairs"]  # no BatchNorm in them


@pytest.fixture(scope="module")
def together(configs: dict[str, TrainConfig], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of runs by two processes; beside them what each process ended with."""
    folder = tmp_path_factory.mktemp("together")
    jobs = [{"config": write(c, folder / f"{n}.config"), "out": str(folder / n)} for n, c in configs.items()]
    interrupt(configs["plain"], 5, out=folder / "alone-first", device="cpu", figures=True)
    plain, single = jobs[0]["config"], dataclasses.replace(configs["few"], batch_size=1)
    jobs += [
        {"config": plain, "out": str(folder / "alone-first"), "resume": "auto"},
        {"config": plain, "out": str(folder / "alone-later"), "stop": [1, 5], "fails": True},
        {"config": write(single, folder / "single.config"), "out": str(folder / "single"), "fails": True},
        {"config": plain, "out": str(folder / "plain"), "fails": True},  # it is not empty
    ]
    process = torchrun({"jobs": jobs}, folder)
    output, complaints = finish(process)
    assert process.returncode != 0  # the main process reports the last job's error; the other exits silently
    (folder / "stdout.txt").write_text(output)
    (folder / "stderr.txt").write_text(complaints)
    return folder


@pytest.fixture(scope="module")
def alone(configs: dict[str, TrainConfig], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same runs by one process, each batch in one part."""
    folder = tmp_path_factory.mktemp("alone")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "RECORD_EVERY", 1)
        for name in ALIKE:
            config = dataclasses.replace(configs[name], accumulate=1)
            capsnet.train(config, out=folder / name, device="cpu", figures=False)
    return folder


def curve(folder: Path) -> list[dict]:
    """Every line of the metrics, without kind and times."""
    return [
        {k: v for k, v in line.items() if k not in ("kind", "images_per_second", "seconds")}
        for line in Run(folder).records()
    ]


@pytest.mark.parametrize("name", ALIKE)
def test_two_processes_equal_one(name: str, together: Path, alone: Path) -> None:
    """Losses, gradient norms and learning rates of every step; validation; all metrics of the test split."""
    ours, theirs = curve(together / name), curve(alone / name)
    assert len(ours) == len(theirs) > 2
    for mine, other in zip(ours, theirs, strict=True):
        assert mine == pytest.approx(other, rel=2e-4, abs=1e-6)
    results = [json.loads((folder / name / "results.json").read_text()) for folder in (together, alone)]
    assert results[0]["per_class"] == results[1]["per_class"]
    errors = [result.get("reconstruction_error", 0.0) for result in results]
    assert errors[0] == pytest.approx(errors[1], rel=1e-4)


@pytest.mark.parametrize("name", [*ALIKE, "normed", "bf16", "long", "alone-first"])
def test_processes_end_with_equal_weights(name: str, together: Path) -> None:
    """Weights, statistics of BatchNorm and their averages; the metrics, made of both processes' halves."""
    first, second = (json.loads((together / f"{name}.{rank}.json").read_text()) for rank in (0, 1))
    assert first == second
    assert first[1]["n"] == (20 if name == "pairs" else 60)


def test_distributed_evaluation_is_exact(together: Path) -> None:
    """What two processes measured with the weights that one has saved: each example once."""
    metrics = capsnet.evaluate(together / "plain").metrics
    assert metrics == json.loads((together / "plain.1.json").read_text())[1]


def test_run_resumes_with_another_number_of_processes(
    together: Path, alone: Path, configs: dict[str, TrainConfig]
) -> None:
    for rank in (0, 1):  # one process got the signal; both stopped at the same step
        assert "--resume" in (together / f"alone-later.{rank}.txt").read_text()
    assert torch.load(together / "alone-later" / "checkpoint.pt", weights_only=True)["step"] == 5
    capsnet.train(configs["plain"], resume=together / "alone-later", device="cpu", figures=False)
    expected = Run(alone / "plain").records("epoch")
    for name in ("alone-first", "alone-later"):
        for mine, other in zip(Run(together / name).records("epoch"), expected, strict=True):
            assert mine["train_loss"] == pytest.approx(other["train_loss"], rel=1e-5)
        results = [json.loads((f / "results.json").read_text()) for f in (together / name, alone / "plain")]
        assert results[0]["accuracy"] == results[1]["accuracy"]


def test_errors_are_reported_once(together: Path) -> None:
    for rank in (0, 1):
        assert "2 processes cannot share a batch of 1" in (together / f"single.{rank}.txt").read_text()
    assert "not empty" in (together / "plain.0.txt").read_text()  # reported by the main process
    assert not (together / "plain.1.txt").exists()


def test_other_processes_print_nothing(together: Path) -> None:
    """Nothing is printed but torchrun's lines about the last job."""
    assert (together / "stdout.txt").read_text() == ""
    complaints = (together / "stderr.txt").read_text()
    assert str(Path(capsnet.__file__).parent) not in complaints  # no line of a traceback
    assert "Warning" not in complaints
    assert json.loads((together / "plain" / "env.json").read_text())["processes"] == 2


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_lower_precision_learns_nearly_the_same(
    precision: str, configs: dict[str, TrainConfig], alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "RECORD_EVERY", 1)
    monkeypatch.setenv("CAPSNET_BF16", "1")
    config = dataclasses.replace(configs["plain"], precision=precision)
    capsnet.train(config, out=tmp_path / "run", device="cpu", figures=False)
    ours, theirs = (Run(folder).records("epoch")[-1]["train_loss"] for folder in (tmp_path / "run", alone / "plain"))
    assert ours != theirs
    assert ours == pytest.approx(theirs, rel=0.02)


@pytest.mark.slow  # two more starts of all processes
def test_killed_process_is_restarted_without_loss(
    configs: dict[str, TrainConfig], together: Path, tmp_path: Path
) -> None:
    job = {"config": write(configs["long"], tmp_path / "long.config"), "out": str(tmp_path / "run")}
    process = torchrun({"jobs": [job]}, tmp_path, "--max-restarts", "2")
    pid = tmp_path / "jobs.1.pid"
    wait_for(lambda: (tmp_path / "run" / "checkpoint.pt").is_file() and pid.is_file(), process)
    victim = int(pid.read_text())
    os.kill(victim, signal.SIGKILL)
    finish(process)
    assert process.returncode == 0
    assert int(pid.read_text()) != victim
    weights = [(folder / "model.safetensors").read_bytes() for folder in (tmp_path / "run", together / "long")]
    assert weights[0] == weights[1]
    assert curve(tmp_path / "run") == curve(together / "long")


def test_failing_process_ends_the_job_with_its_error(configs: dict[str, TrainConfig], tmp_path: Path) -> None:
    config = write(dataclasses.replace(configs["long"], epochs=10_000), tmp_path / "long.json")
    command = ["train", config, "--out", str(tmp_path / "run"), "--device", "cpu"]
    process = torchrun({"command": command, "breaks": 3}, tmp_path)
    wait_for(lambda: (tmp_path / "run" / "metrics.jsonl").is_file(), process)
    output, complaints = finish(process)
    assert process.returncode != 0
    assert complaints.count("capsnet: rank 1 of 2: the cable is loose") == 1
    assert output.count("2 processes, global batch 5 = 2 or 3 each, learning rate 0.005 as given (not scaled)") == 1
    assert "capsnet: rank 1 of 2: lost connection" not in complaints


def test_sigterm_stops_all_processes_at_the_same_step(configs: dict[str, TrainConfig], tmp_path: Path) -> None:
    endless = dataclasses.replace(configs["long"], epochs=10_000, checkpoint_every=10**6)
    config, out = write(endless, tmp_path / "long.json"), tmp_path / "run"
    process = torchrun({"command": ["train", config, "--out", str(out), "--device", "cpu"]}, tmp_path)
    wait_for(lambda: (out / "metrics.jsonl").is_file() and len(Run(out).records()) > 3, process)
    process.send_signal(signal.SIGTERM)
    _, complaints = finish(process)
    assert complaints.count("capsnet: stopped; continue with") == 1
    assert "lost connection" not in complaints
    assert torch.load(out / "checkpoint.pt", weights_only=True)["step"] == Run(out).records()[-1]["step"]


@pytest.mark.slow
def test_compiled_training_equals_plain_training(configs: dict[str, TrainConfig], alone: Path, tmp_path: Path) -> None:
    capsnet.train(configs["plain"], out=tmp_path / "run", device="cpu", compile=True, figures=False)
    ours, theirs = (Run(folder).records("epoch") for folder in (tmp_path / "run", alone / "plain"))
    assert [e["train_loss"] for e in ours] == pytest.approx([e["train_loss"] for e in theirs], rel=1e-4)


def test_scaling_forecast_starts_at_the_measurement() -> None:
    from benchmarks.scaling import Cluster, exchange, forecast

    cluster = Cluster(step_ms=10, batch=128, gradient_mb=100)
    assert forecast(cluster, 1, 128).images_per_second == pytest.approx(12_800)
    assert exchange(cluster, 2, 100) == pytest.approx(100 / 200 + 2 * 0.005)  # once over the wire, two hops
    shares = [forecast(cluster, 2**k, 128).efficiency for k in range(11)]
    assert shares == sorted(shares, reverse=True)
    assert all(0 < share <= 1 for share in shares)
