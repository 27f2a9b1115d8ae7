"""A Conductor on disk and in memory: loading and generation."""

from __future__ import annotations

import copy
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any, Literal, NamedTuple

from pydantic import Field

from ops.conductor.scratch_tokenizer import ScratchTokenizer
from ops.config import (
    Execution,
    Generation,
    Pool,
    PretrainedPolicy,
    PromptedPolicy,
    Prompting,
    RoundLimits,
    Settings,
    UntrainedPolicy,
)
from ops.core.atomic import write_text
from ops.core.digests import check_digest
from ops.core.errors import DataError
from ops.core.installation import pip_install_command
from ops.core.messages import Message
from ops.core.response import Response
from ops.workers.scheduling import Client
from ops.workflow.cards import WorkerCard, load_cards
from ops.workflow.controls import escape_messages
from ops.workflow.prompt import PromptTooLongError, load_few_shots
from ops.workflow.team import NO_CLIENT, Team

CARD_FILE = "podium.json"
_SLICE_CHARACTERS, _SLICE_MARGIN_TOKENS = 4096, 16
"""Characters of a slice, and the most tokens that a cut between slices adds."""
_NEXT_TURN = {"role": "user", "content": "Go on."}


def package_remedy(package: str) -> str:
    """Return the remedy if the package with a policy's weights is not installed."""
    return f"Install its files, which is all that is needed of it: {pip_install_command('--no-deps', package)}"


class PolicyCard(Settings):
    """Everything that the use of a policy's weights needs; stored beside them as `podium.json`."""

    recipe: str
    pool: Pool
    offered: tuple[str, ...]
    """Workers' names by ordinal: the meaning of "Model 0" to this policy."""
    prompting: Prompting
    cards: tuple[WorkerCard, ...] = ()
    """Worker descriptions by ordinal; empty unless `prompting.cards`."""
    execution: Execution = Execution()
    max_completion_tokens: int
    generation: Generation = Generation()
    """Sampling settings of its tokens."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the weights."""
    pretrained: PretrainedPolicy | None = None
    """The source of the weights when they are not in the folder."""
    untrained: UntrainedPolicy | None = Field(default=None, discriminator="kind")
    """The policy, where it has no weights."""
    trained_steps: int = Field(default=0, ge=0)
    """GRPO steps; 0: a base policy."""
    renumbered: bool = False
    """Whether training renumbered the workers of each question from 0; False: a worker keeps its ordinal, and workers
    that are not offered are missing in the list."""
    rounds: RoundLimits | None = None
    """Limits of its further rounds; None: it was not trained in rounds, and writes one workflow."""

    @classmethod
    def read(cls, folder: Path) -> PolicyCard:
        """The card of a policy folder. Raises `DataError`."""
        file = folder / CARD_FILE
        try:
            return cls.model_validate_json(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(file, "", f"is not a valid policy card ({error})", "Train the policy again") from None

    def build_team(self, pool: Pool, data: Path, execution: Execution, client: Client = NO_CLIENT) -> Team:
        """Return the workers of `pool` by this policy's ordinals, as it was trained to see them; `data` holds the
        few-shot examples.

        Workers that the pool lacks are not offered, and the others keep their ordinals; workers that the policy does
        not know are omitted (see `add_new_workers`). Raises `DataError` if the pool has none of its workers,
        `ConfigError` if the few-shot examples cannot be read.
        """
        there = [ordinal for ordinal, name in enumerate(self.offered) if name in pool.names]
        if not there:
            problem = f"knows {', '.join(self.offered)}, of whom pool {pool.name!r} has none"
            raise DataError(CARD_FILE, "offered", problem, "Train a policy on that pool")
        if isinstance(self.untrained, PromptedPolicy) and self.untrained.worker not in pool.names:
            problem = f"is {self.untrained.worker}, which pool {pool.name!r} does not have"
            raise DataError(CARD_FILE, "untrained.worker", problem, "Name another worker in the recipe, and run it")
        team = Team(
            workers=tuple((pool if name in pool.names else self.pool).worker(name) for name in self.offered),
            client=client,
            prompting=self.prompting,
            few_shots=load_few_shots(data, self.prompting.few_shots),
            cards=self.cards,
            execution=execution,
        )
        return team if len(there) == len(self.offered) else team.restrict_to(there, renumbered=self.renumbered)

    def add_new_workers(self, team: Team, pool: Pool, data: Path) -> Team:
        """Return the team extended by the pool's workers that the policy was not trained with, at the next ordinals and
        with their cards from `data/profiles.json`.

        A policy that was trained without cards has no information on a new ordinal and is offered no new worker. Raises
        `DataError` if a newcomer was not measured.
        """
        new = [name for name in pool.names if name not in self.offered]
        if not new or not self.cards:
            return team
        workers = (*team.workers, *(pool.worker(name) for name in new))
        ordinals = (*team.ordinals, *range(len(team.workers), len(workers)))
        whole = replace(team, workers=workers, cards=(*team.cards, *load_cards(data, new)), offered=None)
        return whole if len(ordinals) == len(workers) else whole.restrict_to(ordinals)

    def write(self, folder: Path) -> None:
        write_text(folder / CARD_FILE, json.dumps(self.model_dump(mode="json"), indent=1))


def check_policy(folder: Path) -> None:
    """Check that each file of a policy's folder is what was written there; a folder without digests is accepted.

    Every byte is read, at 1 to 2 GB/s. Raises `DamagedFile`, and `DataError` if the folder is missing.
    """
    remedy = "Give `podium run RECIPE` with its recipe, which restores it or trains it again"
    try:
        check_digest(folder, remedy, missing="accepted")
    except FileNotFoundError:
        raise DataError(folder, "", "does not exist", remedy) from None


def policy_key(folder: Path) -> str:
    """Return the content key of the inputs of a policy: its folder's name, or that of the run whose `policy` it is."""
    return folder.parent.name if folder.name == "policy" else folder.name


def load_model(folder: Path, card: PolicyCard) -> tuple[Any, Any]:
    """Return (model, tokenizer) of a policy folder, or of the pretrained model that its card names, in the card's
    precision.

    A GGUF file is dequantized into a plain model, which can then be trained and saved. Sampling settings of the model's
    files are ignored, because transformers would use them for every setting that a call omits.
    """
    from transformers import AutoModelForCausalLM

    place, given = locate_weights(folder, card)
    tokenizer = load_tokenizer(place, padding_side="left", **given)
    # The other formats of weights are pickles, which execute code when they are loaded.
    safe = {} if "gguf_file" in given else {"use_safetensors": True}
    model = AutoModelForCausalLM.from_pretrained(place, dtype=weights_dtype(card), **safe, **given)
    declared = _keep_token_ids(model.generation_config)
    if "gguf_file" in given:
        model = _copy_without_quantization(model)
        # transformers mistakes the tokenizer's end of text for its beginning; the model's own declaration is in the
        # file.
        if isinstance(declared.eos_token_id, int):
            tokenizer.eos_token = tokenizer.convert_ids_to_tokens(declared.eos_token_id)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    model.generation_config = declared
    return model, tokenizer


def load_tokenizer(place: str, **given: str) -> Any:
    """Return the tokenizer of a model, as it was saved.

    `AutoTokenizer` would split the texts of a policy made from scratch as Qwen2's tokenizer does (transformers 5.17).
    """
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    if ScratchTokenizer.read(Path(place)) is not None:
        return PreTrainedTokenizerFast.from_pretrained(place, **given)
    return AutoTokenizer.from_pretrained(place, **given)


def locate_weights(folder: Path, card: PolicyCard) -> tuple[str, dict[str, str]]:
    """The location of a policy's weights (a folder, or a name on a hub), with further arguments for transformers.

    Raises `DataError` for a policy that has none.
    """
    if card.untrained is not None:
        problem = f"is a {card.untrained.kind} policy, which has no weights"
        raise DataError(folder / CARD_FILE, "untrained", problem, "Use a recipe whose policy is trained for this")
    if card.pretrained is None:
        return str(folder), {}
    names = {"revision": card.pretrained.revision, "gguf_file": card.pretrained.gguf_file}
    return locate_model(card.pretrained), {name: value for name, value in names.items() if value is not None}


def weights_dtype(card: PolicyCard) -> Literal["float32", "bfloat16"]:
    """Return the type of a policy's weights during generation."""
    return card.pretrained.dtype if card.pretrained else card.dtype


def locate_model(source: PretrainedPolicy) -> str:
    """Return what transformers reads: the name of a hub's model, or a folder. Raises `DataError` for a package that is
    not installed."""
    if source.package is None:
        return source.model
    spec = find_spec(source.package)
    folders = list(spec.submodule_search_locations or ()) if spec else []
    if not folders:
        raise DataError(source.model, "", "is not installed here", package_remedy(source.package))
    return folders[0]


def context_length(config: Any) -> int | None:
    """The longest sequence that a model supports (tokens); None if its configuration does not state it."""
    most = getattr(config, "max_position_embeddings", None)
    return int(most) if most else None


def count_chat_tokens(tokenizer: Any, messages: Sequence[Message]) -> int:
    """Return the tokens of a chat with the template and the opening of the answer."""
    return len(tokenizer(render_chat(tokenizer, messages), add_special_tokens=False)["input_ids"])


def is_chat_within(tokenizer: Any, messages: Sequence[Message], limit: int | None) -> bool:
    """Return whether a chat has at most `limit` tokens (None: any number).

    A chat of a million characters costs no more than one at the limit: its text is tokenized in slices until they
    exceed the limit. The cut between two slices adds a few tokens, which are allowed for; only a chat near or below the
    limit is tokenized as a whole.
    """
    if limit is None:
        return True
    text = render_chat(tokenizer, messages)
    if len(text.encode()) < limit:  # a token is at least one byte
        return True
    count = 0
    for start in range(0, len(text), _SLICE_CHARACTERS):
        count += (
            len(tokenizer(text[start : start + _SLICE_CHARACTERS], add_special_tokens=False)["input_ids"])
            - _SLICE_MARGIN_TOKENS
        )
        if count > limit:
            return False
    return len(tokenizer(text, add_special_tokens=False)["input_ids"]) <= limit


def render_chat(tokenizer: Any, messages: Sequence[Message]) -> str:
    """Return a chat in its template up to the opening of the answer; control tokens in its contents are plain text."""
    shown = escape_messages(tokenizer, messages)
    return str(tokenizer.apply_chat_template(shown, add_generation_prompt=True, tokenize=False))


def check_prompt_lengths(prompt_tokens: Sequence[int], completion_tokens: int, context: int | None) -> None:
    """Raise `PromptTooLongError` for the first of these prompts that leaves no room for the completion."""
    for index, length in enumerate(prompt_tokens):
        if context is not None and length > context - completion_tokens:
            raise PromptTooLongError(f"prompt {index}", length, context - completion_tokens, index=index)


def find_end_tokens(declared: int | Sequence[int] | None, tokenizer: Any) -> list[int]:
    """Return ids of the tokens that end a completion: `declared` by the model's generation configuration, the
    tokenizer's, and the chat template's.

    A base model may declare only its end-of-text token and still close its turns with the template's token, and then
    write the user's next turn. If the template closes no turn by a special token, the token that opens the next turn is
    used.
    """
    ends = {declared} if isinstance(declared, int) else set(declared or ())
    said = "Yes."
    turns = [{"role": "user", "content": "Ready?"}, {"role": "assistant", "content": said}, _NEXT_TURN]
    after = tokenizer.apply_chat_template(turns, tokenize=False).rpartition(said)[2]
    special = {token for token, added in tokenizer.added_tokens_decoder.items() if added.special}
    ids = tokenizer(after, add_special_tokens=False)["input_ids"]
    closing = next((token for token in ids if token in special), None)
    return sorted(token for token in {*ends, tokenizer.eos_token_id, closing} if token is not None)


def _keep_token_ids(declared: Any) -> Any:
    """Return a generation configuration with the same control tokens and no other setting."""
    from transformers import GenerationConfig

    tokens = ("bos_token_id", "eos_token_id", "pad_token_id")
    return GenerationConfig(**{name: getattr(declared, name) for name in tokens})


def _copy_without_quantization(model: Any) -> Any:
    config = type(model.config).from_dict(
        {key: value for key, value in model.config.to_dict().items() if key != "quantization_config"}
    )
    copy = type(model)(config).to(model.dtype)
    copy.load_state_dict(model.state_dict())
    return copy


class Completion(NamedTuple):
    """A policy's completion of one prompt."""

    text: str
    is_ended: bool
    """Whether it ended before the limit of tokens."""
    prompt_tokens: int = 0
    tokens: int = 0
    """Tokens of the completion, the one that ended it included."""
    worker: str = ""
    """The worker that wrote it; empty: the policy's own weights did."""
    response: Response | None = None
    """That worker's response, whose cost counts."""


class TextWriter(ABC):
    """Generates completions with the settings of a policy's card."""

    card: PolicyCard

    def complete(
        self,
        prompts: Sequence[Sequence[Message]],
        *,
        temperature: float = 0.0,
        seed: int = 0,
        max_tokens: int | None = None,
    ) -> list[Completion]:
        """Return one completion per prompt, in order; temperature 0 is greedy. `max_tokens` defaults to the card's.

        Raises `PromptTooLongError`, with the prompt's place as `index`, if no room is left for the completion.
        """
        if not prompts:
            return []
        return self._complete(prompts, temperature, seed, max_tokens or self.card.max_completion_tokens)

    @abstractmethod
    def _complete(
        self, prompts: Sequence[Sequence[Message]], temperature: float, seed: int, longest: int
    ) -> list[Completion]:
        """Complete at least one prompt; `longest`: the maximum number of tokens of a completion."""

    def write(
        self,
        prompts: Sequence[Sequence[Message]],
        *,
        temperature: float = 0.0,
        seed: int = 0,
        max_tokens: int | None = None,
    ) -> list[str]:
        """Return the texts of `complete`; raises its errors."""
        completions = self.complete(prompts, temperature=temperature, seed=seed, max_tokens=max_tokens)
        return [completion.text for completion in completions]


class Conductor(TextWriter):
    """A policy that generates workflows by transformers in this process."""

    def __init__(self, model: Any, tokenizer: Any, card: PolicyCard) -> None:
        self._model, self._tokenizer, self.card = model, tokenizer, card
        self._ends = find_end_tokens(model.generation_config.eos_token_id, tokenizer)
        self._counting = Lock()

    @classmethod
    def load(cls, folder: Path, card: PolicyCard | None = None) -> Conductor:
        """Load the policy in `folder` onto the GPU if there is one; `card`: instead of the folder's own. Raises
        `DataError`."""
        import torch

        card = card or PolicyCard.read(folder)
        model, tokenizer = load_model(folder, card)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        return cls(model.to(device).eval(), tokenizer, card)

    def _complete(
        self, prompts: Sequence[Sequence[Message]], temperature: float, seed: int, longest: int
    ) -> list[Completion]:
        import torch

        texts = [render_chat(self._tokenizer, prompt) for prompt in prompts]
        batch = self._tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
        asked = batch["attention_mask"].sum(dim=1).tolist()
        check_prompt_lengths(asked, longest, context_length(self._model.config))
        batch = {key: batch[key].to(self._model.device) for key in ("input_ids", "attention_mask")}
        drawn = self.card.generation
        sampling: dict[str, Any] = {"do_sample": False, "repetition_penalty": drawn.repetition_penalty}
        if temperature > 0:
            sampling |= {"do_sample": True, "temperature": temperature}
            sampling |= {"top_k": drawn.top_k, "top_p": drawn.top_p, "min_p": drawn.min_p}
        with torch.random.fork_rng(), torch.inference_mode():
            torch.manual_seed(seed)
            out = self._model.generate(
                **batch,
                **sampling,
                max_new_tokens=longest,
                eos_token_id=self._ends,
                pad_token_id=self._tokenizer.pad_token_id,
            )
        new = out[:, batch["input_ids"].shape[1] :]
        at_end = torch.isin(new, torch.tensor(self._ends, device=new.device))
        ended = at_end.any(dim=1)
        written = torch.where(ended, at_end.int().argmax(dim=1) + 1, new.shape[1])
        texts = self._tokenizer.batch_decode(new, skip_special_tokens=True)
        return [Completion(*each) for each in zip(texts, ended.tolist(), asked, written.tolist(), strict=True)]

    @property
    def prompt_limit(self) -> int | None:
        """Return the highest number of tokens of a prompt that leaves room for a completion; None: unknown."""
        context = context_length(self._model.config)
        return None if context is None else context - self.card.max_completion_tokens

    def has_room(self, prompt: Sequence[Message]) -> bool:
        """Return whether the prompt fits; safe from any thread, also during generation."""
        with self._counting:
            return is_chat_within(self._counter, prompt, self.prompt_limit)

    @cached_property
    def _counter(self) -> Any:
        # A separate tokenizer: padding changes the state of the one in use, which another thread may not use meanwhile
        # ("Already borrowed", tokenizers 0.23).
        return copy.deepcopy(self._tokenizer)

    def close(self) -> None:
        """Do nothing: the memory is freed with the object."""
