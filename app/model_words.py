"""What is said about models, the same on the command line and in the chat."""

from __future__ import annotations

from app.models import Choice, Machine, Phase, Progress, Running

GIB = 2**30
_BAR = 24


def machine_line(machine: Machine) -> str:
    """What there is to run on."""
    cores = "1 core" if machine.cores == 1 else f"{machine.cores} cores"
    gpus = ", ".join(f"{gpu.name} with {gpu.memory / GIB:.0f} GiB" for gpu in machine.gpus)
    return f"This machine: {machine.memory / GIB:.1f} GiB of memory, {cores}, {gpus or 'no GPU'}"


def facts(choice: Choice) -> tuple[str, str, str, str, str]:
    """A model's place, the size of its file, the memory it answers with, how it suits, and how many versions it has."""
    memory = choice.advice.needs.chat
    return (
        choice.place.value,
        size(choice.size),
        f"{memory / GIB:.1f} GiB",
        choice.advice.fit.value,
        str(choice.versions) if choice.versions else "",
    )


def advice_line(choice: Choice) -> str:
    """What a model takes here, in one line."""
    needs, longest = choice.advice.needs, choice.advice.longest
    window = f"; a context of up to {longest:,} tokens would fit" if longest else ""
    return (
        f"{needs.weights / GIB:.1f} GiB of weights and {needs.cache / GIB:.1f} GiB of cache to answer, "
        f"about {needs.teaching / GIB:.1f} GiB more while it learns{window}"
    )


def running_line(running: Running, machine: Machine) -> str:
    """How the model is run here."""
    if running.gpu_layers is None:
        gpu = "every layer that fits" if machine.gpus else "none here"
    else:
        gpu = "no layers" if running.gpu_layers == 0 else f"up to {running.gpu_layers} layers"
    return f"It sees {running.context:,} tokens of a conversation; on a GPU: {gpu}"


def pull_line(now: Progress) -> str:
    """How far a pull is: a bar, the bytes and the time that is left."""
    share = now.share
    if share is None:
        return f"{size(now.have)} so far"
    if now.phase is Phase.CHECKING:
        return f"{_bar(share)} checking {share:4.0%}"
    left = ""
    if now.rate > 0 and now.total is not None:
        left = f", {_duration((now.total - now.have) / now.rate)} left"
    return f"{_bar(share)} {share:4.0%} of {size(now.total or 0)}{left}"


def size(count: int) -> str:
    """Bytes of a file, as its maker counts them."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def _bar(share: float) -> str:
    full = round(share * _BAR)
    return "█" * full + "░" * (_BAR - full)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
