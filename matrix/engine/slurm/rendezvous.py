"""How the nodes of one job find each other: the variables that launchers read. Values only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """Where the first node listens, and who is who."""

    address: str
    port: int
    nodes: int
    rank: int  # of this node
    cards: int  # a node
    job: str

    def environment(self) -> dict[str, str]:
        """Return the variables: the plain ones, torchrun's (PET_*) and those of paddle.distributed.launch (PADDLE_*).

        With them `torchrun train.py` and `python -m paddle.distributed.launch train.py` need no option for the nodes.
        """
        env = {
            "MASTER_ADDR": self.address,
            "MASTER_PORT": str(self.port),
            "NNODES": str(self.nodes),
            "NODE_RANK": str(self.rank),
            "PET_NNODES": str(self.nodes),
            "PET_NODE_RANK": str(self.rank),
            "PET_MASTER_ADDR": self.address,
            "PET_MASTER_PORT": str(self.port),
            "PADDLE_MASTER": f"{self.address}:{self.port}",
            "PADDLE_NNODES": str(self.nodes),
            "PADDLE_RANK": str(self.rank),
            "PADDLE_JOB_ID": self.job,
        }
        if self.cards:
            env |= {"PET_NPROC_PER_NODE": str(self.cards), "PADDLE_NPROC_PER_NODE": str(self.cards)}
        return env
