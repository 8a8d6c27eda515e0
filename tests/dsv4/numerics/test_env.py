import os
import subprocess
import sys

import pytest

from dsv4.numerics import env

AMD = "vendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC\nflags\t\t: fpu {}\n"


@pytest.mark.parametrize(
    ("cpuinfo", "choice"),
    [
        (AMD.format("fma avx2 avx512f avx512bw avx512dq avx512vl"), "7"),
        (AMD.format("fma avx2"), "5"),
        (AMD.format("sse4_2"), None),
        ("vendor_id\t: GenuineIntel\nflags\t\t: fma avx2 avx512f\n", None),
        ("", None),
    ],
)
def test_mkl_path_follows_the_processor(cpuinfo, choice):
    assert env.mkl_cpu_type(cpuinfo) == choice


def test_values_in_the_environment_are_kept(monkeypatch):
    monkeypatch.setenv("MKL_DEBUG_CPU_TYPE", "4")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    env.prepare()
    assert (os.environ["MKL_DEBUG_CPU_TYPE"], os.environ["MKL_NUM_THREADS"]) == ("4", "3")
    assert env.describe()["MKL_DEBUG_CPU_TYPE"] == "4"


def test_a_thread_count_that_was_asked_for_wins(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("MKL_NUM_THREADS", "3")
    env.prepare(threads=2)
    assert env.describe()["OMP_NUM_THREADS"] == "2"


def test_preparing_does_not_import_paddle():
    code = "import sys, dsv4.numerics.env as e; e.prepare(); e.describe(); print('paddle' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr
