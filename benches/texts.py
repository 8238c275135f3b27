"""Passages of the question sets in the folder that ROLLOUTDB_DATA names, or in ../shared/data beside the project."""

import json
import os
from pathlib import Path


def corpus(name):
    """Title and contents of each passage of a set."""
    folder = Path(os.environ.get("ROLLOUTDB_DATA") or Path(__file__).resolve().parents[1] / "../shared/data")
    passages = (json.loads(line) for line in (folder / name / "corpus.jsonl").read_text(encoding="utf-8").splitlines())
    return [f"{passage['title']} {passage['contents']}" for passage in passages]
