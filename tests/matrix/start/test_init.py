"""`matrix init` in repositories of several kinds."""

import os
import re
import subprocess

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from matrix.cli import cli
from matrix.errors import UsageError
from matrix.spec.load import read, read_bytes
from matrix.start.look import Found, Script, Tests, cards_of, look
from matrix.start.write import matrix_of

TRAIN = "import argparse\nif __name__ == '__main__':\n    pass\n"


def init(folder, *args):
    return CliRunner().invoke(cli, ["init", str(folder), *args], catch_exceptions=False, standalone_mode=False)


def put(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_tests_configs_and_hand_offs_become_jobs(tmp_path):
    put(
        tmp_path,
        {
            "tests/test_a.py": "",
            "tests/multi_card/test_b.py": "",
            "train.py": "import paddle\n" + TRAIN,
            "configs/pt.yaml": "output_dir: ./out/pt\ntensor_model_parallel_size: 2\npipeline_model_parallel_size: 2\n",
            "configs/sft.yaml": "model_name_or_path: out/pt\noutput_dir: out/sft\n",
            "configs/broken.yaml": "a: [1\n",
            "scripts/train_all.sh": "CUDA_VISIBLE_DEVICES=0,1,2 python train.py\n",
        },
    )
    assert "next: matrix list" in init(tmp_path).output
    jobs = {job.name: job for job in read(tmp_path).jobs}
    assert {n: j.cards.count for n, j in jobs.items()} == {
        "tests": 0, "tests-multi_card": 2, "pt": 4, "sft": 1, "train_all": 3,
    }  # fmt: skip
    assert jobs["sft"].needs == ("pt",)
    assert [h.path for h in jobs["pt"].produces] == ["out/pt"]
    assert not jobs["sft"].produces


def test_shell_scripts_of_a_ci_are_jobs_and_what_prepares_them_is_not(tmp_path):
    put(
        tmp_path,
        {
            "scripts/unit_test/ci_unit.sh": "python -m pytest tests\n",
            "tests/integration_test/qwen_multi_card.sh": 'python -m paddle.distributed.launch --gpus "0,1,2,3" x.py\n',
            "tests/integration_test/glm_single_card.sh": "python x.py\n",
            "ci/run_ci.sh": "",
            "ci/install_env.sh": "pip install x\n",
            "scripts/build.sh": "",
            "tests/common.sh": "",
        },
    )
    said = init(tmp_path).output
    assert {j.name: j.cards.count for j in read(tmp_path).jobs} == {
        "run_ci": 0, "ci_unit": 0, "glm_single_card": 1, "qwen_multi_card": 4,
    }  # fmt: skip
    assert "then matrix run --cards 4 (this host has fewer: they are pretended)" in said


def test_each_package_of_a_repository_of_many_has_its_tests(tmp_path):
    put(tmp_path, {f"packages/{p}/tests/unit/test_{p}.py": "" for p in "ab"} | {"tests/test_all.py": ""})
    init(tmp_path)
    assert {j.name for j in read(tmp_path).jobs} == {"packages-a-tests", "packages-b-tests", "tests"}


def test_a_config_goes_to_the_script_of_its_name_and_takes_what_another_leaves(tmp_path):
    put(
        tmp_path,
        {
            "scripts/train.py": TRAIN,
            "scripts/evaluate.py": TRAIN,
            "configs/pretrain.yaml": "output_dir: output/pretrain\n",
            "configs/eval.yaml": "checkpoint: output/pretrain\n",
        },
    )
    said = init(tmp_path).output
    jobs = {j.name: j for j in read(tmp_path).jobs}
    assert "python scripts/evaluate.py configs/eval.yaml" in jobs["eval"].command
    assert "python scripts/train.py configs/pretrain.yaml" in jobs["pretrain"].command
    assert jobs["eval"].needs == ("pretrain",)
    assert {j.cards.count for j in jobs.values()} == {0}, "nothing in these scripts uses a card"
    assert said.endswith("then matrix run\n")


@pytest.mark.parametrize("git", [True, False])
def test_odd_names_and_links_stop_nothing(tmp_path, git):
    put(tmp_path, {"tests/test_ok.py": "", "tests/test é.py": ""})
    (tmp_path / "tests" / os.fsdecode(b"test_\xff.py")).touch()
    (tmp_path / "configs").symlink_to("/nonexistent")
    (tmp_path / "loop").symlink_to(".")
    if git:
        subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    init(tmp_path)
    assert [j.name for j in read(tmp_path).jobs] == ["tests"]


def test_a_matrix_that_is_there_is_left_as_it_is(tmp_path):
    put(tmp_path, {"matrix.yaml": "mine", "tests/test_a.py": ""})
    with pytest.raises(UsageError, match="is there already"):
        init(tmp_path)
    assert (tmp_path / "matrix.yaml").read_text() == "mine"
    assert "pytest: tests" in init(tmp_path, "--dry-run").output


def test_nothing_to_run_is_said_with_what_to_add(tmp_path):
    put(tmp_path, {"README.md": ""})
    with pytest.raises(UsageError) as e:
        init(tmp_path)
    assert "tests/test_smoke.py" in e.value.advice
    assert not (tmp_path / "matrix.yaml").exists()


def test_what_git_ignores_is_no_job(tmp_path):
    put(tmp_path, {".gitignore": "old/\n", "old/test_x.py": "", "unit/test_y.py": "", "node_modules/a/test_z.py": ""})
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    assert [t.folder for t in look(tmp_path).tests] == ["unit"]


def test_rings_of_hand_offs_are_broken():
    found = Found(scripts=(Script("train.py", "", None),), configs=("configs/a.yaml", "configs/b.yaml"))
    text = matrix_of(
        found, {"configs/a.yaml": {"load": "b", "save": "a"}, "configs/b.yaml": {"load": "a", "save": "b"}}
    )
    jobs, _ = read_bytes(text.encode())
    assert sorted(len(j.needs) for j in jobs) == [0, 1]


@pytest.mark.parametrize(
    ("text", "cards"),
    [
        ("torchrun --nproc_per_node 8 a.py", 8),
        ("torchrun --nproc-per-node=4 a.py", 4),
        ("python -m paddle.distributed.launch --gpus '0,1,2' a.py", 3),
        ("export CUDA_VISIBLE_DEVICES=3", 1),
        ("torchrun a.py", 1),
        ("python a.py", None),
    ],
)
def test_cards_of_a_script(text, cards):
    assert cards_of(text) == cards


names = st.from_regex(re.compile(r"[\w.+=@-]{1,12}", re.ASCII), fullmatch=True)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.dictionaries(
        st.sampled_from(["tp", "output_dir", "load", "save", "pp_size", "x"]), inner, max_size=3
    ),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.builds(Tests, names, st.integers(1, 9), st.integers(0, 2)), max_size=3),
    st.lists(
        st.builds(Script, names.map("{}.py".format), st.sampled_from(["", "--config"]), st.sampled_from([None, 1, 8])),
        max_size=2,
    ),
    st.dictionaries(names.map("configs/{}.yaml".format), values, max_size=4),
)
def test_whatever_is_found_the_matrix_is_right(tests, scripts, configs):
    found = Found(tuple(tests), tuple(scripts), (), tuple(configs), sources=1)
    jobs, _ = read_bytes(matrix_of(found, configs).encode())
    assert jobs


def test_a_test_that_has_cards_of_its_own_is_not_run_again_without_them(tmp_path):
    put(tmp_path, {"tests/unit/test_a.py": "", "tests/multi_card/test_b.py": "", "tests/gpu/test_c.py": ""})
    init(tmp_path)
    jobs = {job.name: job for job in read(tmp_path).jobs}
    assert jobs["tests"].command[-2:] == ("--ignore=tests/gpu", "--ignore=tests/multi_card")
    assert not any(a.startswith("--ignore") for a in jobs["tests-multi_card"].command)


@pytest.mark.parametrize(
    ("files", "command"),
    [
        ({"model/a.py": "from torch import nn\n"}, "torchrun --nproc_per_node 2 train.py configs/pt.yaml"),
        (
            {"model/a.py": "import paddle\n"},
            "python -m paddle.distributed.launch --nproc_per_node 2 train.py configs/pt.yaml",
        ),
        ({"model/a.py": "import json\n"}, "python train.py configs/pt.yaml"),
    ],
)
def test_ranks_are_started_by_the_launcher_of_what_the_repository_imports(tmp_path, files, command):
    put(tmp_path, files | {"train.py": TRAIN, "configs/pt.yaml": "tensor_parallel_degree: 2\n"})
    init(tmp_path)
    (job,) = read(tmp_path).jobs
    assert command in job.command
    assert job.cards.count == 2
    doubt = "add a launcher if it has ranks" in (tmp_path / "matrix.yaml").read_text()
    assert doubt == command.startswith("python train")


@pytest.mark.parametrize(
    ("text", "takes"),
    [
        ("model=$1; mode=$2\n", True),
        ('case "$1" in\n', True),
        ("machine=${1:-h20}\n", False),
        ("awk '{print $1}' log\n", False),
        ("python x.py\n", False),
    ],
)
def test_a_script_that_wants_arguments_is_marked(tmp_path, text, takes):
    put(tmp_path, {"ci/run_ci.sh": text})
    init(tmp_path)
    assert ("write them behind it" in (tmp_path / "matrix.yaml").read_text()) == takes
