"""Secrets that only their name gives away: `password: …`, `pw = …`, "the code is …", 비밀번호는 ….

What follows such a name is as often prose or code ("password: required", `token = tokenizer.next()`) as it is the
secret, so a value is judged before it counts: placeholders, code and ordinary words are let through, and the less
a name promises, the more the value itself must look like a secret. A wrong alarm costs one learning unit; a miss
puts a password into an adapter. So in doubt after a strong name, it is a secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

from store.redaction.placeholders import Hit

# What names a password: nearly any word after it may be one.
_STRONG: Final = (
    r"pass(?:word|wd|code|phrase)|(?<![a-z])pwd?|(?<![a-z])pass[ -]?key|비밀 ?번호|비번|패스워드|암호"
)
# What names a key or token: only a value that looks made up may be one.
_WEAK: Final = (
    r"(?:(?:api|access|secret|private|encryption|signing|account|license|service|shared|master|auth|wi-?fi|network"
    r"|product|activation|recovery|backup)[ _.-]?key"
    r"|(?<![a-z])(?:secret|token|credentials?|pass)|(?:access|refresh|auth|bot|session|id)[_-]?token"
    r"|client[ _-]?secret|(?:recovery|backup) codes?"
    r"|(?:api|액세스|접근|인증|비밀|시크릿|서비스|보안|암호화) ?키|토큰|시크릿)(?: value| ?값)?"
)
_PIN: Final = (
    r"(?<![a-z])(?:pin|otp|passcode)(?: ?(?:code|number|번호))?"
    r"|(?:verification|security|entry|door|gate|garage|building|alarm|lock|safe|access|unlock) code"
    r"|one[- ]time (?:code|password)"
    r"|핀 ?번호|(?:도어락|현관) ?번호|인증 ?번호|인증 ?코드|보안 ?코드|출입 ?번호|잠금 ?번호"
)
_CARD_CODE: Final = r"(?<![a-z])(?:cvv2?|cvc2?)"
_APP: Final = r"app(?:lication)?[- ]password|앱 ?비밀번호"
_PHRASE: Final = (
    r"pass ?phrase|(?:seed|recovery|secret|backup|mnemonic) (?:phrase|words)|mnemonic"
    r"|시드 ?(?:구문|문구)|복구 ?(?:구문|문구)|니모닉"
)

# `: `, `=`, `:=`, `=>`, `": "`, and a declared type in between as in `password: str = "…"`.
_IS: Final = (
    r"[\"'`*]{0,2}\s{0,3}"
    r"(?::\s?(?:str|string|SecretStr|Optional\[str\])(?:\s?\|\s?None)?\s?=|:=|=>|->|→|[!=]?={1,3}|:)"
    r"[*`]{0,2}\s{0,3}"
)
# "is", with what may come between: "the password for the guest wifi is now …".
_VERB: Final = (
    r"(?:\s(?:for|to|of|on|at|in)\s[^\n.,:;=\ufffc]{1,40}?)?"
    r"(?:\s(?:is|are|was|will be|used to be)(?:\s(?:now|still|just|simply|currently))?\s?:?|:)\s{1,2}"
)
_PARTICLE: Final = r"(?:(?:은|는|이|가|을|를|도|만|로|으로|란|이란)\s{0,2}|(?<=[가-힣])\s{0,2})"

_QUOTED: Final = (
    r"\"(?P<double>[^\"\n\ufffc]{1,200})\"|'(?P<single>[^'\n\ufffc]{1,200})'|`(?P<tick>[^`\n\ufffc]{1,200})`"
)
# Printable ASCII but for what ends a value in code and prose; Korean particles end it as well.
_BARE: Final = r"(?P<bare>[!#-&(-+\--:=?-_a-z{-~][!#-+\--:=?-_a-~]{2,199})"
# Between a name and a value that must speak for itself: the rest of a sentence, up to where a word begins.
_GAP: Final = r"[^.?!\n\ufffc]{0,40}?(?<![A-Za-z0-9_@./:-])(?=[!-~]{0,30}[0-9])(?=[!-~]{0,30}[A-Za-z])"
_HANGUL: Final = r"(?P<bare>[가-힣]{2,8}[0-9!@#$%^&*]{2,10})"
_WORDS: Final = r"(?P<bare>[a-z]{2,12}(?:[ -][a-z]{2,12}){2,24})"
_SEED: Final = r"(?P<bare>[a-z]{3,8}(?: [a-z]{3,8}){11,23})"

# One of these is in every name above: most texts have none, and are done with in a twentieth of the time.
_STEMS: Final = (
    *(
        "pass",
        "pw",
        "key",
        "token",
        "secret",
        "credential",
        "code",
        "pin",
        "otp",
        "cvv",
        "cvc",
        "phrase",
        "words",
    ),
    *(
        "mnemonic",
        "비밀",
        "비번",
        "패스",
        "암호",
        "키",
        "토큰",
        "시크릿",
        "번호",
        "코드",
        "구문",
        "문구",
        "니모닉",
    ),
)

_TRAILING: Final = ".,:?)]}'"
_ORDINARY: Final = frozenset(
    """
    a about access again all also always an and any are as ask at auto be because been before below between bool
    boolean both but bytes by can cannot change changed changeme check choose code compromised confirm confirmation
    contains correct could default did do does empty encrypted enter error every example expired fail failed false
    field file fine float for forgot forgotten from generate generated get given good gone hash hashed have here
    hidden how if in incorrect input int invalid is it its just key leaked length let list long longer lost manager
    mandatory match matches matched maximum may minimum mismatch missing mine must my name new nil no none not
    nothing null number of off ok okay old on one only optional or our passwd password passwords placeholder please
    policy private protected public random redacted refused remember repeat required reset same saved secret secure
    see self send set short should show simple so some string str stolen strong such take test text that the their
    then there these this to todo token too true type undefined unknown unset update updated use user using valid
    value visible void was we weak what when where which who why will with without wrong yes you your yours
    """.split()
)
_ORDINARY_ENDING: Final = re.compile(r"(?:ed|ing|able|ible|ive|ful|less|ly|ment|tion)$")
_MADE_UP: Final = re.compile(r"[0-9!@#$%^&*+=_~?]|[a-z][A-Z]")
_QUANTITY: Final = re.compile(r"[0-9.,]+[%+]?|[0-9]{1,3}[-~][0-9]{1,3}\+?")
_DURATION: Final = re.compile(r"[0-9]+[A-Za-z]+|[0-9-]{8,10}T[0-9].*")
_UNIT: Final = re.compile(
    r"\s?(?:년|월|일|자|개|번|회|분|시|초|원|명|글자|단계|characters?|chars?|digits?|bits?|times?|days?)"
)
_LINE_END: Final = re.compile(
    r"[.,;!?)\]}\"'`<]{0,3}(?:[^\S\n]{0,9}\n|\s{0,9}\Z|[가-힣]|(?<=[,;])\s|\s(?:and|/|\|)\s)"
)
_ELSEWHERE: Final = re.compile(
    r"[^@\s]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+|(?=(?:-?[0-9]){9})\+?[0-9]+(?:-[0-9]+)+|0[0-9]{8,10}|[0-9]{1,3}(?:\.[0-9]{1,3}){3}"
)


@cache
def _code() -> re.Pattern[str]:
    """What a program or a manual has where a secret could stand."""
    return re.compile(
        r"""
        [A-Za-z_.]{2,}\(.* | [A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*\(\)?            # a call, or its beginning
        | (?:[A-Za-z_]+(?:\.|->|::))+[A-Za-z_]+(?:\[.*)?                      # a path of names: user.password
        | \w*(?:password|passwd|secret|token|pwd)[A-Za-z_]*                   # another variable of the kind
        | \$[A-Z_]+ | \$[{(].* | %[A-Z_]+% | %\(?[a-z_]*\)?s              # variables of shells and templates
        | [<{\[(].* | [*x.\#_?-]+ | \\.*                                      # <yours>, {password}, ****, xxxx
        | (?:\./|~?/)\S* | [A-Za-z]:\\\S* | [a-z][a-z0-9+.-]*://\S*           # a path, an address
        | \S+\.(?:pem|key|json|txt|env|ya?ml|crt|cer|p12|pfx|py|js|ts)        # a file
        | (?:your|my|the|some|new|old|example|dummy|fake|test)?[-_ ]?
          (?:password|secret|passwd|token|api[-_]?key)(?:[-_]here)?
        | (?:sha|md|aes|rsa|utf|base|hmac|rfc|http|oauth|argon|pbkdf|bcrypt|web|x)-?[0-9]+[a-z0-9/-]*
        | (?:2fa|mfa|[0-9]+-?bit)[a-z0-9-]*                                   # the names of algorithms
        """,
        re.VERBOSE | re.IGNORECASE,
    )


@dataclass(frozen=True, repr=False)
class _Value:
    """What stands where a secret would, and what surrounds it."""

    text: str
    start: int
    end: int
    quoted: bool
    same_line: bool

    def __str__(self) -> str:
        return self.text[self.start : self.end]

    @property
    def harmless(self) -> bool:
        """Whether it is a placeholder, a piece of code or an ordinary word."""
        return is_placeholder(str(self))

    @property
    def made_up(self) -> bool:
        """Whether it holds what ordinary words do not: a digit, a symbol, a capital in its middle."""
        return _MADE_UP.search(str(self)) is not None

    @property
    def quantity(self) -> bool:
        """Whether it is a range, a decimal, or counts what follows it (8자, 12 characters)."""
        if _UNIT.match(self.text, self.end) and str(self)[-1].isdigit():
            return True
        return _QUANTITY.fullmatch(str(self)) is not None and not str(self).isdigit()

    @property
    def alone(self) -> bool:
        """Whether the line ends with it, but for punctuation or a Korean ending: it is all there is."""
        return self.same_line and _LINE_END.match(self.text, self.end) is not None


_Judge = Callable[[_Value], bool]


def find(text: str) -> Iterator[Hit]:
    """Every secret that stands beside its name, in the view ``text``. Hits may overlap."""
    lowered = text.casefold()
    if not any(stem in lowered for stem in _STEMS):
        return
    for pattern, judge in _rules():
        for match in pattern.finditer(text):
            value = _value(text, match)
            if judge(value):
                yield Hit(value.start, value.end, str(value))


def is_placeholder(value: str) -> bool:
    """Whether a value only says that a secret belongs there: `password`, `<yours>`, `${DB_PASS}`, `****`."""
    return value.casefold().strip("!") in _ORDINARY or _code().fullmatch(value) is not None


def _value(text: str, match: re.Match[str]) -> _Value:
    group = match.lastgroup
    assert group is not None
    start, end = match.span(group)
    if group == "bare":
        # In the query of an address, the next parameter is not part of this one.
        end = start + len(re.split(r"&\w{1,40}=", text[start:end], maxsplit=1)[0].rstrip(_TRAILING))
    return _Value(text, start, end, group != "bare", "\n" not in text[match.start() : start])


def _password_assigned(value: _Value) -> bool:
    if value.harmless:
        return False
    if value.quoted:
        return len(str(value)) >= 3
    if len(str(value)) < 4 or value.quantity:
        return False
    return value.made_up or value.alone


def _password_said(value: _Value) -> bool:
    """After a verb or a particle, where prose goes on more often than not, and numbers may be of another kind."""
    text = str(value)
    if _ELSEWHERE.fullmatch(text) or text.startswith("-"):
        return False
    return _password_assigned(value) and (value.made_up or value.quoted or not _ORDINARY_ENDING.search(text))


def _password_beside(value: _Value) -> bool:
    """After the bare name, "with password …": the value alone must convince."""
    if not value.quoted and re.search(r"[A-Za-z].*[0-9]|[0-9].*[A-Za-z]", str(value)) is None:
        return False
    return " " not in str(value) and _password_said(value)


def _password_near(value: _Value) -> bool:
    """Somewhere after the name: "I have one password for everything, …". Not 90days, nor a moment in time."""
    text = str(value)
    letters, digits = len(re.findall("[A-Za-z]", text)), len(re.findall("[0-9]", text))
    if letters < 2 or digits < 2 or len(text) < 6 or re.search(r"[/\\:=()\[\]]", text):
        return False
    return _DURATION.fullmatch(text) is None and _password_beside(value)


def _key_assigned(value: _Value) -> bool:
    text = str(value)
    if len(text) < 8 or " " in text or value.harmless or _ELSEWHERE.fullmatch(text):
        return False
    return bool(re.search(r"[0-9]", text) and re.search(r"[A-Za-z]", text))


def _key_beside(value: _Value) -> bool:
    return len(str(value)) >= 12 and _key_assigned(value)


def _pin_given(value: _Value) -> bool:
    return not value.quantity


def _phrase_given(value: _Value) -> bool:
    return not value.quoted or " " in str(value)


@cache
def _rules() -> tuple[tuple[re.Pattern[str], _Judge], ...]:
    """The patterns with their judges. Every repeat is bounded, so each pattern is linear in the text."""
    value = f"(?:{_QUOTED}|{_BARE})"
    names = f"(?:{_STRONG})(?:_?[0-9])?"
    pin = r"(?P<bare>[0-9]{4,8}[*#]?|[0-9]{3}[ -][0-9]{3})"
    fours = r"(?P<bare>[a-z]{4}(?:[ -][a-z]{4}){3})(?![A-Za-z])"
    digits = r"(?![0-9A-Za-z.,-]{0,20}[0-9])"
    return tuple(
        (re.compile(pattern, re.IGNORECASE), judge)
        for pattern, judge in (
            (rf"{names}{_IS}{value}", _password_assigned),
            (rf"--[a-z-]{{0,30}}(?:password|passwd|passphrase)(?:\s{{1,2}}|=){value}", _password_assigned),
            (rf"\bsshpass\s-p\s?{value}", _password_assigned),
            (
                r"<(?:password|passwd|pwd|secret|token)>(?P<bare>[^<>\s\ufffc]{3,200})</",
                _password_assigned,
            ),
            (rf"{names}(?:{_VERB}|{_PARTICLE}){value}", _password_said),
            (rf"{names}(?:'s(?: still| now)?|s? to|\?)?\s{value}", _password_beside),
            (rf"{names}(?:{_IS}|{_PARTICLE}|\s)[\[(]{_BARE}", _password_beside),
            (
                rf"{names}(?:(?:을|를)?\s?[!-~]{{4,40}}에서|\sfrom\s[!-~]{{4,40}}\sto)\s{_BARE}",
                _password_beside,
            ),
            (rf"{names}(?=[^A-Za-z]){_GAP}{_BARE}", _password_near),
            (rf"{names}(?:{_IS}|(?:은|는|이|가|을|를)\s{{0,2}}){_HANGUL}", _pin_given),
            (rf"(?:{_WEAK})(?:{_IS}|{_VERB}|{_PARTICLE}){value}", _key_assigned),
            (rf"(?:{_WEAK})\s{value}", _key_beside),
            (rf"--[a-z-]{{0,30}}(?:token|secret|key)(?:\s{{1,2}}|=){value}", _key_assigned),
            (
                rf"(?:{_PIN})(?:{_IS}|{_VERB}|{_PARTICLE}|\s){pin}{digits}",
                _pin_given,
            ),
            (rf"{_CARD_CODE}(?:{_IS}|{_VERB}|\s)(?P<bare>[0-9]{{3,4}}){digits}", _pin_given),
            (
                rf"(?:{_APP})(?:{_IS}|{_VERB}|{_PARTICLE}){fours}",
                _phrase_given,
            ),
            (rf"(?:{_PHRASE})(?:{_IS}|{_PARTICLE})(?:{_QUOTED}|{_WORDS})", _phrase_given),
            (rf"(?:{_PHRASE}){_VERB}(?:{_QUOTED}|{_SEED})", _phrase_given),
        )
    )
