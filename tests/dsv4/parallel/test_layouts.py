"""Every layout, on real processes, gives the losses of Megatron's one-rank run."""

import csv

import numpy as np
import pytest

from dsv4 import checkpoint
from dsv4.align.compare import compare
from dsv4.align.record import read_record
from dsv4.run import RunOptions, run_training
from dsv4.run_config import load_run_config
from tests.dsv4.conftest import REFERENCE
from tests.dsv4.parallel.jobs import FILES, column, reference, reference_run, run_job

STEPS = 5
TWO = {
    "ep2": ("expert_parallel=2",),
    "dp2-rows": ("data_parallel=2", "data_split=rows", "sharding=1"),
    "dp2-micros": ("data_parallel=2", "data_split=micros"),
    "pp2": ("pipeline_parallel=2", "seg_method=cost"),
}
FOUR = {
    "ep4": ("expert_parallel=4",),
    "ep2-dp2": ("expert_parallel=2", "data_parallel=2", "sharding=1"),
    "pp2-ep2": ("pipeline_parallel=2", "expert_parallel=2"),
}
EIGHT = {"ep8": ("expert_parallel=8",)}
LAYOUTS = {2: TWO, 4: FOUR, 8: EIGHT}


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    """Gradient norms of the same steps on one rank."""
    folder = tmp_path_factory.mktemp("single")
    config = load_run_config(REFERENCE / "tiny_config.json", (f"steps={STEPS}",))
    run_training(config, RunOptions(**FILES, metrics=folder / "one.jsonl"))
    return column(folder / "one.jsonl", "grad_norm")


@pytest.mark.parametrize("ranks", LAYOUTS)
def test_losses_equal_megatron_to_the_bit_and_the_norm_that_of_one_rank(tmp_path, ranks, single):
    runs = [reference_run(tmp_path, name, STEPS, *settings) for name, settings in LAYOUTS[ranks].items()]
    run_job(tmp_path, "job", ranks, runs)
    for name in LAYOUTS[ranks]:
        comparison = compare(read_record(tmp_path / f"{name}.csv"), reference(steps=STEPS))
        assert comparison.equal, (name, comparison)
        norms = column(tmp_path / f"{name}.jsonl", "grad_norm")
        np.testing.assert_allclose(norms, single, rtol=1e-12, err_msg=name)
    if ranks == 2:
        check_rank_records(tmp_path)


def check_rank_records(folder):
    """Rows of one rank are its own losses; their mean is that of the micro-batch."""
    merged = {(r.step, r.micro): r for r in read_record(folder / "dp2-rows.csv").rows}
    means = {key: [] for key in merged}
    for rank in (0, 1):
        with (folder / f"dp2-rows.rank{rank}.csv").open() as file:
            for cells in csv.DictReader(file):
                key = int(cells["step"]), int(cells["micro"])
                assert cells["rank"] == str(rank)
                assert float(cells["reduced_main_loss"]) == merged[key].main
                means[key].append(float(cells["main_loss"]))
    assert all(np.mean(v) == pytest.approx(merged[k].main, rel=1e-15) and v[0] != v[1] for k, v in means.items())
    # Whole micro-batches: what a rank computed is what is recorded.
    merged = {(r.step, r.micro): r.main for r in read_record(folder / "dp2-micros.csv").rows}
    for rank in (0, 1):
        own = read_record(folder / f"dp2-micros.rank{rank}.csv").rows
        assert [r.micro for r in own] == [rank] * STEPS
        assert all(r.main == merged[r.step, r.micro] for r in own)


def test_a_checkpoint_of_four_ranks_resumes_on_two_and_on_one(tmp_path):
    save = {"save": tmp_path / "ck", "save_every": 2}
    run_job(tmp_path, "four", 4, [reference_run(tmp_path, "run", 3, "expert_parallel=4", "sharding=1", **save)])
    path = tmp_path / "ck" / "step-00000002"
    assert len(list(path.glob("model-*-of-00004.safetensors"))) == 4
    resumed = reference_run(tmp_path, "run", 4, "expert_parallel=2", **save, resume=path)
    run_job(tmp_path, "two", 2, [resumed])
    config = load_run_config(REFERENCE / "tiny_config.json", ("steps=5",))
    run_training(
        config, RunOptions(**FILES, record=tmp_path / "run.csv", save=tmp_path / "one", resume=tmp_path / "ck")
    )
    assert compare(read_record(tmp_path / "run.csv"), reference(steps=5)).equal
    one, four = (checkpoint.read(p) for p in (tmp_path / "one" / "step-00000005", path))
    for group in ("model", "optimizer"):
        assert {n: a.shape for n, a in one.groups[group].items()} == {n: a.shape for n, a in four.groups[group].items()}
