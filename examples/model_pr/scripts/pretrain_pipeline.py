"""Pre-training with pipeline stages: cuts the model before it trains. pretrain_pipeline.py CONFIG"""

import sys

from tinyformers.config import load_config
from tinyformers.pipeline import stage_bounds
from tinyformers.trainer import Trainer

config = load_config(sys.argv[1])
print(f"pipeline stages start at layers {stage_bounds(config)[:-1]}", flush=True)
Trainer(config).train()
