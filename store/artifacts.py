"""What a decision knows a change by: a hash, which shows later whether what holds is what was decided.

An adapter's id is the hash of its file already. An item's hash would let somebody who guesses a forgotten sentence find
out that the guess is right, so it is forgotten with the item, out of the records as well (`store.erasure`).
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from store.types import ItemKind


def of_item(kind: ItemKind, body: dict[str, Any]) -> str:
    """The SHA-256 of what an item says, in hexadecimal."""
    packed = json.dumps(body, ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(f"{kind}\x00{packed}".encode()).hexdigest()
