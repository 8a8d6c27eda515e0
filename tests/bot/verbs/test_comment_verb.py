import json
import shutil
import subprocess
from pathlib import Path

import pytest

DATA = Path(__file__).parents[2] / "data" / "github" / "original_report"


def bot(*arguments, cwd):
    return subprocess.run(["bot", *arguments], capture_output=True, text=True, cwd=cwd, timeout=60)


def test_prints_the_comment_of_a_run_folder_a_file_an_id_and_the_last(tmp_path):
    runs = tmp_path / ".matrix" / "runs"
    shutil.copytree(DATA, runs / "20260608-090000-7f3a")
    (tmp_path / "sub").mkdir()
    texts = set()
    for run in (str(runs / "20260608-090000-7f3a"), str(DATA / "run.json"), "20260608-090000-7f3a", "last"):
        done = bot("comment", run, "--dry-run", "--lang", "both", cwd=tmp_path / "sub")
        assert done.returncode == 0, done.stderr
        texts.add(done.stdout)
    assert len(texts) == 1
    text = texts.pop()
    for part in ("pipeline&#95;partition", "handoff&#95;missing", "rank&#95;abort&#95;teardown", "numba&#95;lowering"):
        assert part in text
    assert text.count("| <b>qwen-sft</b>") == 2  # English and Chinese
    assert "| <b>qwen-lora</b>" not in text


def test_writes_a_file(tmp_path):
    done = bot("comment", str(DATA), "--dry-run", "-o", "c.md", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert (tmp_path / "c.md").read_text().startswith("<!-- matrix-report:v1 -->\n")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (
            ["nope", "--dry-run"],
            2,
            "bot: nope: n",
        ),  # neither a file nor a run; the rest depends on what is above the folder
        ([str(DATA)], 2, "--dry-run"),
        ([str(DATA), "--dry-run", "--lang", "fr"], 2, "'fr' is not one of"),
        ([str(DATA), "--dry-run", "--web", "javascript:x"], 2, "not an http(s) address"),
        ([str(DATA), "--dry-run", "-o", "no/such/folder/c.md"], 3, "No such file or directory"),
        (["bad.json", "--dry-run"], 3, "not a run/1 record"),
    ],
)
def test_mistakes_get_one_line_and_the_right_code(tmp_path, arguments, code, says):
    (tmp_path / "bad.json").write_text(json.dumps({"schema": "run/2"}))
    done = bot("comment", *arguments, cwd=tmp_path)
    assert done.returncode == code
    assert says in done.stderr
    assert "Traceback" not in done.stderr
