"""A run from configuration to files: record, checkpoint, resume, failures."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from dsv4 import checkpoint
from dsv4.align.record import read_record
from dsv4.errors import DivergedError, UsageError
from dsv4.run import RunOptions, run_training
from dsv4.run_config import load_run_config


def run(small, tmp_path, *settings, **options):
    config, tokens = small
    options.setdefault("record", tmp_path / "run.csv")
    return run_training(load_run_config(config, settings), RunOptions(tokens=tokens, **options))


def test_a_resumed_run_writes_the_same_record_and_weights(small, tmp_path, capsys):
    run(small, tmp_path, record=tmp_path / "whole.csv", save=tmp_path / "whole", metrics=tmp_path / "whole.jsonl")
    options = {"save": tmp_path / "parts", "save_every": 1, "metrics": tmp_path / "parts.jsonl"}
    run(small, tmp_path, "steps=3", **options)
    (tmp_path / "parts" / "step-00000003").rename(tmp_path / "step-00000003")  # as if killed before this save
    run(small, tmp_path, resume=tmp_path / "parts", **options)
    assert (tmp_path / "run.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
    for file in ("model.safetensors", "optimizer.safetensors"):
        whole = (tmp_path / "whole" / "step-00000004" / file).read_bytes()
        assert (tmp_path / "parts" / "step-00000004" / file).read_bytes() == whole
    steps = [json.loads(line)["step"] for line in (tmp_path / "parts.jsonl").read_text().splitlines()]
    assert steps == [1, 2, 3, 4]
    assert "resumed from" in capsys.readouterr().out


def test_plain_lines_carry_step_and_loss_and_the_head_carries_the_identity(small, tmp_path, capsys):
    run(small, tmp_path, "steps=1", stamp="s1")
    lines = capsys.readouterr().out.splitlines()
    row = read_record(tmp_path / "run.csv").rows
    assert lines[-1].startswith(f"global_step: 1/1 loss: {(row[0].main + row[1].main) / 2:.8f} mtp_loss: ")
    meta = json.loads((tmp_path / "run.csv.meta.json").read_text())
    assert lines[0] == f"run: stamp=s1 output_prefix={tmp_path / 'run.csv'}"
    assert any(meta["tokens"]["sha256"] in line for line in lines)
    assert meta["config"]["train"]["steps"] == 1
    assert meta["origin"].endswith("run s1")
    assert meta["environment"]["machine"]


def test_evaluation_changes_nothing_of_the_training(small, tmp_path, capsys):
    run(small, tmp_path, record=tmp_path / "a.csv")
    run(small, tmp_path, "eval_every=2", "eval_batches=2", f"data.eval={small[1]}", record=tmp_path / "b.csv")
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    assert capsys.readouterr().out.count("eval_loss: ") == 2


def test_loss_mask_counts_only_its_positions(small, tmp_path):
    run(small, tmp_path, "steps=1", record=tmp_path / "all.csv")
    run(small, tmp_path, "steps=1", "loss_mask=true", record=tmp_path / "masked.csv")
    assert read_record(tmp_path / "all.csv").rows[0].main != read_record(tmp_path / "masked.csv").rows[0].main


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_other_dtypes_train(small, tmp_path, dtype):
    trainer = run(small, tmp_path, f"dtype={dtype}", "steps=2")
    assert all(np.isfinite([row.main, row.mtp]).all() for row in read_record(tmp_path / "run.csv").rows)
    assert trainer.step == 2


@pytest.mark.parametrize(
    "settings",
    [
        ("optimizer=adam", "lr_schedule=cosine", "clip_grad=0", "mtp_loss_weight=0.1"),
        (
            "accumulate=4",
            "warmup_steps=2",
            "load_balancing=none",
            "lr_schedule=wsd",
            "wsd_decay_steps=1",
            "lr_decay_steps=4",
        ),
        ("muon_rule=paddleformers", "muon_ffn_split=true", "muon_coefficients=quintic", "muon_steps=5"),
        ("muon_rule=custom", "muon_exclude=['*embed*']", "muon_splits={'*linear_q_up*': 2}"),
    ],
)
def test_variants_are_reached_by_configuration_alone(small, tmp_path, settings):
    trainer = run(small, tmp_path, "steps=2", *settings)
    assert trainer.step == 2


def test_a_first_update_at_zero_learning_rate_moves_only_the_expert_bias(small, tmp_path):
    before = run(small, tmp_path, "steps=1", "lr=0", "weight_decay=0").parameters
    warm = run(small, tmp_path, "steps=1", "warmup_steps=2")
    assert all(np.array_equal(p.numpy(), before[name].numpy()) for name, p in warm.parameters.items())
    biases = [b.numpy() for name, b in warm.model.named_buffers() if name.endswith("expert_bias")]
    assert {abs(float(v)) for b in biases for v in b} <= {0.0, 1e-3}
    assert any(b.any() for b in biases)


def test_without_balance_loss_the_expert_bias_still_moves(small, tmp_path):
    trainer = run(small, tmp_path, "steps=1", "load_balancing=none")
    assert any(b.numpy().any() for name, b in trainer.model.named_buffers() if name.endswith("expert_bias"))


# -- values that are not finite ----------------------------------------------------------------------------------------


def test_a_nan_weight_stops_the_run_with_step_micro_and_tensor(small, tmp_path):
    run(small, tmp_path, "steps=1", save=tmp_path / "ck")
    weights = load_file(tmp_path / "ck" / "step-00000001" / "model.safetensors")
    weights["decoder.layers.1.self_attention.linear_kv_proj.weight"][2, 3] = np.nan
    save_file(weights, tmp_path / "broken.safetensors")
    with pytest.raises(DivergedError) as caught:
        run(small, tmp_path, init=tmp_path / "broken.safetensors")
    assert "step 1 micro 0: a loss is not finite" in caught.value.message
    assert "weight decoder.layers.1.self_attention.linear_kv_proj.weight[2, 3] = nan" in caught.value.message


def test_an_activation_that_overflows_is_named(small, tmp_path):
    run(small, tmp_path, "steps=1", save=tmp_path / "ck")
    weights = load_file(tmp_path / "ck" / "step-00000001" / "model.safetensors")
    weights["decoder.layers.1.mlp.shared_experts.linear_fc2.weight"][:] = 1e308
    weights["decoder.layers.1.mlp.shared_experts.linear_fc1.weight"][:] *= 1e6
    save_file(weights, tmp_path / "huge.safetensors")
    with pytest.raises(DivergedError, match=r"step 1 micro 0: a loss .* activation layer1\.mlp_out\[0, 0, 0\]"):
        run(small, tmp_path, init=tmp_path / "huge.safetensors")


def test_a_gradient_that_is_not_finite_is_found_with_its_micro_batch(small, tmp_path, monkeypatch):
    from dsv4.model.losses import ModelOutput

    calls = []
    plain = ModelOutput.objective

    def poisoned(self, *args):
        calls.append(1)
        loss = plain(self, *args)
        if len(calls) % 2 == 0:  # the second micro-batch, in the step and in its repetition
            loss = loss + (self.main_loss - self.main_loss.detach()) * float("inf")
        return loss

    monkeypatch.setattr(ModelOutput, "objective", poisoned)
    with pytest.raises(
        DivergedError, match=r"step 1 micro 1: a gradient is not finite; first non-finite tensor: gradient"
    ):
        run(small, tmp_path)


# -- checkpoints that cannot be resumed --------------------------------------------------------------------


def test_resume_refuses_another_configuration_and_names_the_key(small, tmp_path):
    run(small, tmp_path, "steps=1", save=tmp_path / "ck")
    with pytest.raises(UsageError, match=r"train\.lr was 0\.001, the configuration says 0\.01"):
        run(small, tmp_path, "lr=0.01", resume=tmp_path / "ck")


@pytest.mark.parametrize(("lacking", "groups"), [("optimizer", ["model"]), ("config", ["model", "optimizer"])])
def test_resume_refuses_what_no_run_saved_and_names_what_it_lacks(small, tmp_path, lacking, groups):
    checkpoint.write(tmp_path / "ck", 2, {group: {"w": np.ones(3)} for group in groups}, {})
    with pytest.raises(UsageError, match=f"holds no {lacking}"):
        run(small, tmp_path, resume=tmp_path / "ck")


def test_resume_with_other_data_is_said(small, tmp_path, capsys):
    run(small, tmp_path, "steps=1", save=tmp_path / "ck")
    tensors = load_file(small[1])
    save_file(tensors | {"tokens": tensors["tokens"][::-1].copy()}, small[1])
    run(small, tmp_path, "steps=2", resume=tmp_path / "ck")
    assert f"resumed with other data: was {small[1]}" in capsys.readouterr().out


def test_resume_needs_the_record_up_to_the_checkpoint(small, tmp_path):
    run(small, tmp_path, "steps=2", save=tmp_path / "ck")
    lines = (tmp_path / "run.csv").read_text().splitlines()
    (tmp_path / "run.csv").write_text("\n".join(lines[:3]) + "\n")
    with pytest.raises(UsageError, match="ends before step 2 micro 0"):
        run(small, tmp_path, resume=tmp_path / "ck")


def test_resume_from_nothing_is_an_error_unless_it_is_the_folder_saved_to(small, tmp_path):
    with pytest.raises(UsageError, match="no checkpoint in it"):
        run(small, tmp_path, resume=tmp_path / "none")
    assert run(small, tmp_path, "steps=1", save=tmp_path / "ck", resume=tmp_path / "ck").step == 1


def test_only_the_last_checkpoints_are_kept(small, tmp_path):
    run(small, tmp_path, save=tmp_path / "ck", save_every=1, keep=2)
    assert sorted(p.name for p in (tmp_path / "ck").iterdir()) == ["step-00000003", "step-00000004"]


# -- kills -----------------------------------------------------------------------------------------------


def start(small, tmp_path, *extra):
    config, tokens = small
    command = [
        sys.executable, "-m", "dsv4", "train", config, "--tokens", tokens, "--record", tmp_path / "run.csv",
        "--set", "steps=10",
        "--save", tmp_path / "ck", "--save-every", "1", "--keep", "2", "--resume", tmp_path / "ck", *extra,
    ]  # fmt: skip
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kill_and_resume(small, tmp_path, kills, seed):
    """Kill -9 at random moments after the first step, then let the run end."""
    moments = random.Random(seed)
    for _ in range(kills):
        process = start(small, tmp_path)
        for line in process.stdout:
            if line.startswith("global_step"):
                break
        time.sleep(moments.uniform(0, 0.3))
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        if (tmp_path / "ck" / "step-00000010").exists():
            break
    out, err = start(small, tmp_path).communicate()
    assert "step-00000010" in {p.name for p in (tmp_path / "ck").iterdir()}, out + err


def test_sigterm_stops_between_steps_with_a_checkpoint(small, tmp_path):
    process = start(small, tmp_path, "--set", "steps=10", "--save-every", "100")
    for line in process.stdout:
        if line.startswith("global_step: 1/"):
            break
    process.terminate()
    out, err = process.communicate()
    if process.returncode == 0:  # it was at its last step
        assert "global_step: 10/10" in out
        return
    assert process.returncode == 143, err
    step = int(out.split("stopped by SIGTERM after step ")[1].split(";")[0])
    assert [p.name for p in (tmp_path / "ck").iterdir()] == [f"step-{step:08d}"]
    assert read_record(tmp_path / "run.csv").rows[-1].key == (step, 1)


def assert_as_uninterrupted(small, tmp_path):
    (tmp_path / "plain").mkdir()  # a process of its own: its numerics environment is the command's
    out, err = start(small, tmp_path / "plain").communicate()
    assert "global_step: 10/10" in out, err
    assert read_record(tmp_path / "run.csv").rows == read_record(tmp_path / "plain" / "run.csv").rows
    killed = load_file(tmp_path / "ck" / "step-00000010" / "model.safetensors")
    for name, value in load_file(tmp_path / "plain" / "ck" / "step-00000010" / "model.safetensors").items():
        assert np.array_equal(killed[name], value), name
    assert not [p.name for p in (tmp_path / "ck").iterdir() if p.name.startswith(".")]


def test_a_killed_run_resumes_to_the_same_record(small, tmp_path):
    kill_and_resume(small, tmp_path, kills=1, seed=0)
    assert_as_uninterrupted(small, tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(5))
def test_a_run_killed_at_many_moments_resumes_to_the_same_record(small, tmp_path, seed):
    kill_and_resume(small, tmp_path, kills=4, seed=seed)
    assert_as_uninterrupted(small, tmp_path)


# -- mistakes that are seen before the first step ---------------------------------------------------------------------------


def test_a_run_that_the_data_cannot_feed_does_not_begin(small, tmp_path):
    with pytest.raises(UsageError, match="holds 20 micro-batches, number 22 is needed"):
        run(small, tmp_path, "steps=11")
    assert not (tmp_path / "run.csv").exists()


def test_a_folder_that_cannot_be_made_stops_before_training(small, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="Not a directory"):
        run(small, tmp_path, save=tmp_path / "file" / "ck")
