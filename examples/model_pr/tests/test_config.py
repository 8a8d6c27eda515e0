import pytest
from tinyformers.config import load_config


@pytest.mark.parametrize("name", ["qwen3_pt", "qwen3_multicard_pt", "qwen3_multicard_sft", "qwen3vl_sft_fsdp", "glm45_pt"])
def test_shipped_configurations_are_valid(name, request):
    assert load_config(request.config.rootpath / "configs" / f"{name}.yaml")["max_steps"] == 10


def test_odd_hidden_size_is_refused(tmp_path):
    path = tmp_path / "odd.yaml"
    path.write_text("hidden_size: 30\n")
    with pytest.raises(ValueError, match="multiple of 8"):
        load_config(path)
