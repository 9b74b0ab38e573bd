"""What Accelerate's examples download, made up: run in an empty folder, which the examples then run in.

A local folder that is named like a model takes its place for transformers. The data sets are in stand_ins/datasets.py.
"""

import random
import sys
from pathlib import Path

import torch
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

WORDS = [f"word{number}" for number in range(60)]
"""Those of stand_ins/datasets.py."""
SPECIAL = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "eos_token": "[SEP]"}


def main(folder: Path) -> None:
    """Fill a folder; the same each time."""
    random.seed(0)
    torch.manual_seed(0)
    tokens = [*dict.fromkeys(SPECIAL.values()), *WORDS]
    size = {"vocab_size": len(tokens), "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    bert = BertConfig(**size, num_attention_heads=2, hidden_dropout_prob=0.1, initializer_range=0.5)
    llama = LlamaConfig(**size, num_attention_heads=2, num_key_value_heads=2, initializer_range=0.5)
    # The example with SmolLM shortens the ids, but not a mask.
    for name, model, inputs in (
        ("bert-base-cased", BertForSequenceClassification(bert), ["input_ids", "token_type_ids", "attention_mask"]),
        ("HuggingFaceTB/SmolLM-360M", LlamaForCausalLM(llama), ["input_ids"]),
    ):
        model.save_pretrained(folder / name)
        tokenizer(tokens, inputs).save_pretrained(folder / name)
    images(folder / "images")


def tokenizer(tokens: list[str], inputs: list[str]) -> PreTrainedTokenizerFast:
    """Splits at spaces, adds [CLS] and [SEP], and makes the inputs that a model takes."""
    plain = Tokenizer(models.WordLevel({token: number for number, token in enumerate(tokens)}, unk_token="[UNK]"))
    plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    numbered = [(token, tokens.index(token)) for token in ("[CLS]", "[SEP]")]
    plain.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=numbered
    )
    return PreTrainedTokenizerFast(tokenizer_object=plain, model_max_length=64, model_input_names=inputs, **SPECIAL)


def images(folder: Path) -> None:
    """Writes 170 images of three classes, whose colors differ a little."""
    folder.mkdir()
    for number in range(170):
        color = tuple(int(random.gauss(128 + 30 * (channel == number % 3), 30)) % 256 for channel in range(3))
        Image.new("RGB", (32, 32), color).save(folder / f"class{number % 3}_{number}.jpg")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
