"""`dsv4 align`: what counts as a match, what is printed, what is refused."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from dsv4.align.record import HEADER, Row, read_record
from dsv4.commands.align import command
from dsv4.errors import UsageError


def rows(steps=3, micros=2, mtp=True):
    values = np.random.default_rng(0).uniform(2, 6, (steps, micros, 2))
    return [
        Row(s + 1, m, float(values[s, m, 0]), float(values[s, m, 1]) if mtp else None)
        for s in range(steps)
        for m in range(micros)
    ]


def write(path, rows):
    path.write_text("\n".join([HEADER, *(row.line() for row in rows)]) + "\n")
    return path


def run(record, reference, *options):
    done = CliRunner().invoke(command, [str(record), str(reference), *options], standalone_mode=False)
    if done.exception:
        raise done.exception
    return done.return_value, done.output.splitlines()


def test_equal_records_print_the_contract_and_succeed(tmp_path):
    a, b = write(tmp_path / "a.csv", rows()), write(tmp_path / "b.csv", rows())
    code, out = run(a, b)
    assert code == 0
    assert out[:4] == ["main_matches=6/6", "mtp_matches=6/6", "first_main_diff=None", "first_mtp_diff=None"]
    last = rows()[-1]
    assert out[4] == f"step3 main final_loss={float(np.float32(last.main)):.20f} md5={last.line().split(',')[4]}"
    assert out[5].startswith("step3 mtp final_loss=")
    assert read_record(b).sha256 in out[7]


def test_the_first_difference_is_named_by_step_and_micro(tmp_path):
    changed = rows()
    up = float(np.nextafter(np.float32(changed[3].main), np.float32(9)))
    changed[3] = Row(2, 1, up, changed[3].mtp)
    code, out = run(write(tmp_path / "a.csv", changed), write(tmp_path / "b.csv", rows()))
    assert code == 1
    assert out[:2] == ["main_matches=5/6", "mtp_matches=6/6"]
    assert out[2] == f"first_main_diff=step 2 micro 1: {up:.20f} != {float(np.float32(rows()[3].main)):.20f}"


def test_a_float64_difference_below_float32_still_matches(tmp_path):
    near = [Row(r.step, r.micro, float(np.nextafter(r.main, 9)), r.mtp) for r in rows()]
    assert run(write(tmp_path / "a.csv", near), write(tmp_path / "b.csv", rows()))[0] == 0


@pytest.mark.parametrize(("factor", "code"), [(1 + 0.9e-3, 0), (1 + 1.1e-3, 1)])
def test_rtol_bounds_the_relative_difference(tmp_path, factor, code):
    scaled = [Row(r.step, r.micro, r.main * factor, r.mtp) for r in rows()]
    got, out = run(write(tmp_path / "a.csv", scaled), write(tmp_path / "b.csv", rows()), "--rtol", "1e-3")
    assert got == code
    assert "not equality of bits" in out[-1]


def test_missing_and_extra_rows_are_no_match(tmp_path):
    short, whole = write(tmp_path / "a.csv", rows()[:-1]), write(tmp_path / "b.csv", rows())
    code, out = run(short, whole)
    assert (code, out[0]) == (1, "main_matches=5/6")
    assert out[2].startswith("first_main_diff=step 3 micro 1: missing != ")
    code, out = run(whole, short)
    assert (code, out[0]) == (1, "main_matches=5/5")
    assert "the reference has no step 3 micro 1" in out[-1]


def test_a_loss_that_is_not_finite_never_matches(tmp_path):
    broken = [*rows()[:-1], Row(3, 1, float("nan"), 2.0)]
    a = write(tmp_path / "a.csv", broken)
    assert run(a, a)[0] == 1


def test_a_model_without_mtp_is_compared_by_its_main_loss(tmp_path):
    a = write(tmp_path / "a.csv", rows(mtp=False))
    code, out = run(a, a)
    assert (code, out[1], out[5]) == (0, "mtp_matches=0/0", "step3 mtp final_loss=None md5=None")


def test_json_is_one_document(tmp_path):
    a = write(tmp_path / "a.csv", rows())
    document = json.loads("\n".join(run(a, a, "--json")[1]))
    assert document["schema"] == "align/1"
    assert document["equal"] is True
    assert document["main"] | {"matches": 6, "total": 6, "first_diff": None} == document["main"]


def test_the_origin_of_a_record_is_read_from_its_meta_file(tmp_path):
    a = write(tmp_path / "a.csv", rows())
    (tmp_path / "a.csv.meta.json").write_text(json.dumps({"origin": "run 7 of branch x"}))
    assert run(a, a)[1][-1].endswith("origin=run 7 of branch x")


def break_line(line, column, value):
    cells = line.split(",")
    cells[column] = value
    return ",".join(cells)


@pytest.mark.parametrize(
    ("line", "change", "message"),
    [
        (2, lambda s: break_line(s, 4, "0" * 32), r":3: main_md5 0+ is not that of"),
        (3, lambda s: break_line(s, 2, "1.5"), r":4: main_loss 1\.5 is not main_f32_hex"),
        (1, lambda s: break_line(s, 9, "3ff0000000000000"), r":2: mtp_f64_hex 3ff0000000000000 is not"),
        (4, lambda s: s[:40], r":5: the row is cut"),
        (2, lambda s: break_line(s, 0, "x"), r":3: step and micro are not whole numbers"),
        (2, lambda s: break_line(s, 3, "zz"), r":3: main: a decimal, eight hex digits and an md5"),
        (2, lambda s: break_line(break_line(s, 0, "1"), 1, "0"), r":3: step 1 micro 0 stands twice"),
        (0, lambda s: s.replace("main_md5", "md5"), r":1: the header lacks main_md5"),
    ],
)
def test_altered_records_are_refused_with_their_line(tmp_path, line, change, message):
    path = write(tmp_path / "a.csv", rows())
    lines = path.read_text().splitlines()
    lines[line] = change(lines[line])
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(UsageError, match=message):
        read_record(path)


def test_a_missing_record_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        run(tmp_path / "none.csv", tmp_path / "none.csv")


def test_facts_are_appended_as_json_lines(tmp_path):
    a = write(tmp_path / "a.csv", rows())
    (tmp_path / "facts").write_text('{"key": "other", "value": 1}\n')
    run(a, a, "--facts", str(tmp_path / "facts"))
    facts = [json.loads(line) for line in (tmp_path / "facts").read_text().splitlines()]
    assert facts[0] == {"key": "other", "value": 1}
    found = {fact["key"]: fact["value"] for fact in facts}
    assert found["dsv4_aligned"] is True
    assert (found["main_matches"], found["first_mtp_diff"]) == ("6/6", "None")
    assert found["reference_sha256"] == read_record(a).sha256
