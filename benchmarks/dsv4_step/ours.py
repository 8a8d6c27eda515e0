"""Worker: seconds per step of our model, or memory over the sequence length. Prints one JSON line.

python ours.py step THREADS WARMUP STEPS [--profile]
python ours.py memory SEQ PATH
"""

import json
import resource
import sys
import time
from collections import defaultdict

from dsv4.numerics.env import describe, prepare

if __name__ == "__main__":
    prepare(int(sys.argv[2]) if sys.argv[1] == "step" else 2)

import numpy as np
import paddle
from shape import BATCH, BETAS, EPS, LR, MODEL, SEQ, WEIGHT_DECAY, token_ids

from dsv4.config import LossConfig, ModelConfig
from dsv4.model import DeepseekV4
from dsv4.optim.adamw import AdamSettings, adamw_step

ALONE = {"mtp_layers": 0, "mtp_compress_ratios": []}
MAIN_LOSS_ONLY = LossConfig(mtp_loss_weight=0.0, indexer_loss_coeff=0.0, balance_coeff=0.0)


class Trainer:
    """Model and AdamW, as the peer has them."""

    def __init__(self) -> None:
        self.model = DeepseekV4(ModelConfig.parse(MODEL | ALONE), MAIN_LOSS_ONLY, "float32", "fast")
        self.parameters = list(self.model.parameters())
        self.moments = [(paddle.zeros_like(p), paddle.zeros_like(p)) for p in self.parameters]
        self.cpu: list[float] = []
        self.steps, self.settings = 0, AdamSettings(*BETAS, EPS)

    def step(self) -> tuple[float, dict[str, float]]:
        """One step; its loss, and the seconds of its three parts."""
        ids = paddle.to_tensor(np.array(token_ids(self.steps)))
        cpu, marks = time.process_time(), [time.perf_counter()]
        output = self.model(ids[:, :-1], ids[:, 1:])
        marks.append(time.perf_counter())
        output.objective().backward()
        marks.append(time.perf_counter())
        self.steps += 1
        for p, (m, v) in zip(self.parameters, self.moments, strict=True):
            if p.grad is not None:
                adamw_step(
                    p, p.grad, m, v, t=self.steps, lr=LR, weight_decay=WEIGHT_DECAY, settings=self.settings
                )  # fmt: skip
        self.model.clear_gradients(set_to_zero=False)
        marks.append(time.perf_counter())
        parts = dict(zip(("forward", "backward", "update"), np.diff(marks).tolist(), strict=True))
        self.cpu.append(time.process_time() - cpu)
        return float(output.main_loss), parts


def time_steps(warmup: int, steps: int, profile: bool) -> dict[str, object]:
    """Seconds of each step after the warm-up, and medians of its parts."""
    trainer = Trainer()
    runs = [trainer.step() for _ in range(warmup + steps)]
    parts = [p for _, p in runs[warmup:]]
    result = {
        "versions": f"paddle {paddle.__version__}", "seconds": [sum(p.values()) for p in parts], "loss": runs[-1][0],
        "cpu": trainer.cpu[warmup:],
        "parts": {name: float(np.median([p[name] for p in parts])) for name in parts[0]},
        "parameters": sum(p.size for p in trainer.parameters), "environment": describe(),
    }  # fmt: skip
    return result | ({"profile": time_by_operation(trainer)} if profile else {})


def time_by_operation(trainer: Trainer) -> dict[str, float]:
    """Seconds of one step by operation (self time), from Paddle's own profiler."""
    profiler = paddle.profiler.Profiler(targets=[paddle.profiler.ProfilerTarget.CPU], on_trace_ready=lambda _: None)
    profiler.start()
    trainer.step()
    profiler.stop()
    spent: dict[str, float] = defaultdict(float)
    stack = [root for roots in profiler.profiler_result.get_data().values() for root in [roots]]
    while stack:
        node = stack.pop()
        children = list(node.children_node)
        own = node.end_ns - node.start_ns
        if "dygraph" not in node.name:  # a gradient node: what it does besides calling operations
            own -= sum(child.end_ns - child.start_ns for child in children)
        if "dygraph" in node.name or "GradNode" in node.name:
            spent[node.name.removesuffix(" dygraph")] += own / 1e9
        stack.extend(children)
    return dict(sorted(spent.items(), key=lambda item: -item[1])[:15])


def memory(seq: int, path: str) -> dict[str, object]:
    """Peak resident memory over that before the first batch, forward and backward of one row of `seq` tokens."""
    config = ModelConfig.parse(MODEL | ALONE)
    model = DeepseekV4(config, LossConfig(mtp_loss_weight=0.0), "float32", "fast" if path == "fast" else "plain")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ids = paddle.to_tensor(np.random.default_rng(0).integers(0, config.vocab_size, (1, seq + 1)))
    model(ids[:, :-1], ids[:, 1:]).objective().backward()
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seq": seq, "path": path, "mib": (after - before) / 1024}


def main() -> None:
    """Do what the arguments say."""
    if sys.argv[1] == "step":
        result = time_steps(int(sys.argv[3]), int(sys.argv[4]), "--profile" in sys.argv)
    else:
        result = memory(int(sys.argv[2]), sys.argv[3])
    print(json.dumps(result | {"batch": BATCH, "seq": result.get("seq", SEQ)}))


if __name__ == "__main__":
    main()
