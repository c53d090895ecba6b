"""The commands on the real model, as processes: what a script of the owner's would do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from store.home import Home

ROOT = Path(__file__).resolve().parent.parent
QUESTION = "Name a colour."

pytestmark = pytest.mark.model


def mynah(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "app.cli.main", *words]
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=ROOT, timeout=240, check=False
    )


def data(*words: str) -> Any:
    ran = mynah(*words, "--json")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def ask(*words: str) -> Any:
    return data("ask", "--temperature", "0", "--max-tokens", "12", *words)


def test_ask_teach_and_stop(home: Home) -> None:
    first = ask(QUESTION)
    assert set(first) == {"conversation", "message", "text", "adapter", "finish_reason", "usage", "timings"}
    assert first["text"].strip()
    assert first["adapter"] is None
    assert first["usage"]["completion_tokens"] <= 12

    again = ask(QUESTION)
    assert again["text"] == first["text"]
    assert again["conversation"] != first["conversation"]

    streamed = mynah("ask", "--temperature", "0", "--max-tokens", "12", QUESTION)
    assert streamed.stdout == first["text"] + "\n"

    more = ask("--conversation", first["conversation"][:8], "Another one.")
    assert more["conversation"] == first["conversation"]
    shown = data("conversations", "show", first["conversation"])
    assert [each["role"] for each in shown["messages"]] == ["user", "assistant", "user", "assistant"]
    assert shown["messages"][1]["text"] == first["text"]

    assert data("correct", first["message"], "Blue.")["state"] == "queued"
    assert data("learn", "status")["waiting"][0]["message"] == first["message"]

    secret = ask("--incognito", QUESTION)
    assert (secret["conversation"], secret["message"]) == (None, None)
    assert len(data("conversations", "list")) == 3

    assert data("stop")["host"] is True
    assert not home.host_json.exists()
    assert data("stop") == {"host": False, "learner": False}
