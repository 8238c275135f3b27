"""Passages of the question sets in the folder that ROLLOUTDB_DATA names, or in ../shared/data beside the project."""

import json
import os
from pathlib import Path


def data_folder():
    return Path(os.environ.get("ROLLOUTDB_DATA") or Path(__file__).resolve().parents[2] / "shared/data")


def corpus(name):
    """Title and contents of each passage of a set."""
    passages = (json.loads(line) for line in (data_folder() / name / "corpus.jsonl").read_text(encoding="utf-8").splitlines())
    return [f"{passage['title']} {passage['contents']}" for passage in passages]
