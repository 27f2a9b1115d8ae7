"""Every setting as a pydantic model: loading, validation, the resolved dump.

What belongs here: what a user may set, and which combinations are impossible.
What does not: anything that acts on a setting, and any heavy import (torch,
dagster, litellm, mlflow): `podium` commands parse first and import after.
"""

from ops.config.adaptive import Adaptive
from ops.config.alerts import KINDS, AlertKind, Alerts, Mail, Slack
from ops.config.base import Settings, digest
from ops.config.data import BenchmarkSource, Curation, Grading, Versions
from ops.config.evaluation import TRANSFORMERS, VLLM, Evaluation
from ops.config.guards import Guards
from ops.config.loading import (
    load,
    load_alerts,
    load_deepspeed,
    load_gate,
    load_pool,
    load_recipe,
    load_retraining,
    pool_file,
    resolved,
)
from ops.config.parameters import hyperparameters
from ops.config.pool import Pool, Price, Serve, Worker
from ops.config.promotion import PromotionGate
from ops.config.recipe import Recipe
from ops.config.recursive import Recursive, RoundLimits
from ops.config.retraining import Change, Probing, Retraining
from ops.config.serving import Serving, load_serving
from ops.config.setup import Setup, asked_alike
from ops.config.snapshot import Snapshot
from ops.config.spending import Budget, Precaching, Replay
from ops.config.stage import Stage
from ops.config.training import (
    ColdStart,
    Grpo,
    Lora,
    PretrainedPolicy,
    ScratchPolicy,
    Validation,
)
from ops.config.workflow import Execution, Generation, Prompting

__all__ = [
    "KINDS",
    "TRANSFORMERS",
    "VLLM",
    "Adaptive",
    "AlertKind",
    "Alerts",
    "BenchmarkSource",
    "Budget",
    "Change",
    "ColdStart",
    "Curation",
    "Evaluation",
    "Execution",
    "Generation",
    "Grading",
    "Grpo",
    "Guards",
    "Lora",
    "Mail",
    "Pool",
    "Precaching",
    "PretrainedPolicy",
    "Price",
    "Probing",
    "PromotionGate",
    "Prompting",
    "Recipe",
    "Recursive",
    "Replay",
    "Retraining",
    "RoundLimits",
    "ScratchPolicy",
    "Serve",
    "Serving",
    "Settings",
    "Setup",
    "Slack",
    "Snapshot",
    "Stage",
    "Validation",
    "Versions",
    "Worker",
    "asked_alike",
    "digest",
    "hyperparameters",
    "load",
    "load_alerts",
    "load_deepspeed",
    "load_gate",
    "load_pool",
    "load_recipe",
    "load_retraining",
    "load_serving",
    "pool_file",
    "resolved",
]
