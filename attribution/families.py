"""Which module of which model family gets which rule: one entry a family, and the look-up by model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from torch import nn

from xai.attribution.rules import RuleKind


class UnsupportedModelError(ValueError):
    """The model cannot be explained faithfully; the message names what stands in the way."""


@dataclass(frozen=True)
class Family:
    """What attribution has to know about the models of one family.

    Attributes:
        name: what reports print.
        model_types: the values of ``model.config.model_type`` that belong to the family.
        rules: rule kind → names of the module classes that get it, text decoder and vision tower together.
        passive: names of the module classes that pass relevance unchanged by themselves: they add,
            reshape, select or call their children, and multiply by nothing that depends on the input.
        visual: path of the vision tower in the model; ``None`` for text-only families.
        image_features: attribute of the tower's output with the merged features, ``(n_image_tokens, hidden)``.
        deepstack_features: attribute with the list of deepstack levels, each ``(n_image_tokens, hidden)``.
        state: paths of what a forward leaves behind on the model, put back after every attribution.
    """

    name: str
    model_types: frozenset[str]
    rules: Mapping[RuleKind, frozenset[str]]
    passive: frozenset[str]
    visual: str | None = None
    image_features: str = "pooler_output"
    deepstack_features: str | None = None
    state: tuple[str, ...] = ()

    def kind_of(self, module: nn.Module) -> RuleKind | None:
        """The rule that the family's table gives to ``module``, or ``None``."""
        name = type(module).__name__
        return next((kind for kind, classes in self.rules.items() if name in classes), None)

    def visual_of(self, model: nn.Module) -> nn.Module | None:
        """The vision tower of ``model``, or ``None`` for a text-only family."""
        return None if self.visual is None else model.get_submodule(self.visual)


QWEN3_VL = Family(
    name="Qwen3-VL",
    model_types=frozenset({"qwen3_vl"}),
    rules=MappingProxyType(
        {
            RuleKind.RMS_NORM: frozenset({"Qwen3VLTextRMSNorm"}),
            RuleKind.LAYER_NORM: frozenset({"LayerNorm"}),
            RuleKind.ACTIVATION: frozenset({"SiLUActivation", "SiLU", "GELUTanh", "GELUActivation", "GELU"}),
            RuleKind.GATED_MLP: frozenset({"Qwen3VLTextMLP"}),
            RuleKind.ATTENTION: frozenset({"Qwen3VLTextAttention", "Qwen3VLVisionAttention"}),
        }
    ),
    passive=frozenset(
        {
            "Qwen3VLForConditionalGeneration",
            "Qwen3VLModel",
            "Qwen3VLTextModel",
            "Qwen3VLTextDecoderLayer",
            "Qwen3VLTextRotaryEmbedding",
            "Qwen3VLVisionModel",
            "Qwen3VLVisionPatchEmbed",
            "Qwen3VLVisionRotaryEmbedding",
            "Qwen3VLVisionBlock",
            "Qwen3VLVisionMLP",
            "Qwen3VLVisionPatchMerger",
        }
    ),
    visual="model.visual",
    deepstack_features="deepstack_features",
    state=("model.rope_deltas",),
)

FAMILIES: tuple[Family, ...] = (QWEN3_VL,)


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
        raise UnsupportedModelError(
            f"{type(model).__name__} has no language head; load the model with AutoModelForImageTextToText"
        )
    try:
        family.visual_of(model)
    except AttributeError:
        raise UnsupportedModelError(
            f"{type(model).__name__} has no vision tower at {family.visual!r}, where {family.name} keeps it"
        ) from None
    return family


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
