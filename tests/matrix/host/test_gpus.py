"""Discovery of cards, without and with a driver that misbehaves."""

import json
import sys

import pytest

from matrix.errors import UsageError
from matrix.host import gpus
from matrix.host.gpus import Card, discover, pretended, visible

CARDS = (Card("GPU-aa", 0, "H20"), Card("GPU-ab", 1, "H20"), Card("GPU-b", 2, "H20"), Card("MIG-c", 3, "H20"))


@pytest.mark.parametrize(
    ("text", "models"),
    [("0", []), ("2", ["pretended"] * 2), ("H20:1", ["H20"]), ("A100-SXM4-80GB:1", ["A100-SXM4-80GB"])],
)
def test_pretended_cards(text, models):
    assert [c.model for c in pretended(text)] == models


@pytest.mark.parametrize("text", ["", "x", "-1", "H20:", "1.5", "99999"])
def test_a_bad_number_of_cards_is_wrong_use(text):
    with pytest.raises(UsageError, match="--cards"):
        pretended(text)


@pytest.mark.parametrize(
    ("narrowed", "indices"),
    [
        (None, [0, 1, 2, 3]),
        ("", []),
        ("2,0", [2, 0]),
        ("GPU-b", [2]),
        ("GPU-a", []),  # fits two
        ("1,7,0", [1]),  # CUDA stops at the first that is not there
        ("0,0", [0]),
        ("-1", []),
        ("MIG-c", [3]),
    ],
)
def test_cuda_visible_devices_narrows_as_for_cuda(narrowed, indices):
    assert [c.index for c in visible(CARDS, narrowed)] == indices


def test_a_card_is_called_by_index_and_a_slice_by_uuid():
    assert [c.visible for c in CARDS] == ["0", "1", "2", "MIG-c"]


def test_without_a_driver_there_are_no_cards_and_no_problem(monkeypatch):
    monkeypatch.setattr(gpus, "has_driver", lambda: False)
    assert discover() == gpus.Discovery()


def fake_nvml(tmp_path, monkeypatch, body):
    (tmp_path / "pynvml.py").write_text(body)
    monkeypatch.setattr(gpus, "has_driver", lambda: True)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_a_driver_that_hangs_is_given_up(tmp_path, monkeypatch):
    fake_nvml(tmp_path, monkeypatch, "import time; time.sleep(600)")
    monkeypatch.setattr(gpus, "_LIMIT", 0.5)
    found = discover()
    assert found.cards == ()
    assert "did not answer within" in found.problem


def test_a_driver_that_kills_its_caller_is_a_problem(tmp_path, monkeypatch):
    fake_nvml(tmp_path, monkeypatch, "import os; os.abort()")
    assert "exit code -6" in discover().problem


def test_an_error_of_the_library_is_told(tmp_path, monkeypatch):
    body = "class NVMLError(Exception): pass\ndef nvmlInit(): raise NVMLError('Driver/library version mismatch')"
    fake_nvml(tmp_path, monkeypatch, body)
    assert discover().problem == "NVML: Driver/library version mismatch"


def test_the_real_library_without_a_driver_says_so(monkeypatch, capsys):
    pynvml = pytest.importorskip("pynvml")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        gpus.ask()
        answer = json.loads(capsys.readouterr().out)
        assert answer["cards"] == []
        assert answer["problem"].startswith("NVML:")
    else:
        gpus.ask()
        assert json.loads(capsys.readouterr().out)["cards"]
    assert "pynvml" in sys.modules
