"""Several nodes of one job: one outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from matrix.engine.base import Outcome
from matrix.engine.slurm.files import read_outcome


def combine(documents: Sequence[Mapping[str, Any]]) -> Outcome:
    """Join the outcomes of all nodes: the whole is as the first that did not end well by itself.

    Nodes that were ended because another failed only follow from that one.
    """
    outs = [read_outcome(document["outcome"]) for document in documents]
    peaks = [out.peak_memory for out in outs if out.peak_memory]
    bad = [
        (out.ended, out)
        for out, document in zip(outs, documents, strict=True)
        if (out.exit_code != 0 or out.why != "exit") and not str(document["by"]).startswith("node ")
    ]
    rest = [(out.ended, out) for out in outs if out.exit_code != 0 or out.why != "exit"]
    chosen = min(bad or rest or [(0.0, outs[0])], key=lambda pair: pair[0])[1]
    return replace(
        chosen,
        started=min(out.started for out in outs),
        ended=max(out.ended for out in outs),
        left=tuple(pid for out in outs for pid in out.left),
        peak_memory=max(peaks, default=None),  # of the node with most
        cards=tuple(card for out in outs for card in out.cards),
        unfit=tuple(node for out in outs for node in out.unfit),
        remark=chosen.remark if len(outs) == 1 else None,  # the lines of the merged log are others
    )
