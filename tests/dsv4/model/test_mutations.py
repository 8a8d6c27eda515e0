"""Each of the classic mistakes in an implementation of DeepSeek-V4 departs from the recorded run.

A copy of the package is changed in one place; then the quick comparison with the small reference must fail.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DATA = ROOT / "tests/data/dsv4/forward"
CHECK = """
import sys
from pathlib import Path
from dsv4.numerics.env import prepare
prepare()
from dsv4.check.forward import check_source
from dsv4.check.reference import Reference
reference = Reference.read(Path(sys.argv[1]))
departed = [row for row in check_source(reference, reference.sources[0], sys.argv[2]) if not row.ok]
print(departed[0].tensor if departed else "all equal")
"""


@dataclass(frozen=True)
class Mutation:
    """In `file`, `old` becomes `new`; `path` is the path of the model that runs through it."""

    name: str
    file: str
    old: str
    new: str
    path: str = "fast"


MUTATIONS = [
    Mutation(
        "C not transposed", "fast/mixing.py", "paddle.matmul(C, X, transpose_x=True).add_", "paddle.matmul(C, X).add_",
    ),
    Mutation(
        "C not transposed, plain", "hyper_connection.py", "matmul(C, X_BSnD, transpose_x=True)", "matmul(C, X_BSnD)", "plain",
    ),
    Mutation(
        "one Sinkhorn half-step more", "fast/mixing.py",
        "[columns] + [rows, columns] * (iterations - 1)", "[columns] + [rows, columns] * (iterations - 1) + [rows]",
    ),
    Mutation(
        "one Sinkhorn half-step less", "fast/mixing.py",
        "[columns] + [rows, columns] * (iterations - 1)", "[columns] + ([rows, columns] * (iterations - 1))[:-1]",
    ),
    Mutation("one Sinkhorn round more, plain", "hyper_connection.py", "range(iterations - 1)", "range(iterations)", "plain"),
    Mutation("θ swapped between layer types", "rope.py", "if ratio == SLIDING:", "if ratio != SLIDING:"),
    Mutation(
        "RoPE on the first channels", "fast/pointwise.py",
        "paddle.concat([x[..., : d - r], turned], axis=-1)", "paddle.concat([turned, x[..., : d - r]], axis=-1)",
    ),
    Mutation(
        "RoPE on the first channels, plain", "rope.py",
        "paddle.concat([x[..., :plain], turned], axis=-1)", "paddle.concat([turned, x[..., :plain]], axis=-1)", "plain",
    ),
    Mutation("no inverse rotation", "attention.py", "act(rope.rotate(act(o), inverse=True))", "act(o)"),
    Mutation("inverse rotation forward", "attention.py", "inverse=True", "inverse=False"),
    Mutation(
        "compressed entry at the end of its window", "compressor.py",
        "rope.rotate(self.norm(pooled), stride=m)", "rope.rotate(self.norm(pooled), stride=1)",
    ),
    Mutation(
        "bias enters the weights", "router.py",
        "paddle.take_along_axis(scores, experts, axis=-1)",
        "paddle.take_along_axis(scores if self.hashed else scores + self.expert_bias, experts, axis=-1)",
    ),
    Mutation("lower clamp on the gate", "fast/pointwise.py", "F.silu(g.clip(max=limit))", "F.silu(g.clip(min=-limit, max=limit))"),
    Mutation("lower clamp on the gate, plain", "moe.py", "F.silu(g.clip(max=limit))", "F.silu(g.clip(min=-limit, max=limit))", "plain"),
    Mutation(
        "norm on indexer queries", "indexer.py",
        "self.policy.act(rope.rotate(q))", "self.policy.act(rope.rotate(q * (q * q).mean(-1, keepdim=True).rsqrt()))",
    ),
    Mutation("indexer not detached", "indexer.py", "x, qc = x_BSD.detach(), qc_BSq.detach()", "x, qc = x_BSD, qc_BSq"),
    Mutation("entries visible one query late, plain", "compressor.py", "return (t_S + 1) // ratio", "return t_S // ratio", "plain"),
    Mutation("entries visible one query early, plain", "compressor.py", "return (t_S + 1) // ratio", "return (t_S + 2) // ratio", "plain"),
    Mutation("entries visible one query late", "compressor.py", "return (t_S + 1) // ratio", "return t_S // ratio"),
    Mutation("entries visible one query early", "compressor.py", "return (t_S + 1) // ratio", "return (t_S + 2) // ratio"),
    Mutation("HCA entries visible one query late", "fast/attention.py", "(t + 1) // self.sight.ratio", "t // self.sight.ratio"),
    Mutation("CSA entries visible one query late", "fast/indexer.py", "(paddle.arange(t0, t1) + 1) // ratio", "paddle.arange(t0, t1) // ratio"),
    Mutation("window one short", "fast/attention.py", "(j > t - self.sight.window)", "(j > t - self.sight.window + 1)"),
    Mutation("sink outside the softmax", "fast/attention.py", "sink = self.sink.unsqueeze(-1)", "sink = (self.sink - 1e30).unsqueeze(-1)"),
    Mutation("MTP's last position keeps its token", "mtp.py", "paddle.zeros_like(x_BS[:, :1])", "x_BS[:, -1:]"),
]  # fmt: skip


def first_departure(package: Path, path: str) -> str:
    """Run the quick comparison on a copy of the package."""
    environment = os.environ | {"PYTHONPATH": str(package), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", CHECK, str(DATA), path],
        capture_output=True,
        text=True,
        env=environment,
        cwd=package,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip().splitlines()[-1]


@pytest.fixture
def package(tmp_path):
    shutil.copytree(ROOT / "dsv4", tmp_path / "dsv4", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


@pytest.mark.soak
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name)
def test_a_mistake_departs_from_the_reference(package, mutation, record_property):
    file = package / "dsv4/model" / mutation.file
    text = file.read_text()
    assert text.count(mutation.old) == 1, "the mutation no longer fits the code"
    file.write_text(text.replace(mutation.old, mutation.new))
    departed = first_departure(package, mutation.path)
    record_property("departs_at", departed)
    print(f"{mutation.name}: departs at {departed}")
    assert departed != "all equal"


@pytest.mark.parametrize("path", ["fast", "plain"])
def test_an_unchanged_copy_is_equal(package, path):
    assert first_departure(package, path) == "all equal"


def test_every_mutation_still_fits_the_code():
    for mutation in MUTATIONS:
        text = (ROOT / "dsv4/model" / mutation.file).read_text()
        assert text.count(mutation.old) == 1, mutation.name
