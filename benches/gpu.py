"""Embedding on an NVIDIA GPU: `embed()` of a build with the feature `cuda` against sentence-transformers on the same GPU, both in half precision.

Texts go in and vectors come out on both sides, so both tokenize. Needs torch and sentence-transformers beside requirements.txt, a binary of `make cuda`, and
all-MiniLM-L6-v2 (`make models`). README.md describes the measures.
"""

import json
import os
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from harness import Bench, Calls, parse, parser
from server import Server

# Texts that are compared with the CPU, whose single precision is what `embed()` gives without a GPU.
COMPARED = 500
# The best of 64 to 2048 for sentence-transformers on an H100 and texts of these lengths.
BATCH = 512


def main():
    options = parser(__doc__)
    options.add_argument("--model", default=".cache/models/all-MiniLM-L6-v2", help="directory of a BERT-family encoder")
    options.add_argument("--sets", default="hotpotqa,musique", help="folders of ROLLOUTDB_DATA whose corpora are embedded")
    options.add_argument("--copies", type=int, help="how often the corpora are repeated in a call; default 4, quick 1")
    options = parse(options)
    # Copies differ: equal texts are embedded once.
    copies = range(options.copies or (1 if options.quick else 4))
    texts = [f"{text} {copy}" for copy in copies for name in options.sets.split(",") for text in corpus(name)]
    model = os.path.abspath(options.model)
    with Bench("gpu", options) as bench, Server() as server:
        print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {len(texts):,} texts", flush=True)
        contest = Contest(server, model, texts)
        bench.run("embed texts", contest.embed)
        bench.run("embed one query", contest.one)


def corpus(name):
    folder = Path(os.environ.get("ROLLOUTDB_DATA") or Path(__file__).resolve().parents[1] / "../shared/data")
    passages = (json.loads(line) for line in (folder / name / "corpus.jsonl").read_text(encoding="utf-8").splitlines())
    return [f"{passage['title']} {passage['contents']}" for passage in passages]


class Contest:
    def __init__(self, server, model, texts):
        self.texts = texts
        self.connection = server.connect()
        for device in ("cpu", "cuda"):
            self.connection.execute(f"CREATE MODEL on_{device} FROM '{model}' WITH (task = 'embed', device = '{device}')")
        print(dict(self.connection.execute("DESCRIBE MODEL on_cuda").fetchall())["device"], flush=True)
        path = server.folder / "texts.jsonl"
        path.write_text("".join(json.dumps({"n": n, "text": text}) + "\n" for n, text in enumerate(texts)), encoding="utf-8")
        self.connection.execute("CREATE TABLE texts (n bigint, text text)")
        self.connection.execute(f"COPY texts FROM '{path}'")
        self.peer = SentenceTransformer(model, device="cuda", model_kwargs={"dtype": torch.float16})

    def check(self, measure):
        query = "SELECT n, embed('on_{}', text)::text FROM texts WHERE n < %s ORDER BY n"
        ours = {device: self.vectors(query.format(device)) for device in ("cpu", "cuda")}
        peer = unit(self.peer.encode(self.texts[:COMPARED], batch_size=BATCH).astype(np.float64))
        measure.check("least cosine to the CPU", float(np.min(np.sum(ours["cuda"] * ours["cpu"], axis=1))), at_least=0.9995)
        measure.check("least cosine to sentence-transformers", float(np.min(np.sum(ours["cuda"] * peer, axis=1))), at_least=0.9995)

    def vectors(self, query):
        return unit(np.array([json.loads(text) for _, text in self.connection.execute(query, [COMPARED]).fetchall()], dtype=np.float64))

    def embed(self, measure):
        """Each call has texts of its own, for equal ones would come from the cache."""
        self.check(measure)

        def ours(call):
            query = "SELECT count(*), min(vector_norm(embed('on_cuda', text || %s))) FROM texts"
            count, least = self.connection.execute(query, [f" {call}"]).fetchone()
            if count != len(self.texts) or not least > 0.99:
                raise ValueError(f"{count} vectors, the shortest of length {least}")

        def peer(call):
            self.peer.encode([f"{text} {call}" for text in self.texts], batch_size=BATCH, normalize_embeddings=True)

        contestants = [Calls(name, call, len(self.texts)) for name, call in (("RolloutDB", ours), ("sentence-transformers", peer))]
        measure.compare(contestants[0], contestants[1:], target=1.0, floor=self.forward_alone(), unit="texts/s")

    def forward_alone(self):
        """Texts per second if nothing but the peer's model ran, over full batches of tokens that are on the GPU already."""
        tokens = self.peer.tokenizer(self.texts, truncation=True, max_length=self.peer.max_seq_length)["input_ids"]
        batch = torch.randint(1000, 30_000, (256, 128), device="cuda")
        mask = torch.ones_like(batch)

        def forward(_call):
            with torch.no_grad():
                self.peer[0].auto_model(input_ids=batch, attention_mask=mask)
            torch.cuda.synchronize()

        calls = Calls("transformers", forward, batch.numel())
        calls.warm_up(1)
        rate, mean = calls.rate(2), sum(map(len, tokens)) / len(tokens)
        return rate / mean, f"{mean:.0f} tokens a text, {rate / 1e6:.2f} M tokens/s in the forward of transformers alone"

    def one(self, measure):
        contestants = [
            Calls("RolloutDB", lambda call: self.connection.execute("SELECT embed('on_cuda', %s)", [f"who directed film {call}"]).fetchone()),
            Calls("sentence-transformers", lambda call: self.peer.encode([f"who directed film {call}"], normalize_embeddings=True)),
        ]
        measure.compare(contestants[0], contestants[1:], target=1.0, unit="queries/s")


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


if __name__ == "__main__":
    main()
