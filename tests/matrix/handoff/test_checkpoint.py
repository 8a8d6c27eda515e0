import json
import os
import pickle
import zipfile
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from matrix.handoff import cause, check
from matrix.handoff.problem import half_written

LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 4976698672\n"


@dataclass
class StorageInfo:
    """Shaped as torch.distributed.checkpoint's _StorageInfo, whose fields the check reads from the pickle."""

    relative_path: str
    offset: int
    length: int


def torch_zip(path, storage=b"\0" * 64):
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("archive/data.pkl", pickle.dumps({"w": 1}, protocol=2))
        z.writestr("archive/data/0", storage)
        z.writestr("archive/version", "3\n")


def hugging_face(folder):
    (folder / "config.json").write_text('{"model_type": "qwen3"}')
    (folder / "tokenizer.json").write_text('{"version": "1.0"}')
    save_file({"w": np.ones((4, 4), np.float32)}, folder / "model.safetensors")


def sharded(folder):
    (folder / "config.json").write_text("{}")
    weight_map = {}
    for n in (1, 2, 3):
        name = f"model-{n:05d}-of-00003.safetensors"
        save_file({f"layer.{n}.w": np.ones(8, np.float32), f"layer.{n}.b": np.ones(2, np.float32)}, folder / name)
        weight_map |= {f"layer.{n}.w": name, f"layer.{n}.b": name}
    index = {"metadata": {"total_size": 120}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def adapter(folder):
    (folder / "adapter_config.json").write_text('{"r": 8, "base_model_name_or_path": "Qwen/Qwen3-30B-A3B"}')
    save_file({"lora_A": np.ones((2, 2), np.float32)}, folder / "adapter_model.safetensors")


def torch_bin(folder):
    (folder / "config.json").write_text("{}")
    torch_zip(folder / "pytorch_model.bin")
    torch_zip(folder / "optimizer.pt")


def paddle_params(folder):
    (folder / "config.json").write_text("{}")
    (folder / "model_state.pdparams").write_bytes(pickle.dumps({"w": np.ones((3, 3))}, protocol=4))
    (folder / "optimizer.pdopt").write_bytes(pickle.dumps({"m": np.ones((3, 3))}, protocol=4))


def distributed(folder):
    infos = {}
    for rank in (0, 1):
        torch_zip(folder / f"__{rank}_0.distcp")
        infos[rank] = StorageInfo(f"__{rank}_0.distcp", 0, (folder / f"__{rank}_0.distcp").stat().st_size)
    (folder / ".metadata").write_bytes(pickle.dumps({"storage_data": infos}))


def with_manifest(folder):
    files = {}
    for name in ("model.safetensors", "optimizer.safetensors"):
        save_file({"w": np.ones(4, np.float64)}, folder / name)
        files[name] = {"bytes": (folder / name).stat().st_size}
    (folder / "manifest.json").write_text(json.dumps({"step": 10, "files": files}))


KINDS = [hugging_face, sharded, adapter, torch_bin, paddle_params, distributed, with_manifest]


@pytest.mark.parametrize("kind", KINDS, ids=lambda f: f.__name__)
def test_sound_checkpoints_have_no_problem(tmp_path, kind):
    kind(tmp_path)
    assert check(tmp_path) == []


def cut(name, by=10):
    def damage(folder):
        raw = (folder / name).read_bytes()
        (folder / name).write_bytes(raw[:-by])

    return damage


def empty(name):
    return lambda folder: (folder / name).write_bytes(b"")


def gone(name):
    return lambda folder: (folder / name).unlink()


def text(name, content):
    return lambda folder: (folder / name).write_text(content)


def renamed(name, to):
    return lambda folder: (folder / name).rename(folder / to)


def zeroed(name):
    return lambda folder: (folder / name).write_bytes(b"\0" * (folder / name).stat().st_size)


DAMAGES = [
    (hugging_face, gone("config.json"), "config.json", "loaders of this checkpoint need it"),
    (hugging_face, text("config.json", '{"model_type": "qw'), "config.json", "does not parse as JSON"),
    (hugging_face, text("config.json", "[]"), "config.json", "not a JSON object"),
    (hugging_face, text("config.json", '{"a":' * 100_000), "config.json", "nested too deeply"),
    (hugging_face, empty("tokenizer.json"), "tokenizer.json", "is empty"),
    (hugging_face, gone("model.safetensors"), "", "holds no weights"),
    (hugging_face, cut("model.safetensors"), "model.safetensors", "cut off"),
    (hugging_face, cut("model.safetensors", 70), "model.safetensors", "cut off"),
    (hugging_face, empty("model.safetensors"), "model.safetensors", "is empty"),
    (hugging_face, text("model.safetensors", LFS), "model.safetensors", "git-lfs pointer"),
    (hugging_face, zeroed("model.safetensors"), "model.safetensors", "header is not a JSON object"),
    (
        hugging_face,
        renamed("model.safetensors", "model.safetensors.tmp"),
        "model.safetensors.tmp",
        "still being written",
    ),
    (sharded, gone("model-00002-of-00003.safetensors"), "model-00002-of-00003.safetensors", "is not there"),
    (sharded, gone("model.safetensors.index.json"), "model.safetensors.index.json", "cannot be loaded without it"),
    (sharded, cut("model-00003-of-00003.safetensors"), "model-00003-of-00003.safetensors", "cut off"),
    (sharded, text("model.safetensors.index.json", "{"), "model.safetensors.index.json", "does not parse"),
    (sharded, text("model.safetensors.index.json", "{}"), "model.safetensors.index.json", "no weight_map"),
    (
        sharded,
        text("model.safetensors.index.json", '{"weight_map": {"x": "../../etc/passwd"}}'),
        "model.safetensors.index.json",
        "outside the folder",
    ),
    (
        sharded,
        text("model.safetensors.index.json", '{"weight_map": {"x": "model-00001-of-00003.safetensors"}}'),
        "model.safetensors.index.json",
        "has no tensor 'x'",
    ),
    (
        sharded,
        text("model.safetensors.index.json", '{"weight_map": {"layer.1.w": "model-00001-of-00003.safetensors"}}'),
        "model.safetensors.index.json",
        "does not name tensor 'layer.1.b'",
    ),
    (adapter, gone("adapter_model.safetensors"), "adapter_model.safetensors", "is not there, though adapter_config"),
    (adapter, gone("adapter_config.json"), "adapter_config.json", "loaders of adapters need it"),
    (adapter, text("adapter_config.json", ""), "adapter_config.json", "is empty"),
    (torch_bin, cut("pytorch_model.bin"), "pytorch_model.bin", "without its central directory"),
    (torch_bin, text("pytorch_model.bin", "not found"), "pytorch_model.bin", "neither a zip archive nor a pickle"),
    (torch_bin, zeroed("optimizer.pt"), "optimizer.pt", "all zeros"),
    (paddle_params, cut("model_state.pdparams"), "model_state.pdparams", "cut off"),
    (paddle_params, empty("optimizer.pdopt"), "optimizer.pdopt", "is empty"),
    (paddle_params, text("model_state.pdparams", "<html>404</html>"), "model_state.pdparams", "not a pickle"),
    (distributed, gone(".metadata"), ".metadata", "cannot be loaded without it"),
    (distributed, gone("__1_0.distcp"), "__1_0.distcp", "though .metadata names it"),
    (distributed, cut("__1_0.distcp"), "__1_0.distcp", "cut off"),
    (distributed, cut(".metadata"), ".metadata", "cut off"),
    (distributed, zeroed("__0_0.distcp"), "__0_0.distcp", "never written"),
    (with_manifest, gone("optimizer.safetensors"), "optimizer.safetensors", "though manifest.json names it"),
    (with_manifest, cut("model.safetensors"), "model.safetensors", "cut off"),
]


@pytest.mark.parametrize(("kind", "damage", "file", "what"), DAMAGES)
def test_damage_is_named_with_its_file(tmp_path, kind, damage, file, what):
    kind(tmp_path)
    damage(tmp_path)
    problems = check(tmp_path)
    assert [p.file for p in problems] == [file or str(tmp_path)], problems
    assert what in problems[0].what


@settings(max_examples=100, deadline=None)
@given(
    st.text(st.characters(exclude_categories=[]), max_size=300), st.sampled_from([sharded, with_manifest, distributed])
)
def test_any_name_in_an_index_a_manifest_or_metadata_is_taken(tmp_path_factory, name, kind):
    folder = tmp_path_factory.mktemp("names")
    kind(folder)
    text("model.safetensors.index.json", json.dumps({"weight_map": {name: name}}))(folder)
    text("manifest.json", json.dumps({"files": {name: {"bytes": 1}}}))(folder)
    (folder / ".metadata").write_bytes(pickle.dumps([StorageInfo(name.encode("utf-8", "replace").decode(), 0, 1)]))
    for problem in check(folder):
        assert problem.what


def test_a_path_that_is_not_there_is_named(tmp_path):
    (problem,) = check(tmp_path / "checkpoints" / "qwen-sft")
    assert problem.file.endswith("checkpoints/qwen-sft")
    assert problem.what == "is not there"


def test_an_empty_folder_is_named(tmp_path):
    assert [p.what for p in check(tmp_path)] == ["is empty"]


def test_a_single_file_of_weights_can_be_a_checkpoint(tmp_path):
    save_file({"w": np.ones(4)}, tmp_path / "w.safetensors")
    assert check(tmp_path / "w.safetensors") == []
    cut("w.safetensors")(tmp_path)
    assert "cut off" in check(tmp_path / "w.safetensors")[0].what


def test_a_checkpoint_in_a_subfolder_is_looked_into(tmp_path):
    (tmp_path / "checkpoint-10").mkdir()
    hugging_face(tmp_path / "checkpoint-10")
    assert check(tmp_path) == []
    cut("model.safetensors")(tmp_path / "checkpoint-10")
    assert check(tmp_path)[0].file == "checkpoint-10/model.safetensors"


def test_a_folder_still_being_written_is_named(tmp_path):
    hugging_face(tmp_path)
    (tmp_path / "tmp-checkpoint-20").mkdir()
    assert [p.file for p in check(tmp_path)] == ["tmp-checkpoint-20"]


def test_what_a_killed_writer_left_long_ago_is_passed_over(tmp_path):
    (tmp_path / "step-00000010").mkdir()
    with_manifest(tmp_path / "step-00000010")
    (tmp_path / ".unfinished-step-00000005").mkdir()
    (tmp_path / "model.safetensors.tmp").write_bytes(b"x")
    assert {p.file for p in check(tmp_path)} == {".unfinished-step-00000005", "model.safetensors.tmp"}
    for name in (".unfinished-step-00000005", "model.safetensors.tmp"):
        os.utime(tmp_path / name, (1_000, 1_000))
    assert check(tmp_path, since=2_000) == []


def test_links_into_a_cache_are_followed_and_a_dangling_one_is_named(tmp_path):
    cache, folder = tmp_path / "blobs", tmp_path / "snapshot"
    cache.mkdir()
    folder.mkdir()
    hugging_face(cache)
    for name in ("config.json", "model.safetensors"):
        (folder / name).symlink_to(cache / name)
    assert check(folder) == []
    (cache / "model.safetensors").unlink()
    assert "leads nowhere" in check(folder)[0].what


def test_a_pickle_is_never_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    (tmp_path / "model_state.pdparams").write_bytes(pickle.dumps(Evil(), protocol=4))
    (tmp_path / ".metadata").write_bytes(pickle.dumps(Evil()))
    check(tmp_path)
    assert not (tmp_path / "ran").exists()


def test_what_an_earlier_run_left_is_refused_when_asked(tmp_path):
    hugging_face(tmp_path)
    for file in tmp_path.iterdir():
        os.utime(file, (1_000, 1_000))
    assert check(tmp_path, since=999) == []
    assert "earlier run" in check(tmp_path, since=2_000)[0].what


def test_the_cause_names_the_hand_off_the_file_and_what_is_wrong(tmp_path):
    hugging_face(tmp_path)
    cut("model.safetensors")(tmp_path)
    found = cause("qwen-sft", check(tmp_path))
    assert (found.category, found.line) == ("handoff_missing", None)
    assert "'qwen-sft'" in found.text
    assert "model.safetensors: cut off" in found.text


@pytest.mark.parametrize(
    ("name", "half"),
    [
        ("model.safetensors.tmp", True),
        (".model.safetensors.123.tmp", True),
        ("model.safetensors.tmp.4711", True),
        ("model.safetensors.incomplete", True),
        ("tmp_abc.bin", True),
        ("x.part", True),
        ("config.json~", True),
        ("template.json", False),
        ("model.safetensors", False),
        ("chat_template.jinja", False),
        ("partial_rope.json", False),
    ],
)
def test_names_of_unfinished_files(name, half):
    assert half_written(name) is half


@settings(max_examples=60, deadline=None)
@given(
    st.binary(max_size=200),
    st.sampled_from(["pt", "pdparams", "distcp", "metadata", "json", "safetensors", "index.json"]),
)
def test_arbitrary_bytes_never_break_the_check(tmp_path_factory, raw, extension):
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / f"model.{extension}").write_bytes(raw)
    (folder / "x.distcp").write_bytes(raw)
    (folder / ".metadata").write_bytes(b"\x80\x04" + raw + b".")
    assert check(folder)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 255), st.sampled_from([torch_bin, distributed, paddle_params]))
def test_a_flipped_byte_never_breaks_the_check(tmp_path_factory, at, mask, kind):
    folder = tmp_path_factory.mktemp("flip")
    kind(folder)
    for file in list(folder.iterdir()):
        raw = bytearray(file.read_bytes())
        raw[at % len(raw)] ^= mask
        file.write_bytes(raw)
    for problem in check(folder):
        assert problem.what
