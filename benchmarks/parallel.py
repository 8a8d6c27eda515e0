"""Time and bytes a step by layout, beside a model of the bytes.

python benchmarks/parallel.py [--steps 6]

Each layout trains the reference's tiny model in float64 on real processes; the first step is left out of the median.
With fewer cores than ranks the times are those of sharing, and only the bytes say what a layout costs.

Model, a rank and step, with every exchange in pairs: dispatch = 2 (forward, backward) x MoE layers of a stage x tokens
x experts chosen x (2 hidden + 1) x 8 bytes x (1 - 1/EP); gradients = 2 x bytes of the parameters that ranks share x
(1 - 1/ranks that share); pipeline = 2 x tokens x streams x hidden x 8 bytes x (1 - 1/PP). Measured is more where an
all-gather is taken because it is faster for what is small, and by losses, norms and counts.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

from dsv4.numerics.env import prepare

prepare()  # before any of these loads Paddle

from dsv4.data.sources import open_source  # noqa: E402
from dsv4.model import DeepseekV4  # noqa: E402
from dsv4.parallel.groups import Launched  # noqa: E402
from dsv4.parallel.launch import launch  # noqa: E402
from dsv4.parallel.layout import Layout, Share, make_layout, make_share  # noqa: E402
from dsv4.parallel.norm import is_expert  # noqa: E402
from dsv4.parallel.run import Job  # noqa: E402
from dsv4.parallel.segment import cut  # noqa: E402
from dsv4.parallel.trainer import ParallelTrainer  # noqa: E402
from dsv4.run_config import RunConfig, load_run_config  # noqa: E402

DATA = Path(__file__).parents[1] / "tests" / "data" / "dsv4" / "train"
LAYOUTS = {
    "one rank": {},
    "DP2 rows": {"data_parallel": 2, "data_split": "rows"},
    "DP2 rows, sharded": {"data_parallel": 2, "data_split": "rows", "sharding": 1},
    "EP2": {"expert_parallel": 2},
    "EP4": {"expert_parallel": 4},
    "EP8": {"expert_parallel": 8},
    "PP2": {"pipeline_parallel": 2},
    "EP2 x DP2": {"expert_parallel": 2, "data_parallel": 2},
    "PP2 x EP2": {"pipeline_parallel": 2, "expert_parallel": 2},
}


def settings(layout: dict[str, object], steps: int) -> tuple[str, ...]:
    return (f"steps={steps}", *(f"parallel.{key}={value}" for key, value in layout.items()))


def ranks(layout: dict[str, object]) -> int:
    count = 1
    for key in ("data_parallel", "expert_parallel", "pipeline_parallel"):
        count *= int(str(layout.get(key, 1)))
    return count


def work(plan: Path) -> None:
    """One rank: train, then write seconds and sent bytes of every step."""
    job = Job(Launched.from_environment())
    for name, layout in json.loads(plan.read_text())["layouts"].items():
        steps = json.loads(plan.read_text())["steps"]
        config = load_run_config(DATA / "tiny_config.json", settings(layout, steps))
        place = make_layout(config.parallel, job.launched.world, config.model.num_experts).place(job.launched.rank)
        groups = job.connect(place)
        source = open_source(DATA / "train_tokens.safetensors", config)
        trainer = ParallelTrainer(config, source, place, groups, init=DATA / "weights_step0.safetensors")
        seconds, sent = [], [groups.sent()]
        for _ in range(steps):
            seconds.append(trainer.train_step().seconds)
            sent.append(groups.sent())
        result = {"seconds": seconds, "sent": [b - a for a, b in pairwise(sent)], "layout": name}
        plan.with_name(f"{name}.{place.rank}.json").write_text(json.dumps(result))
    job.rendezvous.leave()


def tokens_of(config: RunConfig, share: Share) -> int:
    """Tokens that a rank works on in a step."""
    train = config.train
    return len(share.local_micros(train.accumulate)) * train.micro_batch // share.rows * train.seq_len


def model_bytes(layout: dict[str, object]) -> dict[str, float]:
    """Bytes that an average rank sends in a step, by purpose, if every exchange went in pairs."""
    config = load_run_config(DATA / "tiny_config.json", settings(layout, 1))
    model, train, word = config.model, config.train, 8
    degrees = ("data_parallel", "expert_parallel", "pipeline_parallel")
    shape = Layout(*(int(str(layout.get(key, 1))) for key in degrees))
    share = make_share(config.parallel, shape.place(0), train.accumulate, train.micro_batch)
    tokens = tokens_of(config, share)
    E, R, P, D = shape.expert, shape.per_stage, shape.pipeline, shape.data
    moe_layers = (model.num_layers + model.mtp_layers) / P
    # To the experts and back, then gradients: tokens x experts a token x width, of which 1/E stays here.
    dispatch = 2 * moe_layers * tokens * model.topk_experts * (2 * model.hidden_size + 1) * word * (E - 1) / E
    sizes = {n: p.size for n, p in DeepseekV4(model).named_parameters()}
    dense = sum(s for n, s in sizes.items() if not is_expert(n)) / P
    experts = sum(s for n, s in sizes.items() if is_expert(n)) / P / E
    # A sum is a reduce-scatter of gradients and an all-gather of them or, when sharded, of the parameters.
    reduce = word * (dense * ((R - 1) / R + (R - 1) / R) + experts * ((D - 1) / D + (D - 1) / D))
    streams = tokens * model.hc_mult * model.hidden_size * word
    pipeline = 2 * streams * (P - 1) / P
    assert len(cut(model, P, config.parallel.seg_method)) == P
    return {"tokens": tokens, "dispatch": dispatch, "gradients": reduce, "pipeline": pipeline}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        work(arguments.worker)
        return

    model = load_run_config(DATA / "tiny_config.json", ()).model
    software = f"Paddle {importlib.metadata.version('paddlepaddle')}, Python {platform.python_version()}"
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} CPUs, {software}, {arguments.steps} steps")
    print(f"float64, hidden {model.hidden_size}, {model.topk_experts} of {model.num_experts} experts a token\n")
    print("| layout | ranks | tokens a rank | s/step | sent, MiB | model, MiB | dispatch | gradients | pipeline |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for count in sorted({ranks(layout) for layout in LAYOUTS.values()}):
            chosen = {n: layout for n, layout in LAYOUTS.items() if ranks(layout) == count}
            plan = folder / f"plan{count}.json"
            plan.write_text(json.dumps({"layouts": chosen, "steps": arguments.steps}))
            argv = [sys.executable, "-W", "ignore", __file__, "--worker", str(plan)]
            with (folder / "out").open("w") as out:
                outcome = launch(argv, count, folder / f"logs{count}", out)
            if outcome.code:
                blamed = outcome.first.number if outcome.first else 0
                sys.exit((folder / f"logs{count}" / f"workerlog.{blamed}").read_text())
            for name_, layout in chosen.items():
                show(folder, name_, layout, count)


def show(folder: Path, name: str, layout: dict[str, object], count: int) -> None:
    found = [json.loads((folder / f"{name}.{rank}.json").read_text()) for rank in range(count)]
    seconds = statistics.median(found[0]["seconds"][1:])
    sent = statistics.mean(statistics.median(f["sent"]) for f in found) / 2**20
    model = model_bytes(layout)
    tokens = round(model.pop("tokens"))
    parts = " | ".join(f"{v / 2**20:.2f}" for v in model.values())
    total = sum(model.values()) / 2**20
    print(f"| {name} | {count} | {tokens} | {seconds:.2f} | {sent:.2f} | {total:.2f} | {parts} |", flush=True)


if __name__ == "__main__":
    main()
