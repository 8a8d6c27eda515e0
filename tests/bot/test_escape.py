import random
import re

import pytest
from hostile import PIECES, mix
from hypothesis import given
from hypothesis import strategies as st
from rendering import problems, second_opinion, to_html

from bot.escape import cell_code, clean, code, excerpt, fence, html_text, link, prose, sentence, shorten

texts = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=6)), max_size=10).map("".join)


def page(text: str) -> str:
    """Every place in which outside text stands in a comment."""
    cell = f"{prose(text)} | <b>{html_text(text)}</b><br>{cell_code(text)}"
    return (
        f"<!-- m -->\n{prose(text)}\n\n{sentence(text)}\n\n| a | b |\n|---|---|\n| {cell} |\n\n- {prose(text)} {code(text)}\n\n"
        f"<details><summary>{html_text(text)}</summary>\n\n{fence(text)}\n\n</details>\n\nEND\n"
    )


def structure_broken(markdown: str) -> list[str]:
    """Blocks that only outside text can have made, or that are no longer there."""
    h = to_html(markdown)
    counts = {"<p>END</p>": 1, "<tr>": 2, "<td": 2, "<pre": 1, "<ul>": 1, "<li>": 1, "<details>": 1, "</summary>": 1}
    wrong = [tag for tag, n in counts.items() if h.count(tag) != n]
    return wrong + re.findall(r"<(?:h\d|blockquote|em|strong|hr|ol|del|input|table><table)", h)


def check(cases: list[str]) -> None:
    pages = [page(text) for text in cases]
    by_cmark = [(text, problems(p) + structure_broken(p)) for text, p in zip(cases, pages, strict=True)]
    assert not [c for c in by_cmark if c[1]][:5]
    # remark knows nothing of raw HTML, so it sees the text in <code> and <summary> as prose: stricter than GitHub.
    by_remark = [(text, live) for text, live in zip(cases, second_opinion(pages), strict=True) if live]
    assert not by_remark[:5]


def test_no_mix_of_hostile_pieces_is_live_or_breaks_the_page(node):
    chance = random.Random(20260608)
    check([*PIECES, *(mix(chance) for _ in range(250))])


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20))
def test_no_mix_of_hostile_pieces_is_live_in_20000(node, seed):
    chance = random.Random(1000 + seed)
    check([mix(chance) for _ in range(1000)])


def test_both_referees_see_raw_text_as_live(node):
    raw = [
        "@octocat",
        "#12",
        "https://e.invalid/x",
        "![i](http://e.invalid/p.png)",
        "[x](http://e.invalid)",
        "see a13fcde3f809",
    ]
    assert all(problems(text) for text in raw)
    assert all(second_opinion(raw))


@given(texts)
def test_escaped_text_is_inert_whatever_it_holds(text):
    p = page(text)
    assert not problems(p)
    assert not structure_broken(p)


@given(texts)
def test_cleaning_twice_changes_nothing(text):
    assert clean(clean(text)) == clean(text)


@given(texts)
def test_a_fence_shows_its_text_unchanged(text):
    shown = re.search(r"<pre[^>]*><code[^>]*>(.*)</code></pre>", to_html(fence(text)), re.DOTALL)
    assert shown
    import html

    assert html.unescape(shown[1]).strip("\n") == clean(text).strip("\n")


def test_readers_see_the_words_they_would_expect():
    seen = re.sub(r"<[^>]+>", "", to_html(prose("KeyError: 'a_b' in f(*x) [1] #2 @me | 3 > 2 & 1"))).replace(
        "\u2060", ""
    )
    import html

    assert html.unescape(seen).strip() == "KeyError: 'a_b' in f(*x) [1] #2 @me | 3 > 2 & 1"


@pytest.mark.parametrize(
    ("raw", "seen"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("10%\r50%\r100%", "100%"),
        ("a\r\nb", "a\nb"),
        ("2026-06-08T10:01:02.1234567Z boom", "boom"),
        ("evil\u202etxt\u200b", "eviltxt"),
        ("\x1b]8;;http://x\x07label\x1b]8;;\x07", "label"),
    ],
)
def test_clean_takes_out_what_is_not_text(raw, seen):
    assert clean(raw) == seen


def test_a_sentence_shows_backticks_as_code():
    assert sentence("raise `time_out`, not *x*.") == "raise <code>time&#95;out</code>, not \\*x\\*."
    assert sentence("a ` b") == "a \\` b"


def test_a_link_takes_only_web_addresses_and_cannot_be_closed():
    assert to_html(link(prose("x"), "https://github.com/o/r/a (b)]<c>\n|`")).count("<a ") == 1
    for bad in ("javascript:alert(1)", "//e.invalid", "https:e", "ftp://e.invalid"):
        with pytest.raises(ValueError, match="not an http"):
            link(prose("x"), bad)


@given(st.text(max_size=400), st.integers(10, 200))
def test_shorten_and_excerpt_keep_to_their_limits(text, limit):
    assert len(shorten(text, limit)) <= limit
    assert len(excerpt(text, limit).encode()) <= max(limit, len("\n… [cut] …\n".encode()))
