import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrix.baseline import baseline_file, compare_limit, compare_losses
from matrix.baseline.losses import agree, differences
from matrix.baseline.parse import Loss
from matrix.baseline.record import FormError, read_baseline, read_csv, read_file
from matrix.spec.job import Limit, LossBaseline

RECORD = (
    "step,micro,main_loss,main_f32_hex,main_md5,mtp_loss,mtp_f32_hex,mtp_md5,main_f64_hex,mtp_f64_hex\n"
    "1,1,5.12340000000000000000,a,b,6.50000000000000000000,c,d,e,f\n"
    "1,2,5.25000000000000000000,a,b,6.25000000000000000000,c,d,e,f\n"
    "2,1,4.50000000000000000000,a,b,nan,c,d,e,f\n"
)


def losses(*values: float) -> list[Loss]:
    return [Loss(n, v, repr(v), n) for n, v in enumerate(values, 1)]


@pytest.fixture
def compare(tmp_path):
    def run(log: str, baseline: str | None, card: str | None = "H20", **options):
        (tmp_path / "job.log").write_text(log)
        if baseline is not None:
            (tmp_path / "qwen.H20.txt").write_text(baseline)
        spec = LossBaseline(file="qwen.{card}.txt", **options)
        return compare_losses(spec, job="qwen", log=tmp_path / "job.log", cwd=tmp_path, root=tmp_path, card=card)

    return run


def log_of(*values: object) -> str:
    return "starting\n" + "".join(f"global_step: {n}, loss: {v}, lr: 1e-5\n" for n, v in enumerate(values, 1))


def test_equal_losses_pass_and_are_counted(compare):
    result = compare(log_of(1.5, "1.25e0", 1), "# card: H20\n1 1.5\n2 1.25\n3 1.0\n")
    assert (result.causes, result.compared) == ([], 3)


def test_the_first_diverging_step_is_named_with_both_values_and_lines(compare):
    (cause,) = compare(log_of(1.5, 1.26, 1.1), "1 1.5\n2 1.25\n3 1.0\n").causes
    assert (cause.category, cause.line, cause.file) == ("loss_mismatch", 3, None)
    assert "step 2 is 1.26 where qwen.H20.txt:2 has 1.25" in cause.text
    assert "2 of 3 differ" in cause.text


@pytest.mark.parametrize("value", ["nan", "NaN", "-nan", "inf", "-1.5", "1e-5"])
def test_odd_numbers_are_differences_not_missing_steps(compare, value):
    (cause,) = compare(log_of(value), "1 1.5\n").causes
    assert f"step 1 is {value} where" in cause.text


def test_too_few_steps_fail_and_the_last_is_named(compare):
    (cause,) = compare(log_of(1.5, 1.25), "1 1.5\n2 1.25\n3 1.0\n4 0.5\n").causes
    assert "step 3 is not in the log (its last is step 2): 2 of 4 losses" in cause.text


def test_a_log_without_losses_fails(compare):
    (cause,) = compare("nothing\n", "1 1.5\n").causes
    assert "no loss was found in the log" in cause.text


def test_chosen_steps_alone_are_compared(compare):
    log = log_of(9, 9, 1.0)
    assert compare(log, "1 1.5\n2 1.25\n3 1.0\n", steps=(3,)).causes == []
    assert compare(log, "1 1.5\n2 1.25\n3 1.0\n", steps=(2, 3)).causes != []


def test_a_chosen_step_that_the_baseline_lacks_fails(compare):
    (cause,) = compare(log_of(1.5), "1 1.5\n", steps=(10,)).causes
    assert "step 10 is to be compared, and the baseline qwen.H20.txt does not have it" in cause.text


def test_tolerances_are_relative_and_absolute(compare):
    assert compare(log_of(1.01), "1 1.0\n").causes
    assert not compare(log_of(1.01), "1 1.0\n", rtol=0.02).causes
    assert not compare(log_of(1.01), "1 1.0\n", atol=0.02).causes
    assert "rtol 0.001" in compare(log_of(1.01), "1 1.0\n", rtol=0.001).causes[0].text


def test_a_step_printed_twice_must_agree_twice(compare):
    (cause,) = compare(log_of(1.5) + "global_step: 1, loss: 1.75\n", "1 1.5\n").causes
    assert cause.line == 3


def test_a_new_card_model_has_no_baseline_and_is_told_how_to_get_one(compare):
    result = compare(log_of(1.5), "1 1.5\n", card="NVIDIA A100-SXM4-80GB")
    assert result.causes == []
    assert "matrix baseline update qwen" in result.note
    assert "qwen.NVIDIA-A100-SXM4-80GB.txt" in result.note


@pytest.mark.parametrize("content", ["", "# nothing\n", "1 abc\n", "1 1.5\n1 1.5\n", "loss 1.5\n", "1 1.5 2.5 3.5\n"])
def test_a_baseline_that_cannot_be_used_fails_instead_of_passing(compare, content):
    assert compare(log_of(1.5), content).causes[0].category == "loss_mismatch"


def test_a_record_is_compared_micro_batch_by_micro_batch(tmp_path):
    (tmp_path / "record.csv").write_text(RECORD.replace("4.5", "4.75"))
    (tmp_path / "base.csv").write_text(RECORD.replace("nan", "1.0"))
    spec = LossBaseline(file="base.csv", record="record.csv")
    args = {"job": "dsv4", "log": tmp_path / "job.log", "cwd": tmp_path, "root": tmp_path, "card": None}
    (cause,) = compare_losses(spec, **args).causes
    assert cause.line is None
    assert "step 2 micro 1 is 4.750000000000000000000 (record.csv:4) where base.csv:4 has 4.5" in cause.text
    assert "2 of 6 differ" in cause.text


def test_a_missing_record_fails(tmp_path):
    (tmp_path / "base.txt").write_text("1 1.5\n")
    spec = LossBaseline(file="base.txt", record="record.csv")
    (cause,) = compare_losses(spec, job="dsv4", log=tmp_path / "job.log", cwd=tmp_path, root=tmp_path, card=None).causes
    assert "record.csv cannot be read" in cause.text


def test_a_baseline_of_steps_meets_the_mean_of_the_micro_batches():
    found = read_csv(RECORD.splitlines()[:3])
    assert differences(found, [Loss(1, (5.1234 + 5.25) / 2, "")]) == []


@pytest.mark.parametrize("rows", ["1,1,x,a,b,1,c,d,e,f", "1,1,1.0", "x,1,1.0,a,b,1,c,d,e,f"])
def test_a_broken_record_names_its_line(rows):
    with pytest.raises(FormError, match="line 2"):
        read_csv([RECORD.splitlines()[0], rows])


def test_files_are_told_apart_by_what_they_hold(tmp_path):
    (tmp_path / "a.csv").write_text("step,loss\n1,1.5\n")
    (tmp_path / "b.jsonl").write_text('{"step": 1, "loss": 1.5}\n{"step": 2, "loss": NaN}\n')
    (tmp_path / "trainer_state.json").write_text(
        '{"epoch": 1,\n "log_history": [{"step": 1, "loss": 1.5}, {"step": 1, "eval_loss": 9}]}'
    )
    (tmp_path / "train.log").write_text("step 1 loss 1.5\n")
    for name, count in (("a.csv", 1), ("b.jsonl", 2), ("trainer_state.json", 1), ("train.log", 1)):
        read = read_file(tmp_path / name)
        assert len(read) == count, name
        assert (read[0].step, read[0].value) == (1, 1.5)


@given(st.floats(), st.floats(allow_nan=False))
def test_nan_agrees_with_nothing_and_everything_else_with_itself(a, b):
    assert agree(b, b, 0, 0)
    assert not agree(math.nan, a, 1e9, 1e9)
    assert not agree(a, math.nan, 1e9, 1e9)
    assert agree(math.nan, math.nan, 0, 0, nan_equal=True)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20), st.data())
def test_the_first_changed_step_is_the_first_difference(values, data):
    at = data.draw(st.integers(0, len(values) - 1))
    changed = [*values[:at], values[at] + max(1.0, abs(values[at])), *values[at + 1 :]]
    if math.isinf(changed[at]):
        return
    first, *rest = differences(losses(*changed), losses(*values))
    assert (first.step, first.got.value, first.want.value, rest) == (at + 1, changed[at], values[at], [])


@given(st.lists(st.floats(allow_nan=False), max_size=20))
def test_a_baseline_file_is_read_back_exactly(values):
    text = "# job: x\n" + "".join(f"{n} {v!r}\n" for n, v in enumerate(values, 1))
    assert [x.value for x in read_baseline(text.splitlines())] == values


def test_the_card_model_becomes_part_of_a_safe_file_name(tmp_path):
    spec = LossBaseline(file="baselines/qwen_{card}.txt")
    assert baseline_file(spec, tmp_path, None) == tmp_path / "baselines/qwen_cpu.txt"
    assert baseline_file(spec, tmp_path, "../../x y") == tmp_path / "baselines/qwen_x-y.txt" or (
        baseline_file(spec, tmp_path, "../../x y").parent == tmp_path / "baselines"
    )


def test_time_and_memory_fail_above_their_tolerance_alone():
    limit = Limit(100.0, 0.05)
    assert compare_limit("time", 105.0, limit, job="a") is None
    assert compare_limit("time", 50.0, limit, job="a") is None
    cause = compare_limit("time", 120.0, limit, job="a")
    assert "a took 2m00s: baseline 1m40s, tolerance 5%, +20%" in cause.text
    assert "not measured" in compare_limit("peak_memory", None, Limit(1 << 30), job="a").text
