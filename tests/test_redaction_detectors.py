"""Each detector on what it is for, and on what only looks like it. The corpus has the breadth; these say why."""

from __future__ import annotations

import pytest

from store.redaction import Kind, Redactor, contains_secret
from store.redaction.numbers import luhn, mod97, rrn_checks
from store.redaction.phones import e164

# Split, so that nobody's scanner for leaked keys takes this file for a leak.
GITHUB = "gh" + "p_pjs46LmuezqpGHoPZgPDcgaE40o1C6xc4soh"
BEGIN, END = "-----BEGIN RSA PRI" + "VATE KEY-----", "-----END RSA PRI" + "VATE KEY-----"
LINE = "MIIEowIBAAKCAQEA3x9vQ0pTj1s8fYw2mKq7Lr5Nn4Zb6Vd8Xc1Gh0Jk2Lm3Np4Q"


def found(text: str, kind: Kind) -> list[str]:
    return [text[hit.start : hit.end] for hit in Redactor().redact(text).found if hit.kind is kind]


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"see {GITHUB}, please", GITHUB),
        ("postgres://app:tr0ub4dor@db.example.org/prod", "tr0ub4dor"),
        ("Authorization: Bearer 9f3a7c21b8e04d5fa6c7e812", "9f3a7c21b8e04d5fa6c7e812"),
        ("password: hunter2", "hunter2"),
        ('password: str = "swordfish"', "swordfish"),
        ("my password is sunflower.", "sunflower"),
        ("The password for the guest wifi is now Zebra!9", "Zebra!9"),
        ("비밀번호는 hunter2야", "hunter2"),
        ("비밀번호는 나비야123이에요", "나비야123"),
        ("비번은 0417이야", "0417"),
        ("PIN: 4821", "4821"),
        ("인증번호 583920 입력", "583920"),
        ("passphrase: correct horse battery staple", "correct horse battery staple"),
        ("?password=letmein1&next=/home", "letmein1"),
        ("API key: a8f5f167f44f4964e6c998dee827110c", "a8f5f167f44f4964e6c998dee827110c"),
    ],
)
def test_secrets_are_found(text: str, secret: str) -> None:
    assert found(text, Kind.SECRET) == [secret]
    assert contains_secret(text)


@pytest.mark.parametrize(
    "text",
    [
        "password: required",
        "The password is wrong.",
        "Password: at least 8 characters",
        "password = input()",
        "password = os.environ['DB']",
        "password: ${DB_PASSWORD:-}",
        "password: <yours>",
        "postgres://user:password@localhost/db",
        "token = tokenizer.encode(text)",
        "http://localhost:8080/a@b",
        "비밀번호는 8자 이상",
        "비번 1234자리는 없어",
        "암호화 방식은 AES-256",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "password: [SECRET_1]",
        "pin 13 is the LED",
        "",
    ],
)
def test_prose_and_code_about_secrets_hold_none(text: str) -> None:
    assert not contains_secret(text)
    assert found(text, Kind.SECRET) == []


def test_a_private_key_is_one_secret_however_it_ends() -> None:
    whole = f"{BEGIN}\n{LINE}\n{END}"
    assert found(f"key: {whole} thanks", Kind.SECRET) == [whole]
    cut_off = f"{BEGIN}\n{LINE}\n{LINE}"
    assert found(f"{cut_off}\nand then it stopped.", Kind.SECRET) == [f"{cut_off}\n"]
    assert Redactor().redact(f"{whole}\n{whole}").text == "[SECRET_1]\n[SECRET_1]"
    public = whole.replace("RSA PRI" + "VATE", "PUBLIC")
    assert found(public, Kind.SECRET) == []


def test_checksums_agree_with_published_examples() -> None:
    # ISO/IEC 7812 and the IBAN registry publish these; the resident numbers are made up around the formula.
    assert luhn("79927398713")
    assert not luhn("79927398710")
    assert mod97("GB29NWBK60161331926819") == 1
    assert mod97("GB29NWBK60161331926818") != 1
    assert rrn_checks("9001011751124")
    assert not rrn_checks("9001011751125")
    assert rrn_checks("8507145788524")


@pytest.mark.parametrize(
    "text", ["4526018159083012", "4526-0181-5908-3012", "4526 0181 5908 3012로", "3414 710497 46507"]
)
def test_cards_are_found_in_the_grouping_of_cards(text: str) -> None:
    assert found(text, Kind.CARD) == [text.rstrip("로")]


@pytest.mark.parametrize(
    "text",
    [
        "4526018159083013",
        "45 26 01 81 59 08 30 12",
        "ORD-4526018159083012",
        "1234567890123452",
        "a4526018159083012",
        "0.4526018159083012",
    ],
)
def test_other_long_numbers_are_no_cards(text: str) -> None:
    assert found(text, Kind.CARD) == []


def test_ibans_need_their_country_s_length_and_checksum() -> None:
    assert found("DE89 3704 0044 0532 0130 00 THANKS", Kind.IBAN) == ["DE89 3704 0044 0532 0130 00"]
    assert found("de89370400440532013000으로", Kind.IBAN) == ["de89370400440532013000"]
    assert found("DE88 3704 0044 0532 0130 00", Kind.IBAN) == []
    assert found("DE89 3704 0044 0532 0130 0", Kind.IBAN) == []
    assert found("ZZ89 3704 0044 0532 0130 00", Kind.IBAN) == []


def test_resident_numbers_follow_the_rules_of_their_time() -> None:
    assert found("900101-1751124", Kind.NATIONAL_ID) == ["900101-1751124"]
    assert found("900101-1751125", Kind.NATIONAL_ID) == []
    # Since October 2020 the last digits are random: no checksum for those born since,
    assert found("220315-4123456", Kind.NATIONAL_ID) == ["220315-4123456"]
    # nor for anyone who was given a new number, which only the words beside it can tell.
    assert found("주민번호 900101-1751125", Kind.NATIONAL_ID) == ["900101-1751125"]
    assert found("주민번호 901301-1751124", Kind.NATIONAL_ID) == []
    assert found("8801234567893", Kind.NATIONAL_ID) == []


def test_social_security_numbers_stay_in_the_ranges_that_are_issued() -> None:
    assert found("536-22-8145", Kind.NATIONAL_ID) == ["536-22-8145"]
    assert found("912-70-4321", Kind.NATIONAL_ID) == ["912-70-4321"]
    for never in ("000-12-3456", "666-12-3456", "536-00-8145", "536-22-0000", "912-12-4321"):
        assert found(never, Kind.NATIONAL_ID) == []
    assert found("536 22 8145", Kind.NATIONAL_ID) == []
    assert found("SSN 536 22 8145", Kind.NATIONAL_ID) == ["536 22 8145"]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("jane.doe+x@mail.example.co.uk으로", "jane.doe+x@mail.example.co.uk"),
        ("<o'brien@example.ie>.", "o'brien@example.ie"),
        ("jane (at) example (dot) org", "jane (at) example (dot) org"),
    ],
)
def test_email_is_found(text: str, address: str) -> None:
    assert found(text, Kind.EMAIL) == [address]


@pytest.mark.parametrize(
    "text", ["icon@2x.png", "git@github.com:user/repo.git", "react@18.2.0", "@dataclass", "meet at noon dot"]
)
def test_what_only_has_an_at_is_no_email(text: str) -> None:
    assert found(text, Kind.EMAIL) == []


def test_ip_addresses_are_told_from_versions_and_code() -> None:
    assert found("ping 203.0.113.42로, 2001:db8::1:8a2e:370.", Kind.IP) == [
        "203.0.113.42",
        "2001:db8::1:8a2e:370",
    ]
    assert found("server version 2 runs on 198.51.100.14", Kind.IP) == ["198.51.100.14"]
    for other in (
        "version 1.2.3.4",
        "버전 1.2.3.4",
        "v1.2.3.4",
        "torch==2.1.0.1",
        "1.2.3.4.5",
        "256.1.1.1",
        "127.0.0.1",
        "255.255.255.0",
        "::1",
        "12:30:45",
        "a::b",
        "00:1A:2B:3C:4D:5E",
    ):
        assert found(other, Kind.IP) == []


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("010-1234-5678로 전화", "010-1234-5678"),
        ("전화01012345678", "01012345678"),
        ("call (212) 555-0123", "(212) 555-0123"),
        ("phone 2125550123", "2125550123"),
        ("+44 20 7946 0958 or so", "+44 20 7946 0958"),
        ("020 7946 0958", "020 7946 0958"),
        ("07911 654321", "07911 654321"),
        ("(see 02-312-3456)", "02-312-3456"),
        ("공일공 일이삼사 오육칠팔", "공일공 일이삼사 오육칠팔"),
    ],
)
def test_phone_numbers_are_found(text: str, number: str) -> None:
    assert found(text, Kind.PHONE) == [number]


@pytest.mark.parametrize(
    "text",
    [
        "order 2125550123",
        "212 555 0123 7",
        "1588-1234",
        "1990-1995",
        "20240101-0001",
        "+5 points",
        "02-2024",
        "978-0-13-468599-1",
    ],
)
def test_other_digits_are_no_phone_numbers(text: str) -> None:
    assert found(text, Kind.PHONE) == []


def test_a_phone_number_is_one_however_it_is_written() -> None:
    assert e164("01012345678", "KR") == e164("+821012345678", None) == "+821012345678"
    text = "010-1234-5678, +82 10 1234 5678, ０１０－１２３４－５６７８, 010.1234.5678"
    assert Redactor().redact(text).text == "[PHONE_1], [PHONE_1], [PHONE_1], [PHONE_1]"


def test_the_owner_s_words_are_whole_words_of_their_script() -> None:
    redactor = Redactor(["Jane Doe", "민수", "東京", "C++", " "])
    text = "jane  doe's Janes Doe, 민수가 국민수당 東京都 C++ _Jane Doe_ Jane Doe이"
    assert redactor.redact(text).text == (
        "[PRIVATE_1]'s Janes Doe, [PRIVATE_2]가 국민수당 [PRIVATE_3]都 [PRIVATE_4] _[PRIVATE_1]_ [PRIVATE_1]이"
    )
    decomposed = "\u1106\u1175\u11ab\u1109\u116e"
    assert redactor.redact(f"{decomposed}가").text == "[PRIVATE_1]가"
