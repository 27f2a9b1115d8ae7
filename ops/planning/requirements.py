"""What a recipe needs and this machine, this pool or this file does not have: all of it, each with its remedy."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from importlib.util import find_spec
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from ops.benchmarks.registry import BENCHMARKS, training_benchmarks
from ops.conductor.policy import package_remedy
from ops.conductor.served import WriterAway, command, served
from ops.config import TRANSFORMERS, VLLM, PretrainedPolicy, pool_file
from ops.config.secret import key_problem
from ops.core.errors import ConfigError
from ops.core.installation import install_extra, pip_install
from ops.core.plural import counted
from ops.core.servers import wrong_addresses
from ops.local_models.vllm_server import vllm_python
from ops.planning.cost import total
from ops.planning.lengths import prompts
from ops.planning.memory import PHASES
from ops.planning.plan import Plan
from ops.planning.retirement import is_unknown, retirement
from ops.spending.money import usd
from ops.workers.providers import worst_price
from ops.workers.unsent import unsent

Need = Literal["data", "workers", "training", "evaluation"]
"""What a part of a life needs: its problems, whoever answers, what trains the policy, and what it is scored with."""
WHOLE_LIFE: tuple[Need, ...] = ("data", "workers", "training", "evaluation")
SOON = timedelta(days=60)
"""A model that ends so soon is named before anything is spent on it."""
ANSWER_S = 3.0
"""How long a server may take to be reached."""
TIGHT = 0.92
"""Share of a memory beyond which a plan is warned of: allocators lose some to fragments."""


class Missing(NamedTuple):
    """One thing that is missing: why it is needed, and what to do."""

    what: str
    why: str
    remedy: str
    refuses: bool = True
    """False: worth knowing, and no reason to stop."""

    def __str__(self) -> str:
        return f"{self.what}: {self.why}. {self.remedy}"


class Requirement(NamedTuple):
    """One question that a plan is asked."""

    need: Need
    ask: Callable[[Plan], Iterator[Missing]]


REQUIREMENTS: list[Requirement] = []


def requirement(need: Need) -> Callable[[Callable[[Plan], Iterator[Missing]]], Callable[[Plan], Iterator[Missing]]]:
    """Make the function one of `REQUIREMENTS`, in the order of this file."""

    def register(ask: Callable[[Plan], Iterator[Missing]]) -> Callable[[Plan], Iterator[Missing]]:
        REQUIREMENTS.append(Requirement(need, ask))
        return ask

    return register


def missing(plan: Plan, needs: Iterable[Need] = WHOLE_LIFE) -> list[Missing]:
    """Everything that is missing for these parts of a life; first what refuses, in the order of this file."""
    wanted = set(needs)
    found = dict.fromkeys(each for need, ask in REQUIREMENTS if need in wanted for each in ask(plan))
    return sorted(found, key=lambda each: not each.refuses)


# ── problems ─────────────────────────────────────────────────────────────────────────


@requirement("data")
def revisions(plan: Plan) -> Iterator[Missing]:
    """A dataset of the hub is read at one commit."""
    for name, source in plan.recipe.benchmarks.items():
        if source.source == "hub" and source.revision is None:
            address = f"https://huggingface.co/datasets/{BENCHMARKS[name].hub.id}"
            yield Missing(
                f"benchmarks.{name}.revision",
                "an unpinned dataset can change under every score",
                f"`git ls-remote {address} HEAD` prints the newest commit",
            )


@requirement("data")
def files(plan: Plan) -> Iterator[Missing]:
    """Files that the recipe names."""
    for name, source in plan.recipe.benchmarks.items():
        if source.source != "file":
            continue
        for file in dict.fromkeys((*source.files("train"), *source.files("test"))):
            path = plan.setup.workspace.root / file
            if not path.expanduser().is_file():
                yield Missing(str(file), f"benchmarks.{name} names it", f"Put it there ({path}), or name another file")


@requirement("data")
def hub_token(plan: Plan) -> Iterator[Missing]:
    """A gated dataset is given to an account that has accepted its terms."""
    gated = [
        BENCHMARKS[name].hub.id
        for name, source in plan.recipe.benchmarks.items()
        if source.source == "hub" and BENCHMARKS[name].hub.gated
    ]
    if gated and not _has_token():
        pages = ", ".join(f"https://huggingface.co/datasets/{each}" for each in gated)
        yield Missing(
            "HF_TOKEN",
            f"the hub asks for an account before it gives {', '.join(gated)}",
            f"Accept the terms at {pages}, then set HF_TOKEN or run `hf auth login`",
        )


# ── workers ──────────────────────────────────────────────────────────────────────────


@requirement("workers")
def addresses(plan: Plan) -> Iterator[Missing]:
    """Of the servers that the environment names."""
    for error in wrong_addresses(mlflow=not plan.setup.workspace.rehearsal):
        yield Missing(error.file, error.problem, error.remedy)


@requirement("workers")
def keys(plan: Plan) -> Iterator[Missing]:
    """Of the providers."""
    if not plan.recipe.asks_workers:
        return
    by_key: dict[str, dict[str, None]] = {}
    for pool in plan.setup.every_pool.values():
        for worker, key in pool.missing_keys().items():
            by_key.setdefault(key, {})[worker] = None
    for key, workers in by_key.items():
        names = ", ".join(workers)
        holds = f"it {key_problem(key)}: {names} cannot be asked with it"
        why = holds if os.environ.get(key) else f"{names} cannot be asked without it"
        yield Missing(key, why, "Set it (.env.example lists all of them)")


@requirement("workers")
def living_models(plan: Plan) -> Iterator[Missing]:
    """A model that is switched off answers nothing."""
    if not plan.recipe.asks_workers:
        return
    everybody = {worker.model: (worker, pool) for pool in plan.setup.every_pool.values() for worker in pool.workers}
    for worker, pool in everybody.values():
        end = retirement(worker)
        remedy = f"Take {worker.name} out of the pool {pool.name}, or name its successor there"
        if end is not None and end <= plan.today:
            yield Missing(f"{worker.model}", f"its provider retired it on {end}", remedy)
        elif end is not None and end <= plan.today + SOON:
            days = (end - plan.today).days
            yield Missing(f"{worker.model}", f"its provider retires it on {end}, in {days} days", remedy, refuses=False)
        elif end is None and is_unknown(worker):
            why = "LiteLLM's map does not list it: it may be retired, or newer than the map"
            yield Missing(f"{worker.model}", why, "Ask its provider before you spend", refuses=False)


@requirement("workers")
def prices(plan: Plan) -> Iterator[Missing]:
    """A call is paid for from a budget, which must know its price, today's and what is announced."""
    yield from _unpriced(plan)
    if not plan.recipe.asks_workers:
        return
    for name, pool in plan.setup.every_pool.items():
        for worker in pool.workers:
            for rates in worker.price.later if worker.price else ():
                if plan.today < rates.since <= plan.today + SOON:
                    yield Missing(
                        f"workers.{worker.name}.price",
                        f"in {pool_file(plan.setup.workspace.config, name)}, it becomes {rates} USD per million tokens "
                        f"on {rates.since}, and this plan is at today's",
                        "Leave room in the budget for calls from that day on",
                        refuses=False,
                    )


@requirement("workers")
def settings(plan: Plan) -> Iterator[Missing]:
    """What LiteLLM would send is what the pool says."""
    if not plan.recipe.asks_workers:
        return
    for name, pool in plan.setup.every_pool.items():
        for worker in pool.workers:
            for error in unsent(worker, pool_file(plan.setup.workspace.config, name)):
                yield Missing(error.field, f"in {error.file}, {error.problem}", error.remedy)


@requirement("workers")
def servers(plan: Plan) -> Iterator[Missing]:
    """Workers that Podium serves itself need vLLM's environment."""
    pools = plan.setup.every_pool.values()
    served = list(dict.fromkeys(worker.name for pool in pools for worker in pool.workers if worker.serve))
    if not (served and plan.recipe.asks_workers):
        return
    try:
        vllm_python(plan.setup.workspace)
    except ConfigError as error:
        yield Missing(error.file, f"{', '.join(served)} is served by vLLM from there", error.remedy)


@requirement("workers")
def sandbox(plan: Plan) -> Iterator[Missing]:
    """Programs that nobody has read are run behind a wall."""
    programs = [name for name in plan.recipe.benchmarks if BENCHMARKS[name].grader == "code"]
    if programs and plan.recipe.grading.isolation == "bubblewrap" and not plan.machine.bubblewrap:
        yield Missing(
            "bubblewrap",
            f"workers' programs ({', '.join(programs)}) are graded behind it",
            "Install it (Debian: `apt-get install bubblewrap`) and allow unprivileged user namespaces",
        )


@requirement("workers")
def cap(plan: Plan) -> Iterator[Missing]:
    """A run that would stop at its cap in any case is not begun."""
    if not plan.recipe.asks_workers or any(_unpriced(plan)):
        return
    cost, budget = total(plan.stages).usd, plan.recipe.budget
    dearest = max(plan.stages, key=lambda stage: stage.usd.low)
    if not cost.high:
        return  # all of it is stored
    run_usd = budget.run_usd - plan.spent_usd
    spent = f", of which {usd(plan.spent_usd)} are spent," if plan.spent_usd else ""
    ends = f"{usd(cost.low)} to {usd(cost.high)}"
    fewer = f"ask less there ({dearest.name}: {dearest.what}, from {usd(dearest.usd.low)})"
    if run_usd < cost.low:
        yield Missing(
            "budget.run_usd",
            f"its {usd(budget.run_usd)}{spent} are less than what the run still costs, {ends}",
            f"Raise it, or {fewer}",
        )
    elif run_usd < cost.expected:
        why = f"its {usd(budget.run_usd)}{spent} may end before the run, which still costs {ends}"
        yield Missing("budget.run_usd", why, f"Raise it, or {fewer}; a run that stops goes on later", refuses=False)
    if budget.month_usd is not None and budget.month_usd < cost.low:
        why = f"its {usd(budget.month_usd)} are less than the whole run's {ends}"
        yield Missing("budget.month_usd", why, f"Raise it, {fewer}, or let the run take months", refuses=False)


# ── training ─────────────────────────────────────────────────────────────────────────


@requirement("training")
def shape(plan: Plan) -> Iterator[Missing]:
    """Without a model's shape nobody can say what memory it takes."""
    grpo, policy = plan.recipe.grpo, plan.recipe.policy
    if plan.known is None and isinstance(policy, PretrainedPolicy):
        why = "nobody here knows its shape, so its memory cannot be planned"
        remedy = f"Add it to config/models.yaml, or fetch its config.json (`hf download {policy.model} config.json`)"
        yield Missing(f"shape of {policy.model}", why, remedy, refuses=grpo.vllm or plan.deepspeed is not None)


@requirement("training")
def subsets(plan: Plan) -> Iterator[Missing]:
    """The adaptive stage offers no more workers than there are."""
    adaptive, workers = plan.recipe.adaptive, len(plan.setup.pool.workers)
    if adaptive is None:
        return
    for name, size in (("smallest", adaptive.smallest), ("largest", adaptive.largest)):
        if size is not None and size > workers:
            why = f"a question is to offer {size} workers, and pool {plan.setup.pool.name!r} has {workers}"
            yield Missing(f"adaptive.{name}", why, f"Set it to {workers} at most, or take a larger pool")


@requirement("training")
def rounds(plan: Plan) -> Iterator[Missing]:
    """The stage in rounds asks problems that are in the mix."""
    stage, trained = plan.recipe.recursive, training_benchmarks(plan.recipe.benchmarks)
    if absent := sorted(set((stage and stage.benchmarks) or ()) - set(trained)):
        why = f"{', '.join(absent)} is not trained on, so the mix has no problem of it"
        yield Missing("recursive.benchmarks", why, f"Name some of {', '.join(trained)}, or leave it out for all")


@requirement("training")
def room_for_prompts(plan: Plan) -> Iterator[Missing]:
    """A prompt that leaves no room for a completion ends training or evaluation, after its workers were paid."""
    context, grpo = plan.context, plan.recipe.grpo
    if context is None:
        return
    room = context - grpo.max_completion_tokens
    measured = prompts(plan.setup)
    long = [tokens for tokens in measured if tokens > room]
    longest = max(long, default=0) if measured else plan.lengths.longest_prompt
    if longest <= room:
        return
    field = "policy.max_tokens"
    if plan.recipe.policy.kind == "pretrained":
        stated = plan.vllm is not None and plan.vllm.max_length == context
        field = "grpo.vllm_max_model_length" if stated else "the model's context"
    count = f"{len(long):,} of {len(measured):,} prompts" if measured else "the longest prompts (assumed)"
    left = f"{field} of {context:,} leaves {room:,} before a completion"
    why = f"{count} do not fit: up to {longest:,.0f} tokens, and {left}"
    needed = math.ceil((longest + grpo.max_completion_tokens) / 128) * 128
    wider = "Take a model with a longer context" if "context" in field else f"Raise {field} to {needed}"
    remedy = f"{wider}, or show fewer examples (prompting.few_shots: none)"
    yield Missing("room for prompts", why, remedy, refuses=bool(measured) or plan.lengths.prompt > room)


@requirement("training")
def room_for_rounds(plan: Plan) -> Iterator[Missing]:
    """A recursive round shows a completion and its final response, and whoever writes must have room for them: where
    there is none, a first round takes its place."""
    work, sizes, context = plan.workload, plan.lengths, plan.context
    if plan.recipe.recursive is None or work is None or context is None:
        return
    room = context - work.completion
    if sizes.longest_round_prompt <= room:
        return
    usual = sizes.round_prompt > room
    long = f"usually has {sizes.round_prompt:,.0f}" if usual else f"has up to {sizes.longest_round_prompt:,}"
    why = f"the prompt of such a round {long} tokens, and {room:,} of {context:,} are left before the completion"
    stated = plan.vllm is not None and plan.vllm.max_length == context
    wider = "State a longer grpo.vllm_max_model_length" if stated else "Take a model with a longer context"
    remedy = f"{wider}, or show less of a response (recursive.limits.answer_tokens)"
    yield Missing("room for recursive rounds", why, remedy, refuses=usual)


@requirement("training")
def packages(plan: Plan) -> Iterator[Missing]:
    """Libraries that the recipe asks for."""
    grpo, here = plan.recipe.grpo, plan.machine.packages
    if grpo.vllm:
        yield from _vllm(plan)
    if grpo.deepspeed is not None and "deepspeed" not in here:
        yield Missing("deepspeed", f"grpo.deepspeed names {grpo.deepspeed}", f"Run {pip_install('deepspeed')}")


@requirement("training")
def model_files(plan: Plan) -> Iterator[Missing]:
    """Weights that come with a Python package, and what reads GGUF."""
    policy = plan.recipe.policy
    if not isinstance(policy, PretrainedPolicy):
        return
    if policy.package is not None and find_spec(policy.package) is None:
        yield Missing(policy.package, "policy.model names its weights", package_remedy(policy.package))
    if policy.gguf_file is not None and find_spec("gguf") is None:
        yield Missing("gguf", f"it reads {policy.gguf_file}", f"Run {install_extra('smollm2')}")


@requirement("training")
def cold_start_memory(plan: Plan) -> Iterator[Missing]:
    """A pretrained model is taught in one process, on one GPU or on this machine."""
    needs, gpu = plan.cold_start_gib, plan.machine.gpu_gib
    has, whose = (gpu, "a GPU's") if gpu is not None else (plan.machine.memory_gib, "the machine's")
    if needs is not None and needs > has:
        why = f"{needs:.0f} GiB of {whose} {has:.0f} are needed"
        yield Missing("memory for the cold start", why, "Take a smaller cold_start.micro_batch, or cold_start.lora")


@requirement("training")
def vllm_server(plan: Plan) -> Iterator[Missing]:
    """A vLLM server of one's own is started first."""
    url = plan.recipe.grpo.vllm_server_url
    if not plan.recipe.grpo.vllm or url is None:
        return
    address = urlsplit(url)
    try:
        socket.create_connection((address.hostname or "", address.port or 80), timeout=ANSWER_S).close()
    except OSError as error:
        why = f"grpo.vllm_mode is server, and nobody answers there ({error.strerror or error})"
        yield Missing(url, why, f"Start it first: config/recipes/{plan.recipe.name}.yaml or docs/training.md says how")


@requirement("training")
def gpus(plan: Plan) -> Iterator[Missing]:
    """A large policy is trained on GPUs, one a rank; any beside vLLM, whose CPU build takes no new weights, on one."""
    grpo, here = plan.recipe.grpo, len(plan.machine.gpus)
    if grpo.vllm and not here and not plan.needs_gpu:
        why = "grpo.vllm hands a vLLM the policy's new weights at every step, which its build for CPUs cannot take"
        yield Missing("a GPU", why, "Set grpo.vllm: false, and transformers writes; or run it where a GPU is")
    if not plan.needs_gpu or here >= grpo.processes:
        return
    assert plan.known is not None and plan.memory is not None
    by = counted(grpo.processes, "process")
    size = f"{plan.known.shape.parameters / 1e9:.1f} billion parameters are trained by {by}"
    there = "there is none" if not here else "there is one" if here == 1 else f"there are {here}"
    wanted = "a GPU" if grpo.processes == 1 else f"{grpo.processes} GPUs"
    why = f"{size} that hold {plan.memory.peak:.0f} GiB each, and {there}"
    command = f"`podium plan {plan.recipe.name} --gpus {grpo.processes}x80`"
    yield Missing(wanted, why, f"Run it where they are; {command} plans for such a machine")


@requirement("training")
def gpu_memory(plan: Plan) -> Iterator[Missing]:
    """What is held at the height of a step."""
    if plan.memory is None or plan.machine.gpu_gib is None:
        return
    has, needs = plan.machine.gpu_gib, plan.memory.peak
    when = max(PHASES, key=plan.memory.during)
    why = f"{PHASES[when]}, {needs:.1f} GiB of a GPU's {has:.1f} are needed"
    if needs > has:
        fitting = [name for name, other in plan.layouts.items() if other.peak <= has]
        others = f"These would fit: {', '.join(fitting)}" if fitting else "No other engine here would fit either"
        yield Missing("GPU memory", why, f"{others}; or a smaller grpo.micro_batch or grpo.vllm_memory, or larger GPUs")
    elif needs > TIGHT * has:
        remedy = "Take a smaller grpo.micro_batch or grpo.vllm_memory"
        yield Missing("GPU memory", f"{why}: it is tight", remedy, refuses=False)


@requirement("training")
def vllm_cache(plan: Plan) -> Iterator[Missing]:
    """vLLM does not start where its cache cannot hold one sequence of the longest length."""
    made, engine = plan.memory, plan.vllm
    if made is None or made.kv_tokens is None or engine is None or made.kv_tokens >= made.kv_length:
        return
    stated = "grpo.vllm_max_model_length" if engine.max_length else "the model's own length, since none is stated"
    yield Missing(
        "vLLM's cache",
        f"it holds {made.kv_tokens:,} tokens, and one sequence can have {made.kv_length:,} ({stated})",
        "State a shorter grpo.vllm_max_model_length, or a larger grpo.vllm_memory",
    )


@requirement("training")
def host_memory(plan: Plan) -> Iterator[Missing]:
    """Of the machine: every rank reads the whole model, and offloaded states stay there."""
    if plan.memory is None:
        return
    has, needs = plan.machine.memory_gib, plan.memory.host
    if needs > has:
        why = f"{needs:,.0f} GiB of the machine's {has:,.0f} are needed"
        offloaded = plan.workload is not None and plan.workload.engine.offload
        less = "a DeepSpeed file without offload, where the GPUs have room" if offloaded else "fewer grpo.processes"
        yield Missing("host memory", why, f"Take a machine with more, or {less}")


@requirement("training")
def disk(plan: Plan) -> Iterator[Missing]:
    """Checkpoints, the one that is being written among them, and the policy itself."""
    has, needs = plan.machine.disk_gib, plan.disk_gib
    if needs > has:
        one = f"{plan.checkpoints} checkpoints of {plan.checkpoint_gib:,.0f} GiB and the weights"
        why = f"{one} take {needs:,.0f} GiB, and {has:,.0f} are free where .podium lies"
        yield Missing("disk", why, "Free some, or let .podium be a link to a larger disk")


@requirement("evaluation")
def writer(plan: Plan) -> Iterator[Missing]:
    """Who writes an evaluation's workflows, where that is vLLM: its library, or a server that serves the policy."""
    evaluation, name = plan.recipe.evaluation, plan.recipe.name
    if evaluation.writer == VLLM:
        yield from _vllm(plan)
    if evaluation.server is None:
        return
    serve = command(".podium/runs/KEY/policy", "KEY")
    remedy = f"Train first (`podium train {name}`), then serve the policy: `{serve}`"
    try:
        there = {model.name for model in served(evaluation.server)}
    except WriterAway:
        yield Missing(evaluation.server, "evaluation.writer names it, and no vLLM server answers there", remedy)
        return
    mine = [each for each in there if each.startswith(f"{name}-")]
    policies = 1 + (plan.recipe.cold_start is not None)
    if len(mine) < policies:
        wanted = "the trained policy" if policies == 1 else "the trained policy and its cold start"
        serves = ", ".join(sorted(there)) or "nothing"
        why = f"evaluation.writer names it for {wanted} of {name}, and it serves {serves}"
        yield Missing(evaluation.server, why, remedy)


@requirement("evaluation")
def evaluation_memory(plan: Plan) -> Iterator[Missing]:
    """The Conductor writes an evaluation's workflows on one GPU or on this machine, unless a server does."""
    evaluation, needs, gpu = plan.recipe.evaluation, plan.evaluation_gib, plan.machine.gpu_gib
    has, whose = (gpu, "a GPU's") if gpu is not None else (plan.machine.memory_gib, "the machine's")
    if needs > has:
        batch = evaluation.writer == TRANSFORMERS
        what = f"a batch of {evaluation.batch} workflows takes" if batch else "vLLM and its longest sequence take"
        remedy = "Take a smaller evaluation.batch" if batch else "Take a larger GPU, or a server (evaluation.writer)"
        yield Missing("memory for evaluation", f"{what} {needs:.0f} GiB of {whose} {has:.0f}", remedy)


def _vllm(plan: Plan) -> Iterator[Missing]:
    """Whoever asks for the library, it is named once."""
    asking = {"grpo.vllm": plan.recipe.grpo.vllm, "evaluation.writer": plan.recipe.evaluation.writer == VLLM}
    if "vllm" not in plan.machine.packages:
        fields = [field for field, asks in asking.items() if asks]
        why = f"{' and '.join(fields)} {'ask' if len(fields) > 1 else 'asks'} for it"
        yield Missing("vllm", why, f"Run where the GPUs are: {install_extra('gpu')}")


def _has_token() -> bool:
    if os.environ.get("HF_TOKEN"):
        return True
    from huggingface_hub import get_token

    return get_token() is not None


def _unpriced(plan: Plan) -> Iterator[Missing]:
    config, pools = plan.setup.workspace.config, plan.setup.every_pool
    for worker, file in ((worker, pool_file(config, name)) for name, pool in pools.items() for worker in pool.workers):
        try:
            worst_price(worker, file)
        except ConfigError as error:
            yield Missing(error.field, f"in {error.file}, it {error.problem}", error.remedy)
