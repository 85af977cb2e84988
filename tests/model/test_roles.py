"""Which parameters are weights: in the models of timm, and in ours."""

import pytest
import timm
import torch
from torch import nn

from ssl_hub.model.roles import weights
from ssl_hub.model.siamese import build
from ssl_hub.zoo import get_recipe


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("vit_base_patch16_siglip_224", ["pos_embed", "attn_pool.latent"]),
        ("deit_tiny_distilled_patch16_224", ["cls_token", "dist_token", "pos_embed"]),
        ("vit_small_patch14_reg4_dinov2", ["reg_token", "cls_token", "pos_embed"]),
        ("swin_tiny_patch4_window7_224", ["layers.0.blocks.0.attn.relative_position_bias_table"]),
        ("swinv2_tiny_window8_256", ["layers.0.blocks.0.attn.logit_scale", "layers.0.blocks.0.attn.cpb_mlp.0.weight"]),
        ("samvit_base_patch16", ["blocks.0.attn.rel_pos_h", "pos_embed"]),  # rel_pos is in no list of timm's
        ("botnet26t_256", ["stages.3.0.self_attn.pos_embed.height_rel"]),
        ("visformer_tiny", ["pos_embed1", "pos_embed2"]),
        ("fastvit_t8", ["stages.0.blocks.0.layer_scale.gamma"]),  # [C, 1, 1]
        ("edgenext_xx_small", ["stages.1.blocks.1.xca.temperature"]),  # listed by a part of the model
        ("levit_128s", ["stages.0.blocks.0.attn.attention_biases"]),
        ("twins_svt_small", ["pos_block.0.proj.0.weight"]),  # a convolution that makes positions: listed
    ],
)
def test_what_is_no_weight_in_timm(name, others):
    with torch.device("meta"):
        model = timm.create_model(name, num_classes=0)
    names, found = dict(model.named_parameters()), weights(model)
    assert [other for other in others if other not in names or other in found] == []
    matrices = [
        n for n, p in names.items() if n.endswith("weight") and p.ndim > 1 and "pos_block" not in n and "cpb" not in n
    ]
    assert found == {*matrices}


@pytest.mark.parametrize(
    ("module", "found"),
    [
        (nn.MultiheadAttention(4, 2), {"in_proj_weight", "out_proj.weight"}),
        (nn.LSTM(3, 2), {"weight_ih_l0", "weight_hh_l0"}),
        (nn.LayerNorm((3, 4)), set()),
        (nn.Sequential(nn.Linear(4, 1), nn.BatchNorm1d(1)), {"0.weight"}),
    ],
)
def test_what_is_a_weight_in_torch(module, found):
    assert weights(module) == found


def test_heads_and_predictors_of_every_method_are_weights():
    for name in ("byol-digits", "simsiam-digits", "byol-linear-digits"):
        model = build(get_recipe(name))
        assert weights(model) == {n for n, p in model.named_parameters() if p.ndim > 1}
