"""Names of baselines that are probably mistyped."""

import pytest

from matrix.baseline.losses import compare_losses
from matrix.baseline.mistyped import mistyped
from matrix.spec.job import LossBaseline
from matrix.spec.load import read


@pytest.fixture
def said(tmp_path):
    def ask(files, **jobs):
        (tmp_path / "baselines").mkdir()
        for file in files:
            (tmp_path / "baselines" / file).touch()
        lines = [f'      {n}: {{command: x, baseline: {{loss: "baselines/{p}"}}}}' for n, p in jobs.items()]
        (tmp_path / "matrix.yaml").write_text("\n".join(["suites:", "  s:", "    jobs:", *lines, ""]))
        return mistyped(read(tmp_path / "matrix.yaml").jobs, tmp_path)

    return ask


def test_a_name_that_no_card_has_is_told_with_the_file_that_serves_no_job(said):
    (only,) = said(["sft-H20.txt"], sft="stf-{card}.txt")
    assert only.startswith("sft: ")
    assert "no card has baselines/stf-{card}.txt; did you mean baselines/sft-H20.txt?" in only


@pytest.mark.parametrize(
    ("files", "jobs"),
    [
        (["sft-H20.txt"], {"sft": "sft-{card}.txt"}),  # another card's: this one has none yet
        ([], {"sft": "sft-{card}.txt"}),
        (["pretrain-H20.txt"], {"sft": "sft-{card}.txt"}),
        (["sft-H20.txt"], {"sft": "sft-{card}.txt", "sfx": "sfx-{card}.txt"}),  # the near one is another job's
    ],
)
def test_a_baseline_that_is_only_not_there_yet_is_not_spoken_of(said, files, jobs):
    assert said(files, **jobs) == []


def test_the_note_of_a_card_without_a_baseline_names_those_of_other_cards(tmp_path):
    (tmp_path / "sft-H20.txt").touch()
    (tmp_path / "log").write_text("step 1 loss 2.0\n")
    compared = compare_losses(
        LossBaseline("sft-{card}.txt"), job="sft", log=tmp_path / "log", cwd=tmp_path, root=tmp_path, card="pretended"
    )
    assert "no baseline for pretended yet" in compared.note
    assert "not compared with sft-H20.txt" in compared.note
