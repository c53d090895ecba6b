"""Writes a trained adapter in both forms, whole or not at all: PEFT's for training tools, GGUF for llama.cpp.

The files are made in the data directory's scratch place, where nothing is ever live, and the GGUF form is read
back and checked before the store moves the directory into place by one rename. A learner that dies in here
leaves scratch files, which the next one deletes.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from app.model import adapter_file, gguf_info
from app.model.catalogue import ModelFile
from store import adapters
from store.db import explained
from store.home import Home

Matrix = npt.NDArray[np.float32]


def lora_matrices(model: Any, adapter: str) -> dict[str, tuple[Matrix, Matrix]]:
    """Module name → (A (rank × in), B (out × rank)) of one adapter of a PEFT model."""
    found = {}
    for name, module in model.named_modules():
        if adapter in getattr(module, "lora_A", {}):
            down = module.lora_A[adapter].weight.detach().float().cpu().numpy()
            up = module.lora_B[adapter].weight.detach().float().cpu().numpy()
            found[name] = (down, up)
    return found


def write(
    home: Home, model: Any, adapter: str, alpha: float, base: ModelFile, manifest: dict[str, Any]
) -> Path:
    """Make a directory with all of an adapter's files in the scratch place; returns it.

    Raises AdapterFileError when the result cannot be loaded (not finite, no effect), DiskFull, HomeError.
    """
    served = gguf_info.read(base.served_path)
    with explained(home):
        made = Path(tempfile.mkdtemp(prefix="adapter-", dir=home.scratch))
        try:
            gguf = made / adapters.GGUF_NAME
            adapter_file.write_gguf_adapter(
                gguf, lora_matrices(model, adapter), alpha, served, base.base_hash
            )
            adapter_file.verify(gguf, served, base.base_hash)
            model.save_pretrained(made, selected_adapters=[adapter])
            # PEFT adds a model card full of blanks; the manifest says more.
            (made / "README.md").unlink(missing_ok=True)
            text = json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False)
            (made / adapters.MANIFEST_NAME).write_text(text + "\n", encoding="utf-8")
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise
    return made


def clear_scratch(home: Home) -> None:
    """Delete what a learner that died left behind. To be called with the learner's lock held."""
    for left in home.scratch.iterdir():
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)
