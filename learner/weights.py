"""The frozen base, made from the very file that is served, and cached in a form that maps in 0.04 s.

What is trained must be what is served: the weights come from the served GGUF (F16 for a small model), not from
the quantised file beside it, so that both sides agree to 0.009 of a logit. transformers reads GGUF, but takes
10 to 40 s each time; the copy is made once per model file and machine, in the cache directory, because it holds
nothing of the owner's. It is written beside its final name and renamed, so a broken-off conversion is made again.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.model import convert
from app.model.catalogue import ModelFile
from learner.precision import Precision, in_four_bits, library
from store.errors import DiskFull, LearnerError
from store.files import force_to_disk

if TYPE_CHECKING:
    from transformers import PreTrainedModel

log = logging.getLogger("mynah.learner")

_FORM = "torch-1"


def load_base(model: ModelFile, precision: Precision = Precision.FLOAT32) -> PreTrainedModel:
    """The base as a causal language model, frozen, without dropout; the cached copy is in float32 in any case.

    Raises LearnerError where the architecture cannot be trained, DiskFull where the cached copy does not fit.
    """
    from transformers import AutoModelForCausalLM

    directory = torch_form(model)
    base: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        directory, dtype=precision.dtype, attn_implementation="sdpa"
    )
    base.config.use_cache = False
    base.requires_grad_(False)
    base.eval()
    return in_four_bits(base, library()) if precision is Precision.FOUR_BIT else base


def torch_form(model: ModelFile) -> Path:
    """The directory with the cached copy, made now if it is not there yet."""
    directory = model.derived / _FORM
    if (directory / "config.json").exists():
        return directory
    served = convert.served_form(model)
    model.derived.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{_FORM}.", dir=model.derived))
    try:
        _convert(served, scratch)
        # Another home's learner may have been quicker; its copy is the same.
        if not directory.exists():
            scratch.rename(directory)
    except OSError as error:
        if shutil.disk_usage(model.derived).free < served.stat().st_size:
            raise DiskFull(f"the disk that holds {model.derived} is full: free some space") from error
        raise LearnerError(f"the training copy of {model.name} could not be written: {error}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return directory


def _convert(served: Path, directory: Path) -> None:
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    log.info("making the training copy of %s", served)
    try:
        made: Any = AutoModelForCausalLM.from_pretrained(
            served.parent, gguf_file=served.name, dtype="float32", local_files_only=True
        )
    except (ValueError, KeyError, NotImplementedError) as error:
        raise LearnerError(
            f"models of this kind cannot be trained here ({error}): chat works, learning needs another model"
        ) from error
    # transformers takes any GGUF for quantised and refuses to save it, though the values are plain floats now.
    made.hf_quantizer = None
    if hasattr(made.config, "quantization_config"):
        del made.config.quantization_config
    made.save_pretrained(directory)
    # The marker of a whole copy is read first by `torch_form`; the weights must be on the disk before it counts.
    for path in sorted(directory.iterdir()):
        force_to_disk(path)
