"""The incremental decoders: whatever the chunks, the same text, and nothing shown that had to be taken back."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from app.model.decoders import StopFilter, Utf8Decoder


def cut(data, places):
    """`data` in pieces, cut at the given places."""
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


places = st.lists(st.integers(0, 200), max_size=12)
# Few letters, so that stops begin, nearly match and overlap all the time.
letters = st.text(alphabet="ab<|>é🙂", max_size=24)
stops = st.lists(st.text(alphabet="ab<|>é🙂", min_size=1, max_size=5), max_size=4)


@given(st.text(max_size=40), places)
def test_characters_come_whole(text, at):
    decoder = Utf8Decoder()
    shown = [decoder.feed(piece) for piece in cut(text.encode(), at)]
    assert "".join(shown) + decoder.finish() == text
    assert "\ufffd" not in "".join(shown) or "\ufffd" in text


@given(st.binary(max_size=60), places)
def test_broken_bytes_become_the_same_text_in_any_chunks(data, at):
    decoder = Utf8Decoder()
    text = "".join([decoder.feed(piece) for piece in cut(data, at)]) + decoder.finish()
    assert text == data.decode("utf-8", "replace")


def test_an_emoji_is_held_back_until_it_is_whole():
    decoder = Utf8Decoder()
    assert [decoder.feed(bytes([byte])) for byte in "🙂".encode()] == ["", "", "", "🙂"]


def expected(text, ends):
    """The text up to the stop that begins first."""
    return text[: min((text.find(stop) for stop in ends if stop in text), default=len(text))]


@given(letters, stops, places)
def test_text_ends_at_the_first_stop_in_any_chunks(text, ends, at):
    keep = StopFilter(ends)
    shown = "".join([keep.feed(piece) for piece in cut(text, at)]) + keep.finish()
    assert shown == expected(text, ends)
    assert keep.stopped == any(stop in text for stop in ends)


@given(letters, stops, places)
def test_what_is_shown_is_always_a_beginning_of_the_end_result(text, ends, at):
    keep, shown = StopFilter(ends), ""
    for piece in cut(text, at):
        shown += keep.feed(piece)
        assert expected(text, ends).startswith(shown)


def test_a_stop_split_over_chunks_is_never_shown():
    keep = StopFilter(["<|im_end|>"])
    assert [keep.feed(piece) for piece in ("Bye.<", "|im_", "end", "|>", "more")] == ["Bye.", "", "", "", ""]
    assert keep.stopped
    assert keep.finish() == ""


def test_what_only_looks_like_a_stop_is_shown_as_soon_as_that_is_known():
    keep = StopFilter(["<|im_end|>"])
    assert keep.feed("a <|im") == "a "
    assert keep.feed("age") == "<|image"
    assert keep.feed("<") + keep.finish() == "<"
    assert not keep.stopped


def test_a_complete_stop_waits_for_one_that_began_before_it():
    keep = StopFilter(["abc", "b"])
    assert keep.feed("xab") == "x"
    assert keep.feed("c") == ""
    assert keep.stopped
