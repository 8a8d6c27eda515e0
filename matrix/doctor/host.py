"""Checks of the host: disk, shared memory, clock, the folder of leases, py-spy, Slurm."""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
import sys
import time
from pathlib import Path

from matrix.doctor.model import Finding, Place, State
from matrix.host import process
from matrix.host.leases import Busy, LeaseError, Leases, folder
from matrix.report.text import size

_LITTLE_DISK, _NO_DISK = 20 << 30, 1 << 30
_LITTLE_SHM = 1 << 30
OVER_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "lustre", "ceph", "beegfs", "glusterfs"})
_TIME_ERROR = 5  # adjtimex: nobody keeps this clock right


def root_of(place: Place) -> Path:
    """Return the folder whose `.matrix` runs would use: that of the nearest matrix, else of the repository."""
    above = (place.cwd, *place.cwd.parents)
    for name in ("matrix.yaml", ".git"):
        for at in above:
            if (at / name).exists():
                return at
    return place.cwd


def disk(place: Place) -> Finding:
    """Whether there is room for logs and hand-offs."""
    root = root_of(place)
    usage = shutil.disk_usage(root)
    inodes = os.statvfs(root)
    said = f"{size(usage.free)} free of {size(usage.total)} at {root}"
    advice = "remove old runs: matrix prune --older 14d --dry-run"
    if not os.access(root, os.W_OK):
        return Finding("disk", State.BAD, f"{root} cannot be written", "run as a user who may write there")
    if inodes.f_files and inodes.f_favail < 10_000:
        return Finding("disk", State.BAD, f"{said}, but only {inodes.f_favail} more files", advice)
    if usage.free < _NO_DISK:
        return Finding("disk", State.BAD, said, advice)
    return Finding("disk", *((State.WARNING, said, advice) if usage.free < _LITTLE_DISK else (State.OK, said)))


def shared_memory(_: Place) -> Finding:
    """Whether /dev/shm is large enough for data loaders and NCCL."""
    try:
        total = shutil.disk_usage("/dev/shm").total  # noqa: S108 -- asked about, not written to
    except OSError:
        return Finding("shared memory", State.BAD, "there is no /dev/shm", "mount a tmpfs there")
    said = f"{size(total)} at /dev/shm"
    if total < _LITTLE_SHM:
        advice = "data loaders die of SIGBUS when it is full: docker run --shm-size 32g"
        return Finding("shared memory", State.WARNING, said, advice)
    return Finding("shared memory", State.OK, said)


def clock(place: Place) -> Finding:
    """Whether the clock is kept right: runs of several hosts are compared by time."""
    newest = place.ask("git", "log", "-1", "--format=%ct") if shutil.which("git") else None
    made = int(newest.stdout) if newest and newest.returncode == 0 and newest.stdout.strip().isdecimal() else 0
    advice = "start a time service: apt-get install chrony"
    if made > time.time() + 120:
        behind = made - time.time()
        return Finding("clock", State.BAD, f"{behind:.0f} s before the time of the newest commit", advice)
    # struct timex is shorter than this on every Linux; modes = 0 only asks.
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.create_string_buffer(512))
    if state == _TIME_ERROR:
        return Finding("clock", State.WARNING, "the kernel says that no time service keeps it right", advice)
    if state < 0:
        return Finding(
            "clock", State.WARNING, "the kernel does not say whether it is kept right (in a container?)", advice
        )
    return Finding("clock", State.OK, "kept right by a time service")


def lease_folder(_: Place) -> Finding:
    """Whether all users of this host can lease cards, and who holds some now."""
    path = Path(folder())
    name = "lease folder"
    advice = "set MATRIX_LEASE_DIR to a folder on a local disk that all users of this host can write"
    try:
        leases = Leases()
        lease = leases.take(["doctor"], f"doctor-{os.getpid()}")
        lease.release()
    except (LeaseError, OSError) as e:
        return Finding(name, State.BAD, str(e), advice)
    except Busy:
        pass  # another doctor is at it: locks work
    kind = filesystem(path)
    if kind in OVER_NETWORK:
        return Finding(name, State.BAD, f"{path} is on {kind}: locks there are not this host's alone", advice)
    held = [f.stem for f in path.glob("*.lock") if not f.name.startswith(".") and leases.holders(f.stem)]
    said = f"{path}, {len(held)} cards leased" if held else f"{path}, no card leased"
    if path.stat().st_mode & 0o1777 != 0o1777:
        mode = stat.filemode(path.stat().st_mode)
        return Finding(name, State.WARNING, f"{said}; mode {mode} keeps other users out", f"chmod 1777 {path}")
    return Finding(name, State.OK, said)


def py_spy(_: Place) -> Finding:
    """Whether the stacks of a hanging process can be read from outside."""
    tool = shutil.which("py-spy") or shutil.which("py-spy", path=str(Path(sys.executable).parent))
    if tool is None:
        said = "not installed: a hanging process is asked for its stacks by a signal"
        return Finding("py-spy", State.WARNING, said, "pip install py-spy")
    try:
        scope = int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text(encoding="ascii"))
    except (OSError, ValueError):
        scope = 0
    if scope >= (3 if os.getuid() == 0 else 1):
        said = f"there, but ptrace_scope {scope} forbids tracing: a hanging process is asked by a signal"
        return Finding("py-spy", State.WARNING, said, "sysctl kernel.yama.ptrace_scope=0")
    return Finding("py-spy", State.OK, tool)


def slurm(place: Place) -> Finding:
    """Whether Slurm answers, and what it has."""
    if shutil.which("sbatch") is None:
        return Finding(
            "Slurm", State.ABSENT, "no sbatch here: jobs run on this host only", "for a cluster: use a login node"
        )
    done = place.ask("sinfo", "-h", "-o", "%D|%T|%G")
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        said = lines[-1] if lines else f"sinfo ended with exit code {done.returncode}"
        if "configuration source" in said:  # the programs are installed, and no cluster was ever named
            return Finding(
                "Slurm", State.ABSENT, "installed, without a cluster", "set SLURM_CONF to use --engine slurm"
            )
        return Finding("Slurm", State.BAD, said, "see whether slurmctld and munged run, and what SLURM_CONF names")
    rows = [line.split("|") for line in done.stdout.splitlines() if line.count("|") == 2]
    said = "; ".join(f"{n} nodes {state}, {gres}" for n, state, gres in rows) or "no node"
    usable = any(state.rstrip("*~#$@") in ("idle", "mixed", "allocated", "completing") for _, state, _ in rows)
    if not usable:
        return Finding("Slurm", State.BAD, said, "sinfo -R says why nodes are out of service")
    return Finding("Slurm", State.OK, said)


def filesystem(path: Path) -> str:
    """Return the type of the file system that a path is on: that of the longest mount point above it."""
    best = ("", "")
    resolved = str(path.resolve())
    try:
        lines = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        _, at, kind, *_ = line.split(" ")
        at = at.replace("\\040", " ")
        if (resolved == at or resolved.startswith(at.rstrip("/") + "/")) and len(at) >= len(best[0]):
            best = (at, kind)
    return best[1]


def processes(_: Place) -> Finding:
    """Whether /proc shows other processes and their environment, by which those of a job are found again."""
    mine = process.environment(os.getpid())
    if mine is None or len(process.table()) < 1:
        return Finding("processes", State.BAD, "/proc cannot be read", "mount /proc without hidepid")
    return Finding("processes", State.OK, f"{len(process.table())} in sight")
