"""Which part of the model a rank holds: all of it, or a pipeline stage with some of the experts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from paddle import nn

from dsv4.config import ModelConfig


@dataclass(frozen=True)
class ModelPart:
    """Decoder layers and experts by number; whether embedding, and whether final norm, output matrix and MTP are here.

    With MTP the last pipeline stage holds a copy of the embedding, too.
    """

    layers: range
    experts: range
    first: bool = True
    last: bool = True
    embedding: bool = True

    @classmethod
    def whole(cls, config: ModelConfig) -> ModelPart:
        """Everything, as on one rank."""
        return cls(range(config.num_layers), range(config.num_experts))


class Numbered(nn.Layer):
    """Layers named by their number in the whole model, of which a rank may hold only some."""

    def __init__(self, layers: Mapping[int, nn.Layer]) -> None:
        super().__init__()
        for number, layer in layers.items():
            self.add_sublayer(str(number), layer)

    def __getitem__(self, number: int) -> nn.Layer:
        return self._sub_layers[str(number)]

    def __iter__(self) -> Iterator[nn.Layer]:
        return iter(self._sub_layers.values())

    def __len__(self) -> int:
        return len(self._sub_layers)
