import os
import subprocess

import pytest

from matrix.errors import UsageError
from matrix.spec.globs import matching
from matrix.spec.load import read
from matrix.spec.select import changed_files, select

MATRIX = """
suites:
  unit tests:
    jobs:
      unit: {pytest: tests, paths: ["src/**", "tests/**", "!**/*.md"], tags: quick}
      docs: {command: build, paths: "docs/**"}
  integration:
    jobs:
      smoke: {command: x, tags: [quick, gpu]}
      pt: {command: x, produces: out/pt, paths: "src/model/**"}
      sft: {command: x, needs: pt, produces: out/sft, paths: "configs/sft.yaml"}
      lora: {command: x, needs: sft, paths: "configs/lora.yaml"}
      grid: {command: "x ${{ n }}", parameters: {n: [1, 2]}, paths: "grid/*"}
"""
ALL = ["unit", "docs", "smoke", "pt", "sft", "lora", "grid@n=1", "grid@n=2"]


@pytest.fixture
def spec(tmp_path):
    return spec_of(tmp_path, MATRIX)


def spec_of(folder, text):
    (folder / "matrix.yaml").write_text(text)
    return read(folder)


def chosen(spec, **options):
    return {c.job.name: c.reason for c in select(spec, **options) if c.selected}


def test_without_a_wish_all_jobs_run(spec):
    assert list(chosen(spec)) == ALL


def test_names_globs_suites_and_tags_choose(spec):
    assert list(chosen(spec, only=["unit"])) == ["unit"]
    assert list(chosen(spec, only=["grid"])) == ["grid@n=1", "grid@n=2"]
    assert list(chosen(spec, only=["grid@n=2"])) == ["grid@n=2"]
    assert list(chosen(spec, only=["unit tests"])) == ["unit", "docs"]
    assert list(chosen(spec, only=["*o*s", "tag:gpu"])) == ["docs", "smoke"]
    assert list(chosen(spec, tags=["quick"])) == ["unit", "smoke"]


def test_what_a_chosen_job_needs_is_chosen_with_the_reason(spec):
    assert chosen(spec, only=["lora"]) == {
        "pt": "needed by lora",
        "sft": "needed by lora",
        "lora": "named by lora",
    }


def test_a_hand_off_from_outside_spares_its_producer(spec):
    assert list(chosen(spec, only=["lora"], handoffs=["sft"])) == ["lora"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"only": ["untit"]}, "no job 'untit': did you mean 'unit'"),
        ({"only": ["zzz*"]}, "no job 'zzz\\*'"),
        ({"tags": ["quik"]}, "no job has the tag 'quik': did you mean 'quick'"),
        ({"only": ["lora"], "handoffs": ["stf"]}, "nobody produces 'stf': did you mean 'sft'"),
    ],
)
def test_a_wish_that_fits_nothing_is_an_error(spec, options, message):
    with pytest.raises(UsageError, match=message):
        select(spec, **options)


def test_changed_files_choose_by_paths_with_followers_and_floor(spec):
    picked = chosen(spec, changed=["src/model/moe.py"])
    assert picked["unit"] == "src/model/moe.py changed"
    assert picked["pt"] == "src/model/moe.py changed"
    assert picked["sft"] == "needs what pt produces"
    assert picked["lora"] == "needs what pt produces"
    assert picked["smoke"] == "runs whatever files changed: it has no paths"
    assert "docs" not in picked
    assert "grid@n=1" not in picked


def test_a_change_of_a_middle_job_brings_its_producers_too(spec):
    assert list(chosen(spec, changed=["configs/sft.yaml"])) == ["smoke", "pt", "sft", "lora"]


def test_a_taken_back_glob_does_not_choose(spec):
    assert "unit" not in chosen(spec, changed=["src/README.md"])


@pytest.mark.parametrize("changed", [["matrix.yaml"], [".github/workflows/ci.yml", "x"]])
def test_a_change_of_the_matrix_concerns_all_jobs(spec, changed):
    assert list(chosen(spec, changed=changed)) == ALL


def test_an_empty_diff_runs_the_floor_never_nothing(spec):
    assert list(chosen(spec, changed=[])) == ["smoke"]
    assert chosen(spec, changed=[])["smoke"].startswith("nothing changed; ")


def test_a_named_floor_runs_whatever_changed(tmp_path):
    spec = spec_of(tmp_path, "floor: [docs, tag:quick]\n" + MATRIX)
    assert list(chosen(spec, changed=[])) == ["unit", "docs", "smoke"]
    assert chosen(spec, changed=["grid/a"])["docs"] == "floor: docs"


def test_where_all_jobs_have_paths_an_empty_diff_runs_them_all(tmp_path):
    spec = spec_of(tmp_path, "suites: {s: {jobs: {a: {command: x, paths: a/*}, b: {command: x, paths: b/*}}}}")
    assert list(chosen(spec, changed=[])) == ["a", "b"]
    assert list(chosen(spec, changed=["README.md"])) == ["a", "b"]


def test_named_jobs_that_no_change_concerns_run_rather_than_nothing(spec):
    assert list(chosen(spec, only=["docs"], changed=["src/a.py"])) == ["docs"]
    assert list(chosen(spec, only=["docs"], changed=[])) == ["docs"]


def test_an_unknown_floor_is_an_error(tmp_path):
    with pytest.raises(UsageError, match=r"matrix.yaml:1: floor\[0\]: no job 'smok': did you mean 'smoke'"):
        spec_of(tmp_path, "floor: [smok]\n" + MATRIX)


@pytest.mark.parametrize(
    ("glob", "file", "fits"),
    [
        ("src/**", "src/a/b.py", True),
        ("src/**/*.py", "src/b.py", True),
        ("*.md", "README.md", True),
        ("*.md", "docs/README.md", False),
        ("**/*.md", "docs/a/README.md", True),
        ("src", "src/a.py", True),
        ("src/*.py", "src/a/b.py", False),
        ("a[bc].py", "ab.py", True),
        ("a b/*", "a b/c", True),
    ],
)
def test_globs(glob, file, fits):
    assert bool(matching([glob], [file])) is fits


def test_globs_that_only_take_back_begin_with_everything():
    assert matching(["!docs/**"], ["docs/a", "src/b"]) == ["src/b"]


def git(folder, *arguments):
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path):
    root = tmp_path / "repo"
    (root / "sub").mkdir(parents=True)
    git(root, "init", "-q", "-b", "main")
    for name in ("a.py", "old name.py", "sub/b.py", "gone.py"):
        (root / name).write_text(f"{name}\n" * 20)
    (root / ".gitignore").write_text("ignored\n")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "one")
    return root


def test_changes_are_committed_staged_unstaged_untracked_renamed_and_deleted_ones(repository):
    git(repository, "checkout", "-qb", "topic")
    git(repository, "mv", "old name.py", "new näme.py")
    git(repository, "commit", "-qm", "two")
    (repository / "a.py").write_text("changed\n")
    (repository / "gone.py").unlink()
    (repository / "fresh.py").write_text("x")
    (repository / "staged.py").write_text("x")
    git(repository, "add", "staged.py")
    (repository / "ignored").write_text("x")
    (repository / ".matrix").mkdir()
    (repository / ".matrix" / "history").write_text("x")
    assert changed_files(repository, "main") == sorted(
        ["a.py", "fresh.py", "gone.py", "new näme.py", "old name.py", "staged.py"]
    )


def test_what_the_base_branch_gained_meanwhile_is_no_change_of_ours(repository):
    git(repository, "checkout", "-qb", "topic")
    (repository / "a.py").write_text("ours\n")
    git(repository, "commit", "-qam", "ours")
    git(repository, "checkout", "-q", "main")
    (repository / "sub" / "b.py").write_text("theirs\n")
    git(repository, "commit", "-qam", "theirs")
    git(repository, "checkout", "-q", "topic")
    assert changed_files(repository, "main") == ["a.py"]


def test_files_are_relative_to_the_folder_of_the_matrix(repository):
    (repository / "sub" / "b.py").write_text("changed\n")
    (repository / "a.py").write_text("changed\n")
    assert changed_files(repository / "sub", "HEAD") == ["b.py"]


@pytest.mark.parametrize("revision", ["nowhere", "--output=x", ""])
def test_an_unknown_revision_is_an_error(repository, revision):
    with pytest.raises(UsageError, match="revision"):
        changed_files(repository, revision)


def test_outside_of_git_there_is_nothing_to_compare_with(tmp_path):
    with pytest.raises(UsageError, match="is not in a git repository"):
        changed_files(tmp_path, "main")


def test_in_a_shallow_clone_the_advice_is_to_fetch_more(repository, tmp_path):
    git(repository, "checkout", "-qb", "topic")
    for text in ("two", "three"):
        (repository / "a.py").write_text(text)
        git(repository, "commit", "-qam", text)
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--depth=1", "--no-single-branch", f"file://{repository}", clone)
    with pytest.raises(UsageError, match="have no commit in common") as e:
        changed_files(clone, "origin/main")
    assert e.value.advice == "this clone is shallow: git fetch --unshallow, or fetch-depth: 0 of actions/checkout"
    with pytest.raises(UsageError, match="knows no revision 'v1'"):
        changed_files(clone, "v1")


def test_a_merge_commit_holds_the_changes_of_the_branch_that_was_merged_into_the_base(repository):
    """So does what GitHub checks out for a pull request."""
    git(repository, "checkout", "-qb", "topic")
    (repository / "a.py").write_text("ours")
    git(repository, "commit", "-qam", "ours")
    git(repository, "checkout", "-q", "main")
    (repository / "sub" / "b.py").write_text("theirs")
    git(repository, "commit", "-qam", "theirs")
    git(repository, "checkout", "-q", "--detach")
    git(repository, "merge", "-q", "--no-edit", "topic")
    assert changed_files(repository, "main") == ["a.py"]


def test_a_submodule_is_one_file_that_changes_with_what_is_in_it(repository, tmp_path):
    git(tmp_path, "clone", "-q", repository, "other")
    git(repository, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", tmp_path / "other", "third")
    git(repository, "commit", "-qm", "submodule")
    assert changed_files(repository, "HEAD") == []
    (repository / "third" / "a.py").write_text("edited")
    assert changed_files(repository, "HEAD") == ["third"]


def test_names_that_are_no_text_are_named_all_the_same(repository):
    (repository / os.fsdecode(b"caf\xe9.py")).write_text("x")
    (repository / "two\nlines.py").write_text("x")
    found = changed_files(repository, "HEAD")
    assert found == [r"caf\xe9.py", "two\nlines.py"]
    (repository / "matrix.yaml").write_text(
        "floor: a\nsuites: {s: {jobs: {a: {command: python a.py}, b: {pytest: .}}}}"
    )
    assert [c.reason for c in select(read(repository / "matrix.yaml"), changed=found)] == [
        "floor: a", "names no Python file, so any change concerns it",
    ]  # fmt: skip
