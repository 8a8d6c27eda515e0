"""Choose a source of micro-batches by what a path holds."""

from __future__ import annotations

from pathlib import Path

from dsv4.data.batch import Source
from dsv4.data.chat import ChatEncoder, load_chats
from dsv4.data.packed import ChatSource
from dsv4.data.replay import Replay
from dsv4.data.tokens import TokenStream, TokenTensors
from dsv4.errors import UsageError
from dsv4.run_config import RunConfig


def open_source(path: Path, config: RunConfig) -> Source:
    """Open tokens: .safetensors, a folder of replay arrays, .npy, .bin or .jsonl."""
    train, data = config.train, config.data
    if not path.exists():
        raise UsageError(f"{path}: no such file", "name the tokens with --tokens or data.path")
    if path.is_dir():
        return Replay(
            path, accumulate=train.accumulate, rank=data.rank, micro_batch=train.micro_batch, seq_len=train.seq_len
        )
    if path.suffix == ".safetensors":
        return TokenTensors(path, micro_batch=train.micro_batch, seq_len=train.seq_len, loss_mask=train.loss_mask)
    if path.suffix in (".npy", ".bin"):
        return TokenStream(
            path,
            micro_batch=train.micro_batch,
            seq_len=train.seq_len,
            dtype=data.token_dtype,
            shuffle=data.shuffle,
            seed=train.seed,
        )
    if path.suffix == ".jsonl":
        return _open_chats(path, config)
    raise UsageError(f"{path}: unknown kind of data", "give .safetensors, .npy, .bin, .jsonl or a folder of arrays")


def _open_chats(path: Path, config: RunConfig) -> ChatSource:
    train, data = config.train, config.data
    if data.tokenizer is None:
        raise UsageError(f"{path}: no tokenizer named", "name a Hugging Face tokenizer.json with data.tokenizer")
    encoder = ChatEncoder(Path(data.tokenizer), Path(data.template) if data.template else None, data.train_on)
    loaded = load_chats(path, encoder, seq_len=train.seq_len, truncation=data.truncation, skip_bad=data.skip_bad)
    return ChatSource(
        path,
        loaded,
        micro_batch=train.micro_batch,
        seq_len=train.seq_len,
        packed=data.pack,
        shuffle=data.shuffle,
        seed=train.seed,
        pad_id=data.pad_id,
        pad_multiple=data.pad_multiple if data.padding == "longest" else None,
    )
