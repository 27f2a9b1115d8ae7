"""Write a plan as text: the recipe, memory by part, disk, cost, time and missing requirements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ops.benchmarks.registry import training_domains
from ops.config import VLLM, Policy, PretrainedPolicy, PromptedPolicy, Setup, StaticPolicy
from ops.core.errors import format_count, format_size
from ops.local_models.vllm_server import GPU_SHARE
from ops.planning.estimate import (
    ANSWER_TOKENS,
    EFFORT_TOKENS,
    JUDGE_PROMPT_TOKENS,
    OTHER_ANSWER_TOKENS,
    THINKING_TOKENS,
    TOKENS_PER_SECOND,
    TOOL_ANSWER_TOKENS,
    Cost,
    Range,
    add_costs,
)
from ops.planning.memory import PHASES, MemoryEstimate
from ops.planning.recipe_plan import MissingRequirement, RecipePlan
from ops.planning.requirements import format_missing
from ops.planning.speed import count_cold_start_tokens
from ops.planning.stage_estimates import PAID_SHARE
from ops.spending.bookings import format_usd
from ops.training.rewards.reward_term import TERMS

INDENT = 14
Row = Sequence[str]
"""The cells of a row of a table."""


def describe_recipe(setup: Setup) -> str:
    """Return the recipe in words, with the numbers of problems, calls and rollouts that follow from it."""
    recipe, pool = setup.recipe, setup.pool
    grpo, mix = recipe.grpo, recipe.curation
    places = len(training_domains(recipe.benchmarks)) * mix.per_domain
    candidates = round(places * mix.shortlist_factor)
    rollouts = grpo.steps * grpo.rollouts_per_step
    lesson = f", cold start {recipe.cold_start.steps} × {recipe.cold_start.batch}" if recipe.cold_start else ""
    samples, workers = recipe.precaching.samples, format_count(len(pool.workers), "worker")
    calls = candidates * len(pool.workers) * samples
    size = f"{grpo.steps} steps × {grpo.questions_per_step} questions × {grpo.rollouts_per_question} rollouts"
    adam = f"AdamW {grpo.adam_beta1}/{grpo.adam_beta2}, lr {grpo.learning_rate} {grpo.schedule}"
    engine = f"DeepSpeed {grpo.deepspeed}" if grpo.deepspeed else "no DeepSpeed"
    share = f"vLLM at {grpo.vllm_server_url}" if grpo.vllm_server_url else f"vLLM on {grpo.vllm_memory:.0%} of each GPU"
    writer = share if grpo.vllm else "generation by transformers"
    overlap = "; workers answer later steps' rollouts meanwhile" if grpo.staleness else ""
    training = [
        ("GRPO", f"{size} = {rollouts:,} rollouts, at most {rollouts * recipe.prompting.max_steps:,} worker calls"),
        ("", f"{grpo.loss} loss, clip {grpo.clip}, KL {grpo.kl}, {adam}, warm-up {grpo.warmup_ratio}"),
        ("", f"temperature {grpo.temperature}, at most {grpo.max_completion_tokens} tokens in a completion"),
        *([("reward", f"0, 0.5 or 1, and {_format_reward_terms(grpo.reward_terms)}")] if grpo.reward_terms else []),
        ("trainer", f"{format_count(grpo.processes, 'process')}, {engine}, {writer}{overlap}"),
    ]
    facts = (
        ("recipe", f"{recipe.name} (seed {recipe.seed}): {recipe.description}"),
        ("policy", _describe_policy(recipe.policy) + lesson),
        ("pool", f"{pool.name} {pool.answers_key}: {', '.join(pool.names)}"),
        ("precaching", f"{candidates:,} questions × {workers} × {format_count(samples, 'answer')} = {calls:,} calls"),
        ("mix", f"{places} training questions, {mix.per_domain} of each domain, chosen by the selector {mix.selector}"),
        *(training if recipe.is_trained else []),
        ("evaluation", f"{', '.join(recipe.benchmarks)}; {format_count(recipe.evaluation.repeats, 'repeat')}"),
        ("budget", f"{format_usd(recipe.budget.run_usd)} for a run"),
    )
    return _format_facts(facts)


def _describe_policy(policy: Policy) -> str:
    if isinstance(policy, PretrainedPolicy):
        return policy.model
    if isinstance(policy, PromptedPolicy):
        return f"{policy.worker}, prompted to write the workflows; nothing is trained"
    if isinstance(policy, StaticPolicy):
        return f"one workflow of {format_count(len(policy.workflow), 'step')}; nothing is trained"
    return "scratch, Qwen2 architecture"


def format_plan(plan: RecipePlan, lacking: Sequence[MissingRequirement], width: int | None = None) -> str:
    """Return the whole plan as text. Its last section is `ready` or the list of missing requirements.

    `width` is that of the terminal: the table of memory then has only the columns that fit. None shows all of them.
    """
    sections = [
        describe_recipe(plan.setup),
        _format_machine(plan),
        _format_memory(plan, width),
        _format_disk(plan),
        _format_costs(plan),
        format_missing(lacking),
    ]
    return "\n\n".join(section for section in sections if section)


def list_figures(plan: RecipePlan, lacking: Sequence[MissingRequirement]) -> dict[str, Any]:
    """Return the plan's figures as a mapping for JSON.

    The calls, tokens, USD and seconds that are still to come each have a low, an expected and a high value. Memory and
    disk are in GiB.
    """
    return {
        "recipe": plan.recipe.name,
        "pool": plan.pool.name,
        "ready": not any(each.refuses for each in lacking),
        "missing": [each._asdict() for each in lacking],
        "stages": [_stage_figures(stage) for stage in plan.stages],
        "whole_run": _stage_figures(add_costs(plan.stages)),
        "gpu_gib": None if plan.memory is None else {part.name: part.gib for part in plan.memory.parts},
        "disk_gib": plan.disk_gib if plan.workload or plan.hidden_tests_gib else None,
    }


def _stage_figures(stage: Cost) -> dict[str, Any]:
    figures = {"calls": stage.calls, "tokens": stage.tokens, "usd": stage.usd, "worker_s": stage.worker_s,
               "policy_s": stage.policy_s}  # fmt: skip
    spans = {name: None if span is None else span._asdict() for name, span in figures.items()}
    return {"name": stage.name, "what": stage.calls_formula, **spans}


# ── sections ─────────────────────────────────────────────────────────────────────────


def _format_machine(plan: RecipePlan) -> str:
    facts = [("machine", str(plan.machine))]
    if plan.known_shape is None and plan.recipe.is_trained:
        facts.append(("model", "Podium does not know its numbers of layers and parameters"))
    elif plan.known_shape is not None:
        shape = plan.known_shape.shape
        of = f"{shape.layers} layers × {shape.hidden:,}, vocabulary {shape.vocabulary:,}"
        facts.append(
            ("model", f"{_format_parameters(shape.parameters)} parameters ({of}; by {plan.known_shape.source})")
        )
    return _format_facts(facts)


def _format_memory(plan: RecipePlan, width: int | None) -> str:
    work, made = plan.workload, plan.memory
    if work is None or made is None:
        return ""
    gib = plan.gpu_gib
    known = "as stored" if plan.lengths.is_measured else "assumed"
    rollouts = (
        f"{work.micro_batch} rollouts of {work.prompt_tokens:,} + {work.completion_tokens:,} tokens ({known}) at once"
    )
    if gib is None:
        rows = [(part.name, _format_gib(part.gib)) for part in made.parts if part.gib]
        rows.append(("at most", f"{_format_gib(made.host_peak_gib)} of {plan.machine.memory_gib:,.0f} GiB"))
        return f"memory of the machine; {rollouts}\n{_format_table(rows)}\n{_format_policy_memory(plan)}"
    columns: dict[str, MemoryEstimate] = {"recipe": made, **plan.alternative_memory}
    whose = "" if plan.machine.gpus else " of 80 GB (assumed)"
    gpus = format_count(len(plan.machine.gpus) or work.engine.ranks, "GPU")
    ranks = f"the recipe uses {work.engine} on {work.engine.ranks}, the other columns are for {gpus}"
    head = f"memory in GiB for each GPU{whose}; {ranks}\n  {rollouts}"
    table = _format_table(_memory_rows(columns, gib))
    left_out: list[str] = []
    while width and len(columns) > 1 and max(map(len, table.splitlines())) > width:
        left_out.insert(0, list(columns)[-1])
        columns = {name: column for name, column in columns.items() if name not in left_out}
        table = _format_table(_memory_rows(columns, gib))
    note = f"\n  --wide also shows: {'; '.join(left_out)}" if left_out else ""
    cache = _describe_vllm_cache(made, work.sequence_tokens)
    return f"{head}\n{table}{note}{cache}\n{_format_policy_memory(plan)}"


def _memory_rows(columns: Mapping[str, MemoryEstimate], gib: float) -> list[Row]:
    names = dict.fromkeys(part.name for column in columns.values() for part in column.parts if not part.on_host)
    held = columns.values()
    return [
        ("", *columns),
        *((name, *(_format_gib(column.part_gib(name)) for column in held)) for name in names),
        *(
            (f"= {words}", *(_format_gib(column.phase_gib(phase)) for column in held))
            for phase, words in PHASES.items()
        ),
        (f"fits into {gib:.1f}", *("yes" if column.gpu_peak_gib <= gib else "no" for column in held)),
        ("host memory, all ranks", *(_format_gib(column.host_peak_gib) for column in held)),
    ]


def _format_policy_memory(plan: RecipePlan) -> str:
    return "\n".join(line for line in (_describe_evaluation(plan), _describe_cold_start(plan)) if line)


def _describe_evaluation(plan: RecipePlan) -> str:
    evaluation, gib = plan.recipe.evaluation, plan.evaluation_gib
    if evaluation.server is not None:
        return f"  an evaluation's workflows are written by the server at {evaluation.server}"
    if evaluation.writer == VLLM:
        share = f"{GPU_SHARE:.0%} of each GPU, {_format_gib(gib)} GiB at least"
        return f"  an evaluation's workflows are written by vLLM on {share}"
    return f"  an evaluation writes {evaluation.batch} workflows at once, by transformers: {_format_gib(gib)} GiB"


def _describe_cold_start(plan: RecipePlan) -> str:
    """Return the cold start of a pretrained model in words, or an empty text if there is none."""
    cold_start, tokens = plan.recipe.cold_start, count_cold_start_tokens(plan.setup, plan.lengths)
    if plan.cold_start_gib is None or cold_start is None or tokens is None:
        return ""
    size = (
        f"{cold_start.steps * cold_start.batch:,} examples, {_format_range(tokens.times(1e-6), ',.2f')} million tokens"
    )
    at_once = f"{cold_start.micro_batch or cold_start.batch} at once{' by low-rank updates' if cold_start.lora else ''}"
    return f"  the cold start teaches {size}, {at_once}: {_format_gib(plan.cold_start_gib)} GiB"


def _describe_vllm_cache(made: MemoryEstimate, sequence: int) -> str:
    if made.kv_tokens is None:
        return ""
    full = f"{made.kv_tokens / sequence:,.0f} of the longest rollouts"
    return f"\n  vLLM's cache holds {made.kv_tokens:,} tokens ({full}); its longest sequence has {made.kv_length:,}"


def _format_disk(plan: RecipePlan) -> str:
    parts = []
    if plan.workload is not None:
        parts.append(f"{plan.max_checkpoints} checkpoints of {format_size(plan.checkpoint_gib)}")
        parts.append(f"weights {format_size(plan.weights_gib)}")
    if plan.hidden_tests_gib:
        named = ", ".join(plan.hidden_tests)
        parts.append(f"hidden tests of {named} and a copy {format_size(plan.hidden_tests_gib)} (assumed)")
    total = f"{format_size(plan.disk_gib)}, and {format_size(plan.machine.disk_gib)} are free"
    facts = [("disk", f"{', '.join(parts)}: {total}")] if parts else []
    if plan.grading_gib:
        facts.append(("grading", f"a batch of hidden tests per core: about {format_size(plan.grading_gib)} of memory"))
    return _format_facts(facts)


_NOTHING_LEFT = (
    "No call is left to make: every answer is stored. A run computes the costs in its tables anew at the pool's\n"
    "present prices, at no cost."
)


def _format_costs(plan: RecipePlan) -> str:
    stages = plan.stages
    whole = add_costs(stages)
    rows = [_stage_row(stage) for stage in (*stages, whole)]
    spent = [("", "calls", "USD", "expected"), *((name, calls, usd, mean) for name, calls, _, usd, mean, *_ in rows)]
    what = [(f"  {stage.name}", f"{stage.calls_formula}{_format_limit(stage.limited_by)}") for stage in stages]
    unknown = [name for name, count in plan.test_questions.items() if count is None]
    left_out = [f"  not counted, since their files are not here: {', '.join(unknown)}"] if unknown else []
    width = max(len(name) for name, _ in what) + 2
    return "\n".join([
        "calls and USD still to come, low to high; what is stored costs nothing", _format_table(spent),
        *([] if whole.calls.high else [_NOTHING_LEFT]), _format_hours(rows),
        "calls of each stage",
        *(f"{name:<{width}}{words}" for name, words in what), *left_out, _format_assumptions(plan),
    ])  # fmt: skip


def _format_hours(rows: Sequence[Row]) -> str:
    """Return the table of hours. It has a column for the policy if the policy's speed is known or assumed."""
    cells = [(row[0], *("under 0.1" if each == "0.0" else each for each in row[-2:])) for row in rows]
    forecast = any(policy != "-" for *_, policy in cells)
    if not forecast and {waiting for _, waiting, _ in cells} == {"under 0.1"}:
        return "hours: under 0.1 of waiting for workers; the policy's own time is not forecast"
    shown = [("", "waiting for workers", "policy"), *cells] if forecast else [
        ("", "waiting for workers"), *(cell[:2] for cell in cells)
    ]  # fmt: skip
    note = "" if forecast else "; the policy's own time is not forecast"
    return f"hours, low to high{note}\n{_format_table(shown)}"


def _stage_row(stage: Cost) -> Row:
    return (
        stage.name,
        _format_range(stage.calls, ",.0f"),
        _format_range(stage.tokens.times(1e-6), ",.1f"),
        _format_range(stage.usd, ",.2f"),
        f"{stage.usd.expected:,.2f}",
        _format_range(stage.worker_s.times(1 / 3600), ",.1f"),
        _format_range(stage.policy_s.times(1 / 3600), ",.1f") if stage.policy_s else "-",
    )


def _format_assumptions(plan: RecipePlan) -> str:
    most = plan.recipe.prompting.max_steps
    usual = (ANSWER_TOKENS["choice"], OTHER_ANSWER_TOKENS, THINKING_TOKENS, EFFORT_TOKENS["low"], TOOL_ANSWER_TOKENS)
    lengths = "a choice {:.0f}, another answer {:.0f}, with thinking {:.0f}, with little thinking {:.0f}, a tool {:.0f}"
    speeds = " / ".join(f"{speed:.0f}" for speed in TOKENS_PER_SECOND)
    lines = [
        f"A workflow has 1 (low), {(1 + most) / 2:g} (expected) or {most} (high) steps.",
        "Each worker executes the same share of the steps. In the high figure the most expensive worker executes all.",
        "A step sees none (low), half (expected) or all (high) of the responses of the steps before it.",
        "Responses are as long as those that were measured here.",
        "Without measurements they have half (low), once (expected) or twice (high) the usual number of tokens.",
        f"The usual numbers of tokens are: {lengths.format(*usual)}.",
        f"Responses are as fast as those that were measured here, and otherwise written at {speeds} tokens per second.",
    ]
    for name, grader in plan.recipe.judges.items():
        lines.append(
            f"{grader.worker} grades each answer to {name}, with {JUDGE_PROMPT_TOKENS:.0f} tokens of instructions."
        )
    if plan.recipe.policy.kind == "scratch":
        shares = ", ".join(f"{name} {paid.expected:.0%}" for name, paid in PAID_SHARE.items())
        lines.append("A small policy often makes the same calls again, which are paid once.")
        lines.append(f"The expected shares of its calls that are paid are: {shares}.")
    if plan.needs_gpu:
        lines.append("The policy's hours are computed from assumed speeds (docs/models.md).")
    elif plan.recipe.policy.kind == "pretrained" and not plan.machine.gpus:
        cores = plan.machine.cores
        lines.append(f"The policy's hours are computed from the speed of one core (docs/models.md), times {cores}.")
    return "assumptions\n" + "\n".join(f"  - {line}" for line in lines)


# ── words ────────────────────────────────────────────────────────────────────────────


def _format_reward_terms(weights: Mapping[str, float]) -> str:
    return ", ".join(f"{weight:g} × {name} ({TERMS[name].unit})" for name, weight in weights.items())


def _format_facts(facts: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f"{name:<{INDENT}}{fact}" for name, fact in facts)


def _format_table(rows: Sequence[Row]) -> str:
    """Return rows as text, with the first column aligned to the left and the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for first, *others in rows:
        cells = "".join(f"  {cell:>{width}}" for cell, width in zip(others, widths[1:], strict=True))
        lines.append(f"  {first:<{widths[0]}}{cells}".rstrip())
    return "\n".join(lines)


def _format_range(span: Range, form: str) -> str:
    low, high = format(span.low, form), format(span.high, form)
    return low if low == high else f"{low} to {high}"


def _format_limit(name: str) -> str:
    return f"; slowest: {name}" if name else ""


def _format_gib(value: float) -> str:
    return f"{value:.1f}" if value >= 0.1 else f"{value:.3f}" if value else "-"


def _format_parameters(parameters: int) -> str:
    return f"{parameters / 1e9:.3f} billion" if parameters >= 1e8 else f"{parameters / 1e6:.2f} million"
