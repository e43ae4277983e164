"""captum's and inseq's own calls for what this package computes, on the same weights and the same target."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from captum.attr import (
    LRP,
    FeatureAblation,
    InputXGradient,
    IntegratedGradients,
    NoiseTunnel,
    Saliency,
    ShapleyValueSampling,
)
from torch import Tensor, nn
from transformers import Qwen3Config, Qwen3ForCausalLM

from xai.attribution.targets import Target
from xai.models import VisionLanguageModel

IMAGE_INPUTS = ("pixel_values", "image_grid_thw")


class CaptumScore(nn.Module):
    """A target as captum wants it: a function of embeddings, ``(batch, n, hidden) -> (batch,)``.

    What a careful user writes to give captum a Qwen-VL: the embeddings go in through a hook, since passing
    ``inputs_embeds`` would lose the picture; parameters are frozen, nothing after the target is run and logits are
    kept at the target only, as this package does it too. The vision tower runs once for every row of a batch.

    Args:
        places: the tokens that captum may change, all by default; the others keep their embeddings.
    """

    def __init__(
        self, model: Any, inputs: Mapping[str, Tensor], target: Target, places: Sequence[int] | None = None
    ) -> None:
        super().__init__()
        self.model, self.target = model.requires_grad_(False), target
        end = max(target.positions)
        self.inputs = {name: one if name in IMAGE_INPUTS else one[:, :end] for name, one in inputs.items()}
        with torch.no_grad():
            self.all: Tensor = model.get_input_embeddings()(self.inputs["input_ids"])
        self.places = list(range(end)) if places is None else list(places)
        self.kept = torch.tensor([position - 1 for position in target.positions])
        self.columns = torch.tensor(target.token_ids)

    @property
    def embeddings(self) -> Tensor:
        """What captum explains, ``(1, n, hidden)``."""
        return self.all[:, self.places].requires_grad_()

    @property
    def baseline(self) -> Tensor:
        """The mean of the embedding matrix at every place, ``(1, n, hidden)``."""
        return self.model.get_input_embeddings().weight.mean(dim=0).expand_as(self.embeddings)

    def forward(self, embeddings: Tensor) -> Tensor:
        """The sum of the target's logits, ``(batch,)``."""
        n = len(embeddings)
        whole = self.all.expand(n, -1, -1).index_copy(1, torch.tensor(self.places), embeddings)
        rows = {name: one.repeat(n, 1) for name, one in self.inputs.items()}
        hook = self.model.get_input_embeddings().register_forward_hook(lambda *_: whole)
        try:
            logits = self.model(**rows, use_cache=False, logits_to_keep=self.kept).logits
        finally:
            hook.remove()
        return logits[:, range(len(self.columns)), self.columns].sum(dim=-1)


def captum_gradient(score: CaptumScore) -> Tensor:
    """L2 norm of the gradient, ``(n,)``."""
    return Saliency(score).attribute(score.embeddings, abs=False)[0].norm(dim=-1)


def captum_gradient_x_input(score: CaptumScore) -> Tensor:
    """Gradient times input, ``(n,)``."""
    return InputXGradient(score).attribute(score.embeddings)[0].sum(dim=-1)


def captum_smooth_gradients(score: CaptumScore) -> Tensor:
    """The same over 16 noisy inputs, ``(n,)``."""
    embeddings = score.embeddings
    tunnel = NoiseTunnel(InputXGradient(score))
    noise = 0.1 * float(embeddings.detach().std())
    found = tunnel.attribute(embeddings, nt_type="smoothgrad", nt_samples=16, nt_samples_batch_size=8, stdevs=noise)
    return found[0].sum(dim=-1)


def captum_integrated_gradients(score: CaptumScore) -> Tensor:
    """Gradients over 32 steps from the mean embedding, ``(n,)``."""
    path = IntegratedGradients(score)
    return path.attribute(score.embeddings, score.baseline, n_steps=32, internal_batch_size=8)[0].sum(dim=-1)


def captum_occlusion(score: CaptumScore, units: Tensor) -> Tensor:
    """What is lost without each unit, at its tokens, ``(n,)``; ``units`` numbers the unit of each token."""
    ablation = FeatureAblation(score)
    with torch.no_grad():
        found = ablation.attribute(
            score.embeddings, score.baseline, feature_mask=units[None, :, None], perturbations_per_eval=16
        )
    return found[0, :, 0]


def captum_shapley(score: CaptumScore, units: Tensor) -> Tensor:
    """What each unit adds over 25 random orders, at its tokens, ``(n,)``."""
    sampling = ShapleyValueSampling(score)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        found = sampling.attribute(
            score.embeddings, score.baseline, feature_mask=units[None, :, None], n_samples=25, perturbations_per_eval=16
        )
    return found[0, :, 0]


def captum_lrp_says(score: CaptumScore) -> str:
    """What captum's LRP answers when it is given the model."""
    try:
        LRP(score).attribute(score.embeddings)
    except Exception as error:
        return f"captum.attr.LRP refuses the model: {str(error).splitlines()[0]}"
    return "captum.attr.LRP ran, without a rule for attention"


OF_TOKENS: Mapping[str, Callable[[CaptumScore], Tensor]] = {
    "gradient": captum_gradient,
    "gradient_x_input": captum_gradient_x_input,
    "smooth_gradients": captum_smooth_gradients,
    "integrated_gradients": captum_integrated_gradients,
}
OF_WORDS: Mapping[str, Callable[[CaptumScore, Tensor], Tensor]] = {
    "occlusion": captum_occlusion,
    "shapley": captum_shapley,
}
CAPTUM_CALLS = {
    "gradient": "Saliency(score).attribute(embeddings, abs=False)",
    "gradient_x_input": "InputXGradient(score).attribute(embeddings)",
    "smooth_gradients": "NoiseTunnel(InputXGradient(score)).attribute(embeddings, nt_samples=16)",
    "integrated_gradients": "IntegratedGradients(score).attribute(embeddings, mean embedding, n_steps=32)",
    "occlusion": "FeatureAblation(score).attribute(embeddings of the words, mean embedding, feature_mask=words)",
    "shapley": "ShapleyValueSampling(score).attribute(embeddings of the words, mean embedding, feature_mask=words)",
}


class Inseq:
    """inseq over the decoder of a Qwen3-VL, which it can only load as a text model.

    The decoder is saved as ``Qwen3ForCausalLM``: without a picture both compute the same. inseq wants a token that
    begins a sequence, which this tokenizer has not; padding is named for it and never used.

    Raises:
        ImportError: inseq is not installed.
    """

    CALLS: Mapping[str, tuple[str, dict[str, Any]]] = {
        "gradient": ("saliency", {}),
        "gradient_x_input": ("input_x_gradient", {}),
        "integrated_gradients": ("integrated_gradients", {"n_steps": 32, "internal_batch_size": 8}),
        "occlusion": ("occlusion", {}),
    }

    def __init__(self, model: VisionLanguageModel) -> None:
        import inseq

        tokenizer = model.processor.tokenizer
        begins = tokenizer.bos_token
        with tempfile.TemporaryDirectory() as folder:
            _text_decoder(model).save_pretrained(folder)
            tokenizer.bos_token = tokenizer.pad_token
            tokenizer.save_pretrained(folder)
            tokenizer.bos_token = begins
            self.loaded = {name: inseq.load_model(folder, method) for name, (method, _) in self.CALLS.items()}

    def attribute(self, name: str, prompt: str, answer: str, position: int) -> Tensor:
        """The scores of all tokens before ``position`` for the logit of the token there, ``(position, ...)``."""
        _, options = self.CALLS[name]
        out = self.loaded[name].attribute(
            prompt,
            prompt + answer,
            attributed_fn="logit",
            attr_pos_start=position,
            attr_pos_end=position + 1,
            show_progress=False,
            **options,
        )
        scores: Tensor = out.sequence_attributions[0].target_attributions[:position, 0]
        return scores


def _text_decoder(model: VisionLanguageModel) -> Any:
    config: Any = model.model.config.text_config
    names = ["vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"]
    names += ["num_key_value_heads", "head_dim", "max_position_embeddings", "rms_norm_eps", "hidden_act"]
    decoder = Qwen3ForCausalLM(
        Qwen3Config(
            **{name: getattr(config, name) for name in names},
            rope_parameters={"rope_type": "default", "rope_theta": config.rope_parameters["rope_theta"]},
            tie_word_embeddings=True,
            pad_token_id=config.pad_token_id,
            bos_token_id=config.pad_token_id,
            eos_token_id=config.eos_token_id,
        )
    )
    decoder.model.load_state_dict(model.model.model.language_model.state_dict())  # type: ignore[union-attr]
    return decoder.eval()
