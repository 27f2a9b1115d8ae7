"""The wheel carries what the code reads besides itself, in `ops/files`; in the repository it keeps its one place."""

from pathlib import Path
from shutil import copyfile

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
FILES = (
    ".dvc/config",
    ".dvc/.gitignore",
    ".dvcignore",
    ".env.example",
    ".gitignore",
    "config/deepspeed/*.json",
    "config/*.yaml",
    "config/pools/*.yaml",
    "config/recipes/*.yaml",
    "config/team/*.yaml",
    "constraints.txt",
    "dagster.yaml",
    "data/.gitignore",
    "data/cold_start/*.yaml",
    "data/few_shots/*.yaml",
    "data/knowledge/*.csv",
    "dvc.yaml",
    "mlflow/agent.py",
)


class BuildWithFiles(build_py):
    """An editable install reads the files where they are."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        for file in (file for pattern in FILES for file in ROOT.glob(pattern)):
            target = Path(self.build_lib) / "ops" / "files" / file.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            copyfile(file, target)


setup(cmdclass={"build_py": BuildWithFiles})
