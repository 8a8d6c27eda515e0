"""What an attempt is given: environment, command, copies of configs, inputs."""

import json

import pytest
import yaml

from matrix.errors import UsageError
from matrix.run.prepare import (
    Place,
    command,
    environment,
    handoff_paths,
    hub_places,
    missing_inputs,
    variable,
    write_override,
)
from matrix.spec.job import HandOff, Inputs, Job


def job(**changes):
    return Job(**{"name": "j", "suite": "s", "command": ("python", "train.py", "configs/a.yaml"), **changes})


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path, tmp_path / ".matrix/runs/r1", {"w": tmp_path / "out" / "w"})


@pytest.mark.parametrize(
    ("changes", "result"),
    [
        ({"a.b": 2}, {"a": {"b": 2, "c": [1, {"d": 3}]}, "e": None}),
        ({"a.c.1.d": "x"}, {"a": {"b": 1, "c": [1, {"d": "x"}]}, "e": None}),
        ({"a.c.0": True}, {"a": {"b": 1, "c": [True, {"d": 3}]}, "e": None}),
        ({"n.e.w": [1]}, {"a": {"b": 1, "c": [1, {"d": 3}]}, "e": None, "n": {"e": {"w": [1]}}}),
    ],
)
@pytest.mark.parametrize("form", ["yaml", "json"])
def test_overrides_change_values_by_dotted_key_in_a_copy(tmp_path, changes, result, form):
    source, copy = tmp_path / f"c.{form}", tmp_path / "deep" / f"c.{form}"
    text = '{"a": {"b": 1, "c": [1, {"d": 3}]}, "e": null}'
    source.write_text(text)
    write_override(source, changes, copy)
    load = json.loads if form == "json" else yaml.safe_load
    assert load(copy.read_text()) == result
    assert source.read_text() == text


@pytest.mark.parametrize(
    ("text", "key", "message"),
    [
        ("a: 1", "a.b", "'b' cannot be set"),
        ("a: 1", "a.b.c", "'b' leads nowhere"),
        ("a: [1]", "a.1", "'1' cannot be set"),
        ("a: [1", "a", "cannot be parsed"),
        (None, "a", "cannot be read"),
    ],
)
def test_an_override_that_fits_nothing_names_file_and_key(tmp_path, text, key, message):
    source = tmp_path / "c.yaml"
    if text is not None:
        source.write_text(text)
    with pytest.raises(UsageError, match=message) as e:
        write_override(source, {key: 1}, tmp_path / "copy.yaml")
    assert "c.yaml" in e.value.message


def test_the_command_names_the_copy_of_an_overridden_config(place):
    (place.root / "configs").mkdir()
    (place.root / "configs/a.yaml").write_text("x: 1")
    line = "train configs/a.yaml --also=configs/a.yaml xconfigs/a.yaml configs/a.yaml.bak"
    changed = job(command=("bash", "-c", line), overrides={"configs/a.yaml": {"x": 2}})
    copy = place.scratch("j", 1) / "config/configs/a.yaml"
    assert command(changed, 1, place)[2] == f"train {copy} --also={copy} xconfigs/a.yaml configs/a.yaml.bak"
    assert yaml.safe_load(copy.read_text()) == {"x": 2}


def test_pytest_leaves_its_results(place):
    argv = command(job(command=("python", "-m", "pytest", "tests"), pytest=True), 2, place)
    assert argv[-1] == f"--junitxml={place.folder}/logs/j/2/junit.xml"


def test_the_environment_tells_of_the_run_and_the_hand_offs(place, monkeypatch):
    monkeypatch.setenv("FROM_OUTSIDE", "kept")
    env = environment(job(needs=("w",), env={"OWN": "1"}), 3, place)
    assert (env["FROM_OUTSIDE"], env["OWN"]) == ("kept", "1")
    assert (env["MATRIX_RUN"], env["MATRIX_JOB"], env["MATRIX_ATTEMPT"]) == ("r1", "j", "3")
    assert env["MATRIX_HANDOFF_W"] == str(place.root / "out" / "w")
    assert env["MATRIX_FACTS"].startswith(str(place.folder))


@pytest.mark.parametrize(("name", "wanted"), [("qwen-pt", "QWEN_PT"), ("a@tp=2", "A_TP_2"), ("x.y", "X_Y")])
def test_names_become_variables(name, wanted):
    assert variable("MATRIX_HANDOFF_", name) == f"MATRIX_HANDOFF_{wanted}"


def test_hand_offs_are_relative_to_the_working_folder_of_their_producer(tmp_path):
    jobs = [job(cwd="sub", produces=(HandOff("a", "out"), HandOff("b", "/abs")))]
    assert {k: str(v) for k, v in handoff_paths(tmp_path, jobs).items()} == {"a": f"{tmp_path}/sub/out", "b": "/abs"}


def test_inputs_that_are_there_are_not_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("DATA", str(tmp_path / "data"))
    (tmp_path / "data").mkdir()
    (tmp_path / "rel").touch()
    env = {"HOME": str(tmp_path), "HF_HOME": str(tmp_path / "hf")}
    found = tmp_path / "hf/hub/models--o--n/snapshots/abc"
    found.mkdir(parents=True)
    (found / "config.json").touch()
    assert missing_inputs(Inputs(("$DATA", "rel"), ("o/n",), 1), tmp_path, env) == []


def test_inputs_that_are_missing_are_all_said(tmp_path):
    env = {"HOME": str(tmp_path), "HF_HUB_CACHE": str(tmp_path / "hub")}
    (tmp_path / "hub/models--o--n/snapshots/half").mkdir(parents=True)  # no file: a download that broke off
    said = missing_inputs(Inputs(("gone",), ("o/n", "datasets/o/d"), 1 << 60), tmp_path, env)
    assert len(said) == 4
    assert "gone" in said[0]
    assert "o/n is not in the hub cache" in said[1]
    assert "datasets--o--d" in said[2]
    assert "are wanted" in said[3]


def test_modelscope_keeps_models_elsewhere(tmp_path):
    places = hub_places("o/n", {"HOME": str(tmp_path), "MODELSCOPE_CACHE": "/ms"})
    assert [str(p) for p in places[1:]] == ["/ms/models/o/n", "/ms/o/n"]
