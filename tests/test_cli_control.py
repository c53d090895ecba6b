"""Decisions on the command line: told, taken back, agreed to, and all of it checked."""

from __future__ import annotations

import json

import pytest

from app.control.step import Controller
from store import decisions, items, settings
from store.db import Store
from tests.cli_helpers import run_cli
from tests.people import disliked, faulty
from store.types import ErrorClass

SHORTER = "Answer in one or two short sentences."
