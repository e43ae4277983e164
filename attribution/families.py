"""Which module of which model family gets which rule, and where its parts are: one entry a family."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from torch import Tensor, nn

from xai.attribution.rules import RuleKind

Grid = tuple[int, int, int]
"""``(t, h, w)`` of a picture in patches."""


class UnsupportedModelError(ValueError):
    """The model cannot be explained faithfully; the message names what stands in the way."""


@dataclass(frozen=True)
class Vision:
    """Where a family keeps its vision tower and what comes out of it.

    Attributes:
        tower: path of the vision tower in the model.
        blocks: path of the list of its blocks.
        merger: path of the module that makes merged image tokens of patches.
        deepstack_mergers: path of the list of the modules that do so at deepstack levels.
        source: path of the module whose output holds the merged image features.
        image_features: attribute of that output with the features, ``(n_image_tokens, hidden)``; ``None`` if
            the output is the features themselves, ``(n_images, tokens_per_image, hidden)``.
        deepstack_features: attribute with the list of deepstack levels, each ``(n_image_tokens, hidden)``.
        token_types: name of the model's input with 1 at image placeholders, which it needs to place a picture.
        grid_input: name of the model's input with ``(t, h, w)`` of each picture; ``None`` if all pictures have
            the one size of ``config.vision_config``.
        merge_blocks: whether the patches of one merged token follow each other in ``pixel_values``.
        windows: whether the blocks have the merged tokens ordered by attention windows.
    """

    tower: str
    blocks: str
    merger: str
    source: str
    deepstack_mergers: str | None = None
    image_features: str | None = "pooler_output"
    deepstack_features: str | None = None
    token_types: str = "mm_token_type_ids"
    grid_input: str | None = "image_grid_thw"
    merge_blocks: bool = True
    windows: bool = False

    def features(self, output: Any) -> tuple[Tensor, ...]:
        """The merged image features in an output of :attr:`source`, then those of every deepstack level."""
        features = output if self.image_features is None else getattr(output, self.image_features)
        levels = () if self.deepstack_features is None else getattr(output, self.deepstack_features)
        return (features, *levels)

    def with_features(self, output: Any, features: Sequence[Tensor]) -> Any:
        """``output`` with other features, in the order of :meth:`features`; changes it in place where it can."""
        if self.image_features is None:
            return features[0]
        setattr(output, self.image_features, features[0])
        if self.deepstack_features is not None:
            setattr(output, self.deepstack_features, list(features[1:]))
        return output

    def merge_size(self, config: Any) -> int:
        """Patches per side of a merged image token."""
        if self.grid_input is not None:
            return int(config.vision_config.spatial_merge_size)
        return int(_patches_per_side(config) // int(config.mm_tokens_per_image) ** 0.5)

    def grids(self, config: Any, inputs: Mapping[str, Tensor]) -> tuple[Grid, ...]:
        """``(t, h, w)`` of each picture in patches."""
        if self.grid_input is not None:
            return tuple((int(t), int(h), int(w)) for t, h, w in inputs[self.grid_input].tolist())
        side = _patches_per_side(config)
        return ((1, side, side),) * len(inputs["pixel_values"])


@dataclass(frozen=True)
class Family:
    """What attribution has to know about the models of one family.

    Attributes:
        name: what reports print.
        model_types: the values of ``model.config.model_type`` that belong to the family.
        rules: rule kind → names of the module classes that get it, text decoder and vision tower together.
        passive: names of the module classes that pass relevance unchanged by themselves: they add,
            reshape, select or call their children, and multiply by nothing that depends on the input.
        decoder_layers: path of the list of decoder layers.
        vision: where pictures come in; ``None`` for text-only families.
        state: paths of what a forward leaves behind on the model, put back after every attribution.
        allowed: field of the text configuration → the values for which ``rules`` and ``passive`` hold.
    """

    name: str
    model_types: frozenset[str]
    rules: Mapping[RuleKind, frozenset[str]]
    passive: frozenset[str]
    decoder_layers: str
    vision: Vision | None = None
    state: tuple[str, ...] = ()
    allowed: Mapping[str, frozenset[object]] = field(default_factory=dict)

    def kind_of(self, module: nn.Module) -> RuleKind | None:
        """The rule that the family's table gives to ``module``, or ``None``."""
        name = type(module).__name__
        return next((kind for kind, classes in self.rules.items() if name in classes), None)

    def blocks(self, model: nn.Module) -> dict[str, nn.Module]:
        """Path → module of all that relevance passes in turn: vision blocks, mergers, decoder layers."""
        single = () if self.vision is None else (self.vision.merger,)
        many = () if self.vision is None else (self.vision.blocks, self.vision.deepstack_mergers)
        paths = [
            *(path for whole in many if whole for path in _children(model, whole)),
            *single,
            *_children(model, self.decoder_layers),
        ]
        return {path: model.get_submodule(path) for path in paths}

    def attentions(self, model: nn.Module) -> list[nn.Module]:
        """The attention modules of the decoder, first layer first."""
        layers = model.get_submodule(self.decoder_layers)
        return [module for module in layers.modules() if self.kind_of(module) is RuleKind.ATTENTION]


def _children(model: nn.Module, path: str) -> list[str]:
    return [f"{path}.{name}" for name, _ in model.get_submodule(path).named_children()]


def _patches_per_side(config: Any) -> int:
    return int(config.vision_config.image_size) // int(config.vision_config.patch_size)


def _rules(classes: Mapping[RuleKind, Iterable[str]]) -> Mapping[RuleKind, frozenset[str]]:
    """A family's table, with the element-wise activations that every family may name in its configuration."""
    table = {kind: frozenset(names) for kind, names in classes.items()}
    return MappingProxyType({RuleKind.ACTIVATION: _ACTIVATIONS, **table})


_ACTIVATIONS = frozenset({"SiLUActivation", "SiLU", "GELUTanh", "GELUActivation", "GELU", "QuickGELUActivation"})


def _text_family(name: str, model_type: str, prefix: str) -> Family:
    """A text-only decoder whose classes are called after one ``prefix``."""
    return Family(
        name=name,
        model_types=frozenset({model_type}),
        rules=_rules(
            {
                RuleKind.RMS_NORM: [f"{prefix}RMSNorm"],
                RuleKind.GATED_MLP: [f"{prefix}MLP"],
                RuleKind.ATTENTION: [f"{prefix}Attention"],
            }
        ),
        passive=frozenset(f"{prefix}{part}" for part in ("ForCausalLM", "Model", "DecoderLayer", "RotaryEmbedding")),
        decoder_layers="model.layers",
    )


def _qwen3_vision(prefix: str) -> frozenset[str]:
    """The passive classes of the vision tower that Qwen3-VL and Qwen3-VL-MoE have in common."""
    parts = ("Model", "PatchEmbed", "RotaryEmbedding", "Block", "MLP", "PatchMerger")
    return frozenset(f"{prefix}Vision{part}" for part in parts)


_QWEN_VISION = Vision(
    tower="model.visual", blocks="model.visual.blocks", merger="model.visual.merger", source="model.visual"
)
_QWEN3_VISION = replace(
    _QWEN_VISION, deepstack_mergers="model.visual.deepstack_merger_list", deepstack_features="deepstack_features"
)
_LANGUAGE_MODEL_LAYERS = "model.language_model.layers"
# What the last forward left of 3-D positions; the next decoding step would go on from it.
_QWEN_STATE = ("model.rope_deltas",)

QWEN2_VL = Family(
    name="Qwen2-VL",
    model_types=frozenset({"qwen2_vl"}),
    rules=_rules(
        {
            RuleKind.RMS_NORM: ["Qwen2VLRMSNorm"],
            RuleKind.LAYER_NORM: ["LayerNorm"],
            RuleKind.GATED_MLP: ["Qwen2MLP"],
            RuleKind.ATTENTION: ["Qwen2VLAttention", "VisionAttention"],
        }
    ),
    passive=frozenset(
        {
            "Qwen2VLForConditionalGeneration",
            "Qwen2VLModel",
            "Qwen2VLTextModel",
            "Qwen2VLDecoderLayer",
            "Qwen2VLRotaryEmbedding",
            "Qwen2VisionTransformerPretrainedModel",
            "PatchEmbed",
            "Qwen2VLVisionRotaryEmbedding",
            "Qwen2VLVisionBlock",
            "VisionMlp",
            "PatchMerger",
        }
    ),
    decoder_layers=_LANGUAGE_MODEL_LAYERS,
    vision=_QWEN_VISION,
    state=_QWEN_STATE,
)

QWEN2_5_VL = Family(
    name="Qwen2.5-VL",
    model_types=frozenset({"qwen2_5_vl"}),
    rules=_rules(
        {
            RuleKind.RMS_NORM: ["Qwen2_5_VLRMSNorm"],
            RuleKind.GATED_MLP: ["Qwen2MLP", "Qwen2_5_VLMLP"],
            RuleKind.ATTENTION: ["Qwen2_5_VLAttention", "Qwen2_5_VLVisionAttention"],
        }
    ),
    passive=frozenset(
        {
            "Qwen2_5_VLForConditionalGeneration",
            "Qwen2_5_VLModel",
            "Qwen2_5_VLTextModel",
            "Qwen2_5_VLDecoderLayer",
            "Qwen2_5_VLRotaryEmbedding",
            "Qwen2_5_VisionTransformerPretrainedModel",
            "Qwen2_5_VisionPatchEmbed",
            "Qwen2_5_VLVisionRotaryEmbedding",
            "Qwen2_5_VLVisionBlock",
            "Qwen2_5_VLPatchMerger",
        }
    ),
    decoder_layers=_LANGUAGE_MODEL_LAYERS,
    vision=replace(_QWEN_VISION, windows=True),
    state=_QWEN_STATE,
)

QWEN3_VL = Family(
    name="Qwen3-VL",
    model_types=frozenset({"qwen3_vl"}),
    rules=_rules(
        {
            RuleKind.RMS_NORM: ["Qwen3VLTextRMSNorm"],
            RuleKind.LAYER_NORM: ["LayerNorm"],
            RuleKind.GATED_MLP: ["Qwen3VLTextMLP"],
            RuleKind.ATTENTION: ["Qwen3VLTextAttention", "Qwen3VLVisionAttention"],
        }
    ),
    passive=_qwen3_vision("Qwen3VL")
    | {
        "Qwen3VLForConditionalGeneration",
        "Qwen3VLModel",
        "Qwen3VLTextModel",
        "Qwen3VLTextDecoderLayer",
        "Qwen3VLTextRotaryEmbedding",
    },
    decoder_layers=_LANGUAGE_MODEL_LAYERS,
    vision=_QWEN3_VISION,
    state=_QWEN_STATE,
)

QWEN3_VL_MOE = Family(
    name="Qwen3-VL-MoE",
    model_types=frozenset({"qwen3_vl_moe"}),
    rules=_rules(
        {
            RuleKind.RMS_NORM: ["Qwen3VLMoeTextRMSNorm"],
            RuleKind.LAYER_NORM: ["LayerNorm"],
            RuleKind.GATED_MLP: ["Qwen3VLMoeTextMLP"],
            RuleKind.ATTENTION: ["Qwen3VLMoeTextAttention", "Qwen3VLMoeVisionAttention"],
            RuleKind.EXPERTS: ["Qwen3VLMoeTextExperts"],
            RuleKind.ROUTER: ["Qwen3VLMoeTextTopKRouter"],
        }
    ),
    passive=_qwen3_vision("Qwen3VLMoe")
    | {
        "Qwen3VLMoeForConditionalGeneration",
        "Qwen3VLMoeModel",
        "Qwen3VLMoeTextModel",
        "Qwen3VLMoeTextDecoderLayer",
        "Qwen3VLMoeTextRotaryEmbedding",
        "Qwen3VLMoeTextSparseMoeBlock",
    },
    decoder_layers=_LANGUAGE_MODEL_LAYERS,
    vision=_QWEN3_VISION,
    state=_QWEN_STATE,
    # Other implementations are kernels of their own that never call the activation, which carries the rule.
    allowed=MappingProxyType({"_experts_implementation": frozenset({"eager", "grouped_mm", "batched_mm"})}),
)

_GEMMA3_RULES: Mapping[RuleKind, tuple[str, ...]] = {
    RuleKind.RMS_NORM_ONE_PLUS: ("Gemma3RMSNorm",),
    RuleKind.GATED_MLP: ("Gemma3MLP",),
    RuleKind.ATTENTION: ("Gemma3Attention",),
}
_GEMMA3_PASSIVE = frozenset(
    {"Gemma3TextModel", "Gemma3TextScaledWordEmbedding", "Gemma3DecoderLayer", "Gemma3RotaryEmbedding"}
)

GEMMA3 = Family(
    name="Gemma 3",
    model_types=frozenset({"gemma3"}),
    rules=_rules(
        {
            **_GEMMA3_RULES,
            RuleKind.LAYER_NORM: ("LayerNorm",),
            RuleKind.ATTENTION: ("Gemma3Attention", "SiglipAttention"),
        }
    ),
    passive=_GEMMA3_PASSIVE
    | {
        "Gemma3ForConditionalGeneration",
        "Gemma3Model",
        "Gemma3MultiModalProjector",
        "SiglipVisionModel",
        "SiglipVisionEmbeddings",
        "SiglipEncoder",
        "SiglipEncoderLayer",
        "SiglipMLP",
    },
    decoder_layers=_LANGUAGE_MODEL_LAYERS,
    vision=Vision(
        tower="model.vision_tower",
        blocks="model.vision_tower.encoder.layers",
        merger="model.multi_modal_projector",
        source="model.multi_modal_projector",
        image_features=None,
        token_types="token_type_ids",
        grid_input=None,
        merge_blocks=False,
    ),
)

GEMMA3_TEXT = Family(
    name="Gemma 3 text",
    model_types=frozenset({"gemma3_text"}),
    rules=_rules(_GEMMA3_RULES),
    passive=_GEMMA3_PASSIVE | {"Gemma3ForCausalLM"},
    decoder_layers="model.layers",
    # The cap is a tanh over the logits, a function without a module that could carry a rule.
    allowed=MappingProxyType({"final_logit_softcapping": frozenset({None})}),
)

LLAMA = _text_family("Llama", "llama", "Llama")
QWEN2 = _text_family("Qwen2", "qwen2", "Qwen2")
QWEN3 = _text_family("Qwen3", "qwen3", "Qwen3")

FAMILIES: tuple[Family, ...] = (
    QWEN2_VL,
    QWEN2_5_VL,
    QWEN3_VL,
    QWEN3_VL_MOE,
    GEMMA3,
    LLAMA,
    QWEN2,
    QWEN3,
    GEMMA3_TEXT,
)


def input_embeddings(model: nn.Module) -> Any:
    """The module that looks up the embeddings of tokens, with ``weight`` of shape ``(n_tokens, hidden)``."""
    # torch types the method of a module as a tensor or a module.
    pretrained: Any = model
    return pretrained.get_input_embeddings()


def output_embeddings(model: nn.Module) -> Any:
    """The head that makes logits, with ``weight`` of shape ``(n_tokens, hidden)``."""
    pretrained: Any = model
    return pretrained.get_output_embeddings()


def family_of(model: nn.Module) -> Family:
    """The family of ``model``.

    Raises:
        UnsupportedModelError: no family has the model's type, the model has no language head, or its
            vision tower is not where the family expects it.
    """
    model_type = getattr(getattr(model, "config", None), "model_type", None)
    family = next((family for family in FAMILIES if model_type in family.model_types), None)
    if family is None:
        known = ", ".join(f"{family.name} ({', '.join(sorted(family.model_types))})" for family in FAMILIES)
        raise UnsupportedModelError(
            f"no attribution rules for model type {model_type!r} ({type(model).__name__}); "
            f"the families that exist are: {known}"
        )
    if getattr(model, "get_output_embeddings", lambda: None)() is None:
        loader = "AutoModelForCausalLM" if family.vision is None else "AutoModelForImageTextToText"
        raise UnsupportedModelError(f"{type(model).__name__} has no language head; load the model with {loader}")
    _refuse_moved_parts(model, family)
    return family


def _refuse_moved_parts(model: nn.Module, family: Family) -> None:
    vision = family.vision
    parts = {"decoder layers": family.decoder_layers}
    if vision is not None:
        parts |= {"vision tower": vision.tower, "vision blocks": vision.blocks, "merger": vision.merger}
        parts |= {"image features": vision.source}
        if vision.deepstack_mergers is not None:
            parts["deepstack mergers"] = vision.deepstack_mergers
    for part, path in parts.items():
        try:
            model.get_submodule(path)
        except AttributeError:
            raise UnsupportedModelError(
                f"{type(model).__name__} has no {part} at {path!r}, where {family.name} keeps it"
            ) from None


def refuse_unusable_configuration(model: nn.Module, family: Family) -> None:
    """Refuse settings with which the model computes something that no module, and so no rule, stands for.

    Raises:
        UnsupportedModelError: names the setting and the values that are supported.
    """
    config: Any = model.config
    config = config.get_text_config()
    for name, values in family.allowed.items():
        value = getattr(config, name, None)
        if value not in values:
            known = ", ".join(sorted(map(repr, values)))
            raise UnsupportedModelError(
                f"{name}={value!r} of this {family.name} model has no relevance rule; supported is {known}"
            )


def refuse_unusable_weights(model: nn.Module) -> None:
    """Refuse weights that gradients cannot be taken through faithfully.

    Raises:
        UnsupportedModelError: the model is quantised to 8 or 4 bits, was loaded in inference mode, or has
            weights that were offloaded; names the first such weight.
    """
    quantised = "is quantised: load the model in bfloat16 or float32 without a quantization_config"
    for name, parameter in model.named_parameters():
        if not parameter.dtype.is_floating_point or parameter.dtype.itemsize < 2:
            raise UnsupportedModelError(f"weight {name} ({parameter.dtype}) {quantised}")
        if parameter.is_inference():
            raise UnsupportedModelError(f"weight {name} was made in inference mode: load the model outside of it")
        if parameter.is_meta:
            raise UnsupportedModelError(f"weight {name} is offloaded: load the model on one device that holds it")
    if getattr(getattr(model, "config", None), "quantization_config", None) is not None:
        raise UnsupportedModelError(f"the model {quantised}")
