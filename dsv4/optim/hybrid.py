"""The optimizer of a model: every parameter with its own rule, state by structured name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import paddle

from dsv4.errors import UsageError
from dsv4.optim.adamw import AdamSettings, adamw_step
from dsv4.optim.muon import MuonEntry, MuonSettings, muon_step
from dsv4.optim.rules import Assignment

_SLOTS = {"muon": ("momentum",), "adamw": ("exp_avg", "exp_avg_sq")}


def state_dtype(dtype: paddle.dtype) -> paddle.dtype:
    """Dtype of states: that of the parameter, but float32 below float32 (with a float32 master copy)."""
    return dtype if dtype in (paddle.float32, paddle.float64) else paddle.float32


class HybridOptimizer:
    """Muon and AdamW over one set of named parameters, with one learning rate."""

    def __init__(
        self,
        parameters: Mapping[str, paddle.Tensor],
        assignments: Sequence[Assignment],
        *,
        muon: MuonSettings | None,
        adam: AdamSettings,
    ) -> None:
        if missing := [name for name in parameters if name not in {a.name for a in assignments}]:
            raise UsageError(f"no optimizer is named for {missing[0]}", "let the rule cover every parameter")
        self.parameters = dict(parameters)
        self.assignments = {a.name: a for a in assignments if a.name in self.parameters}
        self._muon = muon
        self._adam = adam
        self.steps = 0
        self.state: dict[str, dict[str, paddle.Tensor]] = {
            name: self._fresh_state(p, self.assignments[name]) for name, p in self.parameters.items()
        }

    @staticmethod
    def _fresh_state(p: paddle.Tensor, assignment: Assignment) -> dict[str, paddle.Tensor]:
        dtype = state_dtype(p.dtype)
        state = {slot: paddle.zeros(p.shape, dtype) for slot in _SLOTS[assignment.optimizer]}
        if dtype != p.dtype:
            state["master"] = p.detach().cast(dtype)
        return state

    @paddle.no_grad()
    def step(self, gradients: Mapping[str, paddle.Tensor], lr: float) -> None:
        """Update every parameter in place. A parameter without a gradient is updated as if it were zero.

        That is Megatron's behaviour: its gradient buffer is zeroed, never absent, so momentum and decay go on.
        """
        self.steps += 1
        muon: list[MuonEntry] = []
        for name, p in self.parameters.items():
            a, state = self.assignments[name], self.state[name]
            target = state.get("master", p)
            grad = gradients[name].cast(target.dtype) if name in gradients else paddle.zeros(p.shape, target.dtype)
            if a.optimizer == "muon":
                muon.append(MuonEntry(target, grad, state["momentum"], a.weight_decay, a.split))
            else:
                adamw_step(
                    target, grad, state["exp_avg"], state["exp_avg_sq"],
                    t=self.steps, lr=lr, weight_decay=a.weight_decay, settings=self._adam,
                )  # fmt: skip
        if muon:
            assert self._muon is not None
            muon_step(muon, lr, self._muon)
        for name, state in self.state.items():
            if "master" in state:
                p = self.parameters[name]
                paddle.assign(state["master"].cast(p.dtype), p)

    def state_dict(self) -> dict[str, paddle.Tensor]:
        """All states as `parameter/slot`; the names follow the model, not the order in which it was built."""
        return {f"{name}/{slot}": t for name, slots in self.state.items() for slot, t in slots.items()}

    @paddle.no_grad()
    def load_state_dict(self, tensors: Mapping[str, paddle.Tensor], steps: int) -> None:
        """Take over states in place. Raises UsageError on a missing, extra or misshapen entry."""
        own = self.state_dict()
        if own.keys() != tensors.keys():
            odd = min(own.keys() ^ tensors.keys())
            side = "lacks" if odd in own else "has an unknown"
            raise UsageError(f"optimizer state {side} {odd}", "resume with the model and optimizer that saved it")
        for key, t in tensors.items():
            need = own[key]
            if list(t.shape) != list(need.shape) or t.dtype != need.dtype:
                raise UsageError(
                    f"optimizer state {key} is {t.dtype} {list(t.shape)}, needed {need.dtype} {list(need.shape)}"
                )
            paddle.assign(t, own[key])
        self.steps = steps
