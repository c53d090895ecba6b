"""E-mail and network addresses, told from what merely has their shape.

`icon@2x.png`, `git@host:repo`, `react@18.2.0`, "version 1.2.3.4", `12:30:45` and `std::vector` are not addresses.
Loopback and unspecified addresses and netmasks stay: they are the same on every machine, and text about programs is
full of them.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from functools import cache
from typing import Final

from store.redaction.placeholders import Hit

# Letters with accents belong to a word; Korean particles, which follow without a space, do not.
_LETTER: Final = r"A-Za-z0-9\u00c0-\u024f"
_LOCAL: Final = rf"(?<![{_LETTER}._%+-])[{_LETTER}_%+-][{_LETTER}._%+'-]{{0,63}}"
_TOP: Final = rf"(?:xn--[a-z0-9-]{{1,59}}|[A-Za-z]{{2,24}})(?![{_LETTER}_]|-[{_LETTER}])"
_DOMAIN: Final = rf"(?:(?:[{_LETTER}-]{{1,63}}|[가-힣]{{1,20}})\.){{1,8}}{_TOP}"
_EMAIL: Final = rf"(?P<local>{_LOCAL})@(?P<domain>{_DOMAIN})(?P<path>:[^\s0-9])?"
# jane (at) example (dot) org, and the golbaengi of Korean. A bare "at" counts only with a bare "dot".
_LABEL: Final = rf"[{_LETTER}-]{{1,63}}"
_AT: Final = rf"(?: ?[\[(] ?(?:at|골뱅이) ?[\])] ?| ?골뱅이 ?| at (?={_LABEL}(?: ?[\[(]dot[\])] ?| dot )))"
_DOT: Final = r"(?: ?[\[(] ?(?:dot|점|닷) ?[\])] ?| dot | ?(?:점|닷) ?)"
_SPELLED: Final = rf"(?P<local>{_LOCAL}){_AT}(?P<domain>{_LABEL}(?:(?:\.|{_DOT})[{_LETTER}-]{{2,63}}){{1,3}})"
# Endings of files: an image named for a screen density is no address.
_FILES: Final = frozenset(
    "png jpg jpeg gif svg webp bmp ico pdf css js mjs ts tsx jsx json html htm txt md py rb rs go java kt c h cpp "
    "hpp sh zip gz tgz tar whl toml yaml yml xml csv lock log map mp3 mp4 wav dll exe so bin".split()
)

_OCTET: Final = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_V4: Final = (
    rf"(?<![0-9A-Za-z_.])(?<![0-9A-Za-z]-)(?:{_OCTET}\.){{3}}{_OCTET}"
    r"(?![0-9A-Za-z_])(?!\.[0-9])(?!-[0-9A-Za-z])"
)
_V6: Final = r"(?<![0-9A-Za-z_:.])(?=[0-9A-Fa-f:])[0-9A-Fa-f:.]{3,45}(?![0-9A-Za-z_:])"
# What stands before four numbers that are a version or a section.
_VERSION: Final = re.compile(
    r"(?:\bver(?:sion)?s?|\brelease[sd]?|\bbuild|\bfirmware|\bdrivers?|\bupdated?|\bupgraded?|\bsections?|\bclauses?|\bchapters?"
    r"|\bparagraphs?|\bfigures?|\btables?|\bappendix|§|버전|버젼|펌웨어|릴리스|업데이트|드라이버|제|절|표|그림"
    r"|[=~^<>]=|\bchrome|\bfirefox|\bsafari)[^\n0-9]{0,12}\Z|\bv\.? ?\Z",
    re.IGNORECASE,
)
_ADDRESS_WORD: Final = re.compile(r"\bip\b|\baddress|\bhosts?\b|\bserver|아이피|주소|서버", re.IGNORECASE)
_AFTER_VERSION: Final = re.compile(r"\s?(?:버전|버젼|절|항|릴리스|version\b|release\b)")
_NEAR: Final = 30


def emails(text: str) -> Iterator[Hit]:
    """E-mail addresses, also with `(at)` and `(dot)`."""
    written, spelled = _email_patterns()
    for match in written.finditer(text):
        # A colon and a path after the host is how git and scp name a remote place.
        remote = match["path"] is not None and match["local"].casefold() == "git"
        if match["domain"].rpartition(".")[2].casefold() not in _FILES and not remote:
            end = match.end("domain")
            yield Hit(match.start(), end, text[match.start() : end].casefold())
    for match in spelled.finditer(text):
        domain = re.sub(_DOT, ".", match["domain"])
        if domain.rpartition(".")[2].isalpha():
            yield Hit(*match.span(), f"{match['local']}@{domain}".casefold())


def ips(text: str) -> Iterator[Hit]:
    """IPv4 and IPv6 addresses that could name somebody's machine."""
    four, six = _ip_patterns()
    for match in four.finditer(text):
        address: ipaddress.IPv4Address | ipaddress.IPv6Address = ipaddress.IPv4Address(match[0])
        if _names_a_machine(address) and not _is_version(text, match):
            yield Hit(*match.span(), str(address))
    for match in six.finditer(text):
        written = match[0].rstrip(".") if match[0].endswith(".") else match[0].removesuffix(":")
        try:
            address = ipaddress.IPv6Address(written)
        except ValueError:
            continue
        if _names_a_machine(address) and _deliberate(written):
            yield Hit(match.start(), match.start() + len(written), str(address))


@cache
def _email_patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    return re.compile(_EMAIL), re.compile(_SPELLED, re.IGNORECASE)


@cache
def _ip_patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    return re.compile(_V4), re.compile(_V6)


def _names_a_machine(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    netmask = address.version == 4 and str(address).startswith("255.")
    return not (address.is_loopback or address.is_unspecified or netmask)


def _is_version(text: str, match: re.Match[str]) -> bool:
    before = text[max(0, match.start() - _NEAR) : match.start()]
    named = _VERSION.search(before) or _AFTER_VERSION.match(text, match.end())
    return named is not None and _ADDRESS_WORD.search(before) is None


def _deliberate(written: str) -> bool:
    """Whether a string that IPv6 allows is more than a stray `::` of a program: `a::b` parses as an address too."""
    groups = [group for group in written.split(":") if group]
    known = re.match(
        r"(?:2[0-9a-f]{3}|fe[89ab][0-9a-f]|f[cd][0-9a-f]{2}|ff[0-9a-f]{2}|64|::ffff):", written, re.IGNORECASE
    )
    return any(char.isdigit() for char in written) and (len(groups) >= 4 or known is not None)
