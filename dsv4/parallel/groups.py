"""The groups of ranks that a layout needs, each with a rendezvous of its own.

Paddle's gloo keeps the addresses of all groups under the same keys, so a second group on one store meets the stale
addresses of the first. Here every group has its own store, all of them served by rank 0.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import paddle
from paddle.base import core

from dsv4.errors import Dsv4Error, UsageError
from dsv4.parallel.layout import Place
from dsv4.parallel.transport import Alone, GlooTransport, NativeTransport, Transport

START_SECONDS = 120  # for all ranks to come up


@dataclass(frozen=True)
class Launched:
    """What the launcher says about this process."""

    rank: int
    world: int
    host: str  # of rank 0
    port: int

    @classmethod
    def from_environment(cls) -> Launched:
        """Read the variables that paddle.distributed.launch and dsv4 launch set; alone without them."""
        advice = "start ranks with dsv4 launch, or with python -m paddle.distributed.launch"
        try:
            world = int(os.environ.get("PADDLE_TRAINERS_NUM", "1"))
            rank = int(os.environ.get("PADDLE_TRAINER_ID", "0"))
            endpoint = os.environ.get("PADDLE_TRAINER_ENDPOINTS", "").split(",")[0]
            host, _, port = endpoint.rpartition(":")
            found = cls(rank, world, host or "127.0.0.1", int(port or 0))
        except ValueError:
            raise UsageError(
                "PADDLE_TRAINER_ID, PADDLE_TRAINERS_NUM or PADDLE_TRAINER_ENDPOINTS is no number or host:port", advice
            ) from None
        if not 0 <= rank < world:
            raise UsageError(f"PADDLE_TRAINER_ID {rank} is no rank of PADDLE_TRAINERS_NUM {world}", advice)
        if world > 1 and not 0 < found.port < 1 << 16:
            raise UsageError("PADDLE_TRAINER_ENDPOINTS names no port where rank 0 is to listen", advice)
        return found


class Rendezvous:
    """The store of the whole job on rank 0, and the stores of its groups."""

    def __init__(self, launched: Launched) -> None:
        self.launched = launched
        server = launched.rank == 0
        if server:
            _refuse_taken_port(launched.port)
        else:
            _wait_for_port(launched.host, launched.port)
        self.store = core.TCPStore(launched.host, launched.port, server, 0, START_SECONDS)
        self._stores: list[Any] = []  # a store lives as long as its group
        self._made = 0  # groups so far, over all calls: ids must not repeat in a process

    def gloo_groups(self, groups: Iterable[tuple[int, ...]]) -> dict[tuple[int, ...], Transport]:
        """Make every group that this rank is in. All ranks call it with the same groups in the same order."""
        groups = [g for g in groups if len(g) > 1]
        rank, host = self.launched.rank, self.launched.host
        ids = range(self._made, self._made + len(groups))
        self._made += len(groups)
        served: list[Any] = []
        if rank == 0:  # servers first: a client that comes before its server sleeps for seconds
            for i in ids:
                port = _free_port(host)
                served.append(core.TCPStore(host, port, True, 0, START_SECONDS))
                self.store.set(self._key(i), str(port))
            self._stores += served
        made: dict[tuple[int, ...], Transport] = {}
        for i, ranks in zip(ids, groups, strict=True):
            if rank not in ranks:
                continue
            port = int(self.store.get(self._key(i)))
            store = served[i - ids.start] if rank == 0 else core.TCPStore(host, port, False, 0, START_SECONDS)
            self._stores.append(store)
            me = ranks.index(rank)
            group = core.ProcessGroupGloo.create(store, me, len(ranks), i)
            made[ranks] = GlooTransport(group, me, len(ranks))
        return made

    def _key(self, group: int) -> str:
        return f"dsv4/group/{group}/port"

    def leave(self) -> None:
        """Return when every rank is here; rank 0, which serves the stores, last."""
        me, world = self.launched.rank, self.launched.world
        self.store.set(f"dsv4/leave/{me}", "1")
        if me == 0:
            for rank in range(world):
                self.store.get(f"dsv4/leave/{rank}")
            self.store.set("dsv4/left", "1")
            time.sleep(0.2)  # the last answers are on their way
        else:
            self.store.get("dsv4/left")


@dataclass(frozen=True)
class Groups:
    """What a rank talks through."""

    world: Transport
    stage: Transport  # same dense parameters
    expert: Transport  # all experts together
    replica: Transport  # same experts
    before: Transport  # the previous stage and this one
    after: Transport  # this stage and the next
    embedding: Transport  # first and last stage, where both hold the embedding

    def sent(self) -> int:
        """Bytes that left this rank."""
        each = {id(t): t for t in vars(self).values()}
        return sum(t.sent for t in each.values())


def needed_groups(place: Place) -> dict[str, tuple[int, ...]]:
    """Ranks of each group that a rank is in, in the order of `Groups`."""
    layout = place.layout
    stages = layout.pipeline
    alone = (place.rank,)
    return {
        "world": tuple(range(layout.world)),
        "stage": place.stage_group,
        "expert": place.expert_group,
        "replica": place.replica_group,
        "before": alone if place.first else (place.at_stage(place.stage - 1), place.rank),
        "after": alone if place.last else (place.rank, place.at_stage(place.stage + 1)),
        "embedding": (place.at_stage(0), place.at_stage(stages - 1)) if stages > 1 and (place.first or place.last)
        else alone,
    }  # fmt: skip


def connect(rendezvous: Rendezvous, place: Place) -> Groups:
    """Make the groups of a layout; groups of the same ranks are one."""
    layout = place.layout
    every = [needed_groups(layout.place(rank)) for rank in range(layout.world)]
    wanted = list(dict.fromkeys(ranks for groups in every for ranks in groups.values()))
    made = _native_groups(wanted, place.rank) if _native() else rendezvous.gloo_groups(wanted)
    return Groups(**{name: made.get(ranks, Alone()) for name, ranks in needed_groups(place).items()})


def _native() -> bool:
    return bool(paddle.is_compiled_with_cuda()) and paddle.device.get_device().startswith("gpu")


def _native_groups(wanted: list[tuple[int, ...]], rank: int) -> dict[tuple[int, ...], Transport]:
    """Make groups by Paddle's own call: its NCCL back end keeps their keys apart."""
    paddle.distributed.init_parallel_env()
    made: dict[tuple[int, ...], Transport] = {}
    for ranks in wanted:
        if len(ranks) > 1:
            group = paddle.distributed.new_group(list(ranks))
            if rank in ranks:
                made[ranks] = NativeTransport(group, ranks.index(rank), len(ranks))
    return made


def _wait_for_port(host: str, port: int) -> None:
    """Return when rank 0 listens."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        try:
            with socket.create_connection((host, port), timeout=5):
                return
        except OSError:
            time.sleep(0.05)
    raise Dsv4Error(f"rank 0 did not come up at {host}:{port} in {START_SECONDS} s", "read the log of rank 0")


def _refuse_taken_port(port: int) -> None:
    """Say so in words where Paddle's store would abort the process."""
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("", port))
        except OSError as e:
            raise UsageError(
                f"rank 0 cannot listen at port {port}: {e.strerror}",
                "start the job again: dsv4 launch takes ports that are free; or end what listens there",
            ) from None


def _free_port(host: str) -> int:
    with socket.socket() as s:
        s.bind((host, 0))
        return int(s.getsockname()[1])
