"""The optimizer that a configuration asks for."""

from __future__ import annotations

from collections.abc import Mapping

import paddle

from dsv4.optim.adamw import AdamSettings
from dsv4.optim.coefficients import coefficients
from dsv4.optim.hybrid import HybridOptimizer
from dsv4.optim.muon import MuonSettings
from dsv4.optim.rules import Assignment, ParameterInfo, Rule, assign_all, megatron_rule, paddleformers_rule
from dsv4.run_config import RunConfig


def choose_rule(config: RunConfig) -> Rule:
    """Return the rule named by `muon_rule`."""
    train, model = config.train, config.model
    if train.muon_rule == "paddleformers":
        return paddleformers_rule(
            heads=model.num_heads,
            index_heads=model.index_heads,
            ratios=model.compress_ratios,
            ffn_split=train.muon_ffn_split,
            exclude=train.muon_exclude,
        )
    if train.muon_rule == "custom":
        return Rule(exclude=train.muon_exclude, splits=train.muon_splits)
    return megatron_rule()


def assign(parameters: Mapping[str, paddle.Tensor], config: RunConfig) -> list[Assignment]:
    """Deal all parameters to Muon and AdamW."""
    infos = [ParameterInfo(name, tuple(p.shape)) for name, p in parameters.items()]
    adam_only = config.train.optimizer == "adam"
    return assign_all(infos, choose_rule(config), config.train.weight_decay, adam_only=adam_only)


def build_optimizer(parameters: Mapping[str, paddle.Tensor], config: RunConfig) -> HybridOptimizer:
    """Make the optimizer with fresh states."""
    train = config.train
    muon = MuonSettings(
        momentum=train.muon_momentum,
        nesterov=train.muon_nesterov,
        steps=coefficients(train.muon_coefficients, train.muon_steps),
        scale_mode=train.muon_scale_mode,
        extra_scale=train.muon_extra_scale,
    )
    adam = AdamSettings(train.adam_beta1, train.adam_beta2, train.adam_eps)
    return HybridOptimizer(parameters, assign(parameters, config), muon=muon, adam=adam)
