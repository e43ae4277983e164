"""What is taken out of posts by platform, that it is kept, and which memes are too short or too long."""

from __future__ import annotations

from pathlib import Path

import pytest

from xai.annotation.cleaning import Cleaned, Length, load_cleaning
from xai.schema import Meme

TEXT = "ten characters or more"


def cleaned(post: str | None, platform: str = "other", text: str = TEXT) -> Cleaned:
    return load_cleaning().clean(Meme(id="m", text=text, post=post, metadata={"platform": platform}))


@pytest.mark.parametrize(
    ("platform", "post", "left", "removed"),
    [
        ("other", "see https://a.org/x?y=1#z. Fine", "see . Fine", {"link": ["https://a.org/x?y=1#z"]}),
        ("other", "(www.a.org) ask @bob or me@a.org", "() ask or me@a.org",
         {"link": ["www.a.org"], "mention": ["@bob"]}),
        ("other", "#sun is number #1 &#39;yes", "is number #1 &#39;yes", {"hashtag": ["#sun"]}),
        ("other", "> a quote mark of no platform", "> a quote mark of no platform", {}),
        ("4chan", ">>123456 (OP)\n>be me\n>>>/b/ 5 > 3 and on", "be me\n5 > 3 and on",
         {"reply mark": [">>123456 (OP)", ">>>/b/"], "quote mark": [">"]}),
        ("4chan", "&gt;&gt;123456 and twenty characters", "and twenty characters", {"reply mark": ["&gt;&gt;123456"]}),
        ("x", "RT @bob: good news, @ann", "good news,", {"retweet": ["RT @bob:"], "mention": ["@ann"]}),
        ("Twitter", "RT @bob good news", "good news", {"retweet": ["RT @bob"]}),
        ("reddit", "> said before\nask /u/some-one in r/chairs, either/or/u/x", "said before\nask in , either/or/u/x",
         {"quote mark": [">"], "user": ["/u/some-one"], "community": ["r/chairs"]}),
        ("reddit", "read [this page](https://a.org/b)", "read this page", {"link text": ["[this page](https://a.org/b)"]}),
    ],
)  # fmt: skip
def test_what_belongs_to_the_platform_is_taken_out_and_kept(
    platform: str, post: str, left: str, removed: dict[str, list[str]]
) -> None:
    found = cleaned(post, platform)
    assert found.meme.post == left
    kept: dict[str, list[str]] = {}
    for rule, text in found.removed:
        kept.setdefault(rule, []).append(text)
    assert kept == removed


def test_the_text_in_the_picture_stays_as_it_is_and_so_do_the_places_of_its_words() -> None:
    text = "Ask @bob at https://a.org #now"
    found = cleaned("Ask @bob", text=text)
    assert (found.meme.text, found.meme.post) == (text, "Ask")


@pytest.mark.parametrize(
    ("post", "reason"),
    [
        ("x" * 19, "the post has 19 characters; kept are 20 to 500"),
        ("x" * 20, ""),
        ("x" * 500, ""),
        ("x" * 501, "the post has 501 characters; kept are 20 to 500"),
        (f">>1234567 {'x' * 19}", "the post has 19 characters; kept are 20 to 500"),
        ("https://a.org", "nothing is left of the post after cleaning"),
        (None, ""),
    ],
)
def test_posts_of_4chan_have_20_to_500_characters_after_cleaning(post: str | None, reason: str) -> None:
    assert cleaned(post, "4chan").reason == reason


def test_posts_of_other_platforms_may_have_any_length() -> None:
    assert [cleaned("x" * n, name).reason for n in (1, 5_000) for name in ("x", "reddit", "elsewhere")] == [""] * 6


@pytest.mark.parametrize(("n", "is_kept"), [(9, False), (10, True), (100, True), (101, False)])
def test_the_text_in_a_picture_has_10_to_100_characters_on_every_platform(n: int, is_kept: bool) -> None:
    for platform in ("4chan", "x", "reddit", "other"):
        assert (cleaned(None, platform, text="y" * n).reason == "") == is_kept


def test_white_space_counts_once_and_the_text_does_not_count_where_no_model_sees_it() -> None:
    assert cleaned(None, text="a    b\n\n c d  ").reason == "the picture's text has 7 characters; kept are 10 to 100"
    found = load_cleaning().clean(Meme(id="m"), needs_text=False)
    assert found.reason == ""


def test_lengths_are_options() -> None:
    rules = load_cleaning().with_lengths(Length.parse("1:5"), Length.parse("0:3"))
    found = rules.clean(Meme(id="m", text="four", post="sixsix"))
    assert (
        found.reason
        == "the picture's text has 4 characters; kept are 0 to 3; the post has 6 characters; kept are 1 to 5"
    )
    for wrong in ("5", "5:1", "-1:5", "a:b"):
        with pytest.raises(ValueError, match=r"as in 20:500|exchange them"):
            Length.parse(wrong)


def test_rules_are_data(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(
        "version: mine\nrules: {shout: {pattern: '!+', replace: '.'}}\nplatforms: {other: {rules: [shout]}}\n",
        encoding="utf-8",
    )
    found = load_cleaning(own).clean(Meme(id="m", post="Oh!! No! https://a.org"))
    assert (found.meme.post, found.removed) == ("Oh. No. https://a.org", (("shout", "!!"), ("shout", "!")))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("version: a\nplatforms: {x: {}}\n", "'other' is missing"),
        ("version: a\nplatforms: {other: {rules: [gone]}}\n", "there is no rule 'gone'"),
        ("version: a\nrules: {a: {pattern: '('}}\nplatforms: {other: {}}\n", "cannot be used"),
        ("version: a\nrules: {a: {pattern: 'x', replace: '\\1'}}\nplatforms: {other: {}}\n", "cannot be used"),
        ("version: a\nplatforms: {other: {post: {least: 5, most: 1}}}\n", "exchange them"),
        ("- a\n", "cleaning file 'own.yaml'"),
        ("a: [\n", "not valid YAML"),
    ],
)
def test_rules_that_cannot_be_used_are_refused_with_their_place(tmp_path: Path, content: str, message: str) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        load_cleaning(own)
