"""The exports in the hands of those who read them: TRL's trainers take a step, the others by their published schema."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, model_validator

from store import signals
from store.exchange.export import Format
from store.types import SignalKind
from tests.exchange_helpers import exported, fresh_store, written
from tests.seed import say

# Trainers warn about their own future; what is tested is what they make of our rows.
pytestmark = pytest.mark.filterwarnings("ignore")

TEMPLATE = (
    "{% for message in messages %}{{ message.role }} {{ message.content }} end {% endfor %}"
    "{% if add_generation_prompt %}assistant {% endif %}"
)


@pytest.fixture(scope="module")
def rows() -> dict[Format, list[dict[str, Any]]]:
    with fresh_store() as store:
        for number in range(4):
            _, _, reply = say(store, f"what is {number}", f"it is {number}")
            signals.record(store, reply, SignalKind.THUMB, value=1.0 if number % 2 else -1.0)
            _, _, other = say(store, f"and {number}", "no")
            signals.record(store, other, SignalKind.CORRECTION, text=f"yes {number}")
        return {form: exported(store, form) for form in Format}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where a two-layer model with random weights and a tokenizer of words lie."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = ["<unk>", "<pad>", "<eos>", *"user assistant end what is it and no yes 0 1 2 3".split()]
    bare = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    bare.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bare, unk_token="<unk>", pad_token="<pad>", eos_token="<eos>"
    )
    tokenizer.chat_template = TEMPLATE
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        pad_token_id=1,
        eos_token_id=2,
    )
    place = str(tmp_path_factory.mktemp("tiny"))
    LlamaForCausalLM(config).save_pretrained(place)
    tokenizer.save_pretrained(place)
    return place


@pytest.mark.parametrize(
    ("form", "trainer", "count"),
    [
        # Two of the eight replies were turned down.
        (Format.TRL_SFT, "SFT", 6),
        (Format.TRL_KTO, "KTO", 4),
        (Format.TRL_DPO, "DPO", 4),
        (Format.OPENAI, "SFT", 8),
    ],
)
def test_trl_trains_on_it(
    tmp_path: Path,
    rows: dict[Format, list[dict[str, Any]]],
    tiny: str,
    form: Format,
    trainer: str,
    count: int,
) -> None:
    import trl
    from datasets import load_dataset

    path = written(tmp_path / "rows.jsonl", rows[form])
    data = load_dataset("json", data_files=str(path), split="train", cache_dir=str(tmp_path / "cache"))
    assert len(data) == len(rows[form]) == count
    arguments = getattr(trl, f"{trainer}Config")(
        output_dir=str(tmp_path / "out"),
        max_steps=1,
        per_device_train_batch_size=2,
        report_to=[],
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        save_strategy="no",
        disable_tqdm=True,
    )
    made = getattr(trl, f"{trainer}Trainer")(model=tiny, args=arguments, train_dataset=data)
    assert made.train().training_loss > 0


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ChatMessage(Strict):
    """A message of OpenAI's fine-tuning format, of the kinds that hold text alone."""

    role: str = Field(pattern="^(system|user|assistant)$")
    content: str = Field(min_length=1)


class Example(Strict):
    messages: list[ChatMessage]

    @model_validator(mode="after")
    def _ends_with_a_reply(self) -> Example:
        assert self.messages[-1].role == "assistant"
        return self


class Turn(Strict):
    """A turn of LLaMA-Factory's sharegpt format, with its default tags."""

    from_: str = Field(alias="from", pattern="^(human|gpt)$")
    value: str


class Chat(Strict):
    conversations: list[Turn]
    system: str | None = None

    @model_validator(mode="after")
    def _takes_turns(self) -> Chat:
        # LLaMA-Factory: human (and observation) at odd places, gpt (and function) at even ones, an even number.
        assert [turn.from_ for turn in self.conversations] == ["human", "gpt"] * (
            len(self.conversations) // 2
        )
        return self


def test_openai_and_llama_factory_by_their_schema(rows: dict[Format, list[dict[str, Any]]]) -> None:
    assert len([Example.model_validate(row) for row in rows[Format.OPENAI]]) == 8
    assert len([Chat.model_validate(row) for row in rows[Format.SHAREGPT]]) == 8
