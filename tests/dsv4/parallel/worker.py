"""One rank of a test job: several runs one after another, so that the ranks start once."""

import json
import sys
from pathlib import Path

from dsv4.numerics.env import prepare

prepare()

from dsv4.parallel.groups import Launched  # noqa: E402
from dsv4.parallel.run import Job, run_rank  # noqa: E402
from dsv4.run import RunOptions  # noqa: E402
from dsv4.run_config import load_run_config  # noqa: E402

PATHS = {"tokens", "init", "record", "metrics", "save", "resume"}


def main():
    job = Job(Launched.from_environment())
    for run in json.loads(Path(sys.argv[1]).read_text()):
        options = {k: Path(v) if k in PATHS else v for k, v in run["options"].items()}
        run_rank(load_run_config(Path(run["config"]), tuple(run["settings"])), RunOptions(**options), job)
    job.rendezvous.leave()


if __name__ == "__main__":
    main()
