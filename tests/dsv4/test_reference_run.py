"""The training loop against the recorded Megatron-LM run."""

import random
import subprocess
import sys
import time

import numpy as np
import pytest
from safetensors.numpy import load_file

from dsv4.align.compare import compare
from dsv4.align.record import Record, read_record
from dsv4.data.sources import open_source
from dsv4.run import RunOptions, run_training
from dsv4.run_config import load_run_config
from tests.dsv4.conftest import REFERENCE

SAMPLE = load_file(REFERENCE / "weights_sample_f64.safetensors")


def reference(name, steps):
    record = read_record(REFERENCE / name)
    return Record(record.path, record.sha256, tuple(r for r in record.rows if r.step <= steps), None)


def run(tmp_path, steps, *settings, **options):
    record = tmp_path / "run.csv"
    config = load_run_config(REFERENCE / "tiny_config.json", (f"steps={steps}", *settings))
    trainer = run_training(
        config,
        RunOptions(
            tokens=REFERENCE / "train_tokens.safetensors",
            init=REFERENCE / "weights_step0.safetensors",
            record=record,
            **options,
        ),
    )
    return trainer, read_record(record)


def assert_weights(model, step, bound):
    for key, want in SAMPLE.items():
        prefix, name = key.split("/")
        if prefix == f"step{step}":
            assert np.abs(model[name] - want).max() <= bound * np.abs(want).max(), name


def largest_difference(record, expected):
    pairs = zip(record.rows, expected.rows, strict=True)
    return max(abs(a.loss(n) - b.loss(n)) for a, b in pairs for n in ("main", "mtp"))


def test_first_steps_equal_megatron_to_the_bit(tmp_path):
    _, record = run(tmp_path, 3, save=tmp_path / "ck", save_every=1)
    assert compare(record, reference("losses_f64.csv", 3)).equal
    assert largest_difference(record, reference("losses_f64.csv", 3)) < 1e-13
    assert_weights(load_file(tmp_path / "ck" / "step-00000001" / "model.safetensors"), 1, 1e-9)


def test_the_indexer_loss_is_divided_by_the_accumulation_only_if_asked(tmp_path):
    """Muon and AdamW hardly see the scale of a gradient, so it shows in the states and not yet in the losses."""
    momenta = []
    for setting in ("sum", "mean"):
        trainer, _ = run(tmp_path, 1, f"indexer_loss_accumulate={setting}")
        states = trainer.optimizer.state.items()
        momenta.append({name: state["momentum"].numpy() for name, state in states if "momentum" in state})
    for name, momentum in momenta[0].items():
        factor = 2.0 if ".indexer." in name else 1.0
        assert np.array_equal(momentum, momenta[1][name] * factor), name


def test_float32_starts_within_rounding_of_the_float32_run(tmp_path):
    _, record = run(tmp_path, 1, "dtype=float32")
    expected = reference("losses_f32.csv", 1)
    assert abs(record.rows[0].main / expected.rows[0].main - 1) < 1e-6
    assert abs(record.rows[0].mtp / expected.rows[0].mtp - 1) < 1e-6


@pytest.mark.align
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    ("settings", "expected", "rtol"),
    [
        ((), "losses_f64.csv", None),
        (("indexer_loss_accumulate=mean",), "losses_f64_indexer_scaled.csv", None),
        (("dtype=float32",), "losses_f32.csv", 2e-3),
    ],
)
def test_hundred_steps_equal_megatron(tmp_path, settings, expected, rtol):
    trainer, record = run(tmp_path, 100, *settings, save=tmp_path / "ck")
    assert compare(record, reference(expected, 100), rtol).equal
    if not settings:
        assert_weights(load_file(tmp_path / "ck" / "step-00000100" / "model.safetensors"), 100, 1e-7)
    assert trainer.step == 100


def start(record, *extra):
    return subprocess.Popen(
        [
            sys.executable, "-m", "dsv4", "train", REFERENCE / "tiny_config.json", "--record", record,
            "--tokens", REFERENCE / "train_tokens.safetensors", "--init", REFERENCE / "weights_step0.safetensors", *extra,
        ],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.align
@pytest.mark.timeout(3000)
def test_reruns_are_identical_and_threads_do_not_show_in_float32(tmp_path):
    records = []
    for name, threads in (("a", "1"), ("b", "1"), ("c", "2")):
        path = tmp_path / f"{name}.csv"
        out, err = start(path, "--threads", threads).communicate()
        assert "global_step: 100/100" in out, err
        records.append(read_record(path))
    assert records[0].sha256 == records[1].sha256
    assert compare(records[2], records[0]).equal


@pytest.mark.align
@pytest.mark.timeout(3000)
def test_a_run_killed_at_twenty_random_moments_still_equals_megatron(tmp_path):
    """Each kill falls somewhere in the first seconds after a step: in a step, in a save, or between them."""
    moments = random.Random(20)
    save = ("--save", tmp_path / "ck", "--save-every", "1", "--keep", "2", "--resume", tmp_path / "ck")
    for _ in range(20):
        process = start(tmp_path / "run.csv", *save)
        for line in process.stdout:
            if line.startswith("global_step"):
                break
        time.sleep(moments.uniform(0, 3))
        process.kill()
        process.communicate()
    out, err = start(tmp_path / "run.csv", *save).communicate()
    assert "global_step: 100/100" in out, err
    assert compare(read_record(tmp_path / "run.csv"), reference("losses_f64.csv", 100)).equal
    assert_weights(load_file(tmp_path / "ck" / "step-00000100" / "model.safetensors"), 100, 1e-7)


def test_the_reference_source_is_identified_by_its_digest():
    config = load_run_config(REFERENCE / "tiny_config.json")
    identity = open_source(REFERENCE / "train_tokens.safetensors", config).identity()
    assert identity["micro_batches"] == 200
    assert identity["sha256"].startswith("9af3dbe4f34de698")
