"""Classify a workflow's strategy by its shape, and measure the diversity of many workflows.

The rules are deliberately simple: the same workflow always has the same shape, and a person can
see why. They consider only the steps that can influence the answer, and recognize only English wording.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import Literal, NamedTuple, get_args

from ops.workflow.grammar import Workflow

Shape = Literal["empty", "abdication", "single", "debate", "verify_last", "chain", "aggregate", "tree", "mixed"]
"""The strategy of a workflow, in the order in which `classify_shape` tries its rules."""
SHAPES: tuple[Shape, ...] = get_args(Shape)
"""All shapes in the order of the rules."""

_PLANS = r"(?:plan|decide|choose|determine|design|organi[sz]e|orchestrate|coordinate|delegate|assign|schedule|dispatch)"
_TEAM = r"(?:(?:other|remaining|next|best|right) )?(?:models?|workers?|agents?|experts?|assistants?)"
_ABDICATES = re.compile(
    rf"""\b{_PLANS}\w*\b[^.!?\n]{{0,60}}?\b(?:
        (?:the|all|any)\ (?:rest|remainder|remaining\ (?:steps?|work|tasks?|subtasks?)|following\ steps?|next\ steps?)
      | (?:the|a|your|our)\ (?:whole\ |entire\ |full\ )?workflow
      | (?:which|what|who|whom|how\ many|the|other|among|between|to|for)\ {_TEAM}\b
      | what\ (?:to\ do|should\ be\ done|happens|comes)\ next | how\ to\ (?:proceed|continue)
      | who\ (?:should|does|will)
    )
    | \b(?:model_id|subtasks|access_list)\b
    | \byou\ are\ (?:now\ )?the\ (?:conductor|orchestrator|coordinator|planner)\b""",
    re.IGNORECASE | re.VERBOSE,
)
_REBUTS = re.compile(
    r"""\b(?: rebut\w* | refut\w+ | counter-?(?:argu\w+|point\w*) | debat\w+ | challeng(?:e|es|ing)\b | disagree\w*
      | argu(?:e|es|ing)\ (?:against|for\ the|that)\b | devil'?s\ advocate | attack\w*
      | (?:respond|reply|object)\w*\ to\b | defend\w* | oppos(?:e|es|ing)\b )""",
    re.IGNORECASE | re.VERBOSE,
)
_CRITIQUES = re.compile(r"\b(?:critiqu\w+|critici[sz]\w+)", re.IGNORECASE)
_ACTION = re.compile(
    r"""\b(?:
      (?P<checks> double-?check\w* | cross-?check\w* | check(?:s|ing)?\b | verif(?:y|ies|ying|ication)\b | validat\w+
        | confirm\w* | critiqu\w+ | critici[sz]\w+ | review(?:s|ing)?\b | proof-?read\w* | audit\w* | inspect\w*
        | scrutini[sz]\w+ | examin(?:e|es|ing)\b | test(?:s|ing)?\b | re-?(?:comput|calculat|evaluat|deriv|check)\w+
        | (?:look|search|hunt)(?:ing)?\ for\ (?:\w+\ ){0,3}(?:gap|error|mistake|flaw|bug|slip)s?
        | (?:find|spot|list|point\ out|identify|catch)\ (?:\w+\ ){0,3}(?:gap|error|mistake|flaw|bug|slip)s?
        | expand\w*\b[^.]{0,40}\bcompare | try\ to\ (?:break|falsify|disprove) )
    | (?: solv | comput | calculat | writ | find | deriv | answer | stat | giv | combin | merg | summari[sz]
        | synthesi[sz] | aggregat | conclud | choos | pick | select | produc | generat | implement | convert
        | look\ up | nam | list
        | explain | describ | determin | integrat | compar | reconcil | weigh | decid | plan | propos | work\ out
        | simplif | prov | translat | rank | vot | estimat | interpret | extract | draft | outlin | finish
        | complet )\w*
    )""",
    re.IGNORECASE | re.VERBOSE,
)


def classify_shape(workflow: Workflow) -> Shape:
    """Return the shape of the steps that can influence the answer. The first rule that holds decides.

    - "empty": the workflow has no steps.
    - "abdication": a subtask asks a worker to plan the rest of the work.
    - "single": the workflow has one step.
    - "debate": a step sees two or more independent attempts and argues with them.
    - "verify_last": the last step sees earlier work, and the first thing that its subtask asks for is a check.
    - "chain": each step sees the one before it.
    - "aggregate": the last step sees all other steps, which are independent.
    - "tree": each partial result is read by exactly one later step.
    - "mixed": the workflow has any other graph, which is possible only with lists of step indices.
    """
    needed = sorted(workflow.needed_steps())
    if not needed:
        return "empty"
    if any(_ABDICATES.search(workflow.steps[index].subtask) for index in needed):
        return "abdication"
    if len(needed) == 1:
        return "single"
    if any(_is_rebuttal(workflow, index, is_last=index == needed[-1]) for index in needed):
        return "debate"
    if _is_check(workflow.steps[needed[-1]].subtask):
        return "verify_last"
    return _classify_graph(workflow, needed)


def _classify_graph(workflow: Workflow, needed: list[int]) -> Shape:
    if all(before in workflow.visible_steps(step) for before, step in pairwise(needed)):
        return "chain"
    last_sees_all = workflow.visible_steps(needed[-1]) == tuple(needed[:-1])
    if last_sees_all and not any(map(workflow.visible_steps, needed[:-1])):
        return "aggregate"
    readers = Counter(earlier for earlier, later in direct_edges(workflow) if later in needed)
    return "tree" if max(readers.values()) == 1 else "mixed"


def direct_edges(workflow: Workflow) -> list[tuple[int, int]]:
    """Return the edges of the workflow's graph that no longer path implies.

    An edge is a pair of step indices (earlier, later). It is left out if the later step also sees the earlier one
    through another step.
    """
    above: list[set[int]] = []
    """The steps that each step sees directly or through other steps."""
    edges = []
    for later in range(len(workflow.steps)):
        seen = workflow.visible_steps(later)
        through = set().union(*(above[index] for index in seen)) if seen else set()
        above.append({*seen, *through})
        edges += [(earlier, later) for earlier in seen if earlier not in through]
    return edges


def _is_rebuttal(workflow: Workflow, index: int, *, is_last: bool) -> bool:
    seen = workflow.visible_steps(index)
    independent = any(
        first not in workflow.visible_steps(second) for place, second in enumerate(seen) for first in seen[:place]
    )
    subtask = workflow.steps[index].subtask
    # A critique of several attempts that ends the workflow is a check; one that a later step answers is a debate.
    return independent and bool(_REBUTS.search(subtask) or (not is_last and _CRITIQUES.search(subtask)))


def _is_check(subtask: str) -> bool:
    """Return whether the first thing that a subtask asks for is a check."""
    first = _ACTION.search(subtask)
    return first is not None and first["checks"] is not None


def workflow_pattern(workflow: Workflow) -> str:
    """Return a text that describes a workflow without its subtasks.

    The pattern `2 0<0 1<0,1` means that worker 2 works first, then worker 0, which sees step 0, and then worker 1,
    which sees steps 0 and 1. Two workflows with the same pattern differ only in their subtasks. The pattern includes
    steps that cannot influence the answer.
    """
    return " ".join(
        f"{step.worker}<{','.join(map(str, seen))}" if (seen := workflow.visible_steps(index)) else str(step.worker)
        for index, step in enumerate(workflow.steps)
    )


class Diversity(NamedTuple):
    """The diversity of a set of patterns."""

    distinct: int
    """The number of different patterns."""
    entropy: float
    """The Shannon entropy of the patterns' shares in bits, from 0 (all are equal) to log2(n) (all n differ)."""


def measure_diversity(patterns: Iterable[str]) -> Diversity:
    """Return the number of different patterns and their entropy. Both are 0 if there are no patterns."""
    counts = Counter(patterns)
    total = counts.total()
    entropy = math.fsum(-count / total * math.log2(count / total) for count in counts.values())
    return Diversity(len(counts), max(0.0, entropy))


def count_worker_use(steps: Iterable[tuple[str, str]]) -> dict[str, dict[str, int]]:
    """Count the steps of each worker in each domain.

    `steps` has a pair (domain, worker) for each step. The result maps domains to workers to numbers of steps, sorted by
    name.
    """
    counts: dict[str, Counter[str]] = {}
    for domain, worker in steps:
        counts.setdefault(domain, Counter())[worker] += 1
    return {domain: dict(sorted(counts[domain].items())) for domain in sorted(counts)}
