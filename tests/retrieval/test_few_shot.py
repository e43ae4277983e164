"""Examples: the most similar of the pool last, never the meme itself, and the same ones whatever came before."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import imagehash
import numpy as np
import pytest
from PIL import Image
from sklearn.feature_extraction.text import TfidfVectorizer

from xai.datasets import write_memes
from xai.planted.truth import planted_memes
from xai.retrieval import FewShot, RetrievalUnavailableError, read_pool
from xai.retrieval.pool import PoolWarning
from xai.schema import Failure, Meme
from xai.tasks import load_task

N = 40


def ids(memes: tuple[Meme, ...]) -> list[str]:
    return [meme.id for meme in memes]


def written(folder: Path, memes: list[Meme]) -> Path:
    """The memes as a dataset, with their pictures as files."""
    folder.mkdir(exist_ok=True)
    on_disk = []
    for meme in memes:
        path = None
        if isinstance(meme.image, Image.Image):
            path = folder / f"{meme.id}.png"
            meme.image.save(path)
        on_disk.append(meme.model_copy(update={"image": path, "metadata": {}}))
    write_memes(folder / "memes.jsonl", on_disk)
    return folder / "memes.jsonl"


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("pool"), planted_memes(N, 11))


@pytest.fixture(scope="module")
def queries(tmp_path_factory: pytest.TempPathFactory) -> list[Meme]:
    folder = tmp_path_factory.mktemp("queries")
    written(folder, [meme.model_copy(update={"id": f"q{meme.id}"}) for meme in planted_memes(6, 12)])
    from xai.datasets import read_memes

    return [record for record in read_memes(folder) if isinstance(record, Meme)]


def by_text(pool: list[Meme], query: Meme) -> list[str]:
    """The pool from the least to the most similar text, by scikit-learn's own weights and a dense product."""
    texts = [meme.text for meme in [*pool, query]]
    texts = [text.replace("…", "...") for text in texts]
    plain = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), max_features=4096, sublinear_tf=True)
    vectors = plain.fit(texts[:-1]).transform(texts).toarray()
    return [pool[row].id for row in np.argsort(-(vectors[:-1] @ vectors[-1]).round(6), kind="stable")]


def by_picture(pool: list[Meme], query: Meme) -> list[str]:
    hashes = [imagehash.phash(meme.open_image()) for meme in [*pool, query]]
    return [pool[row].id for row in np.argsort([one - hashes[-1] for one in hashes[:-1]], kind="stable")]


def test_the_most_similar_text_comes_last(pool: Path, queries: list[Meme]) -> None:
    memes = list(read_pool(pool).memes)
    finder = FewShot(pool, k=3, retrieval="text").open()
    for query in queries:
        assert ids(finder.examples(query)) == by_text(memes, query)[2::-1]


def test_the_most_similar_picture_comes_last(pool: Path, queries: list[Meme]) -> None:
    memes = list(read_pool(pool).memes)
    finder = FewShot(pool, k=4, retrieval="picture").open()
    for query in queries:
        assert ids(finder.examples(query)) == by_picture(memes, query)[3::-1]


def test_both_is_the_sum_of_reciprocal_ranks(pool: Path, queries: list[Meme]) -> None:
    memes = list(read_pool(pool).memes)
    finder = FewShot(pool, k=5, retrieval="both").open()
    for query in queries:
        texts, pictures = by_text(memes, query), by_picture(memes, query)
        score = {m.id: 1 / (61 + texts.index(m.id)) + 1 / (61 + pictures.index(m.id)) for m in memes}
        expected = sorted(score, key=lambda name: -score[name])  # stable: ties in the order of the pool
        assert ids(finder.examples(query)) == expected[4::-1]


def test_a_draw_depends_on_the_meme_and_the_seed_and_on_nothing_else(pool: Path, queries: list[Meme]) -> None:
    finder = FewShot(pool, k=4, retrieval="random").open()
    first = [ids(finder.examples(query)) for query in queries]
    again = FewShot(pool, k=4, retrieval="random").open()
    assert [ids(again.examples(query)) for query in reversed(queries)] == first[::-1]
    assert [ids(again.attach(queries)[place].examples) for place in range(len(queries))] == first
    assert len({tuple(names) for names in first}) == len(queries)
    other = FewShot(pool, k=4, retrieval="random", seed=1).open()
    assert [ids(other.examples(query)) for query in queries] != first


def test_draws_are_uniform(pool: Path) -> None:
    """Each of 40 memes is expected 50 times in 500 draws of 4, with a standard deviation of 6.7."""
    finder = FewShot(pool, k=4, retrieval="random").open()
    drawn = [name for number in range(500) for name in ids(finder.examples(Meme(id=f"x{number}", text="a")))]
    counts = [drawn.count(meme.id) for meme in finder.pool.memes]
    assert sum(counts) == 2000
    assert 25 < min(counts) <= max(counts) < 80


@pytest.mark.parametrize("retrieval", ["random", "text", "picture", "both"])
def test_what_is_chosen_for_a_block_is_chosen_alone(pool: Path, queries: list[Meme], retrieval: str) -> None:
    finder = FewShot(pool, k=3, retrieval=retrieval).open()  # type: ignore[arg-type]
    attached = finder.attach([*queries, *queries, *queries])
    assert [ids(meme.examples) for meme in attached] == [ids(finder.examples(query)) for query in queries] * 3


@pytest.mark.parametrize("retrieval", ["random", "text", "picture", "both"])
def test_a_meme_of_the_pool_never_gets_itself(pool: Path, retrieval: str) -> None:
    finder = FewShot(pool, k=N - 1, retrieval=retrieval).open()  # type: ignore[arg-type]
    for meme in finder.pool.memes[:5]:
        assert set(ids(finder.examples(meme))) == {other.id for other in finder.pool.memes} - {meme.id}


def test_a_copy_under_another_id_is_the_meme_itself_and_one_with_another_picture_is_not(
    pool: Path, tmp_path: Path
) -> None:
    finder = FewShot(pool, k=1, retrieval="text").open()
    original = finder.pool.memes[3]
    assert isinstance(original.image, Path)
    shutil.copy(original.image, tmp_path / "copy.png")
    copy = Meme(id="copy", text=original.text, image=tmp_path / "copy.png")
    assert ids(finder.examples(copy)) != [original.id]
    Image.new("RGB", (96, 96), "navy").save(tmp_path / "other.png")
    other = Meme(id="other", text=original.text, image=tmp_path / "other.png")
    assert ids(finder.examples(other)) == [original.id]
    assert ids(finder.examples(Meme(id="no picture", text=original.text))) == [original.id]


def test_ranks_are_among_the_others(tmp_path: Path) -> None:
    """With itself out, b is first of both rankings; counted with itself, c would tie with it."""
    texts = {"a": "green cats here", "b": "green cats", "c": "green dogs"}
    source = written(tmp_path, [Meme(id=name, text=text, labels=()) for name, text in texts.items()])
    finder = FewShot(source, k=2, retrieval="text").open(["text"])
    assert ids(finder.examples(finder.pool.memes[0])) == ["c", "b"]


def test_shared_ids_are_named(pool: Path) -> None:
    records = [Meme(id=name) for name in ("new", "planted-11-3", "x", "planted-11-0")]
    with pytest.warns(PoolWarning, match="has 2 memes of the dataset, such as 'planted-11-3'"):
        assert read_pool(pool).shared(records) == ["planted-11-3", "planted-11-0"]


def test_only_memes_with_gold_labels_and_what_the_modes_show_are_examples(tmp_path: Path) -> None:
    Image.new("RGB", (32, 32), "red").save(tmp_path / "red.png")
    red = tmp_path / "red.png"
    memes = [
        Meme(id="whole", text="a text", image=red, labels=("x",)),
        Meme(id="none of the labels", text="a text", image=red, labels=()),
        Meme(id="unlabelled", text="a text", image=red),
        Meme(id="no text", image=red, labels=("x",)),
        Meme(id="no picture", text="a text", labels=("x",)),
        Meme(id="posted", text="a text", image=red, labels=("x",), post="a post"),
    ]
    write_memes(tmp_path / "memes.jsonl", memes)
    with (tmp_path / "memes.jsonl").open("a", encoding="utf-8") as file:
        file.write("not JSON\n")
    source = FewShot(tmp_path, k=1, retrieval="random")
    with pytest.warns(
        PoolWarning, match="has 3 examples; left out: 1 without gold labels, 1 without a text, 1 without"
    ):
        both = source.open(["text", "image+text"]).pool
    assert ids(both.memes) == ["whole", "none of the labels", "posted"]
    assert both.left_out == {"cannot be read": 1, "without gold labels": 1, "without a text": 1, "without a picture": 1}
    assert ids(source.open(["text"]).pool.memes) == ["whole", "none of the labels", "no picture", "posted"]
    assert ids(source.open(["image"]).pool.memes) == ["whole", "none of the labels", "no text", "posted"]


def test_labels_that_are_no_answer_to_the_task_are_left_out(tmp_path: Path) -> None:
    """An unknown label, two sides at once, and none where the task needs one."""
    labels = {"fits": ("Hateful", "Mocking"), "unknown": ("Doubt",), "both": ("Hateful", "Not-Hateful"), "none": ()}
    write_memes(tmp_path / "memes.jsonl", [Meme(id=name, text="a", labels=some) for name, some in labels.items()])
    source = FewShot(tmp_path, k=1, retrieval="random")
    with pytest.warns(PoolWarning, match="3 with labels that are no answer to 'aha-memes'"):
        assert ids(source.open(["text"], load_task("aha-memes")).pool.memes) == ["fits"]
    assert len(source.open(["text"]).pool) == 4


def test_an_example_whose_picture_cannot_be_opened_is_passed_over_where_it_is_shown(tmp_path: Path) -> None:
    for name, colour in (("one", "red"), ("two", "blue"), ("broken", "green")):
        picture = Image.linear_gradient("L").resize((64, 64)).convert("RGB")
        picture.paste(colour, (0, 0, 20, 20))
        picture.save(tmp_path / f"{name}.png")
    (tmp_path / "broken.png").write_bytes(b"\x89PNG")
    texts = {"broken": "green cats", "one": "green dogs", "two": "nothing alike"}
    memes = [Meme(id=name, text=text, image=tmp_path / f"{name}.png", labels=()) for name, text in texts.items()]
    write_memes(tmp_path / "memes.jsonl", memes)
    query = Meme(id="q", text="green cats", image=tmp_path / "one.png")
    assert ids(FewShot(tmp_path, k=1, retrieval="text").open(["text"]).examples(query)) == ["broken"]
    for retrieval in ("text", "both", "random"):
        finder = FewShot(tmp_path, k=2, retrieval=retrieval).open(["image+text"])  # type: ignore[arg-type]
        assert set(ids(finder.examples(query))) == {"one", "two"}
    assert ids(FewShot(tmp_path, k=1, retrieval="text").open(["image+text"]).examples(query)) == ["one"]


def test_a_meme_that_cannot_be_compared_is_a_failure_that_says_what_to_do(pool: Path, queries: list[Meme]) -> None:
    no_text, no_picture = queries[0].model_copy(update={"text": ""}), Meme(id="p", text=queries[1].text)
    by = {name: FewShot(pool, k=2, retrieval=name).open() for name in ("text", "picture", "both", "random")}  # type: ignore[arg-type]
    failed, kept = by["text"].attach([no_text, no_picture])
    assert failed == Failure(
        meme_id=no_text.id,
        stage="read",
        reason=f"meme {no_text.id!r} has no text; choose by picture, both or random, or fill its text",
    )
    assert isinstance(kept, Meme)
    with pytest.raises(ValueError, match=r"meme 'p' has no picture.*choose by text, both or random, or give it a pict"):
        by["picture"].examples(no_picture)
    with pytest.raises(ValueError, match=r"finds nothing to go by in the text of meme 'e'.*has no picture.*at random"):
        by["both"].examples(Meme(id="e", text="☺"))
    assert len(by["random"].examples(Meme(id="e"))) == 2


def test_both_goes_by_the_other_ranking_where_one_is_missing(pool: Path, queries: list[Meme]) -> None:
    both = FewShot(pool, k=3, retrieval="both").open()
    no_text, no_picture = queries[0].model_copy(update={"text": ""}), queries[0].model_copy(update={"image": None})
    assert both.examples(no_text) == FewShot(pool, k=3, retrieval="picture").open().examples(no_text)
    assert both.examples(no_picture) == FewShot(pool, k=3, retrieval="text").open().examples(no_picture)


def test_a_failure_passes_through(pool: Path, queries: list[Meme]) -> None:
    failure = Failure(meme_id="f", stage="read", reason="broken")
    attached = FewShot(pool, k=1, retrieval="random").open().attach([queries[0], failure, queries[1]])
    assert attached[1] is failure
    assert [record.id for record in attached if isinstance(record, Meme)] == [queries[0].id, queries[1].id]


def test_the_meme_stays_as_it_was_but_for_its_examples(pool: Path, queries: list[Meme]) -> None:
    (attached,) = FewShot(pool, k=2, retrieval="text").open().attach(queries[:1])
    assert isinstance(attached, Meme)
    assert attached.model_copy(update={"examples": ()}) == queries[0]
    assert all(example.labels is not None for example in attached.examples)


def test_what_decides_the_examples_is_described(pool: Path) -> None:
    described = FewShot(pool, k=2, retrieval="both").open().describe()
    assert (described["pool"], described["memes"], described["k"]) == ("memes.jsonl", N, 2)
    assert (described["retrieval"], described["constant"]) == ("both", 60)
    assert [one["name"] for one in described["embedders"].values()] == ["tfidf", "phash"]
    before = described["sha256"]
    assert FewShot(pool, k=2, retrieval="random", seed=5).open().describe()["seed"] == 5
    assert FewShot(pool.parent, k=2, retrieval="random").open().describe()["sha256"] == before


def test_the_named_embedder_is_taken_and_one_that_has_nothing_to_do_is_refused(pool: Path) -> None:
    described = FewShot(pool, k=2, embedders=("thumbnail",)).open().describe()
    assert {kind: one["name"] for kind, one in described["embedders"].items()} == {
        "text": "tfidf",
        "picture": "thumbnail",
    }
    with pytest.raises(ValueError, match="embedder 'phash' has nothing to embed with retrieval 'text'; leave it out"):
        FewShot(pool, k=2, retrieval="text", embedders=("phash",)).open()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"k": 0}, "0 examples cannot be had of the 40 in 'memes.jsonl'; ask for 1 or more of them"),
        ({"k": 41}, "41 examples cannot be had of the 40 in 'memes.jsonl'"),
        ({"retrieval": "best"}, "unknown retrieval 'best'; there are random, text, picture, both"),
        ({"pool": "nowhere.jsonl"}, "dataset 'nowhere.jsonl' does not exist"),
    ],
)
def test_what_no_meme_can_have_is_refused_at_once(pool: Path, changes: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        FewShot(**({"pool": pool, "retrieval": "random"} | changes)).open()  # type: ignore[arg-type]


def test_without_the_extra_a_draw_works_and_the_rest_says_what_to_install(
    pool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    monkeypatch.setitem(sys.modules, "imagehash", None)
    assert len(FewShot(pool, k=2, retrieval="random").open().examples(Meme(id="a"))) == 2
    for retrieval in ("text", "picture", "both"):
        with pytest.raises(RetrievalUnavailableError, match=r"pip install 'meme-xai\[retrieval\]'"):
            FewShot(pool, k=2, retrieval=retrieval).open()  # type: ignore[arg-type]


def test_more_than_the_others_are_too_many(pool: Path) -> None:
    finder = FewShot(pool, k=N, retrieval="random").open()
    assert len(finder.examples(Meme(id="another", text="a"))) == N
    with pytest.raises(ValueError, match=r"the pool has 39 examples for meme .*, fewer than 40; ask for fewer"):
        finder.examples(finder.pool.memes[0])


def test_a_pool_without_labels_says_what_a_pool_is(tmp_path: Path) -> None:
    write_memes(tmp_path / "memes.jsonl", [Meme(id="a", text="b")])
    with pytest.raises(ValueError, match=r"no record of 'memes.jsonl' can be an example \(1 without gold labels\)"):
        read_pool(tmp_path / "memes.jsonl")
