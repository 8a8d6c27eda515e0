"""Which words every match of a pattern holds, so that the scan of a large log is led by words and not by wildcards."""

from __future__ import annotations

import re._constants as sre  # type: ignore[import-not-found]
import re._parser as sre_parser  # type: ignore[import-not-found]
from typing import Any

# What jobs print all the time. A word that stands here leads a scan nowhere.
TYPICAL = """
 iteration 100/ 300 | consumed samples: 3200 | elapsed time per iteration (ms): 0.1 | learning rate: 1.0E-02 | global batch size: 16 | lm loss: 2.8E-01
 | loss scale: 1.0 | grad norm: 0.3 | number of skipped iterations: 0 | number of nan iterations: 0 | validation loss at iteration perplexity
{'loss': 0.85, 'grad_norm': 2.18, 'learning_rate': 0.0005, 'epoch': 0.0, 'train_runtime': 1, 'train_samples_per_second': 1, 'eval_loss': 1}
[INFO] [logging.py:107:log_dist] [Rank 0] step=64, skipped=0, lr=[0.01], mom=[[0.9, 0.95]] time (ms) forward backward optimizer micro batch size
[    INFO] - loss: 0.42, learning_rate: 1.0e-02, global_step: 169, current_memory_allocated: 0.0, max_memory_allocated: 0.0, interval_runtime
 interval_samples_per_second interval_steps_per_second ppl progress_or_epoch tokens throughput WARNING warnings.warn UserWarning deprecated version
Requirement already satisfied: Collecting Downloading Installing collected packages Successfully installed Using cached python site-packages
tests/test_a.py::test_one PASSED SKIPPED XFAIL [ 50%] NCCL INFO Channel via P2P/CUMEM/read node rank world size device model checkpoint
Training: 100%|######| 10/10 [00:01<00:00, 1.0it/s] line file http https error test time gpu cuda memory config dataset worker process
"""
_TYPICAL = TYPICAL.lower()
ENOUGH = 5  # letters of a word that leads somewhere


def leads(regex: str) -> bool:
    """True if every match holds one of a few words that are long and rare enough."""
    words = required(regex)
    return words is not None and all(len(w) >= ENOUGH and w.lower().strip() not in _TYPICAL for w in words)


def required(regex: str) -> frozenset[str] | None:
    """Words one of which every match holds, or None."""
    try:
        return _sequence(sre_parser.parse(regex))
    except (RecursionError, OverflowError):
        return None


def _sequence(tokens: Any) -> frozenset[str] | None:
    best: frozenset[str] | None = None
    word: list[str] = []
    for op, value in [*tokens, (None, None)]:
        if op is sre.LITERAL and value < 128:
            word.append(chr(value))
            continue
        if word:
            best = _better(best, frozenset({"".join(word)}))
            word = []
        best = _better(best, _token(op, value))
    return best


def _token(op: Any, value: Any) -> frozenset[str] | None:
    if op is sre.SUBPATTERN:
        return _sequence(value[3])
    if op is sre.ATOMIC_GROUP:
        return _sequence(value)
    if op is sre.BRANCH:
        branches = [_sequence(branch) for branch in value[1]]
        found = [b for b in branches if b is not None]
        return frozenset().union(*found) if len(found) == len(branches) else None
    if op in {sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT} and value[0] >= 1:
        return _sequence(value[2])
    return None


def _better(a: frozenset[str] | None, b: frozenset[str] | None) -> frozenset[str] | None:
    """The set whose shortest word is longer."""
    if a is None or b is None:
        return a or b
    return max(a, b, key=lambda words: (min(map(len, words)), -len(words)))
