"""Whether an address is this machine: what may go there unencrypted, without a key and without asking the owner.

One place decides, because a name that one part of the program takes for this machine and another does not is a hole.
"""

from __future__ import annotations

import ipaddress


def is_loopback(name: str) -> bool:
    """Whether an address is reached from this machine alone."""
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
