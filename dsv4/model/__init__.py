"""DeepSeek-V4 in Paddle, one part a file."""

from dsv4.model.losses import ModelOutput
from dsv4.model.model import DeepseekV4

__all__ = ["DeepseekV4", "ModelOutput"]
