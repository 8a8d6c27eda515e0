"""Tokens per second of a training step (forward, backward, AdamW; float32, CPU), and memory over the length.

  python benchmarks/train_step.py [--threads 1 2] [--rounds 3] [--steps 8] [--profile]
  python benchmarks/train_step.py --peer FOLDER     beside Hugging Face's model in a virtual environment of its own,
                                                    made in FOLDER (1.2 GB) if it is not there
  python benchmarks/train_step.py --memory 512 1024 2048

Both sides train the same shape (benchmarks/dsv4_step/shape.py) on the main loss alone, since the peer has no MTP and
gives its indexer no gradient. Runs alternate, ours and theirs, so that other load on the machine meets both; the ratio
is that of the medians over all steps of all rounds. Ends with one JSON line.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).parent / "dsv4_step"
PLAIN_UP_TO = 1024  # dense masks over 4096 tokens take 20 GiB
PEER_PACKAGES = ("torch==2.13.0", "transformers==5.24.0")


def run(python: str, *words: object) -> dict:
    """Run a worker; its last line is JSON."""
    environment = os.environ | {"PYTHONPATH": f"{HERE.parents[1]}:{HERE}"}
    command = [python, "-W", "ignore", *map(str, words)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def peer_python(folder: Path) -> str:
    """Python of the peer's environment; made on first use."""
    python = folder / "bin/python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-qq", *PEER_PACKAGES], check=True)
    return str(python)


def measure(threads: int, a: argparse.Namespace) -> dict:
    """Alternate ours and the peer's runs on so many threads."""
    ours, theirs = [], []
    for round_number in range(a.rounds):
        profile = ["--profile"] if a.profile and round_number == a.rounds - 1 else []
        ours.append(run(sys.executable, HERE / "ours.py", "step", threads, a.warmup, a.steps, *profile))
        if a.peer:
            theirs.append(run(peer_python(a.peer), HERE / "peer_hf.py", threads, a.warmup, a.steps))
    result = {"threads": threads, "load": os.getloadavg()[0], "ours": summary(ours)}
    print(f"{threads} thread(s): ours {result['ours']['tokens_per_s']:.0f} tokens/s, median step of", end=" ")
    print(", ".join(f"{name} {1000 * s:.0f} ms" for name, s in ours[-1]["parts"].items()))
    if theirs:
        result["peer"] = summary(theirs)
        result["ratio"] = result["ours"]["tokens_per_s"] / result["peer"]["tokens_per_s"]
        by_round = [
            statistics.median(t["seconds"]) / statistics.median(o["seconds"]) for o, t in zip(ours, theirs, strict=True)
        ]
        result["ratio_by_round"] = by_round
        result["cpu_ratio"] = result["peer"]["cpu_s"] / result["ours"]["cpu_s"]
        rounds = " ".join(f"{r:.2f}" for r in by_round)
        print(
            f"  peer {result['peer']['tokens_per_s']:.0f} tokens/s, ratio {result['ratio']:.2f} (by round {rounds}),",
            end=" ",
        )
        print(f"of processor time {result['cpu_ratio']:.2f}")
    if "profile" in ours[-1]:
        result["profile"] = ours[-1]["profile"]
        for name, seconds in ours[-1]["profile"].items():
            print(f"  {1000 * seconds:8.1f} ms  {name}")
    return result


def summary(runs: list[dict]) -> dict:
    """Median over all steps of all rounds."""
    seconds = [s for r in runs for s in r["seconds"]]
    median = statistics.median(seconds)
    cpu = statistics.median(s for r in runs for s in r["cpu"])
    keep = {k: runs[-1][k] for k in ("versions", "parameters", "environment") if k in runs[-1]}
    return {"median_s": median, "fastest_s": min(seconds), "cpu_s": cpu, "tokens_per_s": 2 * 512 / median} | keep


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--warmup", type=int, default=2)
    ap.add_argument("--steps", type=int, default=6)
    ap.add_argument("--peer", type=Path, metavar="FOLDER")
    ap.add_argument("--profile", action="store_true")
    ap.add_argument("--memory", type=int, nargs="+", metavar="SEQ")
    a = ap.parse_args()
    if a.memory:
        results = []
        for seq in a.memory:
            for path in ("fast", "plain") if seq <= PLAIN_UP_TO else ("fast",):
                results.append(run(sys.executable, HERE / "ours.py", "memory", seq, path))
                mib = results[-1]["mib"]
                print(f"S {seq:6d}  {path:5s}  {mib:8.0f} MiB  {1024 * mib / seq:8.1f} KiB a token")
    else:
        results = [measure(threads, a) for threads in a.threads]
    print(json.dumps(results))


if __name__ == "__main__":
    main()
