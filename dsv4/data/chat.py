"""Chat records to tokens: JSON lines through a jinja template and a tokenizer, with the positions that count."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import jinja2
import numpy as np
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from dsv4.data.batch import Ints
from dsv4.errors import UsageError

ROLES = ("system", "user", "assistant", "tool")
# Turns in the manner of DeepSeek's models; another model's template is given by data.template.
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if m.role == 'user' or m.role == 'tool' %}<｜User｜>{{ m.content }}"
    "{% elif m.role == 'assistant' %}<｜Assistant｜>{{ m.content }}{{ eos_token }}"
    "{% else %}{{ m.content }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<｜Assistant｜>{% endif %}"
)
BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"


class BadRecordError(ValueError):
    """Why one record cannot be used."""


@dataclass(frozen=True)
class Sample:
    """One conversation: n+1 tokens give n positions; `mask` belongs to the labels."""

    inputs: Ints
    labels: Ints
    mask: Ints
    line: int

    def __len__(self) -> int:
        return len(self.inputs)


@dataclass(frozen=True)
class Loaded:
    """Usable conversations of a file, and what was left out with the reason of each."""

    samples: list[Sample]
    bad: list[str]  # file:line: reason
    dropped: int  # too long, or without a position that counts after the cut
    cut: int


class ChatEncoder:
    """A template and a tokenizer: messages to tokens and to the tokens whose loss counts."""

    def __init__(self, tokenizer: Path, template: Path | None, train_on: str) -> None:
        self._tokenizer = _open_tokenizer(tokenizer)
        self._everything = train_on == "all"
        try:
            text = TEMPLATE if template is None else template.read_text(encoding="utf-8")
            environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
            environment.globals["raise_exception"] = _raise
            self._template = environment.from_string(text)
        except OSError as e:
            raise UsageError(f"{template}: {e.strerror}", "name a jinja chat template") from None
        except jinja2.TemplateSyntaxError as e:
            raise UsageError(f"{template}:{e.lineno}: {e.message}", "mend the template") from None

    def encode(self, messages: Sequence[dict[str, str]]) -> tuple[Ints, Ints]:
        """Return token ids, and 1 for every token of what the assistant says (its end of turn included).

        Each assistant turn is found by rendering the conversation up to it: a template must extend its own text.
        """
        text = self._render(messages, prompt=False)
        spans = [(0, len(text))] if self._everything else list(self._assistant_spans(messages, text))
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        counts = np.zeros(len(encoding.ids), np.int32)
        for i, (start, end) in enumerate(encoding.offsets):
            counts[i] = any(a <= start < b and end > start for a, b in spans)
        return np.array(encoding.ids, np.int64), counts

    def _assistant_spans(self, messages: Sequence[dict[str, str]], text: str) -> Iterator[tuple[int, int]]:
        for i, message in enumerate(messages):
            if message["role"] == "assistant":
                before, after = self._render(messages[:i], prompt=True), self._render(messages[: i + 1], prompt=False)
                if not (after.startswith(before) and text.startswith(after)):
                    raise BadRecordError("the template rewrites earlier turns: the assistant's part cannot be found")
                yield len(before), len(after)

    def _render(self, messages: Sequence[dict[str, str]], *, prompt: bool) -> str:
        try:
            return self._template.render(messages=messages, add_generation_prompt=prompt, bos_token=BOS, eos_token=EOS)
        except jinja2.TemplateError as e:
            raise BadRecordError(f"the template refuses it: {e}") from None


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _open_tokenizer(path: Path) -> Tokenizer:
    if not path.is_file():
        raise UsageError(f"{path}: no such file", "name a Hugging Face tokenizer.json with data.tokenizer")
    try:
        return Tokenizer.from_file(str(path))
    except Exception as e:  # noqa: BLE001 - the library raises plain Exception
        raise UsageError(f"{path}: not a tokenizer: {e}", "name a Hugging Face tokenizer.json") from None


def parse_record(line: str) -> list[dict[str, str]]:
    """Read `{"messages": [{"role", "content"}, …]}` or `{"src": …, "tgt": …}` (texts or lists of turns).

    Raises BadRecordError with the reason.
    """
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as e:
        raise BadRecordError(f"not JSON: {e}") from None
    if not isinstance(record, dict):
        raise BadRecordError("not a JSON object")
    if "messages" in record:
        messages = record["messages"]
    elif "src" in record and "tgt" in record:
        messages = _turns(record["src"], record["tgt"])
    else:
        raise BadRecordError("neither `messages` nor `src` and `tgt`")
    if not isinstance(messages, list) or not messages:
        raise BadRecordError("`messages` is not a list of turns")
    for i, message in enumerate(messages):
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            raise BadRecordError(f"turn {i}: the role is none of {', '.join(ROLES)}")
        if not isinstance(message.get("content"), str):
            raise BadRecordError(f"turn {i}: the content is no text")
    if not any(m["role"] == "assistant" and m["content"] for m in messages):
        raise BadRecordError("no turn of the assistant says anything")
    return messages


def _turns(source: Any, target: Any) -> list[dict[str, Any]]:
    questions, answers = (x if isinstance(x, list) else [x] for x in (source, target))
    if len(questions) != len(answers):
        raise BadRecordError(f"{len(questions)} `src` turns, {len(answers)} `tgt` turns")
    pairs = zip(questions, answers, strict=True)
    return [{"role": r, "content": c} for q, a in pairs for r, c in (("user", q), ("assistant", a))]


def load_chats(path: Path, encoder: ChatEncoder, *, seq_len: int, truncation: str, skip_bad: bool) -> Loaded:
    """Encode every record of a file, in order.

    Raises UsageError with file, line and reason at the first bad record, unless `skip_bad` counts and leaves it out.
    """
    samples: list[Sample] = []
    bad: list[str] = []
    dropped = cut = 0
    for number, raw in enumerate(path.read_bytes().split(b"\n"), 1):
        if not raw.strip():
            continue
        try:
            ids, counts = encoder.encode(parse_record(_decode(raw)))
            fitted = fit(ids, counts, seq_len, truncation)
        except BadRecordError as e:
            if not skip_bad:
                raise UsageError(f"{path}:{number}: {e}", "mend the record, or set data.skip_bad") from None
            bad.append(f"{path}:{number}: {e}")
            continue
        if fitted is None or not fitted[1][1:].any():
            dropped += 1
            continue
        cut += len(fitted[0]) < len(ids)
        ids, counts = fitted
        samples.append(Sample(ids[:-1], ids[1:], counts[1:], number))
    if not samples:
        raise UsageError(f"{path}: no usable record of {len(bad) + dropped}", "see data.truncation and the records")
    return Loaded(samples, bad, dropped, cut)


def _decode(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as e:
        raise BadRecordError(f"not UTF-8 at byte {e.start}") from None


def fit(ids: Ints, counts: Ints, seq_len: int, truncation: str) -> tuple[Ints, Ints] | None:
    """Cut a conversation to seq_len+1 tokens by policy; None: drop it. Raises BadRecordError under `error`."""
    if len(ids) < 2:
        raise BadRecordError("fewer than two tokens")
    if len(ids) <= seq_len + 1:
        return ids, counts
    if truncation == "error":
        raise BadRecordError(f"{len(ids)} tokens, at most {seq_len + 1} fit: see data.truncation")
    if truncation == "drop":
        return None
    keep = slice(0, seq_len + 1) if truncation == "right" else slice(len(ids) - seq_len - 1, None)
    return ids[keep], counts[keep]
