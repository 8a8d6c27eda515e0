"""Configuration: defaults, lines of mistakes, settings over the file."""

import json

import pytest

from dsv4.errors import UsageError
from dsv4.run_config import describe_keys, load_run_config
from tests.dsv4.conftest import REFERENCE


def load(tmp_path, text, *settings):
    path = tmp_path / "run.yaml"
    path.write_text(text)
    return load_run_config(path, settings)


def test_an_empty_file_is_the_reference_run(tmp_path):
    empty, tiny = load(tmp_path, ""), load_run_config(REFERENCE / "tiny_config.json")
    assert empty == tiny
    assert (empty.train.init_lr, empty.train.min_lr, empty.train.warmup_steps) == (0, 0, 0)
    assert empty.train.load_balancing == "seq_aux_loss"
    assert empty.train.schedule().length == 100
    assert empty.sha256 == tiny.sha256


def test_every_key_of_the_contract_is_known(tmp_path):
    text = """
model: {hc_norm: hf}
train: {optimizer: adam, lr: 1e-3, init_lr: 1e-5, min_lr: 1e-4, warmup_steps: 3, lr_schedule: wsd, lr_decay_steps: 50,
  wsd_decay_steps: 10, wsd_decay_style: linear, load_balancing: none, clip_grad: 0, dtype: float32,
  indexer_loss_accumulate: mean, loss_mask: true}
"""
    run = load(tmp_path, text)
    assert run.train.lr == 1e-3
    assert run.train.losses().balance_coeff == 0
    assert run.train.bias_update_rate == 1e-3


def test_settings_go_over_the_file_with_or_without_section(tmp_path):
    run = load(tmp_path, "train:\n  steps: 5\n", "train.steps=7", "dtype=float32", "model.window=64", "adam_eps=1e-8")
    assert (run.train.steps, run.train.dtype, run.model.window, run.train.adam_eps) == (7, "float32", 64, 1e-8)


def test_a_preset_is_the_base_of_its_section(tmp_path):
    run = load(tmp_path, "model:\n  preset: align-4layer-1k\n  hidden_size: 128\n")
    assert (run.model.num_experts, run.model.hidden_size) == (256, 128)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "train:\n  steps: 5\n  lr_shedule: cosine\n",
            r":3: train: unknown key `lr_shedule`: did you mean `lr_schedule`",
        ),
        ("train:\n  steps: many\n", r":2: train: `steps`"),
        ("train:\n  lr_schedule: cosine\n  warmup_steps: 200\n", r":1: train: .*warmup_steps 200 leaves no step"),
        ("model:\n  num_layers: 3\n", r":1: model: `compress_ratios` has 4 entries"),
        ("training:\n  steps: 5\n", r":1: unknown section `training`"),
        ("train: 5\n", r":1: `train` holds no keys"),
        ("train:\n  steps: 5\n  steps: 6\n", r":3: `steps` stands twice"),
        ("train:\n  steps: [5\n", r":3: "),
        ("- 1\n", r":1: the file holds no sections"),
        ("model:\n  preset: huge\n", r":2: model: no preset 'huge'"),
        ("train:\n  muon_exclude: ['*x*']\n", r":1: train: `muon_exclude` and `muon_splits` have no effect"),
    ],
)
def test_mistakes_are_one_line_with_file_and_line(tmp_path, text, message):
    with pytest.raises(UsageError, match=r"run\.yaml" + message) as caught:
        load(tmp_path, text)
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("steps", "not key=value"),
        ("stepz=1", "no key or more than one is named stepz"),
        ("train.steps=-1", r"--set train\.steps: train: `steps`"),
        ("train.stepz=1", r"--set train\.stepz: train: unknown key `stepz`: did you mean `steps`"),
        ("train.steps.x=1", "steps holds no keys"),
    ],
)
def test_mistakes_in_settings_name_the_setting(tmp_path, setting, message):
    with pytest.raises(UsageError, match=message):
        load(tmp_path, "train:\n  steps: 5\n", setting)


def test_numbers_are_read_as_json_writes_them(tmp_path):
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"train": {"adam_eps": 1e-20, "lr": 1, "weight_decay": 1e-06}}))
    train = load_run_config(path).train
    assert (train.adam_eps, train.lr, train.weight_decay) == (1e-20, 1.0, 1e-6)


def test_a_missing_file_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        load_run_config(tmp_path / "none.yaml")


def test_the_documentation_lists_every_key_with_its_default():
    text = (REFERENCE.parents[3] / "docs" / "training.md").read_text()
    for line in describe_keys().splitlines():
        assert line in text.splitlines(), "run `dsv4 train --keys` and paste its output into docs/training.md"
