"""Full text search by BM25: RolloutDB against bm25s with NumPy and with Numba, on published question sets.

The folder that ROLLOUTDB_DATA names (../shared/data beside the project unless it is set) holds NAME/corpus.jsonl and NAME/questions.jsonl; docs/retrieval.md
describes them. Texts go in and ids come out on both sides, so both tokenize. README.md describes the measures.
"""

import json
import os
import sys

import bm25s
import numpy as np
import Stemmer

from harness import Bench, Calls, parse, parser, read_bandwidth
from server import Prepared, PreparedInLibpq, Server, round_trip
from texts import data_folder

K = 10
# Recall@10 of a plain BM25 (k1 1.2, b 0.75, stop words, Porter's stemmer); tests/it/real_data.rs has the same.
REFERENCES = {"hotpotqa": 0.889, "2wikimultihopqa": 0.698, "musique": 0.535, "popqa": 0.517}
TOLERANCE = 0.02
# A document's number and how often it has the term.
BYTES_PER_POSTING = 8
SEARCH_ALL = f"SELECT q.id, s.id FROM questions q CROSS JOIN LATERAL text_search(corpus, q.question, k => {K}) s"
SEARCH_ONE = f"SELECT id FROM text_search(corpus, %s, k => {K})"


def main():
    options = parser(__doc__)
    options.add_argument("--sets", help="names of question sets; default hotpotqa,2wikimultihopqa,musique,popqa, quick musique")
    options = parse(options)
    names = options.sets.split(",") if options.sets else ["musique"] if options.quick else list(REFERENCES)
    folder = folder_of(names)
    with Bench("text", options) as bench:
        bandwidth = read_bandwidth()
        for name in names:
            questions = QuestionSet(folder / name)
            with Server() as server:
                connection = load(server, questions)
                contest = Contest(name, questions, connection, bandwidth)
                bench.run(f"{name}, all questions in one statement", contest.all_at_once)
                bench.run(f"{name}, one by one", contest.one_by_one)
                bench.run(f"{name}, one by one through libpq", contest.one_by_one_through_libpq)


def folder_of(names):
    folder = data_folder().resolve()
    for name in names:
        if not (folder / name / "corpus.jsonl").is_file():
            sys.exit(f"no question set {name}: ROLLOUTDB_DATA must name the folder that holds {name}/corpus.jsonl and {name}/questions.jsonl")
    return folder


class QuestionSet:
    def __init__(self, folder):
        self.folder = folder
        self.passages = read_lines(folder / "corpus.jsonl")
        self.passage_ids = [passage["id"] for passage in self.passages]
        questions = read_lines(folder / "questions.jsonl")
        self.ids = [question["id"] for question in questions]
        self.questions = [question["question"] for question in questions]
        self.supporting = [set(question["metadata"]["supporting_ids"]) for question in questions]

    def recall(self, found):
        """Mean share of a question's supporting passages among those found; `found` has a list of ids per question."""
        shares = []
        for supporting, ids in zip(self.supporting, found, strict=True):
            if len(ids) > K:
                raise ValueError(f"{len(ids)} passages for one question instead of {K}")
            shares.append(len(supporting & set(ids)) / len(supporting))
        return float(np.mean(shares))


def read_lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def load(server, questions):
    connection = server.connect()
    connection.execute("CREATE TABLE corpus (id text PRIMARY KEY, title text, contents text)")
    connection.execute(f"COPY corpus (id, title, contents) FROM '{questions.folder / 'corpus.jsonl'}' (FORMAT jsonl)")
    connection.execute("CREATE INDEX corpus_text ON corpus USING bm25 (contents)")
    connection.execute("CREATE TABLE questions (id text PRIMARY KEY, question text)")
    connection.execute(f"COPY questions (id, question) FROM '{questions.folder / 'questions.jsonl'}' (FORMAT jsonl)")
    return connection


class Bm25s:
    """The corpus in bm25s, with the parameters, the stemmer and the kind of stop words that `USING bm25` has by default."""

    def __init__(self, passages, backend, num_threads=0):
        self.stemmer = Stemmer.Stemmer("english")
        self.index = bm25s.BM25(method="lucene", k1=1.2, b=0.75, backend=backend)
        self.num_threads = num_threads
        self.index.index(self.tokens([passage["contents"] for passage in passages]), show_progress=False)

    def tokens(self, texts):
        return bm25s.tokenize(texts, stopwords="en", stemmer=self.stemmer, show_progress=False)

    def search(self, texts):
        """Numbers of the best passages: `[num_texts, k]`."""
        return self.index.retrieve(self.tokens(texts), k=K, n_threads=self.num_threads, show_progress=False).documents

    def posting_count(self, texts):
        """Postings of all terms of all texts."""
        starts = self.index.scores["indptr"]
        tokens = self.tokens(texts)
        words = {number: word for word, number in tokens.vocab.items()}
        terms = (self.index.vocab_dict.get(words[token]) for text in tokens.ids for token in text)
        return sum(int(starts[term + 1] - starts[term]) for term in terms if term is not None)


class Contest:
    def __init__(self, name, questions, connection, bandwidth):
        self.questions = questions
        self.least_recall = REFERENCES.get(name, TOLERANCE) - TOLERANCE
        self.connection = connection
        self.numpy = Bm25s(questions.passages, "numpy")
        self.numpy_threads = Bm25s(questions.passages, "numpy", os.cpu_count())
        self.numba = Bm25s(questions.passages, "numba")
        self.reading = self.numpy.posting_count(questions.questions) * BYTES_PER_POSTING / bandwidth
        self.round_trip = round_trip(connection)

    def floor(self, num_statements):
        num_questions = len(self.questions.questions)
        return num_questions / (self.reading + num_statements * self.round_trip), "postings read once + round trip"

    def texts(self, number):
        return [self.questions.questions[number % len(self.questions.questions)]]

    def whole_set(self, name, peer):
        """A peer's calls with all questions at once."""
        texts = self.questions.questions
        return Calls(name, lambda _: peer.search(texts), units=len(texts))

    def check_peer(self, measure, name, peer):
        found = [[self.questions.passage_ids[passage] for passage in row] for row in peer.search(self.questions.questions)]
        measure.check(f"recall of {name}", self.questions.recall(found), self.least_recall)

    def all_at_once(self, measure):
        statement = Prepared(self.connection, SEARCH_ALL)
        found = {id: [] for id in self.questions.ids}
        for question, passage in statement():
            found[question].append(passage)
        measure.check("recall", self.questions.recall([found[id] for id in self.questions.ids]), self.least_recall)
        self.check_peer(measure, "NumPy", self.numpy)
        self.check_peer(measure, "Numba", self.numba)
        ours = Calls("RolloutDB", lambda _: statement(), units=len(self.questions.ids))
        peers = [self.whole_set("bm25s NumPy", self.numpy), self.whole_set(f"bm25s NumPy, {os.cpu_count()} threads", self.numpy_threads)]
        measure.compare(ours, peers, target=1.0, beside=[self.whole_set("bm25s Numba", self.numba)], floor=self.floor(1))

    def one_by_one(self, measure):
        self.compare_one_by_one(measure, Prepared(self.connection, SEARCH_ONE).column)

    def one_by_one_through_libpq(self, measure):
        self.compare_one_by_one(measure, PreparedInLibpq(self.connection, SEARCH_ONE))

    def compare_one_by_one(self, measure, search):
        """`search` gives the ids that are found for a text."""
        measure.check("recall", self.questions.recall([search(text) for text in self.questions.questions]), self.least_recall)
        self.check_peer(measure, "NumPy", self.numpy)
        ours = Calls("RolloutDB", lambda i: search(*self.texts(i)))
        peers = [self.whole_set("bm25s NumPy, all at once", self.numpy)]
        beside = [Calls("bm25s NumPy, one by one", lambda i: self.numpy.search(self.texts(i)))]
        measure.compare(ours, peers, target=0.3, beside=beside, floor=self.floor(len(self.questions.ids)))


if __name__ == "__main__":
    main()
