"""Cuts the model into pipeline stages by Paddle's own segmentation."""

from paddle.distributed.fleet.meta_parallel import LayerDesc
from paddle.distributed.fleet.meta_parallel.parallel_layers.pp_layers import SegmentLayers

from tinyformers.modeling import Qwen3MoeDecoderLayer


def stage_bounds(config):
    """First layer of each stage, as `seg_method` of the configuration asks."""
    layers = [LayerDesc(Qwen3MoeDecoderLayer, config["hidden_size"]) for _ in range(config["num_hidden_layers"])]
    return SegmentLayers(layers, num_parts=config["pipeline_parallel_degree"], method=config["seg_method"]).do_segment()
