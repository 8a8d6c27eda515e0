"""Environment that Paddle's numerics and speed depend on; to be set before Paddle is imported.

Paddle's CPU wheel carries an old MKL that takes its slowest code path on AMD processors unless the undocumented
variable MKL_DEBUG_CPU_TYPE names a better one. Each path gives other bits, so the choice is recorded with every result.
This module imports nothing of Paddle.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import warnings
from pathlib import Path

TOUCHES_NUMERICS = (
    "MKL_DEBUG_CPU_TYPE",
    "MKL_CBWR",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OMP_DYNAMIC",
    "MKL_DYNAMIC",
)
CPUINFO = Path("/proc/cpuinfo")


def mkl_cpu_type(cpuinfo: str) -> str | None:
    """Value for MKL_DEBUG_CPU_TYPE from the text of /proc/cpuinfo: AVX-512 7, AVX2 5, None where MKL chooses well."""
    fields: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    if fields.get("vendor_id") != "AuthenticAMD":
        return None
    flags = set(fields.get("flags", "").split())
    if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= flags:
        return "7"
    return "5" if {"avx2", "fma"} <= flags else None


def prepare(threads: int | None = None) -> None:
    """Set what is unset, before Paddle is imported: the MKL path on AMD, the thread count, quiet loading.

    Values already in the environment are kept, except the thread counts if `threads` is given.
    """
    if "MKL_DEBUG_CPU_TYPE" not in os.environ and CPUINFO.exists():
        choice = mkl_cpu_type(CPUINFO.read_text())
        if choice:
            os.environ["MKL_DEBUG_CPU_TYPE"] = choice
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        if threads is not None:
            os.environ[name] = str(threads)
        else:
            os.environ.setdefault(name, os.environ.get("OMP_NUM_THREADS", "1"))
    keep_freed_memory()
    os.environ.setdefault("GLOG_minloglevel", "2")
    warnings.filterwarnings("ignore", message="No ccache found")


def keep_freed_memory() -> None:
    """Tell glibc to keep freed memory.

    Paddle's CPU allocator asks the C library for every tensor; by default that maps and unmaps large ones, and the page
    faults cost several times the arithmetic. No effect on numbers.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        m_trim_threshold, m_top_pad, m_mmap_max = -1, -2, -4  # malloc.h
        libc.mallopt(m_mmap_max, 0)
        libc.mallopt(m_trim_threshold, 2**31 - 1)
        libc.mallopt(m_top_pad, 64 << 20)


def describe() -> dict[str, str]:
    """Variables (and FLAGS_*) that touch the numerics, the processor and its threads, for a run's identity."""
    names = [*TOUCHES_NUMERICS, *sorted(n for n in os.environ if n.startswith("FLAGS_"))]
    found = {name: os.environ[name] for name in names if name in os.environ}
    return found | {"cpu": _cpu_name(), "machine": platform.machine()}


def announce() -> None:
    """Say on stderr, in one line, which environment was chosen."""
    chosen = " ".join(f"{name}={os.environ[name]}" for name in TOUCHES_NUMERICS if name in os.environ)
    print(f"dsv4: numerics environment: {chosen}", file=sys.stderr)


def _cpu_name() -> str:
    if CPUINFO.exists():
        for line in CPUINFO.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
