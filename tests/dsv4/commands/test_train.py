"""`dsv4 train` on the command line: what is printed where, and exit codes."""

import io
import subprocess
import sys

import pytest
from click.testing import CliRunner

from dsv4.align.record import Row
from dsv4.commands.train import command
from dsv4.runlog import RunLog, step_line
from dsv4.trainer import StepResult

RESULT = StepResult(3, (Row(3, 0, 2.0, 1.0), Row(3, 1, 4.0, 2.0)), 1e-3, 0.5, 0.9, 0.1, 0.2, 1024, 0.5)


def dsv4(*arguments):
    return subprocess.run([sys.executable, "-m", "dsv4", *map(str, arguments)], capture_output=True, text=True)


def test_a_run_that_diverges_exits_1_with_the_place_in_one_line(small):
    config, tokens = small
    done = dsv4("train", config, "--tokens", tokens, "--set", "lr=1e300")
    assert done.returncode == 1
    line, advice = done.stderr.splitlines()[-2:]
    assert line.startswith("dsv4: step 2 micro 0: a loss is not finite; first non-finite tensor: ")
    assert advice.startswith("  resume from the checkpoint before it")
    assert "Traceback" not in done.stderr


def test_a_wrong_configuration_exits_2_without_a_traceback(small):
    done = dsv4("train", small[0], "--tokens", small[1], "--set", "lr_shedule=cosine")
    assert done.returncode == 2
    assert "lr_shedule" in done.stderr
    assert "Traceback" not in done.stderr


def test_print_optimizer_lists_every_parameter(small):
    done = CliRunner().invoke(command, [str(small[0]), "--print-optimizer"], standalone_mode=False)
    lines = done.output.splitlines()
    assert lines[0].split() == ["parameter", "shape", "optimizer", "decay", "matrices"]
    assert any(line.startswith("embedding.word_embeddings.weight") and "adamw" in line for line in lines)
    assert sum("muon" in line for line in lines) > 20


def test_a_plain_line_has_step_loss_and_the_rest():
    line = step_line(RESULT, 10)
    assert line.startswith(
        "global_step: 3/10 loss: 3.00000000 mtp_loss: 1.50000000 learning_rate: 0.001 grad_norm: 0.5"
    )
    assert "clip: 0.9" in line
    assert "tokens_per_second: 2048" in line


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("stream", "plain"), [(io.StringIO, True), (Terminal, False)])
def test_lines_for_files_and_a_bar_for_terminals(stream, plain, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    out = stream()
    with RunLog(10, done=2, metrics=None, stream=out) as log:
        log.line("head [not markup]")
        log.step(RESULT)
    text = out.getvalue()
    assert "head [not markup]" in text
    assert ("global_step: 3/10" in text) == plain
    assert "3/10" in text
    assert ("\x1b[" in text) != plain
