"""Published shapes of models with latent attention, each with its source.

Every table, explorer and exercise takes its sizes from here. ``None`` means "without" (a model that has no latent for
the query, no experts, no YaRN) or, where a comment says so, that the published configuration does not state the value.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class Model:
    """The sizes of one published model that decide what its attention, experts and drafts cost.

    ``num_layers`` counts decoder layers and ``num_mla_layers`` the latent-attention blocks in them: fewer where the
    model is a hybrid, more where a layer holds two. ``q_lora_dim`` is the width of the query's latent, ``latent_dim``
    that of the shared latent of keys and values; ``nope_dim``, ``rope_dim`` and ``value_dim`` are a head's widths.
    ``index_heads``, ``index_dim`` and ``index_topk`` describe a sparse-attention indexer, which ``num_indexer_layers``
    layers own. ``experts_per_token`` counts routed experts, ``expert_dim`` is the hidden width of one.
    ``rope_theta`` is the base of the rotary angles; ``yarn_factor`` and ``mscale_all_dim`` are YaRN's. Widths are in
    values, everything else is a count or a plain ratio.
    """

    name: str
    hidden_dim: int
    num_layers: int
    num_mla_layers: int
    num_heads: int
    q_lora_dim: int | None
    latent_dim: int
    nope_dim: int
    rope_dim: int
    value_dim: int
    index_heads: int | None = None
    index_dim: int | None = None
    index_topk: int | None = None
    num_indexer_layers: int = 0
    num_experts: int | None
    experts_per_token: int | None
    num_shared_experts: int | None
    expert_dim: int | None
    num_mtp_layers: int | None
    vocab_size: int
    rope_theta: float | None
    yarn_factor: float | None = None
    mscale_all_dim: float | None = None
    source: str

    @property
    def qk_dim(self) -> int:
        """Width of one head's query and of the key it meets: nope and rope side by side."""
        return self.nope_dim + self.rope_dim

    @property
    def cache_dim(self) -> int:
        """Values that latent attention caches for a token in one layer: the latent and the one rotary key."""
        return self.latent_dim + self.rope_dim


DEEPSEEK_V2 = Model(
    name="DeepSeek-V2",
    hidden_dim=5120,
    num_layers=60,
    num_mla_layers=60,
    num_heads=128,
    q_lora_dim=1536,
    latent_dim=512,
    nope_dim=128,
    rope_dim=64,
    value_dim=128,
    num_experts=160,
    experts_per_token=6,
    num_shared_experts=2,
    expert_dim=1536,
    num_mtp_layers=0,
    vocab_size=102400,
    rope_theta=10000.0,
    yarn_factor=40.0,
    mscale_all_dim=0.707,
    source="Hugging Face config.json of deepseek-ai/DeepSeek-V2",
)

# The small one of the family projects its queries straight from the hidden state.
DEEPSEEK_V2_LITE = replace(
    DEEPSEEK_V2,
    name="DeepSeek-V2-Lite",
    hidden_dim=2048,
    num_layers=27,
    num_mla_layers=27,
    num_heads=16,
    q_lora_dim=None,
    num_experts=64,
    expert_dim=1408,
    source="Hugging Face config.json of deepseek-ai/DeepSeek-V2-Lite",
)

DEEPSEEK_V3 = Model(
    name="DeepSeek-V3",
    hidden_dim=7168,
    num_layers=61,
    num_mla_layers=61,
    num_heads=128,
    q_lora_dim=1536,
    latent_dim=512,
    nope_dim=128,
    rope_dim=64,
    value_dim=128,
    num_experts=256,
    experts_per_token=8,
    num_shared_experts=1,
    expert_dim=2048,
    num_mtp_layers=1,
    vocab_size=129280,
    rope_theta=10000.0,
    yarn_factor=40.0,
    mscale_all_dim=1.0,
    source="Hugging Face config.json of deepseek-ai/DeepSeek-V3 (copy in ai-dynamo/aiconfigurator@095f58a5)",
)

DEEPSEEK_R1 = replace(
    DEEPSEEK_V3,
    name="DeepSeek-R1",
    source="Hugging Face config.json of deepseek-ai/DeepSeek-R1 (copy in ai-dynamo/aiconfigurator@095f58a5)",
)

# The same shapes with an indexer in every layer.
DEEPSEEK_V32 = replace(
    DEEPSEEK_V3,
    name="DeepSeek-V3.2",
    index_heads=64,
    index_dim=128,
    index_topk=2048,
    num_indexer_layers=61,
    source="Hugging Face config.json of deepseek-ai/DeepSeek-V3.2 (copy in ai-dynamo/aiconfigurator@095f58a5)",
)

# DeepSeek-V3's attention with half the heads, and half as many experts again.
KIMI_K2 = replace(
    DEEPSEEK_V3,
    name="Kimi-K2-Instruct",
    num_heads=64,
    num_experts=384,
    num_mtp_layers=0,
    vocab_size=163840,
    rope_theta=50000.0,
    yarn_factor=32.0,
    source="Hugging Face config.json of moonshotai/Kimi-K2-Instruct (copy in ai-dynamo/aiconfigurator@095f58a5)",
)

KIMI_K25 = replace(
    KIMI_K2,
    name="Kimi-K2.5",
    yarn_factor=64.0,
    source="Hugging Face config.json of moonshotai/Kimi-K2.5 (copy in ai-dynamo/aiconfigurator@095f58a5)",
)

KIMI_K26 = replace(
    KIMI_K25,
    name="Kimi-K2.6",
    source="Hugging Face config.json of nvidia/Kimi-K2.6-NVFP4 (copy in ai-dynamo/aiconfigurator@095f58a5)",
)

KIMI_K27_CODE = replace(
    KIMI_K25,
    name="Kimi-K2.7-Code",
    source="Hugging Face config.json of nvidia/Kimi-K2.7-Code-NVFP4 (copy in ai-dynamo/aiconfigurator@095f58a5)",
)

# A hybrid: 24 of the 93 layers have latent attention, the others linear attention. It rotates nothing (NoPE), so its
# configuration states no rope_theta; the 64 rotary dimensions of a head are still there.
KIMI_K3 = Model(
    name="Kimi-K3",
    hidden_dim=7168,
    num_layers=93,
    num_mla_layers=24,
    num_heads=96,
    q_lora_dim=1536,
    latent_dim=512,
    nope_dim=128,
    rope_dim=64,
    value_dim=128,
    num_experts=896,
    experts_per_token=16,
    num_shared_experts=2,
    expert_dim=3072,
    num_mtp_layers=0,
    vocab_size=163840,
    rope_theta=None,
    source="Hugging Face config.json of moonshotai/Kimi-K3 (copy in ai-dynamo/aiconfigurator@095f58a5)",
)

GLM_5 = Model(
    name="GLM-5",
    hidden_dim=6144,
    num_layers=78,
    num_mla_layers=78,
    num_heads=64,
    q_lora_dim=2048,
    latent_dim=512,
    nope_dim=192,
    rope_dim=64,
    value_dim=256,
    index_heads=32,
    index_dim=128,
    index_topk=2048,
    num_indexer_layers=78,
    num_experts=256,
    experts_per_token=8,
    num_shared_experts=1,
    expert_dim=2048,
    num_mtp_layers=1,
    vocab_size=154880,
    rope_theta=1000000.0,
    source="Hugging Face config.json of zai-org/GLM-5 (copy in ai-dynamo/aiconfigurator@095f58a5)",
)

GLM_51 = replace(
    GLM_5,
    name="GLM-5.1",
    source="Hugging Face config.json of zai-org/GLM-5.1 (copy in ai-dynamo/aiconfigurator@095f58a5)",
)

# Only layers 0, 1, 2, 6, 10 … 74 own an indexer; the layers between them reuse its selection.
GLM_52 = replace(
    GLM_5,
    name="GLM-5.2",
    num_indexer_layers=21,
    rope_theta=8000000.0,
    source="Hugging Face config.json of zai-org/GLM-5.2 (copy in ai-dynamo/aiconfigurator@095f58a5)",
)

GLM_47_FLASH = Model(
    name="GLM-4.7-Flash",
    hidden_dim=2048,
    num_layers=47,
    num_mla_layers=47,
    num_heads=20,
    q_lora_dim=768,
    latent_dim=512,
    nope_dim=192,
    rope_dim=64,
    value_dim=256,
    num_experts=64,
    experts_per_token=4,
    num_shared_experts=1,
    expert_dim=1536,
    num_mtp_layers=1,
    vocab_size=154880,
    rope_theta=1000000.0,
    source="huggingface/transformers models/glm4_moe_lite/configuration_glm4_moe_lite.py (defaults; vocab_size as of "
    "008e5743). It states neither rope_theta nor MTP layers: both as in copies of zai-org/GLM-4.7-Flash's config.json "
    "in tests of inference engines; vLLM's glm4_moe_lite_mtp.py loads the layer",
)

# Dense. Its longrope scales each angle by its own factor, which is not YaRN; no rope_theta is stated.
MINICPM3 = Model(
    name="MiniCPM3-4B",
    hidden_dim=2560,
    num_layers=62,
    num_mla_layers=62,
    num_heads=40,
    q_lora_dim=768,
    latent_dim=256,
    nope_dim=64,
    rope_dim=32,
    value_dim=64,
    num_experts=None,
    experts_per_token=None,
    num_shared_experts=None,
    expert_dim=None,
    num_mtp_layers=0,
    vocab_size=73448,
    rope_theta=None,
    source="huggingface/transformers models/minicpm3/configuration_minicpm3.py "
    "(defaults, those of openbmb/MiniCPM3-4B; value_dim = hidden / heads)",
)

# Each layer holds two attention blocks. Beside the 512 experts stand 256 that do nothing ("zero experts"), and no
# shared one. The configuration says nothing of MTP layers.
LONGCAT_FLASH = Model(
    name="LongCat-Flash",
    hidden_dim=6144,
    num_layers=28,
    num_mla_layers=56,
    num_heads=64,
    q_lora_dim=1536,
    latent_dim=512,
    nope_dim=128,
    rope_dim=64,
    value_dim=128,
    num_experts=512,
    experts_per_token=12,
    num_shared_experts=0,
    expert_dim=2048,
    num_mtp_layers=None,
    vocab_size=131072,
    rope_theta=10000000.0,
    source="huggingface/transformers models/longcat_flash/configuration_longcat_flash.py "
    "(defaults, for meituan-longcat/LongCat-Flash-Chat; vocab_size as of 008e5743, which names no shared expert)",
)

# The configuration says nothing of MTP layers.
MISTRAL_SMALL_4 = Model(
    name="Mistral-Small-4-119B",
    hidden_dim=4096,
    num_layers=36,
    num_mla_layers=36,
    num_heads=32,
    q_lora_dim=1024,
    latent_dim=256,
    nope_dim=64,
    rope_dim=64,
    value_dim=128,
    num_experts=128,
    experts_per_token=4,
    num_shared_experts=1,
    expert_dim=2048,
    num_mtp_layers=None,
    vocab_size=131072,
    rope_theta=10000.0,
    yarn_factor=128.0,
    mscale_all_dim=1.0,
    source="huggingface/transformers models/mistral4/configuration_mistral4.py "
    "(defaults, for mistralai/Mistral-Small-4-119B-2603; vocab_size and rope_theta as of 008e5743)",
)

#: Every model by its published name.
MODELS: dict[str, Model] = {
    m.name: m
    for m in (
        DEEPSEEK_V2,
        DEEPSEEK_V2_LITE,
        DEEPSEEK_V3,
        DEEPSEEK_R1,
        DEEPSEEK_V32,
        KIMI_K2,
        KIMI_K25,
        KIMI_K26,
        KIMI_K27_CODE,
        KIMI_K3,
        GLM_5,
        GLM_51,
        GLM_52,
        GLM_47_FLASH,
        MINICPM3,
        LONGCAT_FLASH,
        MISTRAL_SMALL_4,
    )
}


def model(name: str) -> Model:
    """The model published as ``name``; a ValueError names the choices."""
    if name not in MODELS:
        raise ValueError(f"no model {name!r}; the choices are: {', '.join(MODELS)}")
    return MODELS[name]
