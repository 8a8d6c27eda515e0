"""Failures that no rule names, told apart and counted: the same text but for what differs between runs is the same failure."""

from __future__ import annotations

from dataclasses import dataclass, field

from rapidfuzz import fuzz, process

from matrix.triage.signature import normalise

THRESHOLD = 80.0  # of rapidfuzz's token_set_ratio, from which two excerpts are one failure
MAX_TEXT = 8000


@dataclass(slots=True)
class Cluster:
    """Failures that are alike."""

    text: str  # of its first member, normalised
    members: list[str] = field(default_factory=list)  # keys, in the order in which they came


class Clusters:
    """Assigns excerpts to clusters: by equal normalised text, else by the nearest one that is near enough."""

    def __init__(self, threshold: float = THRESHOLD) -> None:
        self.clusters: list[Cluster] = []
        self._threshold = threshold
        self._exact: dict[str, int] = {}

    def add(self, key: str, excerpt: str) -> int:
        """Put `key` (a job's attempt, say) with its excerpt into a cluster, and give the cluster's number."""
        text = "\n".join(normalise(line) for line in excerpt[:MAX_TEXT].splitlines())
        number = self._exact.get(text)
        if number is None:
            number = self._nearest(text)
            self._exact[text] = number
        self.clusters[number].members.append(key)
        return number

    def _nearest(self, text: str) -> int:
        near = process.extractOne(
            text, [c.text for c in self.clusters], scorer=fuzz.token_set_ratio, score_cutoff=self._threshold
        )
        if near is not None:
            return int(near[2])
        self.clusters.append(Cluster(text))
        return len(self.clusters) - 1
