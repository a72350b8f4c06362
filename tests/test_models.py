"""The models' shapes against numbers typed apart from them and against published results; the machines' limits."""

import dataclasses
import math
import subprocess
import sys

import pytest

from ledger.machines import MACHINES, Machine, machine
from ledger.models import MODELS, Model, model

# hidden, layers, heads, latent, nope, rope, value
SHAPES = {
    "DeepSeek-V2": (5120, 60, 128, 512, 128, 64, 128),
    "DeepSeek-V2-Lite": (2048, 27, 16, 512, 128, 64, 128),
    "DeepSeek-V3": (7168, 61, 128, 512, 128, 64, 128),
    "DeepSeek-R1": (7168, 61, 128, 512, 128, 64, 128),
    "DeepSeek-V3.2": (7168, 61, 128, 512, 128, 64, 128),
    "Kimi-K2-Instruct": (7168, 61, 64, 512, 128, 64, 128),
    "Kimi-K2.5": (7168, 61, 64, 512, 128, 64, 128),
    "Kimi-K2.6": (7168, 61, 64, 512, 128, 64, 128),
    "Kimi-K2.7-Code": (7168, 61, 64, 512, 128, 64, 128),
    "Kimi-K3": (7168, 93, 96, 512, 128, 64, 128),
    "GLM-5": (6144, 78, 64, 512, 192, 64, 256),
    "GLM-5.1": (6144, 78, 64, 512, 192, 64, 256),
    "GLM-5.2": (6144, 78, 64, 512, 192, 64, 256),
    "GLM-4.7-Flash": (2048, 47, 20, 512, 192, 64, 256),
    "MiniCPM3-4B": (2560, 62, 40, 256, 64, 32, 64),
    "LongCat-Flash": (6144, 28, 64, 512, 128, 64, 128),
    "Mistral-Small-4-119B": (4096, 36, 32, 256, 64, 64, 128),
}

# q latent, experts, experts a token, shared experts, expert width, vocabulary
REST = {
    "DeepSeek-V2": (1536, 160, 6, 2, 1536, 102400),
    "DeepSeek-V2-Lite": (None, 64, 6, 2, 1408, 102400),
    "DeepSeek-V3": (1536, 256, 8, 1, 2048, 129280),
    "DeepSeek-R1": (1536, 256, 8, 1, 2048, 129280),
    "DeepSeek-V3.2": (1536, 256, 8, 1, 2048, 129280),
    "Kimi-K2-Instruct": (1536, 384, 8, 1, 2048, 163840),
    "Kimi-K2.5": (1536, 384, 8, 1, 2048, 163840),
    "Kimi-K2.6": (1536, 384, 8, 1, 2048, 163840),
    "Kimi-K2.7-Code": (1536, 384, 8, 1, 2048, 163840),
    "Kimi-K3": (1536, 896, 16, 2, 3072, 163840),
    "GLM-5": (2048, 256, 8, 1, 2048, 154880),
    "GLM-5.1": (2048, 256, 8, 1, 2048, 154880),
    "GLM-5.2": (2048, 256, 8, 1, 2048, 154880),
    "GLM-4.7-Flash": (768, 64, 4, 1, 1536, 154880),
    "MiniCPM3-4B": (768, None, None, None, None, 73448),
    "LongCat-Flash": (1536, 512, 12, 0, 2048, 131072),
    "Mistral-Small-4-119B": (1024, 128, 4, 1, 2048, 131072),
}


def softmax_scale(m: Model) -> float:
    """(nope + rope)^-1/2, times YaRN's temperature squared where the model has one."""
    temperature = 1.0
    if m.yarn_factor is not None:
        temperature += 0.1 * m.mscale_all_dim * math.log(m.yarn_factor)
    return m.qk_dim**-0.5 * temperature**2


def crossover_limit(m: Model) -> float:
    """New tokens above which materializing costs less, in a long context."""
    return m.latent_dim * (m.nope_dim + m.value_dim) / (2 * m.latent_dim - m.nope_dim - m.value_dim)


def test_shapes_of_every_model():
    shapes = {
        name: (m.hidden_dim, m.num_layers, m.num_heads, m.latent_dim, m.nope_dim, m.rope_dim, m.value_dim)
        for name, m in MODELS.items()
    }
    assert shapes == SHAPES


def test_query_latent_experts_and_vocabulary_of_every_model():
    rest = {
        name: (
            m.q_lora_dim,
            m.num_experts,
            m.experts_per_token,
            m.num_shared_experts,
            m.expert_dim,
            m.vocab_size,
        )
        for name, m in MODELS.items()
    }
    assert rest == REST


def test_only_kimi_k3_and_longcat_have_other_than_one_latent_block_a_layer():
    others = {name: m.num_mla_layers for name, m in MODELS.items() if m.num_mla_layers != m.num_layers}
    assert others == {"Kimi-K3": 24, "LongCat-Flash": 56}


def test_indexers():
    indexers = {
        name: (m.index_heads, m.index_dim, m.index_topk, m.num_indexer_layers)
        for name, m in MODELS.items()
        if m.num_indexer_layers
    }
    assert indexers == {
        "DeepSeek-V3.2": (64, 128, 2048, 61),
        "GLM-5": (32, 128, 2048, 78),
        "GLM-5.1": (32, 128, 2048, 78),
        "GLM-5.2": (32, 128, 2048, 21),
    }
    without = [m for m in MODELS.values() if not m.num_indexer_layers]
    assert {(m.index_heads, m.index_dim, m.index_topk) for m in without} == {(None, None, None)}


def test_draft_layers():
    with_mtp = {name for name, m in MODELS.items() if m.num_mtp_layers}
    assert with_mtp == {"DeepSeek-V3", "DeepSeek-R1", "DeepSeek-V3.2", "GLM-5", "GLM-5.1", "GLM-5.2", "GLM-4.7-Flash"}
    assert all(m.num_mtp_layers in (0, 1, None) for m in MODELS.values())
    assert {name for name, m in MODELS.items() if m.num_mtp_layers is None} == {"LongCat-Flash", "Mistral-Small-4-119B"}


def test_rotary_bases():
    bases = {name: m.rope_theta for name, m in MODELS.items()}
    assert {name for name, base in bases.items() if base is None} == {"Kimi-K3", "MiniCPM3-4B"}
    assert {name: base for name, base in bases.items() if base not in (None, 1e4)} == {
        "Kimi-K2-Instruct": 5e4,
        "Kimi-K2.5": 5e4,
        "Kimi-K2.6": 5e4,
        "Kimi-K2.7-Code": 5e4,
        "GLM-5": 1e6,
        "GLM-5.1": 1e6,
        "GLM-5.2": 8e6,
        "GLM-4.7-Flash": 1e6,
        "LongCat-Flash": 1e7,
    }


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("DeepSeek-V3", 0.135234),
        ("DeepSeek-R1", 0.135234),
        ("DeepSeek-V3.2", 0.135234),
        ("DeepSeek-V2", 0.114721),
        ("DeepSeek-V2-Lite", 0.114721),
        ("Kimi-K2-Instruct", 0.130861),
        ("Kimi-K2.5", 0.144680),
        ("Kimi-K2.6", 0.144680),
        ("Kimi-K2.7-Code", 0.144680),
        ("GLM-5", 0.0625),
        ("GLM-5.2", 0.0625),
        ("MiniCPM3-4B", 0.102062),
        # Width 128 and YaRN's factor 128: 128^-1/2 (0.1 ln 128 + 1)^2.
        ("Mistral-Small-4-119B", 0.194969),
        # Without YaRN, the width alone: 192^-1/2 and 256^-1/2.
        ("LongCat-Flash", 0.072169),
        ("Kimi-K3", 0.072169),
        ("GLM-4.7-Flash", 0.0625),
    ],
)
def test_softmax_scale_follows_from_the_shape(name, published):
    assert softmax_scale(model(name)) == pytest.approx(published, abs=5e-7)


@pytest.mark.parametrize(
    ("name", "published"),
    [("DeepSeek-V3", 170.67), ("Kimi-K2.5", 170.67), ("MiniCPM3-4B", 85.33), ("GLM-5.2", 398.22), ("GLM-5", 398.22)],
)
def test_long_context_crossover_follows_from_the_shape(name, published):
    assert crossover_limit(model(name)) == pytest.approx(published, abs=5e-3)


def test_cache_entry_is_576_values_but_for_the_two_narrow_latents():
    narrow = {name: m.cache_dim for name, m in MODELS.items() if m.cache_dim != 576}
    assert narrow == {"MiniCPM3-4B": 288, "Mistral-Small-4-119B": 320}


def test_yarn_has_both_its_numbers_or_none():
    assert all((m.yarn_factor is None) == (m.mscale_all_dim is None) for m in MODELS.values())


def test_models_are_named_by_their_key_frozen_and_cited():
    assert all(name == m.name for name, m in MODELS.items())
    assert all(
        m.source.startswith(("Hugging Face config.json of ", "huggingface/transformers ")) for m in MODELS.values()
    )
    copies = {name for name, m in MODELS.items() if "(copy in ai-dynamo/aiconfigurator@095f58a5)" in m.source}
    read = {"DeepSeek-V2", "DeepSeek-V2-Lite", "GLM-4.7-Flash", "MiniCPM3-4B", "LongCat-Flash", "Mistral-Small-4-119B"}
    assert copies == MODELS.keys() - read
    with pytest.raises(dataclasses.FrozenInstanceError):
        model("DeepSeek-V3").num_heads = 1


def test_attributes_are_those_the_course_promises():
    assert ", ".join(f.name for f in dataclasses.fields(Model)) == (
        "name, hidden_dim, num_layers, num_mla_layers, num_heads, q_lora_dim, latent_dim, nope_dim, rope_dim, "
        "value_dim, index_heads, index_dim, index_topk, num_indexer_layers, num_experts, experts_per_token, "
        "num_shared_experts, expert_dim, num_mtp_layers, vocab_size, rope_theta, yarn_factor, mscale_all_dim, source"
    )
    assert ", ".join(f.name for f in dataclasses.fields(Machine)) == "name, bandwidth, flops, network, memory, source"


@pytest.mark.parametrize(("find", "choice"), [(model, "DeepSeek-V3.2"), (machine, "H800")])
def test_an_unknown_name_gets_the_choices(find, choice):
    with pytest.raises(ValueError, match=f"'none such'.*{choice}"):
        find("none such")


@pytest.mark.parametrize(("name", "ridge"), [("H200", 206), ("H800", 295), ("H100", 295)])
def test_ridge_by_datasheet(name, ridge):
    assert round(machine(name).ridge("bf16")) == ridge


def test_a_machine_without_fp8_says_what_it_has():
    assert "fp8" not in machine("A100").flops
    with pytest.raises(ValueError, match=r"'fp8'.*bf16, fp16, fp32"):
        machine("A100").ridge("fp8")


def test_h100_is_the_record_that_the_step_model_uses():
    h100 = machine("H100")
    assert (h100.rate("bf16"), h100.rate("fp8")) == (989e12, 1979e12)
    assert (h100.bandwidth, h100.flops["bf16"], h100.flops["fp8"], h100.network) == (3.35e12, 989e12, 1979e12, 50e9)


def test_datasheet_numbers():
    rows = {name: (m.bandwidth, m.flops["bf16"], m.flops.get("fp8"), m.memory) for name, m in MACHINES.items()}
    assert rows == {
        "A100": (2.039e12, 312e12, None, 80e9),
        "H100": (3.35e12, 989e12, 1979e12, 80e9),
        "H800": (3.35e12, 989e12, 1979e12, 80e9),
        "H200": (4.8e12, 989e12, 1979e12, 141e9),
        "B200": (8e12, 2.25e15, 4.5e15, 180e9),
    }
    assert all(m.flops["fp16"] == m.flops["bf16"] for m in MACHINES.values())
    assert all(m.name == name and m.source and hash(m) for name, m in MACHINES.items())


def test_shapes_limits_and_accounts_import_without_numpy():
    code = "import ledger.models, ledger.machines, ledger.account.attention, sys; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
