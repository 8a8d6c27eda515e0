"""DeepSeek-V4: embedding, decoder, output matrix, MTP modules (section 1 of the specification)."""

from __future__ import annotations

import paddle
import paddle.nn.functional as F
from paddle import nn
from paddle.distributed.fleet.utils import recompute

from dsv4.config import LossConfig, ModelConfig
from dsv4.model.hyper_connection import HyperHead
from dsv4.model.init import initialize
from dsv4.model.layer import DecoderLayer, LayerOutput
from dsv4.model.linear import Linear, new_parameter
from dsv4.model.losses import ModelOutput, masked_mean, token_losses
from dsv4.model.mtp import MTPModule, shift_left
from dsv4.model.norm import RMSNorm
from dsv4.model.packing import Packing
from dsv4.model.part import ModelPart, Numbered
from dsv4.model.trace import Trace, record
from dsv4.numerics.policy import DtypeName, DtypePolicy, Path


class Embedding(nn.Layer):
    """Token id → n equal streams [B, S, n, D]. E [V, D], not tied to the output matrix."""

    def __init__(self, config: ModelConfig, policy: DtypePolicy) -> None:
        super().__init__()
        self.config, self.policy = config, policy
        self.word_embeddings = nn.Layer()
        self.word_embeddings.weight = new_parameter(self, [config.vocab_size, config.hidden_size], policy)

    def forward(self, tokens_BS: paddle.Tensor) -> paddle.Tensor:
        """Return h [B, S, D]."""
        return F.embedding(tokens_BS, self.policy.weight(self.word_embeddings.weight))

    def streams(self, h_BSD: paddle.Tensor) -> paddle.Tensor:
        """Copy h into n streams, not scaled."""
        B, S, D = h_BSD.shape
        return h_BSD.unsqueeze(2).expand([B, S, self.config.hc_mult, D])


def _numbered_layers(config: ModelConfig, losses: LossConfig, policy: DtypePolicy, part: ModelPart) -> Numbered:
    return Numbered(
        {
            i: DecoderLayer(
                config, losses, config.compress_ratios[i], policy,
                name=f"layer{i}", hashed=i < config.num_hash_layers, experts=part.experts,
            )
            for i in part.layers
        }
    )  # fmt: skip


class DecoderStage(nn.Layer):
    """Some decoder layers, not the last: a pipeline stage."""

    def __init__(self, config: ModelConfig, losses: LossConfig, policy: DtypePolicy, part: ModelPart) -> None:
        super().__init__()
        self.layers = _numbered_layers(config, losses, policy, part)


class Decoder(HyperHead):
    """Decoder layers up to the last, final collapse, final norm."""

    def __init__(self, config: ModelConfig, losses: LossConfig, policy: DtypePolicy, part: ModelPart) -> None:
        super().__init__(config, policy)
        self.layers = _numbered_layers(config, losses, policy, part)
        self.final_layernorm = RMSNorm(config.hidden_size, config.rms_eps, policy)

    def finish(self, X_BSnD: paddle.Tensor) -> paddle.Tensor:
        """Collapse, then norm: [B, S, n, D] → [B, S, D]."""
        return self.final_layernorm(self.collapse_streams(X_BSnD))


class MTP(nn.Layer):
    """Holder of the MTP modules, named as in Megatron."""

    def __init__(self, config: ModelConfig, losses: LossConfig, policy: DtypePolicy, experts: range) -> None:
        super().__init__()
        self.layers = nn.LayerList(
            [
                MTPModule(config, losses, ratio, policy, name="mtp" if k == 0 else f"mtp{k}", experts=experts)
                for k, ratio in enumerate(config.mtp_compress_ratios)
            ]
        )


class DeepseekV4(nn.Layer):
    """The whole model; parameter names are Megatron's (section 14).

    `part` is what this rank holds of it. A pipeline stage calls `embed`, `decode` and `losses_of` as it has them;
    `forward` calls all three in order. `recompute`: keep only the input of each decoder layer and run it again in
    backward.
    """

    def __init__(
        self,
        config: ModelConfig,
        losses: LossConfig | None = None,
        dtype: DtypeName = "float32",
        path: Path = "fast",
        init_std: float = 0.02,
        seed: int = 0,
        recompute: bool = False,
        part: ModelPart | None = None,
    ) -> None:
        super().__init__()
        self.config, self.losses, self.policy = config, losses or LossConfig(), DtypePolicy(dtype, path)
        self.part = part or ModelPart.whole(config)
        if self.part.embedding:
            self.embedding = Embedding(config, self.policy)
        if self.part.last:
            self.decoder = Decoder(config, self.losses, self.policy, self.part)
            self.output_layer = Linear(config.hidden_size, config.vocab_size, self.policy)
            if config.mtp_layers:
                self.mtp = MTP(config, self.losses, self.policy, self.part.experts)
        else:
            self.decoder = DecoderStage(config, self.losses, self.policy, self.part)
        self.recompute = recompute
        self.bias_names = frozenset(self.buffers_by_name())
        initialize(self.named_parameters(), config, init_std, seed)

    def forward(
        self,
        tokens_BS: paddle.Tensor,
        labels_BS: paddle.Tensor,
        loss_mask_BS: paddle.Tensor | None = None,
        trace: Trace | None = None,
        packing: Packing | None = None,
    ) -> ModelOutput:
        """Losses of one micro-batch.

        Ids are int64. Labels are the tokens one to the right; every position counts unless `loss_mask_BS` (belonging
        to the labels) says otherwise. With `packing`, rows hold several documents that do not see each other.
        """
        X, outs = self.decode(self.embed(tokens_BS), tokens_BS, trace, packing)
        return self.losses_of(X, outs, tokens_BS, labels_BS, loss_mask_BS, trace, packing)

    def embed(self, tokens_BS: paddle.Tensor) -> paddle.Tensor:
        """Streams [B, S, n, D] before the first layer."""
        return self.embedding.streams(self.embedding(tokens_BS))

    def decode(
        self,
        X_BSnD: paddle.Tensor,
        tokens_BS: paddle.Tensor,
        trace: Trace | None = None,
        packing: Packing | None = None,
    ) -> tuple[paddle.Tensor, list[LayerOutput]]:
        """Run the decoder layers that are here; the streams after them, and what each layer gave."""
        outs: list[LayerOutput] = []
        for layer in self.decoder.layers:
            outs.append(self._run(layer, X_BSnD, tokens_BS, trace, packing))
            X_BSnD = outs[-1].X_BSnD
        return X_BSnD, outs

    def losses_of(
        self,
        X: paddle.Tensor,
        outs: list[LayerOutput],
        tokens_BS: paddle.Tensor,
        labels_BS: paddle.Tensor,
        loss_mask_BS: paddle.Tensor | None = None,
        trace: Trace | None = None,
        packing: Packing | None = None,
    ) -> ModelOutput:
        """Losses from the streams after the last decoder layer, MTP modules included."""
        mask = paddle.ones_like(labels_BS) if loss_mask_BS is None else loss_mask_BS
        outs = list(outs)
        hidden = self.decoder.finish(X)
        record(trace, "final_hidden", hidden)
        main_loss = self.head_loss(hidden, labels_BS, mask, trace)

        mtp_losses: list[paddle.Tensor] = []
        tokens, labels = tokens_BS, labels_BS
        if self.config.mtp_layers:
            shift = packing.shift_left if packing else shift_left
            for module in self.mtp.layers:
                tokens, labels, mask = shift(tokens), shift(labels), shift(mask)
                hidden, out = module(X, self.embedding(tokens), trace, packing)
                outs.append(out)
                X = out.X_BSnD
                mtp_losses.append(self.head_loss(hidden, labels, mask, trace, f"{module.name}."))
        return ModelOutput(
            main_loss,
            mtp_losses,
            [out.indexer_loss for out in outs],
            [out.balance_loss for out in outs],
            self.losses.mtp_loss_weight,
            self.expert_counts(outs),
        )

    def _run(
        self,
        layer: DecoderLayer,
        X_BSnD: paddle.Tensor,
        tokens_BS: paddle.Tensor,
        trace: Trace | None,
        packing: Packing | None,
    ) -> LayerOutput:
        """One decoder layer; with `recompute` only its input is kept, and backward runs it a second time."""
        if not self.recompute or trace is not None or not paddle.is_grad_enabled():
            return layer(X_BSnD, tokens_BS, trace, packing)  # type: ignore[no-any-return]
        kept = recompute(lambda X: tuple(layer(X, tokens_BS, None, packing)), X_BSnD, preserve_rng_state=False)
        return LayerOutput(*kept)

    def head_loss(
        self,
        hidden_BSD: paddle.Tensor,
        labels_BS: paddle.Tensor,
        mask_BS: paddle.Tensor,
        trace: Trace | None = None,
        prefix: str = "",
    ) -> paddle.Tensor:
        """Output matrix and masked mean cross-entropy; logits and softmax in the island dtype."""
        weight = self.policy.weight(self.output_layer.weight)
        logits = paddle.matmul(hidden_BSD, weight, transpose_y=True)
        losses = token_losses(logits, labels_BS)
        loss = masked_mean(losses, mask_BS)
        for name, value in (("logits", logits), ("token_loss", losses), ("loss", loss)):
            record(trace, prefix + name, value)
        return loss

    def expert_counts(self, outs: list[LayerOutput]) -> dict[str, paddle.Tensor]:
        """Tokens per expert of the layers that are here, by the name of the bias that they move."""
        names = [f"decoder.layers.{i}" for i in self.part.layers]
        if self.part.last:
            names += [f"mtp.layers.{k}.mtp_model_layer" for k in range(self.config.mtp_layers)]
        counts = {f"{name}.mlp.router.expert_bias": out.counts_E for name, out in zip(names, outs, strict=True)}
        return {name: count for name, count in counts.items() if name in self.bias_names}

    def buffers_by_name(self) -> dict[str, paddle.Tensor]:
        """Expert biases and hash tables by Megatron name."""
        return dict(self.named_buffers())
