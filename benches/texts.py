"""Passages of the question sets in the folder that ROLLOUTDB_DATA names, or in ../shared/data beside the project."""

import json
import os
from pathlib import Path


def data_folder():
    return Path(os.environ.get("ROLLOUTDB_DATA") or Path(__file__).resolve().parents[2] / "shared/data")


def corpus(name):
    """Title and contents of each passage of a set."""
    return [f"{passage['title']} {passage['contents']}" for passage in read(data_folder() / name / "corpus.jsonl")]


def solved(name, count):
    """The last questions of a set, each as its passages, which hold the answer, the question, and an answer to it."""
    folder = data_folder() / name
    passages = {row["id"]: row["contents"] for row in read(folder / "corpus.jsonl")}
    for row in read(folder / "questions.jsonl")[-count:]:
        yield "\n".join(passages[key] for key in row["metadata"]["supporting_ids"]), row["question"], row["golden_answers"][0]


def read(path):
    """The rows of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
