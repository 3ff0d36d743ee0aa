"""Makes the folders beside this file: small random models and what Hugging Face transformers computes for them in f32.

Run with transformers 5.17 and torch 2.13:  python make.py
"""

import json
import os

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

HERE = os.path.dirname(os.path.abspath(__file__))
TEXT = "A mesh of devices: each rank has its axis, and all of them sum - über alles, 42 times."
CORPUS = ["a mesh of devices has axes; each rank of an axis is in one group", "ranks of a group sum what they all have"] * 4

MODELS = {
    "llama": (
        LlamaForCausalLM,
        LlamaConfig(
            vocab_size=301, hidden_size=42, intermediate_size=70, num_hidden_layers=3, num_attention_heads=6,
            num_key_value_heads=2, head_dim=14, tie_word_embeddings=True, max_position_embeddings=256,
            rope_parameters=dict(
                rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                original_max_position_embeddings=32,
            ),
            bos_token_id=0, eos_token_id=[1, 5],
        ),
        torch.bfloat16,
        "40KB",
    ),
    "llama-biases": (
        LlamaForCausalLM,
        LlamaConfig(
            vocab_size=290, hidden_size=32, intermediate_size=50, num_hidden_layers=2, num_attention_heads=8,
            num_key_value_heads=1, attention_bias=True, mlp_bias=True, max_position_embeddings=256,
            rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=4.0),
            bos_token_id=None, eos_token_id=None,
        ),
        torch.float32,
        "1GB",
    ),
    "qwen2": (
        Qwen2ForCausalLM,
        Qwen2Config(
            vocab_size=289, hidden_size=40, intermediate_size=60, num_hidden_layers=3, num_attention_heads=4,
            num_key_value_heads=2, tie_word_embeddings=False, max_position_embeddings=256, eos_token_id=1,
        ),
        torch.float16,
        "50KB",
    ),
    "mistral": (
        MistralForCausalLM,
        MistralConfig(
            vocab_size=290, hidden_size=32, intermediate_size=60, num_hidden_layers=2, num_attention_heads=8,
            num_key_value_heads=4, head_dim=12, sliding_window=8, max_position_embeddings=256,
            bos_token_id=None, eos_token_id=None,
        ),
        torch.bfloat16,
        "1GB",
    ),
}


def tokenizer(folder, vocab_size):
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
    )
    bpe.train_from_iterator(CORPUS, trainer)
    bpe.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    fast = PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token="<s>", eos_token="</s>")
    fast.save_pretrained(folder)
    return fast


torch.manual_seed(0)
for name, (kind, config, dtype, shard) in MODELS.items():
    folder = os.path.join(HERE, name)
    model = kind(config)
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            noise = torch.randn_like(parameter)
            if "norm" in parameter_name:
                parameter.copy_(1 + 0.2 * noise)
            else:
                parameter.copy_(noise * (0.3 if parameter.dim() == 1 else 1.3 / parameter.shape[1] ** 0.5))
    model.to(dtype).save_pretrained(folder, max_shard_size=shard)
    codec = tokenizer(folder, config.vocab_size)
    model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    ids = codec(TEXT)["input_ids"]
    prompt = torch.tensor([ids])
    with torch.no_grad():
        logits = model(prompt).logits[0, -1]
        mask = torch.ones_like(prompt)
        tokens = model.generate(prompt, max_new_tokens=24, do_sample=False, pad_token_id=0, attention_mask=mask)
        tokens = tokens[0, len(ids) :].tolist()
        every = model(torch.tensor([ids + tokens])).logits[0, len(ids) - 1 : -1]
        top = every.topk(2).values
    golden = {
        "text": TEXT,
        "ids": ids,
        "tokens": tokens,
        "newText": codec.decode(tokens, skip_special_tokens=True),
        "lastLogits": [round(x, 6) for x in logits.tolist()],
        # How far the second best token was, at the least: f32 rounding must not decide.
        "smallestGap": (top[:, 0] - top[:, 1]).min().item(),
    }
    with open(os.path.join(folder, "golden.json"), "w") as file:
        json.dump(golden, file)
    print(name, len(ids), len(tokens), golden["smallestGap"])
