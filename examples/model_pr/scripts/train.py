"""Trains by a configuration file: train.py CONFIG"""

import sys

from tinyformers.config import load_config
from tinyformers.trainer import Trainer

trainer = Trainer(load_config(sys.argv[1]))
trainer.train()
