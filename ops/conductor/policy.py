"""Load a Conductor's policy from disk and generate completions with it."""

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
from ops.core.errors import DataError, first_line
from ops.core.installation import pip_install_command
from ops.core.messages import Message
from ops.core.response import Response
from ops.workers.scheduling import Client
from ops.workflow.cards import WorkerCard, load_cards
from ops.workflow.control_tokens import escape_messages
from ops.workflow.prompt import PromptTooLongError, load_few_shots
from ops.workflow.team import NO_CLIENT, Team

CARD_FILE = "podium.json"
"""The name of the file with the card in a policy's folder."""
_SLICE_CHARACTERS, _SLICE_MARGIN_TOKENS = 4096, 16
"""The number of characters of a slice, and the largest number of tokens that a cut between two slices adds."""
_NEXT_TURN = {"role": "user", "content": "Go on."}


def package_remedy(package: str) -> str:
    """Return the advice that an error message gives if the package with a policy's weights is not installed."""
    return f"Install its files, which is all that is needed of it: {pip_install_command('--no-deps', package)}"


class PolicyCard(Settings):
    """All settings that are needed to use a policy. They are stored as `podium.json` beside its weights."""

    recipe: str
    """The name of the recipe that made the policy."""
    pool: Pool
    """The pool of workers for which the policy was made."""
    offered: tuple[str, ...]
    """The names of the workers by ordinal, so that the first one is "Model 0" to this policy."""
    prompting: Prompting
    """The settings of the prompts that the policy reads."""
    cards: tuple[WorkerCard, ...] = ()
    """The description of each worker by ordinal; empty if `prompting.cards` is False."""
    execution: Execution = Execution()
    """The limits on the execution of workflows with which the policy was made."""
    max_completion_tokens: int
    """The largest number of tokens of a completion."""
    generation: Generation = Generation()
    """The sampling settings of completions."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """The data type of the weights."""
    pretrained: PretrainedPolicy | None = None
    """The source of the weights if they are not in the policy's folder, otherwise None."""
    untrained: UntrainedPolicy | None = Field(default=None, discriminator="kind")
    """The description of a policy that has no weights, otherwise None."""
    trained_steps: int = Field(default=0, ge=0)
    """The number of GRPO steps; it is 0 for a policy that was not trained with GRPO."""
    renumbered: bool = False
    """Whether training renumbered the workers on offer for each question from 0. If it is False, each worker keeps its
    ordinal, and workers that are not on offer are missing in the prompt's list."""
    rounds: RoundLimits | None = None
    """The limits of later rounds, or None if the policy was not trained in rounds and writes one workflow."""

    @classmethod
    def read(cls, folder: Path) -> PolicyCard:
        """Read the card of the policy in `folder`. Raises `DataError` if it is missing or invalid."""
        file = folder / CARD_FILE
        try:
            return cls.model_validate_json(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            why = "there is no policy of this recipe, pool and version of the code"
            raise DataError(file, "", f"does not exist: {why}", "Make it: `podium run RECIPE`") from None
        except (OSError, ValueError) as error:
            problem = f"is not a valid policy card ({first_line(error)})"
            raise DataError(file, "", problem, "Make it again: `podium run RECIPE`") from None

    def build_team(self, pool: Pool, data: Path, execution: Execution, client: Client = NO_CLIENT) -> Team:
        """Return a team of the workers of `pool`, numbered and described as in this policy's training.

        `data` is the folder with the few-shot examples. Workers of the policy that are not in the pool are not on
        offer. The others keep their ordinals, unless the policy was trained with renumbered workers. Workers of the
        pool that the policy does not know are left out (see `add_new_workers`). Raises `DataError` if the pool has none
        of the policy's workers, and `ConfigError` if the few-shot examples cannot be read.
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
        """Return the team extended by the workers of `pool` with which the policy was not trained.

        The new workers get the next ordinals and their descriptions from `data/profiles.json`. A policy that was
        trained without worker descriptions would know nothing about a new worker, so its team is returned unchanged.
        Raises `DataError` if a new worker was not measured.
        """
        new = [name for name in pool.names if name not in self.offered]
        if not new or not self.cards:
            return team
        workers = (*team.workers, *(pool.worker(name) for name in new))
        ordinals = (*team.ordinals, *range(len(team.workers), len(workers)))
        whole = replace(team, workers=workers, cards=(*team.cards, *load_cards(data, new)), offered=None)
        return whole if len(ordinals) == len(workers) else whole.restrict_to(ordinals)

    def write(self, folder: Path) -> None:
        """Write the card to the policy's folder."""
        write_text(folder / CARD_FILE, json.dumps(self.model_dump(mode="json"), indent=1))


def check_policy(folder: Path) -> None:
    """Check by digests that no file of a policy's folder has changed since it was written.

    A folder without digests is accepted. Every byte is read, at 1 to 2 GB/s. Raises `DamagedFile` if a file has
    changed, and `DataError` if the folder is missing.
    """
    remedy = "Give `podium run RECIPE` with its recipe, which restores it or trains it again"
    try:
        check_digest(folder, remedy, missing="accepted")
    except FileNotFoundError:
        raise DataError(folder, "", "does not exist", remedy) from None


def policy_key(folder: Path) -> str:
    """Return the key of a policy, which identifies the inputs that it was made from.

    It is the name of the policy's folder, or of the parent folder if the folder is called `policy`.
    """
    return folder.parent.name if folder.name == "policy" else folder.name


def load_model(folder: Path, card: PolicyCard) -> tuple[Any, Any]:
    """Return the model and the tokenizer of a policy, in the precision of its card.

    They are loaded from the folder or from the pretrained model that the card names. A GGUF file is dequantized into a
    plain model, which can then be trained and saved. Sampling settings in the model's files are ignored, because
    transformers would use them for every setting that a call omits.
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
    """Return the tokenizer of a model with transformers.

    `AutoTokenizer` would split the texts of a policy made from scratch as Qwen2's tokenizer does (transformers 5.17).
    """
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    if ScratchTokenizer.read(Path(place)) is not None:
        return PreTrainedTokenizerFast.from_pretrained(place, **given)
    return AutoTokenizer.from_pretrained(place, **given)


def locate_weights(folder: Path, card: PolicyCard) -> tuple[str, dict[str, str]]:
    """Return the location of a policy's weights, and further arguments with which transformers loads them.

    The location is a folder or the name of a model on a hub. Raises `DataError` if the policy has no weights.
    """
    if card.untrained is not None:
        problem = f"is a {card.untrained.kind} policy, which has no weights"
        raise DataError(folder / CARD_FILE, "untrained", problem, "Use a recipe whose policy is trained for this")
    if card.pretrained is None:
        return str(folder), {}
    names = {"revision": card.pretrained.revision, "gguf_file": card.pretrained.gguf_file}
    return locate_model(card.pretrained), {name: value for name, value in names.items() if value is not None}


def weights_dtype(card: PolicyCard) -> Literal["float32", "bfloat16"]:
    """Return the data type of a policy's weights during generation."""
    return card.pretrained.dtype if card.pretrained else card.dtype


def locate_model(source: PretrainedPolicy) -> str:
    """Return the location from which transformers loads a pretrained model.

    It is the name of a model on a hub or a folder. Raises `DataError` if the model is in a package that is not
    installed.
    """
    if source.package is None:
        return source.model
    spec = find_spec(source.package)
    folders = list(spec.submodule_search_locations or ()) if spec else []
    if not folders:
        raise DataError(source.model, "", "is not installed here", package_remedy(source.package))
    return folders[0]


def context_length(config: Any) -> int | None:
    """Return the length of a model's longest sequence in tokens, or None if its configuration does not state it."""
    most = getattr(config, "max_position_embeddings", None)
    return int(most) if most else None


def count_chat_tokens(tokenizer: Any, messages: Sequence[Message]) -> int:
    """Return the number of tokens of a chat, including its template and the opening of the answer."""
    return len(tokenizer(render_chat(tokenizer, messages), add_special_tokens=False)["input_ids"])


def is_chat_within(tokenizer: Any, messages: Sequence[Message], limit: int | None) -> bool:
    """Return whether a chat has at most `limit` tokens; if `limit` is None, every chat has.

    The text is tokenized in slices until they exceed the limit, so that a chat of a million characters takes no longer
    than one at the limit. A cut between two slices can add a few tokens, which are subtracted. Only a chat near or
    below the limit is tokenized as a whole.
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
    """Return a chat as text in the tokenizer's template, up to the opening of the answer.

    Control tokens in the contents are broken up, so that they are read as text.
    """
    shown = escape_messages(tokenizer, messages)
    return str(tokenizer.apply_chat_template(shown, add_generation_prompt=True, tokenize=False))


def check_prompt_lengths(prompt_tokens: Sequence[int], completion_tokens: int, context: int | None) -> None:
    """Raise `PromptTooLongError` for the first prompt that leaves no room for a completion.

    All lengths are in tokens. If `context` is None, the limit is unknown and nothing is raised.
    """
    for index, length in enumerate(prompt_tokens):
        if context is not None and length > context - completion_tokens:
            raise PromptTooLongError(f"prompt {index}", length, context - completion_tokens, index=index)


def find_end_tokens(declared: int | Sequence[int] | None, tokenizer: Any) -> list[int]:
    """Return the ids of the tokens that end a completion.

    These are the tokens that the model's generation configuration has `declared`, the tokenizer's end token, and the
    token that ends a turn in the chat template.

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
    """Return a generation configuration that has only the control tokens of the given one."""
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
    """The completion of one prompt."""

    text: str
    """The text without the token that ended it."""
    is_ended: bool
    """Whether the completion ended before it reached the limit of tokens."""
    prompt_tokens: int = 0
    """The number of tokens of the prompt."""
    tokens: int = 0
    """The number of tokens of the completion, including the one that ended it."""
    worker: str = ""
    """The name of the worker that wrote the completion, or "" if the policy's own weights generated it."""
    response: Response | None = None
    """The response of that worker, whose cost counts, or None if the policy's own weights generated the completion."""


class TextWriter(ABC):
    """The base class of Conductors that generate completions with the settings of a policy's card."""

    card: PolicyCard
    """The policy's card."""

    def complete(
        self,
        prompts: Sequence[Sequence[Message]],
        *,
        temperature: float = 0.0,
        seed: int = 0,
        max_tokens: int | None = None,
    ) -> list[Completion]:
        """Return one completion for each prompt, in the order of the prompts.

        Temperature 0 selects greedy decoding. `max_tokens` is the largest number of tokens of a completion; if it is
        None, the limit of the card applies. Raises `PromptTooLongError`, whose `index` is the position of the prompt,
        if a prompt leaves no room for its completion.
        """
        if not prompts:
            return []
        return self._complete(prompts, temperature, seed, max_tokens or self.card.max_completion_tokens)

    @abstractmethod
    def _complete(
        self, prompts: Sequence[Sequence[Message]], temperature: float, seed: int, longest: int
    ) -> list[Completion]:
        """Complete one or more prompts with at most `longest` tokens each."""

    def write(
        self,
        prompts: Sequence[Sequence[Message]],
        *,
        temperature: float = 0.0,
        seed: int = 0,
        max_tokens: int | None = None,
    ) -> list[str]:
        """Return the texts of the completions that `complete` returns. Raises the same errors."""
        completions = self.complete(prompts, temperature=temperature, seed=seed, max_tokens=max_tokens)
        return [completion.text for completion in completions]


class Conductor(TextWriter):
    """A policy that generates completions with transformers in this process."""

    def __init__(self, model: Any, tokenizer: Any, card: PolicyCard) -> None:
        self._model, self._tokenizer, self.card = model, tokenizer, card
        self._ends = find_end_tokens(model.generation_config.eos_token_id, tokenizer)
        self._counting = Lock()

    @classmethod
    def load(cls, folder: Path, card: PolicyCard | None = None) -> Conductor:
        """Load the policy in `folder` onto the GPU if there is one, otherwise onto the CPU.

        `card` replaces the card in the folder. Raises `DataError`.
        """
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
        """Return the largest number of tokens of a prompt that leaves room for a completion, or None if unknown."""
        context = context_length(self._model.config)
        return None if context is None else context - self.card.max_completion_tokens

    def has_room(self, prompt: Sequence[Message]) -> bool:
        """Return whether a prompt leaves room for a completion.

        Any thread may call this, also while another thread generates.
        """
        with self._counting:
            return is_chat_within(self._counter, prompt, self.prompt_limit)

    @cached_property
    def _counter(self) -> Any:
        # Padding changes the state of the generating tokenizer, so that another thread that used it at the same time
        # would get the error "Already borrowed" (tokenizers 0.23). Counting therefore has its own copy.
        return copy.deepcopy(self._tokenizer)

    def close(self) -> None:
        """Do nothing, because the memory is freed with the object."""
