"""Files as people really send them: what is kept, what is refused, and in which words."""

from __future__ import annotations

import codecs
import io
from datetime import date

import pyarrow
import pytest
from pyarrow import parquet

from assay.api.principal import Principal
from assay.errors import AssayError
from scoring.ingest.conflicts import ConflictRule
from scoring.ingest.items import ImportChecks
from scoring.ingest.seen import SeenKeys
from scoring.models import Document, DocumentSet, Judgement, JudgementSet, Query, RunEntry, RunSet
from scoring.selectors.runs import run_entries
from scoring.services.imports import bad_rows_csv, set_import, upload_preview
from tests.unit.scoring.conftest import Upload


def test_csv_keeps_texts_byte_for_byte(upload: Upload) -> None:
    text = ' a "quoted", text\r\nwith a line break – é  '
    line = '1,"' + text.replace('"', '""') + '",x\n'
    documents = upload("documents", ("id,text,shelf\n" + line + "2,,y\n").encode())
    first, second = Document.objects.filter(document_set=documents)
    assert (first.external_id, first.text, first.metadata) == ("1", text, {"shelf": "x"})
    assert second.is_empty and not first.is_empty
    assert documents.counts == {"read": 2, "kept": 2, "bad": 0, "duplicate": 0, "empty": 1}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"id\ttext\n7\thello\n", ("7", "hello")),
        (b"\xef\xbb\xbfid;text\n7;hello\n", ("7", "hello")),
        (b'{"id": 7, "text": "hello"}\n', ("7", "hello")),
        (b"text\nhello\n", ("1", "hello")),
        ("id,text\n7,hëllo €\n".encode("utf-16"), ("7", "hëllo €")),
        (codecs.BOM_UTF16_BE + '{"id": 7, "text": "hello"}'.encode("utf-16-be"), ("7", "hello")),
        (b"Docid,Body\n7,hello\n", ("7", "hello")),
    ],
)
def test_formats_and_columns_are_told_by_content(upload: Upload, content: bytes, expected: tuple[str, str]) -> None:
    document = Document.objects.get(document_set=upload("documents", content))
    assert (document.external_id, document.text) == expected


def test_every_bad_row_is_named_by_its_line(upload: Upload) -> None:
    rows = [
        b"id,text,title,note",
        b"1,good,t,n",
        b"2,short,row",
        b"3,a\x00b,t,n",
        b"4,caf\xe9,t,n",
        b'5,"two\nlines",t,n',
        b"1,again,t,n",
        b",no id,t,n",
        b"8," + b"x" * 2_000_000 + b",t,n",
    ]
    content = b"\n".join(rows) + b"\n"
    with pytest.raises(AssayError) as refused:
        upload("documents", content)
    assert refused.value.status == 422 and refused.value.code == "bad_rows"
    problems = {problem["line"]: problem["message"] for problem in refused.value.extra["problems"]}
    assert problems[3] == "has 3 columns, the header has 4"
    assert "NUL character at position 1" in problems[4]
    assert "not UTF-8 (byte 0xE9" in problems[5] and "Latin-1" in problems[5]
    assert "repeats '1'" in problems[8]
    assert "'id' is empty" in problems[9]
    assert "2,000,000 characters" in problems[10]
    assert set(problems) == {3, 4, 5, 8, 9, 10}
    assert not DocumentSet.objects.exists()  # nothing of it is stored

    documents = upload("documents", content, keep_good_rows=True)
    assert documents.counts == {"read": 8, "kept": 2, "bad": 6, "duplicate": 1, "empty": 0}
    assert list(Document.objects.values_list("position", "external_id")) == [(0, "1"), (1, "5")]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "The file is empty"),
        (b"  \n\n", "The file is empty"),
        (b"id,text\n", "one line that is not blank, 'id,text', which is read as the names of its columns, and no rows"),
        (b'{"id": 1, "text": \n{"id": 2\n', "None of its rows can be read; the first: line 1 is not valid JSON"),
        (b"q1 0 d1 2\nq1 0 d2 1\n", "The file is TREC judgements"),
        (b"q1 Q0 d1 1 9.5 bm25\n", "The file is a TREC run"),
        (codecs.BOM_UTF16_LE + b"i\x00d\x00\n\x00\x00\xd8", "begins as UTF-16 and is none"),
        (b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 9, "a PNG picture"),
        (bytes(range(256)) * 9, "binary"),
        (b'id,text\n1,"never closed\n2,x\n', "not valid CSV"),
        (b"id,text,text\n1,a,b\n", "'text' more than once"),
    ],
)
def test_unreadable_files_say_what_they_are(upload: Upload, content: bytes, words: str) -> None:
    with pytest.raises(AssayError) as refused:
        upload("documents", content)
    assert refused.value.code == "unreadable_file" and words in refused.value.message


def test_latin_1_file_is_recognised_in_words(upload: Upload) -> None:
    with pytest.raises(AssayError, match="save it as UTF-8"):
        upload("documents", "id,text\n1,Ünsäglich\n".encode("latin-1"))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"id": 1, "text": {"a": 1}}', "'text' is a JSON dict"),
        (b'{"id": 1, "text": "a\\u0000b"}', "NUL character"),
        (b'{"id": 1, "text": "\\ud83d"}', "surrogate"),
        (b'{"id": 1, "text": "a", "more": {"deep": "\\u0000"}}', "metadata holds a NUL"),
        (b'{"id": 1, "text": NaN}', "not valid JSON"),
        (b"[1, 2]", "a JSON list"),
        (b'{"id": 1, "text": "a", "text": "b"}', "'text' is given twice"),
        (b'{"id": true, "text": "a"}', "an id is text or a whole number"),
    ],
)
def test_json_lines_problems(upload: Upload, line: bytes, words: str) -> None:
    with pytest.raises(AssayError) as refused:
        upload("documents", b'{"id": 0, "text": "fine"}\n' + line + b"\n")
    (problem,) = refused.value.extra["problems"]
    assert problem["line"] == 2 and words in problem["message"]


def test_late_json_keys_are_kept_as_metadata(upload: Upload) -> None:
    lines = [b'{"id": %d, "text": "a"}' % i for i in range(300)] + [b'{"id": 300, "text": "a", "late": [1]}']
    documents = upload("documents", b"\n".join(lines))
    assert Document.objects.get(document_set=documents, position=300).metadata == {"late": [1]}


def test_mapping_by_name_and_its_errors(upload: Upload) -> None:
    content = b"key,words,heading\n1,w,h\n"
    with pytest.raises(AssayError, match=r"No column for 'text'.*'key', 'words', 'heading'"):
        upload("documents", content)
    with pytest.raises(AssayError, match="takes 'text' from column 'nope'"):
        upload("documents", content, mapping={"text": "nope"})
    with pytest.raises(AssayError, match="The mapping names 'txt'"):
        upload("documents", content, mapping={"txt": "words"})
    documents = upload("documents", content, mapping={"id": "key", "text": "words", "metadata": []})
    assert Document.objects.get(document_set=documents).metadata == {}


def test_the_same_file_again_is_offered_as_the_existing_set(upload: Upload, principal: Principal) -> None:
    first = upload("documents", b"id,text\n1,a\n")
    with pytest.raises(AssayError) as refused:
        upload("documents", b"id,text\n1,a\n")
    assert refused.value.status == 409 and refused.value.extra["existing"]["id"] == str(first.pk)
    again, created = set_import(
        principal=principal, kind_name="documents", name="x", file=io.BytesIO(b"id,text\n1,a\n"), file_name="x.csv",
        use_existing=True,
    )  # fmt: skip
    assert again == first and not created


def test_queries_and_judgements(upload: Upload) -> None:
    queries = upload("queries", b"qid\tquery\nq1\thow?\n")
    assert Query.objects.get(query_set=queries).text == "how?"
    trec = upload("judgements", b"q1 0 d1 2\nq1 0 d2 -1\n")
    assert list(Judgement.objects.filter(judgement_set=trec).values_list("grade", flat=True)) == [2, -1]
    beir = upload("judgements", b"query-id\tcorpus-id\tscore\nq1\td1\t3.0\n")
    assert Judgement.objects.get(judgement_set=beir).grade == 3
    with pytest.raises(AssayError) as refused:
        upload("judgements", b"q1 0 d1 2\nq1 0 d1 1\n")
    assert "line 1 the pair has the grades 2, 1" in refused.value.message
    with pytest.raises(AssayError, match=r"the grade is '1\.5'"):
        upload("judgements", b"query_id,document_id,grade\nq,d,1.5\n")


def order(run: RunSet) -> list[str]:
    return [entry.document_id for entry in run_entries(run_set=run)]


def test_a_run_is_ordered_by_rank_or_by_falling_score(upload: Upload) -> None:
    trec = upload("runs", b"q1 Q0 b 2 5 t\nq1 Q0 a 1 1.5e-3 t\nq0\tQ0\tc\t0\t-2\tt\nq1 Q0 d 2 9 t\n")
    assert trec.file_format == "trec-run" and order(trec) == ["c", "a", "b", "d"]  # ties in file order
    assert list(RunEntry.objects.filter(run_set=trec).values_list("rank", "score")) == [
        (2, 5),
        (1, 0.0015),
        (0, -2),
        (2, 9),
    ]
    scores = upload("runs", b"qid,docid,score\nq,a,1\nq,b,2.5\nq,c,1\n")
    assert order(scores) == ["b", "a", "c"]
    assert set(RunEntry.objects.filter(run_set=scores).values_list("rank", flat=True)) == {None}
    ranks = upload(
        "runs", b'{"query_id": 1, "document_id": 2, "rank": 9}\n{"query_id": 1, "document_id": 3, "rank": 4}\n'
    )
    assert order(ranks) == ["3", "2"]
    unscored = upload("runs", b"query_id\tdocument_id\trank\tscore\nq\ta\t2\t\nq\tb\t1\t0.5\n")
    assert order(unscored) == ["b", "a"] and unscored.counts["kept"] == 2


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"q1 Q0 d2 1 nan t", "the score is 'nan'; it must be a finite number"),
        (b"q1 Q0 d2 1 -inf t", "the score is '-inf'"),
        (b"q1 Q0 d2 1 high t", "the score is 'high'; it must be a number"),
        (b"q1 Q0 d2 -1 2.5 t", "the rank is '-1'"),
        (b"q1 Q0 d2 1.5 2.5 t", "the rank is '1.5'"),
        (b"q1 Q0 d2 first 2.5 t", "the rank is 'first'"),
        (b"q1 Q0 d2 9999999999 2.5 t", "from 0 to 2,147,483,647"),
        (b"q1 Q0 d2 1 2.5", "has 5 fields"),
        (b"q1 Q0 d1 2 2.5 t", "repeats 'q1' and 'd1'"),
    ],
)
def test_bad_rows_of_a_run(upload: Upload, line: bytes, words: str) -> None:
    with pytest.raises(AssayError) as refused:
        upload("runs", b"q1 Q0 d1 1 3.5 t\n" + line + b"\n")
    (problem,) = refused.value.extra["problems"]
    assert problem["line"] == 2 and words in problem["message"]
    run = upload("runs", b"q1 Q0 d1 1 3.5 t\n" + line + b"\n", keep_good_rows=True)
    assert order(run) == ["d1"] and RunEntry.objects.get(run_set=run).score == 3.5


def test_runs_and_judgements_are_told_apart(upload: Upload) -> None:
    with pytest.raises(AssayError, match=r"The file is TREC judgements .* give a TREC run"):
        upload("runs", b"q1 0 d1 2\n")
    with pytest.raises(AssayError, match=r"The file is a TREC run .* give TREC judgements"):
        upload("judgements", b"q1 Q0 d1 1 3.5 t\n")
    with pytest.raises(AssayError, match=r"No column for 'rank' or 'score'"):
        upload("runs", b"query_id,document_id\nq,d\n")


def test_many_keys_are_told_apart() -> None:
    seen = SeenKeys()
    assert all(seen.add((str(number),)) for number in range(100_000))
    assert not any(seen.add((str(number),)) for number in range(100_000))
    assert seen.add(("100000",)) and not seen.add(("100000",))


def test_preview_shows_problems_wherever_they_are() -> None:
    content = b"id,text\n" + b"".join(b"%d,x\n" % i for i in range(500)) + b"7,repeated\n"
    preview = upload_preview(kind_name="documents", file=io.BytesIO(content))
    assert (preview.file_format, preview.columns, len(preview.rows)) == ("csv", ["id", "text"], 50)
    assert preview.mapping == {"id": "id", "text": "text", "metadata": None}
    assert [problem.line for problem in preview.report.problems] == [502]
    unmapped = upload_preview(kind_name="documents", file=io.BytesIO(b"a,b\n1,2\n"))
    assert "No column for 'text'" in unmapped.mapping_error


@pytest.mark.parametrize("content", [b"\xef\xbb\xbf", b"\xef\xbb\xbf\n \n"])
def test_a_byte_order_mark_alone_is_an_empty_file(upload: Upload, content: bytes) -> None:
    with pytest.raises(AssayError, match="The file is empty"):
        upload("documents", content)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"query_id": "q", "document_id": "d"}', "the grade is None"),
        (b'{"query_id": "q", "document_id": "d", "grade": %s}' % (b"9" * 400), "the grade is 9999"),
        (b'{"query_id": "q", "document_id": "d", "grade": 1e400}', "larger than a 64-bit float"),
        (b'{"query_id": "q", "document_id": "d", "grade": 1, "m": %s1%s}' % (b"[" * 900, b"]" * 900), "deep"),
        (b'{"query_id": "q", "document_id": "d", "grade": "x", "\\ud83d": 1}', "'a name' holds half of a surrogate"),
    ],
)
def test_rows_that_would_break_the_store_are_problems(upload: Upload, line: bytes, words: str) -> None:
    good = b'{"query_id": "q", "document_id": "good", "grade": 1}\n'
    judgements = upload("judgements", good + line + b"\n", keep_good_rows=True)
    assert judgements.counts["kept"] == 1 and words in judgements.problems[0]["message"]
    preview = upload_preview(kind_name="judgements", file=io.BytesIO(good + line))
    assert words in preview.report.problems[0].message


def test_blank_lines_before_the_header(upload: Upload) -> None:
    with pytest.raises(AssayError) as refused:
        upload("documents", b"\n\nid;text\n1;a\n2;b;c\n")
    assert refused.value.extra["problems"] == [{"line": 5, "message": "has 3 columns, the header has 2"}]


def test_parquet_is_read_with_its_types(upload: Upload) -> None:
    table = pyarrow.table({"docno": [7, 8], "body": ["hello", None], "when": [date(2026, 1, 2), None]})
    written = io.BytesIO()
    parquet.write_table(table, written)
    documents = upload("documents", written.getvalue())
    first, second = Document.objects.filter(document_set=documents)
    assert (first.external_id, first.text, first.metadata) == ("7", "hello", {"when": "2026-01-02"})
    assert second.is_empty and documents.file_format == "parquet"
    with pytest.raises(AssayError, match="Parquet file cannot be read"):
        upload("documents", written.getvalue()[:-20])


PROSE = b"Is it cold, dark, or wet?\nTicks.\n\nPull, then wait.\n"
COLLECTION = b"<DOC>\n<DOCNO> A-1 </DOCNO>\n<TITLE>T</TITLE>\n<TEXT>\nPull <b>it</b> out.\n</TEXT>\n</DOC>\n"


@pytest.mark.parametrize(
    ("content", "file_format", "texts"),
    [
        (PROSE, "text", ["Is it cold, dark, or wet?", "Ticks.", "Pull, then wait."]),
        (COLLECTION, "trec-text", ["Pull it out."]),
    ],
)
def test_texts_and_collections_are_told_by_content(
    upload: Upload, content: bytes, file_format: str, texts: list[str]
) -> None:
    documents = upload("documents", content)
    assert documents.file_format == file_format
    assert list(Document.objects.filter(document_set=documents).values_list("text", flat=True)) == texts
    assert documents.statistics["histogram"][0] == len(texts)  # none has more than eight words


def test_a_table_with_a_bad_row_stays_a_table(upload: Upload) -> None:
    with pytest.raises(AssayError, match="has 2 columns"):
        upload("documents", b"text\nhello, you\n")


def test_an_unfinished_document_of_a_collection_is_named(upload: Upload) -> None:
    content = b"<DOC>\n<DOCNO>1</DOCNO>\n<DOC>\n<DOCNO>2</DOCNO>\ntext\n</DOC>\n<DOC>\nnone\n</DOC>\n"
    with pytest.raises(AssayError) as refused:
        upload("documents", content)
    problems = {problem["line"]: problem["message"] for problem in refused.value.extra["problems"]}
    assert "not closed" in problems[1] and "no <DOCNO>" in problems[7]


def test_what_a_query_means_is_kept_under_its_own_name(upload: Upload) -> None:
    queries = upload("queries", b"id\ttext\tdescription\ttags\nq1\ttick\tRemoval only.\toutdoor\n")
    assert Query.objects.get(query_set=queries).metadata == {"narrative": "Removal only.", "tags": "outdoor"}


CONFLICTS = b"q1 0 d1 2\nq1 0 d1 0\nq1 0 d2 1\nq1 0 d2 1\nq1 0 d1 1\nq2 0 d3 -1\n"


@pytest.mark.parametrize(("rule", "grade"), [("last", 1), ("judges", 1), ("reject", None)])
def test_a_pair_with_several_grades_is_resolved_by_the_rule(upload: Upload, rule: str, grade: int | None) -> None:
    checks = ImportChecks(conflicts=ConflictRule(rule))
    if grade is None:
        with pytest.raises(AssayError) as refused:
            upload("judgements", CONFLICTS, checks=checks)
        assert [problem["line"] for problem in refused.value.extra["problems"]] == [1, 2, 5]
    judged = upload("judgements", CONFLICTS, checks=checks, keep_good_rows=True)
    rows = {row.document_id: row.grade for row in Judgement.objects.filter(judgement_set=judged)}
    assert rows == ({"d1": grade} if grade is not None else {}) | {"d2": 1, "d3": -1}
    assert judged.counts["duplicate"] == (3 if grade is not None else 1)
    kept = judged.provenance
    assert (kept["conflicts"], kept["pooled"], kept["queries_without_relevant"], kept["rule"]) == (1, 1, 1, rule)
    assert (kept["several"], kept["spreads"]) == ([["q1", "d1", [2, 0, 1]]], {"2": 1})


def test_the_median_of_an_even_number_of_judges_is_the_lower_one(upload: Upload) -> None:
    judged = upload("judgements", b"q 0 d 3\nq 0 d 1\n", checks=ImportChecks(conflicts=ConflictRule.JUDGES))
    assert Judgement.objects.get(judgement_set=judged).grade == 1


def test_ids_are_checked_against_the_sets_chosen(upload: Upload) -> None:
    checks = ImportChecks(
        query_set=upload("queries", b"id,text\nq1,first\n"), document_set=upload("documents", b"id,text\nd1,a\n")
    )
    content = b"q1 0 d1 2\nq1 0 d9 1\nq7 0 d1 0\nq7 0 d8 0\n"
    judged = upload("judgements", content, checks=checks)
    assert judged.provenance["ids"] == {
        "rows": 4, "matched": 1, "unknown_queries": 1, "unknown_documents": 2,
        "first_unknown_queries": ["q7"], "first_unknown_documents": ["d9", "d8"],
    }  # fmt: skip
    lines = list(bad_rows_csv(kind_name="judgements", file=io.BytesIO(content), checks=checks, unmatched=True))
    assert len(lines) == 4 and "'queries' has no query 'q7'; 'documents' has no document 'd8'" in lines[3]
    with pytest.raises(AssayError) as refused:
        upload("judgements", b"x 0 y 1\n", checks=checks)
    assert refused.value.code == "ids_do_not_match"
    assert JudgementSet.objects.count() == 1


def test_a_file_may_be_the_next_version_of_a_set(upload: Upload) -> None:
    first = upload("judgements", b"q1 0 d1 2\n")
    second = upload("judgements", b"q1 0 d1 5\n", checks=ImportChecks(base=first))
    assert (second.root, second.version) == (first.root, 2)
    assert second.scale == ["0", "1", "2", "3", "4", "5"]
    third = upload("judgements", b"q1 0 d1 7\n", checks=ImportChecks(base=first))
    assert (third.version, third.scale) == (3, [])


def test_queries_whose_scores_contradict_the_ranks_are_counted() -> None:
    run = b"q1 Q0 a 1 9 x\nq1 Q0 b 2 9 x\nq2 Q0 a 1 3 x\nq2 Q0 b 2 5 x\nq3 Q0 a 2 3 x\nq3 Q0 b 1 1 x\n"
    assert upload_preview(kind_name="runs", file=io.BytesIO(run)).report.disordered == {"q2", "q3"}
    mapping = {"rank": None}
    assert upload_preview(kind_name="runs", file=io.BytesIO(run), mapping=mapping).report.disordered == set()


def test_a_fraction_among_trec_judgements_is_refused_with_its_line(upload: Upload) -> None:
    with pytest.raises(AssayError, match=r"line 2 the grade is '1.5'; it must be a whole number"):
        upload("judgements", b"q1 0 d1 3.0\nq1 0 d2 1.5\n")
    assert upload("judgements", b"q1 0 d1 3.0\nq1 0 d3 -1\n").file_format == "trec-qrels"
    assert list(Judgement.objects.values_list("document_id", "grade")) == [("d1", 3), ("d3", -1)]
