"""Chat records: which tokens count, what is refused, how rows are packed and resumed."""

import contextlib
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from dsv4.data.chat import BOS, EOS, BadRecordError, ChatEncoder, fit, load_chats, parse_record
from dsv4.data.packed import ChatSource, pack
from dsv4.data.sources import open_source
from dsv4.errors import UsageError
from dsv4.run import RunOptions, run_training
from dsv4.run_config import load_run_config
from tests.dsv4.conftest import SMALL

PLAIN = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"


@pytest.fixture
def tokenizer(tmp_path):
    """A byte-level tokenizer of 256 ids without merges: one token a byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    path = tmp_path / "tokenizer.json"
    made.save(str(path))
    return path


def decode(path, ids):
    return Tokenizer.from_file(str(path)).decode([int(i) for i in ids])


def encoder(tokenizer, tmp_path, template=PLAIN, train_on="assistant"):
    path = tmp_path / "chat.jinja"
    path.write_text(template)
    return ChatEncoder(tokenizer, path, train_on)


CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "1+1?"},
    {"role": "assistant", "content": "2"},
    {"role": "user", "content": "In Chinese, 中?"},
    {"role": "assistant", "content": "二"},
]


def test_only_what_the_assistant_says_counts(tokenizer, tmp_path):
    ids, counts = encoder(tokenizer, tmp_path).encode(CHAT)
    assert decode(tokenizer, ids).startswith("<system>Be brief.\n<user>1+1?\n<assistant>2\n<user>")
    assert decode(tokenizer, ids[counts == 1]) == "2\n二\n"


def test_all_tokens_count_if_asked(tokenizer, tmp_path):
    _, counts = encoder(tokenizer, tmp_path, train_on="all").encode(CHAT)
    assert counts.all()


def test_the_built_in_template_ends_a_turn_with_the_end_of_sentence(tokenizer):
    ids, counts = ChatEncoder(tokenizer, None, "assistant").encode(CHAT[1:3])
    assert decode(tokenizer, ids) == f"{BOS}<｜User｜>1+1?<｜Assistant｜>2{EOS}"
    assert decode(tokenizer, ids[counts == 1]) == f"2{EOS}"


def test_a_template_that_rewrites_earlier_turns_is_refused(tokenizer, tmp_path):
    template = "{{ messages|length }}{% for m in messages %}{{ m.content }}{% endfor %}"
    with pytest.raises(BadRecordError, match="rewrites earlier turns"):
        encoder(tokenizer, tmp_path, template).encode(CHAT)


def test_a_template_reaches_nothing_outside_of_it(tokenizer, tmp_path):
    template = "{{ messages.__class__.__mro__ }}{{ messages.append(1) }}"
    with pytest.raises(BadRecordError, match="the template refuses it"):
        encoder(tokenizer, tmp_path, template).encode(CHAT)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "not a JSON object"),
        ('{"text": "x"}', "neither `messages` nor"),
        ('{"messages": []}', "not a list of turns"),
        ('{"messages": [{"role": "robot", "content": "x"}]}', "turn 0: the role"),
        ('{"messages": [{"role": "user", "content": 5}]}', "turn 0: the content is no text"),
        ('{"messages": [{"role": "user", "content": "x"}]}', "no turn of the assistant"),
        ('{"src": ["a", "b"], "tgt": ["c"]}', "2 `src` turns, 1 `tgt` turns"),
    ],
)
def test_bad_records_say_why(line, reason):
    with pytest.raises(BadRecordError, match=reason):
        parse_record(line)


@given(st.text() | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(json.dumps))
def test_any_line_is_a_record_or_a_reason(line):
    with contextlib.suppress(BadRecordError):
        assert parse_record(line)


def test_source_and_target_records_become_turns():
    assert [m["role"] for m in parse_record('{"src": ["a", "b"], "tgt": ["c", "d"]}')] == ["user", "assistant"] * 2


def write(path, count=9):
    chats = [
        {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "x" * i}]}
        for i in range(1, count)
    ]
    path.write_text("".join(json.dumps(chat) + "\n" for chat in chats))
    return path


def test_a_bad_record_stops_with_file_and_line_or_is_counted(tokenizer, tmp_path):
    path = write(tmp_path / "chat.jsonl", 3)
    path.write_text(path.read_text() + "\n{oops\n")
    code = encoder(tokenizer, tmp_path)
    with pytest.raises(UsageError, match=r"chat\.jsonl:4: not JSON"):
        load_chats(path, code, seq_len=64, truncation="right", skip_bad=False)
    loaded = load_chats(path, code, seq_len=64, truncation="right", skip_bad=True)
    assert len(loaded.samples) == 2
    assert loaded.bad[0].startswith(f"{path}:4: not JSON")


@pytest.mark.parametrize(("policy", "kept"), [("right", [0, 1, 2, 3]), ("left", [6, 7, 8, 9]), ("drop", None)])
def test_truncation_policies(policy, kept):
    fitted = fit(np.arange(10), np.ones(10, int), 3, policy)
    assert (None if fitted is None else fitted[0].tolist()) == kept


def test_truncation_may_be_an_error():
    with pytest.raises(BadRecordError, match="10 tokens, at most 4 fit"):
        fit(np.arange(10), np.ones(10, int), 3, "error")


def test_a_cut_that_leaves_nothing_to_learn_drops_the_record(tokenizer, tmp_path):
    path = write(tmp_path / "chat.jsonl", 3)
    path.write_text(path.read_text() + json.dumps({"src": "q" * 100, "tgt": "late"}) + "\n")
    loaded = load_chats(path, encoder(tokenizer, tmp_path), seq_len=40, truncation="right", skip_bad=False)
    assert (len(loaded.samples), loaded.dropped) == (2, 1)


@given(st.lists(st.integers(1, 16), max_size=60))
def test_packing_keeps_every_item_once_and_never_overfills(lengths):
    rows = pack(lengths, 16)
    assert sorted(i for row in rows for i in row) == list(range(len(lengths)))
    assert all(sum(lengths[i] for i in row) <= 16 for row in rows)
    if lengths:
        assert len(rows) < 2 * sum(lengths) / 16 + 1 or len(rows) > 32  # first fit fills half of all rows but one


def source(tokenizer, tmp_path, **options):
    path = write(tmp_path / "chat.jsonl")
    loaded = load_chats(path, encoder(tokenizer, tmp_path), seq_len=64, truncation="right", skip_bad=False)
    chosen = {"micro_batch": 2, "seq_len": 64, "packed": True, "shuffle": True, "seed": 5, "pad_id": 0} | options
    return ChatSource(path, loaded, **chosen)


def test_rows_hold_whole_documents_padding_does_not_count(tokenizer, tmp_path):
    batch = source(tokenizer, tmp_path).batch(0)
    assert batch.tokens_BS.shape == batch.documents_BS.shape == (2, 64)
    for row in range(2):
        for number in np.unique(batch.documents_BS[row]):
            inside = batch.documents_BS[row] == number
            text = decode(tokenizer, batch.tokens_BS[row][inside])
            learned = decode(tokenizer, batch.labels_BS[row][inside & (batch.mask_BS[row] == 1)])
            if number == batch.documents_BS[row].max() and not batch.mask_BS[row][inside].any():
                assert set(batch.tokens_BS[row][inside]) == {0}  # padding
            else:
                assert text.startswith("<user>q\n<assistant>x")
                assert learned.strip("x") == "\n"
    assert batch.counting > 0


def test_rows_may_be_padded_to_the_longest_of_their_micro_batch(tokenizer, tmp_path):
    fixed = source(tokenizer, tmp_path, packed=False, shuffle=False)
    trimmed = source(tokenizer, tmp_path, packed=False, shuffle=False, pad_multiple=4)
    for i in range(4):
        whole, part = fixed.batch(i), trimmed.batch(i)
        width = part.tokens_BS.shape[1]
        longest = int((whole.documents_BS == 0).sum(axis=1).max())
        assert width % 4 == 0
        assert 0 <= width - longest < 4
        assert np.array_equal(whole.tokens_BS[:, :width], part.tokens_BS)
        assert whole.counting == part.counting


def test_an_epoch_visits_every_record_once_and_epochs_differ(tokenizer, tmp_path):
    chats = source(tokenizer, tmp_path)
    seen = [tuple(chats._members(i)) for i in range(40)]
    first = chats._ends[0]
    assert sorted(i for row in seen[:first] for i in row) == list(range(8))
    assert seen[:first] != seen[first : 2 * first]


def test_any_micro_batch_can_be_asked_for_first(tokenizer, tmp_path):
    forward, fresh = source(tokenizer, tmp_path), source(tokenizer, tmp_path)
    batches = [forward.batch(i) for i in range(9)]
    for i in (7, 2, 8, 0):
        assert np.array_equal(fresh.batch(i).tokens_BS, batches[i].tokens_BS)
        assert np.array_equal(fresh.batch(i).mask_BS, batches[i].mask_BS)


def test_without_packing_a_row_holds_one_record(tokenizer, tmp_path):
    chats = source(tokenizer, tmp_path, packed=False, shuffle=False)
    assert [chats._members(i) for i in range(9)] == [[i] for i in (*range(8), 0)]


def test_training_on_chats_resumes_in_the_middle_of_an_epoch(tokenizer, tmp_path, capsys):
    chat = write(tmp_path / "chat.jsonl")
    chat.write_text(chat.read_text() + "{oops\n")
    (tmp_path / "chat.jinja").write_text(PLAIN)
    data = {
        "path": str(chat),
        "tokenizer": str(tokenizer),
        "template": str(tmp_path / "chat.jinja"),
        "skip_bad": True,
        "shuffle": True,
    }
    config = tmp_path / "sft.json"
    config.write_text(
        json.dumps(
            {"model": SMALL["model"] | {"vocab_size": 256}, "train": SMALL["train"] | {"seq_len": 40}, "data": data}
        )
    )
    run_training(load_run_config(config), RunOptions(record=tmp_path / "whole.csv"))
    assert "data: records=8 left out: bad=1 dropped=0 cut=0" in capsys.readouterr().out
    parts = RunOptions(record=tmp_path / "parts.csv", save=tmp_path / "ck")
    run_training(load_run_config(config, ("steps=2",)), parts)
    run_training(load_run_config(config), RunOptions(record=tmp_path / "parts.csv", resume=tmp_path / "ck"))
    assert (tmp_path / "parts.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokenizer": None}, "no tokenizer named"),
        ({"tokenizer": "none.json"}, "none.json: no such file"),
        ({"template": "none.jinja"}, "none.jinja: No such file"),
    ],
)
def test_missing_parts_are_named(tokenizer, tmp_path, change, message):
    path = write(tmp_path / "chat.jsonl")
    config = tmp_path / "sft.json"
    config.write_text(json.dumps({"data": {"tokenizer": str(tokenizer)} | change}))
    with pytest.raises(UsageError, match=message):
        open_source(path, load_run_config(config))


def test_a_broken_template_is_named_with_its_line(tokenizer, tmp_path):
    with pytest.raises(UsageError, match=r"chat\.jinja:2: "):
        encoder(tokenizer, tmp_path, "{{ 1 }}\n{% for %}")
