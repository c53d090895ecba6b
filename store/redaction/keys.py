"""Secrets that can be recognised by their own form: issued keys and tokens, PEM blocks, passwords in addresses.

Issuers give their keys prefixes so that leaks can be found; those prefixes are what is looked for here, and no
entropy: on prose, code and hashes a measure of randomness fires on everything else as well. A key without a
telling form is found only beside its name (see `assignments`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

from store.redaction.assignments import is_placeholder
from store.redaction.placeholders import Hit

# The formats are facts that the issuers publish, for secret scanning, in their own documentation.
FORMATS: Final[tuple[str, ...]] = (
    r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}(?![A-Za-z0-9])",  # Amazon Web Services, key id
    r"gh[pousr]_[A-Za-z0-9]{30,255}",  # GitHub
    r"github_pat_[A-Za-z0-9_]{22,255}",
    r"gl(?:pat|dt|rt|ptt|cbt|soat|agent|ft|imt)-[A-Za-z0-9_.-]{20,255}",  # GitLab
    r"xox[abceoprs]-[A-Za-z0-9-]{10,255}",  # Slack
    r"xapp-[0-9]-[A-Za-z0-9-]{20,255}",
    r"sk-(?:proj|svcacct|admin|ant-[a-z0-9]{1,10}|or-v1|lf)-[A-Za-z0-9_-]{20,512}",  # OpenAI, Anthropic, OpenRouter
    r"sk-(?=[a-zA-Z]{0,40}[0-9])[A-Za-z0-9]{20,255}",
    r"gsk_[A-Za-z0-9]{40,255}",  # Groq
    r"xai-[A-Za-z0-9]{40,255}",
    r"pplx-[A-Za-z0-9]{40,255}",  # Perplexity
    r"nvapi-[A-Za-z0-9_-]{40,255}",  # NVIDIA
    r"r8_[A-Za-z0-9]{36,64}",  # Replicate
    r"hf_[A-Za-z0-9]{30,64}",  # Hugging Face
    r"api_org_[A-Za-z0-9]{30,64}",
    r"AIza[A-Za-z0-9_-]{35}",  # Google
    r"ya29\.[A-Za-z0-9_-]{20,1024}",
    r"GOCSPX-[A-Za-z0-9_-]{20,64}",
    r"(?:[srp]k|rk)_(?:live|test|prod)_[A-Za-z0-9]{10,255}",  # Stripe
    r"(?:live|test)_g?[sc]k_[A-Za-z0-9]{20,64}",  # Toss Payments
    r"whsec_[A-Za-z0-9+/=]{24,255}",
    r"SG\.[A-Za-z0-9_-]{16,40}\.[A-Za-z0-9_-]{16,80}",  # SendGrid
    r"SK[0-9a-f]{32}(?![A-Za-z0-9])",  # Twilio
    r"key-[0-9a-f]{32}(?![A-Za-z0-9])",  # Mailgun
    r"npm_[A-Za-z0-9]{36}",
    r"pypi-[A-Za-z0-9_-]{50,512}",
    r"dckr_(?:pat|oat)_[A-Za-z0-9_-]{20,64}",  # Docker
    r"do[opr]_v1_[a-f0-9]{64}",  # DigitalOcean
    r"dapi[a-f0-9]{32}(?:-[0-9])?",  # Databricks
    r"hv[sbr]\.[A-Za-z0-9_-]{24,512}",  # HashiCorp Vault
    r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}",  # Shopify
    r"sq0(?:atp|csp|idp)-[A-Za-z0-9_-]{22,64}",  # Square
    r"EAAA[A-Za-z0-9_-]{60}",
    r"ATATT3[A-Za-z0-9_=-]{100,512}",  # Atlassian
    r"lin_api_[A-Za-z0-9]{32,64}",  # Linear
    r"(?:ntn_|secret_)[A-Za-z0-9]{40,64}",  # Notion
    r"gl(?:sa|c)_[A-Za-z0-9_+/=]{32,255}",  # Grafana
    r"sbp_[a-f0-9]{40}",  # Supabase
    r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.=-]{32,64}",  # PlanetScale
    r"figd_[A-Za-z0-9_-]{30,64}",  # Figma
    r"tskey-[a-z]{2,10}-[A-Za-z0-9-]{16,64}",  # Tailscale
    r"[0-9]{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])",  # Telegram bot
    r"[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,38}",  # Discord bot
    r"AGE-SECRET-KEY-1[0-9A-Z]{58}",  # age
    r"[xyz]prv[1-9A-HJ-NP-Za-km-z]{100,112}",  # BIP 32 extended private key
    r"(?<![_-])eyJ[A-Za-z0-9_-]{10,4096}\.eyJ[A-Za-z0-9_-]{10,8192}\.[A-Za-z0-9_-]{10,2048}",  # JSON Web Token
    r"https://hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9/_-]{20,255}",
    r"https://(?:\w{1,10}\.)?discord(?:app)?\.com/api/webhooks/[0-9]{15,20}/[A-Za-z0-9_-]{40,100}",
)

# `scheme://user:password@host`. Not a slash in the password: `http://localhost:8080/a@b` has a port.
ADDRESS: Final = r"[a-z][a-z0-9+.-]{1,20}://[^\s:@/\ufffc]{0,64}:(?P<value>[^\s/\ufffc]{1,200})@(?=[\w\[.-])"
BEARER: Final = (
    r"\b(?:bearer|basic)\s{1,3}(?P<value>(?=[A-Za-z._~+/-]{0,200}[0-9])[A-Za-z0-9._~+/-]{16,4096}={0,2})"
)
CURL: Final = (
    r"\bcurl\b[^\n\ufffc]{0,200}?\s(?:-u|--user)[ =]{1,2}[\"']?[^\s:\"'\ufffc]{1,64}:"
    r"(?P<value>(?![0-9]+\b)[^\s\"'\ufffc]{4,100})"
)

_BEGIN: Final = r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_END: Final = r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_LONGEST_PEM: Final = 16_384
# What may follow a BEGIN whose END was cut off: headers, and lines of base64 (also with literal \n, as in JSON).
_PEM_BODY: Final = (
    r"(?:\\r|\\n|[\s>|\"'+]|[A-Za-z0-9+/=]{16,76}(?![A-Za-z0-9+/=])|[A-Za-z-]{4,20}: [^\n\ufffc]{1,100}\n)*"
)


def find(text: str) -> Iterator[Hit]:
    """Every secret with a form of its own, in the view ``text``. Hits may overlap."""
    yield from _pem_blocks(text)
    for match in _compiled().finditer(text):
        yield Hit(match.start(), match.end(), match[0])
    for pattern in _valued():
        for match in pattern.finditer(text):
            if not is_placeholder(match["value"]):
                yield Hit(*match.span("value"), match["value"])


@cache
def _compiled() -> re.Pattern[str]:
    return re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(FORMATS)})")


@cache
def _valued() -> tuple[re.Pattern[str], ...]:
    return (
        re.compile(rf"(?<![A-Za-z0-9]){ADDRESS}", re.IGNORECASE),
        re.compile(BEARER, re.IGNORECASE | re.ASCII),
        re.compile(CURL),
    )


def _pem_blocks(text: str) -> Iterator[Hit]:
    """Private keys from BEGIN to END. One without an END is taken as far as it looks like a key.

    The ENDs are listed once and walked along: a text of BEGINs alone is not searched anew from each of them.
    """
    if "PRIVATE KEY" not in text:
        return
    ends = [match.end() for match in re.finditer(_END, text)]
    body = re.compile(_PEM_BODY)
    done = next_end = 0
    for begin in re.finditer(_BEGIN, text):
        if begin.start() < done:
            continue
        while next_end < len(ends) and ends[next_end] < begin.end():
            next_end += 1
        if next_end < len(ends) and ends[next_end] - begin.end() <= _LONGEST_PEM:
            done = ends[next_end]
        else:
            cut_off = body.match(text, begin.end())
            done = cut_off.end() if cut_off else begin.end()
        yield Hit(begin.start(), done, text[begin.start() : done])
