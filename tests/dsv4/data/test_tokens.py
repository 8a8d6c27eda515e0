"""Token files: the reference's tensors, flat files in memory, replayed arrays."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from dsv4.data.batch import Batch, check_ids
from dsv4.data.order import Order
from dsv4.data.sources import open_source
from dsv4.errors import UsageError
from dsv4.run_config import load_run_config


def config(tmp_path, train=None, data=None):
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"train": {"seq_len": 4, "micro_batch": 2} | (train or {}), "data": data or {}}))
    return load_run_config(path)


def tokens(count=3):
    return np.arange(count * 10, dtype=np.int32).reshape(count, 2, 5)


def test_tensor_rows_are_micro_batches_with_labels_one_to_the_right(tmp_path):
    save_file({"tokens": tokens()}, tmp_path / "t.safetensors")
    batch = open_source(tmp_path / "t.safetensors", config(tmp_path)).batch(1)
    assert batch.tokens_BS.tolist() == [[10, 11, 12, 13], [15, 16, 17, 18]]
    assert batch.labels_BS.tolist() == [[11, 12, 13, 14], [16, 17, 18, 19]]
    assert batch.mask_BS is None
    assert batch.counting == 8


def test_the_mask_is_read_only_if_asked_for(tmp_path):
    mask = np.tile(np.int32([1, 0, 0, 1]), (3, 2, 1))
    save_file({"tokens": tokens(), "loss_mask": mask}, tmp_path / "t.safetensors")
    assert open_source(tmp_path / "t.safetensors", config(tmp_path)).batch(0).mask_BS is None
    batch = open_source(tmp_path / "t.safetensors", config(tmp_path, {"loss_mask": True})).batch(0)
    assert batch.mask_BS.tolist() == [[1, 0, 0, 1]] * 2
    assert batch.counting == 4


@pytest.mark.parametrize(
    ("tensors", "train", "message"),
    [
        ({"ids": tokens()}, {}, "no tensor `tokens`"),
        ({"tokens": tokens()}, {"loss_mask": True}, "no tensor `loss_mask`"),
        ({"tokens": tokens()}, {"seq_len": 8}, r"tokens are \[3, 2, 5\], needed \[micro-batches, 2, 9\]"),
        (
            {"tokens": tokens(), "loss_mask": np.zeros((3, 2, 5), np.int32)},
            {"loss_mask": True},
            "one column fewer|needed",
        ),
    ],
)
def test_tensors_that_do_not_fit_say_what_is_needed(tmp_path, tensors, train, message):
    save_file(tensors, tmp_path / "t.safetensors")
    with pytest.raises(UsageError, match=message):
        open_source(tmp_path / "t.safetensors", config(tmp_path, train))


def test_data_that_end_too_early_say_so(tmp_path):
    save_file({"tokens": tokens()}, tmp_path / "t.safetensors")
    with pytest.raises(UsageError, match="holds 3 micro-batches, number 4 is needed"):
        open_source(tmp_path / "t.safetensors", config(tmp_path)).batch(3)


def test_a_file_that_is_no_safetensors_is_refused(tmp_path):
    (tmp_path / "t.safetensors").write_text("no")
    with pytest.raises(UsageError, match=r"t\.safetensors"):
        open_source(tmp_path / "t.safetensors", config(tmp_path))


@pytest.mark.parametrize("kind", ["npy", "bin"])
def test_a_stream_is_cut_into_overlapping_sequences_and_repeats(tmp_path, kind):
    ids = np.arange(18, dtype=np.uint16)  # four sequences of 4, one token left
    path = tmp_path / f"t.{kind}"
    if kind == "npy":
        np.save(path, ids)
    else:
        ids.tofile(path)
    stream = open_source(path, config(tmp_path))
    assert stream.batch(0).tokens_BS.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert stream.batch(0).labels_BS.tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert np.array_equal(stream.batch(2).tokens_BS, stream.batch(0).tokens_BS)
    assert stream.identity()["tokens"] == 18


def test_a_shuffled_stream_visits_all_sequences_in_each_epoch(tmp_path):
    np.save(tmp_path / "t.npy", np.arange(41))
    stream = open_source(tmp_path / "t.npy", config(tmp_path, data={"shuffle": True}))
    epochs = [[int(row[0]) for i in range(e * 5, e * 5 + 5) for row in stream.batch(i).tokens_BS] for e in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(0, 40, 4))
    assert epochs[0] != epochs[1]


def test_order_is_a_function_of_position_alone():
    forward, jumping = Order(7, shuffle=True, seed=1), Order(7, shuffle=True, seed=1)
    expected = [forward.at(i) for i in range(30)]
    for i in (29, 3, 15, 0, 28):
        assert jumping.at(i) == expected[i]


@pytest.mark.parametrize(
    ("name", "write", "message"),
    [
        ("t.bin", lambda p: p.write_bytes(b"abc"), "3 bytes are no whole number of uint16"),
        ("t.npy", lambda p: np.save(p, np.zeros(9)), "float64 of 1 dimensions"),
        ("t.npy", lambda p: np.save(p, np.zeros((3, 3), int)), "int64 of 2 dimensions"),
        ("t.npy", lambda p: np.save(p, np.zeros(3, int)), "less than one sequence"),
        ("t.npy", lambda p: p.write_text("x"), "t.npy"),
        ("t.txt", lambda p: p.write_text("x"), "unknown kind of data"),
    ],
)
def test_streams_that_cannot_be_read_say_why(tmp_path, name, write, message):
    write(tmp_path / name)
    with pytest.raises(UsageError, match=message):
        open_source(tmp_path / name, config(tmp_path))


def replay(tmp_path, **arrays):
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", np.asarray(array))
    return open_source(tmp_path, config(tmp_path))


def test_replay_takes_step_and_micro_from_the_number_of_the_micro_batch(tmp_path):
    rows = np.arange(10).reshape(2, 5)
    source = replay(
        tmp_path,
        tokens_step0_micro0_rank0_seq4=rows,
        tokens_step0_micro1_rank0_seq4=rows + 10,
        tokens_step1_rank0_seq4=rows + 20,
    )
    firsts = [int(source.batch(i).tokens_BS[0, 0]) for i in range(4)]
    assert firsts == [0, 10, 20, 20]
    with pytest.raises(UsageError, match="no tokens for step 2, micro 0"):
        source.batch(4)


def test_replayed_labels_below_zero_do_not_count(tmp_path):
    source = replay(tmp_path, tokens_step0_rank0_seq4=[[1, 2, 3, 4]] * 2, labels_step0_rank0_seq4=[[2, 3, 4, -100]] * 2)
    batch = source.batch(0)
    assert batch.labels_BS.tolist() == [[2, 3, 4, 0]] * 2
    assert batch.mask_BS.tolist() == [[1, 1, 1, 0]] * 2


def test_replayed_tokens_without_a_next_one_mask_the_last_label(tmp_path):
    batch = replay(tmp_path, tokens_step0_rank0_seq4=[[1, 2, 3, 4]] * 2).batch(0)
    assert batch.labels_BS.tolist() == [[2, 3, 4, 0]] * 2
    assert batch.counting == 6


@pytest.mark.parametrize(
    ("array", "message"),
    [(np.zeros((2, 2, 5), int), "3 dimensions"), (np.zeros((2, 4)), "float64"), (np.zeros((3, 4), int), "needed")],
)
def test_replayed_arrays_of_another_form_are_refused(tmp_path, array, message):
    with pytest.raises(UsageError, match=message):
        replay(tmp_path, tokens_step0_rank0_seq4=array).batch(0)


def test_a_folder_without_arrays_of_this_length_says_so(tmp_path):
    with pytest.raises(UsageError, match=r"no tokens_step\*_rank0_seq4"):
        open_source(tmp_path, config(tmp_path))


def test_ids_outside_the_vocabulary_are_named_by_place():
    batch = Batch(np.array([[1, 2]]), np.array([[2, 9]]))
    with pytest.raises(UsageError, match="step 3: label 9 at row 0, position 1"):
        check_ids(batch, 9, "step 3")
    check_ids(batch, 10, "step 3")
