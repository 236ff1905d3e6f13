"""The models of the zoo: tiny, with seeded random weights, from configurations and without any download.

A builder gives a module in evaluation mode and its inputs; it is called after `torch.manual_seed`. What it needs beside
torch is imported when it is called.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

Inputs: TypeAlias = tuple[Any, ...]
Settings: TypeAlias = Mapping[str, Any]
Builder: TypeAlias = Callable[[], tuple[nn.Module, Inputs]]

WORDS = 96
SIDE = 32


class Selected(nn.Module):
    """A model of `transformers` that gives a plain tensor: one field of what it returns."""

    def __init__(self, model: Any, field: str) -> None:
        super().__init__()
        self.model, self.field = model, field

    def forward(self, first: Tensor, mask: Tensor | None = None) -> Tensor:
        found = self.model(first) if mask is None else self.model(first, attention_mask=mask)
        return getattr(found, self.field)


def _hugging(model: str, config: str, settings: Settings, field: str) -> Selected:
    """A model of `transformers` with random weights."""
    module: Any = importlib.import_module("transformers")
    return Selected(getattr(module, model)(getattr(module, config)(**settings)).eval(), field)


def _image(side: int = SIDE, channels: int = 3) -> Inputs:
    return (torch.randn(1, channels, side, side),)


def _tokens(length: int = 12) -> Tensor:
    return torch.randint(1, WORDS, (1, length))


def _masked_tokens(length: int = 12, hidden: int = 4) -> Inputs:
    """Token ids, and the mask of a sentence that ends before the others of its batch."""
    mask = torch.ones(1, length, dtype=torch.int64)
    mask[:, length - hidden :] = 0
    return _tokens(length), mask


def hugging_image(model: str, settings: Settings, side: int = SIDE) -> Builder:
    """A classifier of `transformers`, or whatever of its models takes an image."""
    config = re.sub("For.*", "", model) + "Config"
    return lambda: learnt(_hugging(model, config, settings, "logits"), _image(side))


def hugging_text(model: str, settings: Settings, *, masked: bool = True) -> Builder:
    """A language model of `transformers`, with an attention mask if asked."""
    config = re.sub("Model|For.*", "", model) + "Config"
    field = "logits" if "For" in model else "last_hidden_state"
    return lambda: learnt(_hugging(model, config, settings, field), _masked_tokens() if masked else (_tokens(),))


def learnt(model: nn.Module, inputs: Inputs) -> tuple[nn.Module, Inputs]:
    """Give weights and statistics the sizes of a model that has learnt something: values neither vanish nor explode."""
    for module in model.modules():
        weight: Any = getattr(module, "weight", None)
        bias: Any = getattr(module, "bias", None)
        if type(weight) is not nn.Parameter:
            continue
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d, nn.LayerNorm)):
            nn.init.uniform_(weight, 0.6, 1.4)
            nn.init.normal_(bias, std=0.1)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(weight, std=0.5)
        elif weight.dim() > 1:
            nn.init.normal_(weight, std=1.2 / (weight.numel() // len(weight)) ** 0.5)
            if type(bias) is nn.Parameter:
                nn.init.normal_(bias, std=0.1)
    if any(isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)) for module in model.modules()):
        _gather_statistics(model, inputs)
    return model.eval(), inputs


def _gather_statistics(model: nn.Module, inputs: Inputs) -> None:
    """Let batch norms see data, as in training."""
    for module in model.modules():
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            module.train()
            module.momentum = None
    with torch.no_grad():
        for _ in range(4):
            model(*(torch.randn(4, *value.shape[1:]) for value in inputs))


ENCODER: Settings = {
    **{"vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2},
    **{"intermediate_size": 64, "max_position_embeddings": 32},
}
VISION: Settings = {
    **{"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64},
    **{"image_size": SIDE, "patch_size": 8, "num_labels": 5},
}
DECODER: Settings = {
    **{"vocab_size": WORDS, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "use_cache": False},
}
DISTILLED: Settings = {"vocab_size": WORDS, "dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64}
BOTTLENECK: Settings = {"intra_bottleneck_size": 16, "embedding_size": 16, "true_hidden_size": 16}

bert = hugging_text("BertModel", ENCODER)
bert_unmasked = hugging_text("BertModel", ENCODER, masked=False)
albert = hugging_text("AlbertModel", {**ENCODER, "embedding_size": 16})
distilbert = hugging_text("DistilBertModel", DISTILLED)
distilbert_unmasked = hugging_text("DistilBertModel", DISTILLED, masked=False)
mobilebert = hugging_text("MobileBertModel", {**ENCODER, **BOTTLENECK})
gpt2 = hugging_text(
    "GPT2Model",
    {"vocab_size": WORDS, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 32, "use_cache": False},
)
llama = hugging_text("LlamaForCausalLM", DECODER)
vit = hugging_image("ViTForImageClassification", VISION)
vit_tanh = hugging_image("ViTForImageClassification", {**VISION, "hidden_act": "gelu_pytorch_tanh"})
deit = hugging_image("DeiTForImageClassification", VISION)
dinov2 = hugging_image("Dinov2ForImageClassification", VISION)
swin = hugging_image(
    "SwinForImageClassification",
    {
        **{"image_size": SIDE, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4]},
        **{"window_size": 4, "num_labels": 5},
    },
)
CONVNEXT: Settings = {
    **{"depths": [1, 1, 2, 1], "hidden_sizes": [8, 16, 24, 32], "num_labels": 5, "layer_scale_init_value": 0.5}
}
convnext = hugging_image("ConvNextForImageClassification", CONVNEXT)
convnext_tanh = hugging_image("ConvNextForImageClassification", {**CONVNEXT, "hidden_act": "gelu_pytorch_tanh"})
resnet = hugging_image(
    "ResNetForImageClassification",
    {"embedding_size": 8, "hidden_sizes": [16, 32], "depths": [1, 2], "layer_type": "basic", "num_labels": 5},
)
regnet = hugging_image(
    "RegNetForImageClassification",
    {
        **{"embedding_size": 8, "hidden_sizes": [16, 16, 32, 32], "depths": [1, 1, 1, 1]},
        **{"groups_width": 8, "num_labels": 5},
    },
)
mobilenet_v1 = hugging_image(
    "MobileNetV1ForImageClassification", {"depth_multiplier": 0.25, "image_size": SIDE, "num_labels": 5}
)
mobilenet_v2 = hugging_image(
    "MobileNetV2ForImageClassification", {"depth_multiplier": 0.35, "image_size": SIDE, "num_labels": 5}
)
efficientnet = hugging_image(
    "EfficientNetForImageClassification",
    {"width_coefficient": 0.25, "depth_coefficient": 0.5, "image_size": SIDE, "hidden_dim": 320, "num_labels": 5},
)
segformer = hugging_image(
    "SegformerForSemanticSegmentation",
    {
        **{"num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [4, 2], "hidden_sizes": [16, 32]},
        **{"patch_sizes": [7, 3], "strides": [4, 2], "num_attention_heads": [1, 2], "mlp_ratios": [2, 2]},
        **{"decoder_hidden_size": 16, "num_labels": 5},
    },
)


class EncoderOnly(nn.Module):
    """The encoder of a sequence-to-sequence model."""

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, *args: Tensor) -> Tensor:
        return self.encoder(*args).last_hidden_state


def whisper_encoder() -> tuple[nn.Module, Inputs]:
    module: Any = importlib.import_module("transformers")
    config = module.WhisperConfig(
        **{"vocab_size": WORDS, "num_mel_bins": 16, "d_model": 32, "encoder_layers": 2, "encoder_attention_heads": 2},
        **{"encoder_ffn_dim": 64, "max_source_positions": 24, "decoder_layers": 1, "decoder_attention_heads": 2},
        **{"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3},
    )
    return learnt(EncoderOnly(module.WhisperModel(config).encoder), (torch.randn(1, 16, 48),))


def t5_encoder() -> tuple[nn.Module, Inputs]:
    module: Any = importlib.import_module("transformers")
    config = module.T5Config(
        **{"vocab_size": WORDS, "d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2},
        **{"relative_attention_num_buckets": 8, "relative_attention_max_distance": 16},
    )
    return learnt(EncoderOnly(module.T5EncoderModel(config)), _masked_tokens())


def executorch_example(module: str, name: str) -> Builder:
    """One of executorch's own example models that needs nothing else."""

    def build() -> tuple[nn.Module, Inputs]:
        example = getattr(importlib.import_module(f"executorch.examples.models.{module}"), name)()
        return learnt(example.get_eager_model(), example.get_example_inputs())

    return build


resnet8 = executorch_example("mlperf_tiny", "ResNet8Model")
ds_cnn = executorch_example("mlperf_tiny", "DSCNNKWSModel")
autoencoder = executorch_example("mlperf_tiny", "DeepAutoEncoderModel")
example_lstm = executorch_example("lstm.model", "LSTMModel")


def example_llama(*, cache: bool) -> Builder:
    """executorch's own Llama, one decoding step with a cache or a whole prompt without."""

    def build() -> tuple[nn.Module, Inputs]:
        arguments = importlib.import_module("executorch.examples.models.llama.model_args").ModelArgs(
            **{"dim": 32, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "vocab_size": WORDS, "hidden_dim": 64},
            **{"max_seq_len": 16, "max_context_len": 16, "use_kv_cache": cache, "enable_dynamic_shape": False},
        )
        build = importlib.import_module("executorch.examples.models.llama.llama_transformer").construct_transformer
        return learnt(
            build(arguments), (torch.tensor([[7]]), {"input_pos": torch.tensor([0])}) if cache else (_tokens(8),)
        )

    return build


class Recurrent(nn.Module):
    """Two recurrent layers and a head."""

    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU], width: int = 16) -> None:
        super().__init__()
        self.layers = kind(8, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x)[0])


class UNet(nn.Module):
    """Two levels down and up again, with skip connections, batch norms and transposed convolutions."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.down_1, self.down_2 = self._block(3, width), self._block(width, 2 * width)
        self.bottom = self._block(2 * width, 4 * width)
        self.up_2, self.up_1 = self._up(4 * width, 2 * width), self._up(2 * width, width)
        self.join_2, self.join_1 = self._block(4 * width, 2 * width), self._block(2 * width, width)
        self.last = nn.Conv2d(width, 2, 1)

    @staticmethod
    def _block(inner: int, outer: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(inner, outer, 3, padding=1), nn.BatchNorm2d(outer), nn.ReLU())

    @staticmethod
    def _up(inner: int, outer: int) -> nn.Module:
        return nn.ConvTranspose2d(inner, outer, 2, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        first = self.down_1(x)
        second = self.down_2(functional.max_pool2d(first, 2))
        x = self.bottom(functional.max_pool2d(second, 2))
        x = self.join_2(torch.cat([self.up_2(x), second], 1))
        return torch.sigmoid(self.last(self.join_1(torch.cat([self.up_1(x), first], 1))))


class PooledCNN(nn.Module):
    """Convolutions with batch norm, padded average pooling and a probability at the end."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *self._block(3, width),
            nn.AvgPool2d(3, stride=2, padding=1),
            *self._block(width, 2 * width),
            nn.AvgPool2d(3, stride=2, padding=1, count_include_pad=False),
            *self._block(2 * width, 4 * width),
            nn.AdaptiveAvgPool2d(1),
        )
        self.head = nn.Linear(4 * width, 5)

    @staticmethod
    def _block(inner: int, outer: int) -> list[nn.Module]:
        return [nn.Conv2d(inner, outer, 3, padding=1, bias=False), nn.BatchNorm2d(outer), nn.ReLU6()]

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(self.head(self.features(x).flatten(1)), -1)


class IllConditioned(nn.Module):
    """Correct arithmetic that loses digits: differences of near equals, inverse square roots near zero."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.norm, self.again = nn.LayerNorm(width), nn.LayerNorm(width)
        self.linear = nn.Linear(width, width)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        centred = x - x.mean(-1, keepdim=True)
        zero = centred.mean(-1)
        variance = (x * x).mean(-1) - x.mean(-1) ** 2
        near_zero = torch.rsqrt(torch.relu(centred) ** 2 + 1e-7)
        normal = self.again(self.norm(x + 1.0))
        cancelled = self.linear(normal) - self.linear(normal + 1e-3)
        return zero, variance, near_zero, normal, cancelled, torch.log1p(torch.exp(-normal * 20))


class Normalised(nn.Module):
    """Layer norms of what is normalised already: mean and rstd are outputs that nobody reads, and the mean is zero."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))
        self.linears = nn.ModuleList(nn.Linear(width, width) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        first, second, third, fourth = self.norms
        x = self.linears[0](second(first(x)))
        return self.linears[1](fourth(third(x)))


class MaskedAttention(nn.Module):
    """Attention with the lowest finite number as its mask, and one row that is hidden altogether."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, length, width = x.shape
        split = self.project(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4).unbind(0)
        scores = query @ key.transpose(-2, -1) / (width // self.heads) ** 0.5
        scores = scores + (1.0 - mask[:, None]) * torch.finfo(x.dtype).min
        return self.out((torch.softmax(scores, -1) @ value).transpose(1, 2).reshape(batch, length, width))


class Rotary(nn.Module):
    """A decoder layer with rotary positions from a buffer of frequencies, RMS norms and a gated MLP."""

    def __init__(self, width: int = 32, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, width)
        self.layers = nn.ModuleList(RotaryLayer(width, heads) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width, eps=1e-5), nn.Linear(width, WORDS, bias=False)
        self.register_buffer("frequencies", 100.0 ** -torch.arange(0, 1, 2 * heads / width))
        self.frequencies: Tensor

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        angles = torch.arange(tokens.shape[1], dtype=x.dtype)[:, None] * self.frequencies
        cos, sin = torch.cos(angles).repeat(1, 2), torch.sin(angles).repeat(1, 2)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x))


class RotaryLayer(nn.Module):
    """One layer of `Rotary`."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = nn.Linear(width, 2 * width), nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, width = x.shape
        y = self.norm_1(x)
        query, key, value = (
            part(y).view(batch, length, self.heads, -1).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        query, key = self._rotate(query, cos, sin), self._rotate(key, cos, sin)
        scores = query @ key.transpose(-2, -1) / (width // self.heads) ** 0.5
        future = torch.full((length, length), float("-inf")).triu(1).to(x.dtype)
        y = (torch.softmax(scores + future, -1) @ value).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(y)
        y = self.norm_2(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))

    @staticmethod
    def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat([-second, first], -1) * sin


class Gelu(nn.Module):
    """Layers between GELUs in one of its two forms."""

    def __init__(self, approximate: str, width: int = 32) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = functional.gelu(layer(x) * 2, approximate=self.approximate)
        return x


class TalkingHeads(nn.Module):
    """A softmax over the last axis of scores whose heads are mixed by convolutions, before it and after it."""

    def __init__(self, heads: int = 4) -> None:
        super().__init__()
        self.before, self.after = nn.Conv2d(heads, heads, 1), nn.Conv2d(heads, heads, 1)

    def forward(self, scores: Tensor) -> Tensor:
        return self.after(torch.softmax(self.before(scores), -1))


class Shared(nn.Module):
    """One layer for two inputs of different sizes, as a detector's head for the levels of its pyramid."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width // 2)

    def forward(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        return self.layer(first), self.layer(second)


def shared() -> tuple[nn.Module, Inputs]:
    """With a bias that is as large as what it is added to."""
    model = Shared().eval()
    nn.init.normal_(model.layer.bias)
    return model, (torch.randn(4, 16), 10 * torch.randn(4, 16))


def own(make: Callable[[], nn.Module], inputs: Callable[[], Inputs]) -> Builder:
    """A model of this file."""
    return lambda: learnt(make(), inputs())


def _normal(*shape: int) -> Callable[[], Inputs]:
    return lambda: (torch.randn(*shape),)


lstm = own(lambda: Recurrent(nn.LSTM), _normal(1, 6, 8))
gru = own(lambda: Recurrent(nn.GRU), _normal(1, 6, 8))
unet = own(UNet, _normal(1, 3, 16, 16))
pooled_cnn = own(PooledCNN, _normal(1, 3, 16, 16))
ill_conditioned = own(IllConditioned, _normal(4, 32))
normalised = own(Normalised, _normal(6, 32))
masked_attention = own(MaskedAttention, lambda: (torch.randn(1, 8, 32), _causal(8)))
rotary = own(Rotary, lambda: (_tokens(8),))
mlp = own(lambda: nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 16)), _normal(4, 32))
far_from_zero = own(lambda: nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 32)), lambda: (torch.randn(4, 32) + 100,))
wide_norm = own(lambda: nn.Sequential(nn.Linear(16, 256), nn.LayerNorm(256), nn.Linear(256, 8)), _normal(4, 16))
talking_heads = own(TalkingHeads, _normal(1, 4, 6, 6))
gelu_erf = own(lambda: Gelu("none"), _normal(4, 32))
gelu_tanh = own(lambda: Gelu("tanh"), _normal(4, 32))


def _causal(length: int) -> Tensor:
    mask = torch.ones(1, length, length).tril()
    mask[:, 2] = 0.0
    return mask
