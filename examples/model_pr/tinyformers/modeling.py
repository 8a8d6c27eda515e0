"""A language model of a few thousand parameters, in the shape of the large ones."""

import paddle
from paddle import nn


class Qwen3MoeDecoderLayer(nn.Layer):
    def __init__(self, hidden_size):
        super().__init__()
        self.up = nn.Linear(hidden_size, 2 * hidden_size)
        self.down = nn.Linear(2 * hidden_size, hidden_size)

    def forward(self, x_BSD):
        return x_BSD + self.down(nn.functional.silu(self.up(x_BSD)))


class Qwen3MoeForCausalLM(nn.Layer):
    def __init__(self, config):
        super().__init__()
        self.embed = nn.Embedding(config["vocab_size"], config["hidden_size"])
        self.layers = nn.LayerList([Qwen3MoeDecoderLayer(config["hidden_size"]) for _ in range(config["num_hidden_layers"])])
        self.head = nn.Linear(config["hidden_size"], config["vocab_size"])

    def forward(self, ids_BS):
        x_BSD = self.embed(ids_BS)
        for layer in self.layers:
            x_BSD = layer(x_BSD)
        return self.head(x_BSD)
