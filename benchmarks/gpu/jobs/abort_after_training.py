"""Trains, saves, then a host thread is still running when its owner goes: std::terminate in teardown."""

import ctypes
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

runpy.run_path(str(Path(__file__).with_name("train.py")))
folder = Path(tempfile.mkdtemp())
(folder / "prefetch.cpp").write_text(
    "#include <thread>\n#include <chrono>\n"
    "static std::thread worker;\n"
    'extern "C" void start() { worker = std::thread([] { std::this_thread::sleep_for(std::chrono::hours(1)); }); }\n'
)
subprocess.run(
    ["g++", "-shared", "-fPIC", "-pthread", "-o", folder / "prefetch.so", folder / "prefetch.cpp"], check=True
)
ctypes.CDLL(str(folder / "prefetch.so")).start()
sys.exit(0)
