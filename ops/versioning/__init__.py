"""Access to DVC and git: the data and code of a run, and copies of the data.

What belongs here: recording a stage's outputs in dvc.lock, pushing them, reading revisions. What does not: making those
outputs (`ops.stages`).
"""

from ops.core.installation import git_commit
from ops.versioning.dvc import commit_stages, is_in_cache, lock_dvc, push_stages, read_stage_version
from ops.versioning.settings import (
    get_settings_file,
    read_recorded_recipe,
    record_stage,
    select_data_settings,
    write_settings,
)
from ops.versioning.without_dvc import compute_revision, has_dvc, hash_stage_output

__all__ = [
    "commit_stages",
    "compute_revision",
    "get_settings_file",
    "git_commit",
    "has_dvc",
    "hash_stage_output",
    "is_in_cache",
    "lock_dvc",
    "push_stages",
    "read_recorded_recipe",
    "read_stage_version",
    "record_stage",
    "select_data_settings",
    "write_settings",
]  # fmt: skip
