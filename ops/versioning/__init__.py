"""Access to DVC and git: the data and code of a run, and copies of the data.

What belongs here: recording a stage's outputs in dvc.lock, pushing them, reading revisions. What does not: making those
outputs (`ops.stages`).
"""

from ops.core.installation import git_commit
from ops.versioning.dvc import commit, is_stored, push, recording, version
from ops.versioning.plain import has_dvc, revision, unrecorded
from ops.versioning.settings import data_settings, record, recorded_recipe, settings_file, write_settings

__all__ = [
    "commit", "data_settings", "git_commit", "has_dvc", "is_stored", "push", "record", "recorded_recipe", "recording",
    "revision", "settings_file", "unrecorded", "version", "write_settings",
]  # fmt: skip
