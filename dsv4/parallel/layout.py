"""Which rank does what: degrees of parallelism, groups of ranks, shares of the data. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from dsv4.errors import UsageError
from dsv4.parallel.config import ParallelConfig


@dataclass(frozen=True)
class Layout:
    """Ranks in the order pipeline, data, expert, the last fastest: rank = (stage·D + data)·E + expert."""

    data: int
    expert: int
    pipeline: int

    @property
    def world(self) -> int:
        """Number of ranks."""
        return self.data * self.expert * self.pipeline

    @property
    def per_stage(self) -> int:
        """Ranks of one stage: all hold its dense parameters, and each sees a share of the data."""
        return self.data * self.expert

    def place(self, rank: int) -> Place:
        """Where a rank stands."""
        stage, share = divmod(rank, self.per_stage)
        return Place(self, rank, stage, share)


@dataclass(frozen=True)
class Place:
    """One rank's place. `share` counts the ranks of its stage; the groups are lists of ranks, in order."""

    layout: Layout
    rank: int
    stage: int
    share: int

    @property
    def expert(self) -> int:
        """Which of the expert groups' parts this rank holds."""
        return self.share % self.layout.expert

    @property
    def first(self) -> bool:
        """Whether this is the first stage."""
        return self.stage == 0

    @property
    def last(self) -> bool:
        """Whether this is the last stage."""
        return self.stage == self.layout.pipeline - 1

    def at_stage(self, stage: int) -> int:
        """Return the rank with the same share at another stage."""
        return stage * self.layout.per_stage + self.share

    @property
    def stage_group(self) -> tuple[int, ...]:
        """Ranks with the same dense parameters."""
        start = self.stage * self.layout.per_stage
        return tuple(range(start, start + self.layout.per_stage))

    @property
    def expert_group(self) -> tuple[int, ...]:
        """Ranks that hold all experts together and exchange tokens."""
        start = self.rank - self.expert
        return tuple(range(start, start + self.layout.expert))

    @property
    def replica_group(self) -> tuple[int, ...]:
        """Ranks with the same experts."""
        return self.stage_group[self.expert :: self.layout.expert]


def make_layout(config: ParallelConfig, world: int, num_experts: int) -> Layout:
    """Fill in the degree of data parallelism. Raises UsageError when the degrees do not give `world` ranks."""
    expert, pipeline = config.expert_parallel, config.pipeline_parallel
    if num_experts % expert:
        raise UsageError(
            f"parallel.expert_parallel {expert} does not divide the {num_experts} experts", "write a divisor"
        )
    data = config.data_parallel or max(1, world // (expert * pipeline))
    layout = Layout(data, expert, pipeline)
    if layout.world != world:
        raise UsageError(
            f"data_parallel {data} x expert_parallel {expert} x pipeline_parallel {pipeline} = {layout.world} ranks, "
            f"but {world} {'was' if world == 1 else 'were'} started",
            f"start {layout.world}: dsv4 launch --ranks {layout.world} CONFIG ...",
        )
    return layout


def check_compute_path(path: str, layout: Layout) -> None:
    """Raise UsageError for a way of computing that cannot divide the experts."""
    if path == "plain" and layout.expert > 1:
        raise UsageError(
            "compute_path plain shows every expert every token",
            "set train.compute_path to fast for expert_parallel",
        )


@dataclass(frozen=True)
class Share:
    """A rank's share of each step: which micro-batches, which rows of them, and how often others compute the same.

    With `own` every rank reads data of its own, and the loss is the mean over ranks.
    """

    micros: int  # ways in which the micro-batches of a step are divided
    rows: int  # ways in which the rows of a micro-batch are divided
    same: int  # ranks that compute one and the same thing
    index: int  # of this rank, 0 .. micros·rows·same - 1
    own: bool = False

    @property
    def micro_index(self) -> int:
        """Which of the `micros` ways."""
        return self.index % self.micros

    @property
    def row_index(self) -> int:
        """Which of the `rows` ways."""
        return self.index // self.micros % self.rows

    @property
    def weight(self) -> float:
        """Factor on a rank's objective so that the sum over ranks is the objective of the whole step."""
        return 1.0 / (self.micros if self.own else self.rows * self.same)

    def local_micros(self, accumulate: int) -> list[int]:
        """Numbers, within the step, of the micro-batches that this rank computes."""
        count = accumulate if self.own else accumulate // self.micros
        return [j * self.micros + self.micro_index for j in range(count)]

    def micros_of_step(self, accumulate: int) -> int:
        """Micro-batches of a step over all ranks: rows of the merged record."""
        return accumulate * self.micros if self.own else accumulate

    def local_rows(self, micro_batch: int) -> slice:
        """Rows of a micro-batch that this rank computes."""
        count = micro_batch // self.rows
        return slice(self.row_index * count, (self.row_index + 1) * count)


def make_share(config: ParallelConfig, place: Place, accumulate: int, micro_batch: int) -> Share:
    """Divide a step's micro-batches among the ranks of a stage. Raises UsageError when they do not divide."""
    ranks, index = place.layout.per_stage, place.share
    if config.data_split == "own":
        return Share(ranks, 1, 1, index, own=True)
    if config.data_split == "same":
        return Share(1, 1, ranks, index)
    if config.data_split == "micros":
        if accumulate % ranks:
            raise UsageError(
                f"data_split micros: {accumulate} micro-batches of a step do not divide among {ranks} ranks",
                "set train.accumulate to a multiple, or parallel.data_split to auto",
            )
        return Share(ranks, 1, 1, index)
    if config.data_split == "rows":
        if micro_batch % ranks:
            raise UsageError(
                f"data_split rows: {micro_batch} rows of a micro-batch do not divide among {ranks} ranks",
                "set train.micro_batch to a multiple, or parallel.data_split to auto",
            )
        return Share(1, ranks, 1, index)
    if place.layout.pipeline > 1:  # a pipeline needs several micro-batches in flight
        rows = gcd(ranks, micro_batch)
        micros = gcd(ranks // rows, accumulate)
    else:
        micros = gcd(ranks, accumulate)
        rows = gcd(ranks // micros, micro_batch)
    return Share(micros, rows, ranks // (micros * rows), index)
