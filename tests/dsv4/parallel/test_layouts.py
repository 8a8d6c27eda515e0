"""Every layout, on real processes, gives the losses of Megatron's one-rank run."""

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from dsv4 import checkpoint
from dsv4.align.compare import compare
from dsv4.align.record import read_record
from dsv4.run import RunOptions, run_training
from dsv4.run_config import load_run_config
from tests.dsv4.conftest import REFERENCE, small_run
from tests.dsv4.parallel.jobs import FILES, assert_close, column, lines, reference, reference_run, run_job

STEPS = 3
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
REDUCED = REFERENCE.parents[3] / "examples" / "dsv4-align-8" / "reduced.yaml"
WIDE = ["steps=2", "accumulate=1", "dtype=float64"]
LAYOUTS = {2: TWO, 4: FOUR, 8: EIGHT}


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    """Gradient norms of the same steps on one rank."""
    folder = tmp_path_factory.mktemp("single")
    config = load_run_config(REFERENCE / "tiny_config.json", (f"steps={STEPS}",))
    run_training(config, RunOptions(**FILES, metrics=folder / "one.jsonl"))
    return column(folder / "one.jsonl", "grad_norm")


def runs_of(folder, ranks, steps):
    return [reference_run(folder, name, steps, *settings) for name, settings in LAYOUTS[ranks].items()]


def assert_equals_megatron(folder, ranks, steps):
    for name in LAYOUTS[ranks]:
        comparison = compare(read_record(folder / f"{name}.csv"), reference(steps=steps))
        assert comparison.equal, (name, comparison)


def assert_norms(folder, ranks, expected):
    for name in LAYOUTS[ranks]:
        np.testing.assert_allclose(column(folder / f"{name}.jsonl", "grad_norm"), expected, rtol=1e-12, err_msg=name)


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    """All runs on two ranks, in one job."""
    folder = tmp_path_factory.mktemp("two")
    config, tokens = small_run(folder)
    masked = {"config": str(config), "settings": [*MASKED, "data_parallel=2", "data_split=rows"],
              "options": {"tokens": str(tokens), "record": str(folder / "masked.csv")}}  # fmt: skip
    evaluated = {"config": str(config), "settings": ["steps=2", *evaluation(tokens), "pipeline_parallel=2"],
                 "options": {"tokens": str(tokens), "metrics": str(folder / "evaluated.jsonl")}}  # fmt: skip
    own = reference_run(folder, "own", 2, "data_parallel=2", "data_split=own")
    scaled = reference_run(folder, "scaled", 2, "data_parallel=2", "data_split=micros", "indexer_loss_accumulate=mean")
    return run_job(folder, "job", 2, [*runs_of(folder, 2, STEPS), masked, evaluated, own, scaled])


MASKED = ("loss_mask=true", "steps=3")


def evaluation(tokens):
    return ("eval_every=1", "eval_batches=3", f"data.eval={tokens}")


def test_evaluation_through_a_pipeline_is_that_of_one_rank(two_ranks):
    config, tokens = two_ranks / "small.json", two_ranks / "tokens.safetensors"
    options = RunOptions(tokens=tokens, metrics=two_ranks / "evaluated-one.jsonl")
    run_training(load_run_config(config, ("steps=2", *evaluation(tokens))), options)
    two, one = (lines(two_ranks / f"evaluated{end}.jsonl") for end in ("", "-one"))
    assert len(two) == len(one) == 4
    for key in ("loss", "mtp_loss", "indexer_loss", "balance_loss", "eval_loss", "eval_mtp_loss"):
        found, expected = ([line[key] for line in each if key in line] for each in (two, one))
        assert found == pytest.approx(expected, rel=1e-12), key


def test_two_ranks_give_megatrons_losses_to_the_bit_and_the_norm_of_one_rank(two_ranks, single):
    assert_equals_megatron(two_ranks, 2, STEPS)
    assert_norms(two_ranks, 2, single)


@pytest.fixture(scope="module")
def four_ranks(tmp_path_factory):
    """All runs on four ranks, in one job; the last saves its second step, and has trained a third."""
    folder = tmp_path_factory.mktemp("four")
    settings = ("expert_parallel=4", "sharding=1")
    saving = reference_run(folder, "run", 3, *settings, save=folder / "ck", save_every=2)
    return run_job(folder, "job", 4, [*runs_of(folder, 4, STEPS), saving])


@pytest.fixture(scope="module")
def eight_ranks(tmp_path_factory):
    """All runs on eight ranks, in one job, the original run's at reduced width among them."""
    folder = tmp_path_factory.mktemp("eight")
    ids = np.random.default_rng(5).integers(0, 256, (64, 2, 257)).astype(np.int32)
    save_file({"tokens": ids}, folder / "tokens.safetensors")
    run = {"config": str(REDUCED), "options": {"tokens": str(folder / "tokens.safetensors")}}
    original = run | {"settings": ["steps=1"]} | {"options": run["options"] | {"record": str(folder / "original.csv")}}
    wide = run | {"settings": WIDE} | {"options": run["options"] | {"record": str(folder / "wide.csv")}}
    return run_job(folder, "job", 8, [*runs_of(folder, 8, STEPS), original, wide])


def test_four_ranks_give_megatrons_losses_to_the_bit_and_the_norm_of_one_rank(four_ranks, single):
    assert_equals_megatron(four_ranks, 4, STEPS)
    assert_norms(four_ranks, 4, single)


def test_eight_ranks_give_megatrons_losses_to_the_bit_and_the_norm_of_one_rank(eight_ranks, single):
    assert_equals_megatron(eight_ranks, 8, STEPS)
    assert_norms(eight_ranks, 8, single)


def test_the_original_runs_layout_trains_at_reduced_width_on_eight_ranks(eight_ranks):
    """Experts over eight ranks with data of their own each, AdamW, cosine, no clip, bfloat16 values."""
    rows = read_record(eight_ranks / "original.csv").rows
    assert [(r.step, r.micro) for r in rows] == [(1, m) for m in range(16)]
    ranks = [read_record(eight_ranks / f"original.rank{r}.csv").rows for r in range(8)]
    assert all([row.micro for row in own] == [r, r + 8] for r, own in enumerate(ranks))
    assert np.mean([r.main for r in rows]) == pytest.approx(np.log(256), rel=0.02)


def test_the_original_runs_layout_in_float64_is_one_rank_with_all_its_micro_batches(eight_ranks):
    settings = ("steps=2", "accumulate=8", "dtype=float64", "expert_parallel=1", "data_split=auto")
    config = load_run_config(REDUCED, (*settings, "indexer_loss_coeff=0.00125"))
    options = RunOptions(tokens=eight_ranks / "tokens.safetensors", record=eight_ranks / "wide-one.csv")
    run_training(config, options)
    assert_close(read_record(eight_ranks / "wide.csv"), read_record(eight_ranks / "wide-one.csv"))


def test_rows_of_one_rank_are_its_own_losses_and_their_mean_stands_beside_them(two_ranks):
    merged = {(r.step, r.micro): r for r in read_record(two_ranks / "dp2-rows.csv").rows}
    means = {key: [] for key in merged}
    for rank in (0, 1):
        with (two_ranks / f"dp2-rows.rank{rank}.csv").open() as file:
            for cells in csv.DictReader(file):
                key = int(cells["step"]), int(cells["micro"])
                assert cells["rank"] == str(rank)
                assert float(cells["reduced_main_loss"]) == pytest.approx(merged[key].main, rel=1e-15)
                means[key].append(float(cells["main_loss"]))
    assert all(np.mean(v) == pytest.approx(merged[k].main, rel=1e-15) and v[0] != v[1] for k, v in means.items())


def test_a_whole_micro_batch_is_recorded_as_its_rank_computed_it(two_ranks):
    merged = {(r.step, r.micro): r.main for r in read_record(two_ranks / "dp2-micros.csv").rows}
    for rank in (0, 1):
        own = read_record(two_ranks / f"dp2-micros.rank{rank}.csv").rows
        assert [r.micro for r in own] == [rank] * STEPS
        assert all(r.main == merged[r.step, r.micro] for r in own)


def test_rows_with_unequal_masks_are_weighed_as_on_one_rank(two_ranks):
    config, tokens = two_ranks / "small.json", two_ranks / "tokens.safetensors"
    run_training(load_run_config(config, MASKED), RunOptions(tokens=tokens, record=two_ranks / "masked-one.csv"))
    assert_close(read_record(two_ranks / "masked.csv"), read_record(two_ranks / "masked-one.csv"))


def test_own_data_give_the_mean_over_ranks_of_megatrons_undivided_indexer_loss(two_ranks):
    """That is one rank with as many micro-batches as all have, and the indexer's coefficient divided by the ranks."""
    settings = ("steps=2", "accumulate=4", "indexer_loss_coeff=0.005")
    config = load_run_config(REFERENCE / "tiny_config.json", settings)
    run_training(config, RunOptions(**FILES, record=two_ranks / "own-one.csv"))
    assert_close(read_record(two_ranks / "own.csv"), read_record(two_ranks / "own-one.csv"))


def test_a_divided_indexer_loss_is_divided_alike_on_ranks(two_ranks):
    expected = reference("losses_f64_indexer_scaled.csv", 2)
    assert compare(read_record(two_ranks / "scaled.csv"), expected).equal


@pytest.mark.align
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("ranks", LAYOUTS)
def test_hundred_steps_of_every_layout_equal_megatron(tmp_path, ranks):
    config = load_run_config(REFERENCE / "tiny_config.json")
    run_training(config, RunOptions(**FILES, metrics=tmp_path / "one.jsonl"))
    run_job(tmp_path, "job", ranks, runs_of(tmp_path, ranks, 100))
    assert_equals_megatron(tmp_path, ranks, 100)
    assert_norms(tmp_path, ranks, column(tmp_path / "one.jsonl", "grad_norm"))


@pytest.mark.align
@pytest.mark.timeout(3000)
def test_a_checkpoint_of_step_37_by_four_ranks_goes_on_to_megatrons_end_on_two_and_on_one(tmp_path):
    save = {"save": tmp_path / "ck"}
    run_job(tmp_path, "four", 4, [reference_run(tmp_path, "run", 37, "expert_parallel=4", **save)])
    start = tmp_path / "ck" / "step-00000037"
    copy = (tmp_path / "run.csv").read_bytes()
    run_job(tmp_path, "two", 2, [reference_run(tmp_path, "run", 100, "expert_parallel=2", resume=start)])
    assert compare(read_record(tmp_path / "run.csv"), reference()).equal
    (tmp_path / "one.csv").write_bytes(copy)
    config = load_run_config(REFERENCE / "tiny_config.json")
    run_training(config, RunOptions(**FILES, record=tmp_path / "one.csv", resume=start))
    assert compare(read_record(tmp_path / "one.csv"), reference()).equal


def test_a_checkpoint_of_four_ranks_resumes_on_two_and_on_one(four_ranks, tmp_path):
    path = four_ranks / "ck" / "step-00000002"
    assert len(list(path.glob("model-*-of-00004.safetensors"))) == 4
    (tmp_path / "run.csv").write_bytes((four_ranks / "run.csv").read_bytes())
    save = {"save": tmp_path / "ck", "resume": path}
    run_job(tmp_path, "two", 2, [reference_run(tmp_path, "run", 4, "expert_parallel=2", **save)])
    config = load_run_config(REFERENCE / "tiny_config.json", ("steps=5",))
    run_training(
        config, RunOptions(**FILES, record=tmp_path / "run.csv", save=tmp_path / "one", resume=tmp_path / "ck")
    )
    assert compare(read_record(tmp_path / "run.csv"), reference(steps=5)).equal
    one, four = (checkpoint.read(p) for p in (tmp_path / "one" / "step-00000005", path))
    for group in ("model", "optimizer"):
        assert {n: a.shape for n, a in one.groups[group].items()} == {n: a.shape for n, a in four.groups[group].items()}


def test_paddles_own_launcher_starts_the_same_job(small, tmp_path):
    config, tokens = small
    launcher = [sys.executable, "-W", "ignore", "-m", "paddle.distributed.launch", "--nproc_per_node", "2"]
    launcher += ["--log_dir", tmp_path / "logs", Path(sys.executable).with_name("dsv4"), "train", config, "--set"]
    launcher += ["expert_parallel=2", "--tokens", tokens, "--record", tmp_path / "two.csv"]
    done = subprocess.run([str(a) for a in launcher], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    run_training(load_run_config(config), RunOptions(tokens=tokens, record=tmp_path / "one.csv"))
    assert_close(read_record(tmp_path / "two.csv"), read_record(tmp_path / "one.csv"))
