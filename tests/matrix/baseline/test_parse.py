import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from matrix.baseline.parse import MAX_LINE, lines_of, number, read_log

floats = st.floats(allow_nan=True, allow_infinity=True)

FORMATS = {
    "repr": repr,
    "%e": lambda x: f"{x:.17e}",
    "%E": lambda x: f"{x:.17E}",
    "%g": lambda x: f"{x:.17g}",
    "%+g": lambda x: f"{x:+.17g}",
    "hex": float.hex,
    "numpy": lambda x: repr(np.float64(x)),
    "torch": lambda x: f"tensor({x!r}, device='cuda:0', grad_fn=<NllLossBackward0>)",
    "torch 1-D": lambda x: f"tensor([{x!r}], dtype=torch.float64)",
    "numpy array": lambda x: f"array({x!r}, dtype=float64)",
    "paddle": lambda x: f"Tensor(shape=[], dtype=float64, place=Place(gpu:0), stop_gradient=False, {x!r})",
    "paddle 1-D": lambda x: f"Tensor(shape=[1], dtype=float64, place=Place(cpu), stop_gradient=True, [{x!r}])",
    "quoted": lambda x: f"'{x!r}'",
}
LINES = [
    "global_step: {step}, loss: {loss}, learning_rate: 5.000e-04",
    "loss: {loss}, learning_rate: 5.000e-04, global_step: {step}, interval_runtime: 0.3, ppl: 3.1",
    "[2026-12-01 01:31:06] [    INFO] - loss: {loss}, learning_rate: 5.000e-04, global_step: {step}, max_memory: 0.0",
    " iteration {step:>8}/     400 | elapsed time per iteration (ms): 0.2 | lm loss: {loss} | loss scale: 1.0 | ",
    "[Rank 0] step={step}, skipped=0, lr=[0.0005], mom=[[0.9, 0.95]] loss={loss}",
    "step {step}: loss {loss}, time 0.30ms, mfu -100.00%, err 1.672e+00",
    "[rank0]: step {step}/99999999999999 loss {loss}",
    "step{step:03} main loss {loss} md5 b8ad3dc219918ef66bce8bf350e260aa match",
    "\x1b[32mstep {step}\x1b[0m \x1b[1mloss\x1b[0m = {loss}",
    "2026-12-01T01:31:06.8633740Z {{'loss': {loss}, 'step': {step}}}",
    "epoch 0, step: {step}, eval_loss: 9.5, loss: {loss}, mtp_loss: 7.0, aux loss: 3.0",
]


def same(a: float, b: float) -> bool:
    return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))


@given(floats, st.sampled_from(sorted(FORMATS)))
@example(-0.0, "hex")
@example(math.nan, "torch")
def test_a_number_is_read_back_from_every_format(value, form):
    text = FORMATS[form](value).strip("'")
    read = number(text)
    assert read is not None, text
    assert same(read, value), text


@given(st.integers(0, 10**12), floats, st.sampled_from(LINES), st.sampled_from(sorted(FORMATS)))
def test_step_and_loss_are_read_from_every_line_in_every_format(step, loss, line, form):
    text = line.format(step=step, loss=FORMATS[form](loss))
    (read,) = read_log([text])
    assert (read.step, read.line) == (step, 1), text
    assert same(read.value, loss), text


@given(st.lists(st.text()))
def test_any_text_is_read_without_an_error(lines):
    for loss in read_log([f"step 1 loss {line}" for line in lines]):
        assert isinstance(loss.value, float)


@pytest.mark.parametrize(
    "line",
    [
        "global_step: 3, eval_loss: 3.4",
        "step 3 validation loss: 1.2",
        "step 3 loss_scale: 65536.0",
        "step 3 loss scale: 65536.0",
        "step 3 loss went from 3.1 to 2.9",
        "step 3 mtp loss 1.0",
        "step 3 loss [1.0, 2.0]",
        "step 3 lossless 1.0",
        "step 3 gloss 1.0",
        "step 3 loss: 45%",
        "step 3 baseline loss: 4.0",
        '{"step": 3, "eval/loss": 1.0}',
        '{"step": 3, "loss": "unknown"}',
        '{"step": 3, "loss": true}',
    ],
)
def test_what_is_no_training_loss_is_not_taken_for_one(line):
    assert read_log([line]) == []


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("max_steps: 10, loss: 1.0, global_step: 3", 3),
        ("step time: 0.25, loss: 1.0, iteration 3", 3),
        ("2.5 s/step 9, loss 1.0, step 3", 3),
        ("sec per step: 7, step: 3, loss: 1.0", 3),
        ("step: 12.5 ms, global_step=3, loss=1.0", 3),
        ("step 9, global_step 3, loss 1.0", 3),
        ('{"step": 3.0, "loss": 1.0}', 3),
        ('{"loss": 1.0, "global_step": 3, "step": 9}', 3),
        ("steps_per_second: 9, step 3, loss 1.0", 3),
    ],
)
def test_the_step_is_not_mistaken_for_another_number(line, step):
    assert [x.step for x in read_log([line])] == [step]


def test_json_null_stands_for_nan():
    (loss,) = read_log(['{"step": 4, "loss": null}'])
    assert math.isnan(loss.value)


def test_losses_without_any_step_are_counted():
    lines = ["{'loss': 1.5, 'grad_norm': 2.0, 'epoch': 0.1}", "saving", "{'loss': 1.25, 'epoch': 0.2}"]
    assert [(x.step, x.value, x.line) for x in read_log([*lines, "{'train_runtime': 3.0, 'train_loss': 1.4}"])] == [
        (1, 1.5, 1),
        (2, 1.25, 3),
    ]


def test_of_several_ranks_the_lowest_is_taken():
    lines = ["[rank1]: step 1 loss 2.0", "[rank0]: step 1 loss 1.0", "[rank0]: step 2 loss 0.5"]
    assert [(x.step, x.value) for x in read_log(lines)] == [(1, 1.0), (2, 0.5)]


def test_of_several_names_the_plainest_is_taken_throughout():
    lines = ["step 1 loss 1.0 lm_loss 3.0", "step 2 lm_loss 2.0", "step 2 loss 0.5"]
    assert [(x.step, x.value) for x in read_log(lines)] == [(1, 1.0), (2, 0.5)]


def test_a_paddle_tensor_over_two_lines_is_read():
    lines = ["step 4 loss: Tensor(shape=[1], dtype=float32, place=Place(gpu:0), stop_gradient=False,", "       [1.25])"]
    assert [(x.step, x.value, x.line) for x in read_log(lines)] == [(4, 1.25, 1)]


def test_a_progress_bar_rewritten_on_one_line_gives_each_step():
    assert [x.step for x in read_log(["10%| step 1 loss: 1.5\r20%| step 2 loss: 1.25"])] == [1, 2]


def test_lines_are_bounded_and_still_counted(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"x" * (3 * MAX_LINE) + b" loss\nstep 1 loss 1.5\n\xff\xfe loss\nstep 2 loss 2.5")
    assert [(x.step, x.line) for x in read_log(lines_of(log))] == [(1, 2), (2, 4)]
