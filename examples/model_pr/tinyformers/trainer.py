"""Data-parallel training on synthetic tokens, with the log lines and the checkpoint layout of the large trainers."""

import json
import os
import time
from pathlib import Path

import numpy as np
import paddle
import paddle.distributed as dist
from safetensors.numpy import load_file, save_file

from tinyformers.modeling import Qwen3MoeForCausalLM


def fact(key, value):
    """Tell the runner something that is worth showing, if there is a runner."""
    if path := os.environ.get("MATRIX_FACTS"):
        with open(path, "a") as f:
            f.write(json.dumps({"key": key, "value": value}) + "\n")


class Trainer:
    def __init__(self, config):
        self.config = config
        self.ranks = int(os.environ.get("PADDLE_TRAINERS_NUM", "1"))
        if self.ranks > 1:
            dist.init_parallel_env()
        self.rank = dist.get_rank() if self.ranks > 1 else 0
        paddle.set_default_dtype("float64")
        paddle.seed(config["seed"])
        self.model = Qwen3MoeForCausalLM(config)
        if source := config.get("model_name_or_path"):
            self.load(Path(source))
        self.optimizer = paddle.optimizer.SGD(config["learning_rate"], parameters=self.model.parameters())
        self.tokens = np.random.default_rng(config["seed"] + self.rank)

    def load(self, folder):
        state = load_file(folder / "model.safetensors")
        self.model.set_state_dict({k: paddle.to_tensor(v) for k, v in state.items()})
        self.log(f"loaded weights from {folder}")

    def log(self, text):
        if self.rank == 0:
            print(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] [INFO] {text}", flush=True)

    def step(self):
        start = self.tokens.integers(0, self.config["vocab_size"], (4, 1))
        ids_BS = paddle.to_tensor((start + np.arange(17)) % self.config["vocab_size"])
        logits_BSV = self.model(ids_BS[:, :-1])
        loss = paddle.nn.functional.cross_entropy(
            logits_BSV.reshape([-1, self.config["vocab_size"]]), ids_BS[:, 1:].reshape([-1])
        )
        loss.backward()
        if self.ranks > 1:
            for p in self.model.parameters():
                dist.all_reduce(p.grad)
                p.grad.set_value(p.grad / self.ranks)
        self.optimizer.step()
        self.optimizer.clear_grad()
        return float(loss)

    def train(self):
        started = time.time()
        for step in range(1, self.config["max_steps"] + 1):
            loss = self.step()
            self.log(f"loss: {loss:.8f}, learning_rate: {self.config['learning_rate']}, global_step: {step}")
            if step % self.config.get("save_steps", 100) == 0:
                self.save()
        self.log("Training completed.")
        self.log("***** train metrics *****")
        self.log(f"  train_loss = {loss:.8f}  train_runtime = {time.time() - started:.2f} s")
        if self.rank == 0:
            fact("training_finished", True)
            fact("steps", self.config["max_steps"])

    def save(self):
        if self.rank == 0:
            folder = Path(self.config["output_dir"])
            folder.mkdir(parents=True, exist_ok=True)
            state = {k: v.numpy() for k, v in self.model.state_dict().items()}
            save_file(state, folder / "model.safetensors")
            config = {"model_type": "qwen3_moe", "hidden_size": self.config["hidden_size"]}
            (folder / "config.json").write_text(json.dumps(config))
            self.log(f"Saving model checkpoint to {folder}")
            fact("checkpoint_saved", str(folder))
