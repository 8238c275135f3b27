"""Embedding: `embed()` against sentence-transformers on the same device, single precision on a CPU and half precision on an NVIDIA GPU (`--device cuda`).

Texts go in and vectors come out on both sides, so both tokenize. Needs torch and sentence-transformers beside requirements.txt, all-MiniLM-L6-v2
(`make models`), and for a GPU a binary of `make cuda`. README.md describes the measures.
"""

import json
import os

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from harness import Bench, Calls, parse, parser
from server import Server
from texts import corpus

# Texts whose vectors are compared: with the peer's, and on a GPU with those of the CPU too.
COMPARED = 100
# The best of 64 to 2048 for sentence-transformers on an H100 and texts of these lengths, and of 8 to 64 on two cores.
BATCH = {"cuda": 512, "cpu": 32}
TARGET = {"cuda": 1.0, "cpu": 1.2}
DTYPE = {"cuda": torch.float16, "cpu": torch.float32}


def main():
    options = parser(__doc__)
    options.add_argument("--model", default=".cache/models/all-MiniLM-L6-v2", help="directory of a BERT-family encoder")
    options.add_argument("--sets", default="hotpotqa,musique", help="folders of ROLLOUTDB_DATA whose corpora are embedded")
    options.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options.add_argument("--texts", type=int, help="texts of one call; default 400 on a CPU and 80,000 on a GPU, quick 100 and 10,000")
    options = parse(options, rounds=5)
    on_gpu = options.device == "cuda"
    count = options.texts or ((10_000 if options.quick else 80_000) if on_gpu else (100 if options.quick else 400))
    passages = [text for name in options.sets.split(",") for text in corpus(name)]
    # Those of both ends of the sets; copies differ, for equal texts are embedded once.
    step = max(len(passages) // count, 1)
    texts = [f"{text} {copy}" for copy in range(-(-count // len(passages))) for text in passages[::step]][:count]
    model = os.path.abspath(options.model)
    with Bench(f"embedding, {options.device}", options) as bench, Server() as server:
        name = torch.cuda.get_device_name() if on_gpu else f"{torch.get_num_threads()} threads"
        print(f"{name}, torch {torch.__version__}, {len(texts):,} texts", flush=True)
        contest = Contest(server, options.device, model, texts)
        bench.run("embed texts", contest.embed)
        bench.run("embed one query", contest.one)


class Contest:
    def __init__(self, server, device, model, texts):
        self.device, self.texts = device, texts
        self.connection = server.connect()
        for name in {"cpu", device}:
            self.connection.execute(f"CREATE MODEL on_{name} FROM '{model}' WITH (task = 'embed', device = '{name}')")
        print(dict(self.connection.execute(f"DESCRIBE MODEL on_{device}").fetchall())["device"], flush=True)
        path = server.folder / "texts.jsonl"
        path.write_text("".join(json.dumps({"n": n, "text": text}) + "\n" for n, text in enumerate(texts)), encoding="utf-8")
        self.connection.execute("CREATE TABLE texts (n bigint, text text)")
        self.connection.execute(f"COPY texts FROM '{path}'")
        self.peer = SentenceTransformer(model, device=device, model_kwargs={"dtype": DTYPE[device]})

    def check(self, measure):
        query = "SELECT n, embed('on_{}', text)::text FROM texts WHERE n < %s ORDER BY n"
        ours = self.vectors(query.format(self.device))
        if self.device != "cpu":
            measure.check("least cosine to the CPU", least_cosine(ours, self.vectors(query.format("cpu"))), at_least=0.9995)
        peer = unit(self.peer.encode(self.texts[:COMPARED], batch_size=BATCH[self.device]).astype(np.float64))
        measure.check("least cosine to sentence-transformers", least_cosine(ours, peer), at_least=0.9995)

    def vectors(self, query):
        return unit(np.array([json.loads(text) for _, text in self.connection.execute(query, [COMPARED]).fetchall()], dtype=np.float64))

    def embed(self, measure):
        """Each call has texts of its own, for equal ones would come from the cache."""
        self.check(measure)

        def ours(call):
            query = f"SELECT count(*), min(vector_norm(embed('on_{self.device}', text || %s))) FROM texts"
            count, least = self.connection.execute(query, [f" {call}"]).fetchone()
            if count != len(self.texts) or not least > 0.99:
                raise ValueError(f"{count} vectors, the shortest of length {least}")

        def peer(call):
            self.peer.encode([f"{text} {call}" for text in self.texts], batch_size=BATCH[self.device], normalize_embeddings=True)

        contestants = [Calls(name, call, len(self.texts)) for name, call in (("RolloutDB", ours), ("sentence-transformers", peer))]
        measure.compare(contestants[0], contestants[1:], target=TARGET[self.device], floor=self.forward_alone(), unit="texts/s")

    def forward_alone(self):
        """Texts per second if nothing but the peer's model ran, over full batches of tokens that are on the GPU already."""
        tokens = self.peer.tokenizer(self.texts, truncation=True, max_length=self.peer.max_seq_length)["input_ids"]
        batch = torch.randint(1000, 30_000, (BATCH[self.device] // 2, 128), device=self.device)
        mask = torch.ones_like(batch)

        def forward(_call):
            with torch.no_grad():
                self.peer[0].auto_model(input_ids=batch, attention_mask=mask)
            if self.device == "cuda":
                torch.cuda.synchronize()

        calls = Calls("transformers", forward, batch.numel())
        calls.warm_up(1)
        rate, mean = calls.rate(2), sum(map(len, tokens)) / len(tokens)
        return rate / mean, f"{mean:.0f} tokens a text, {rate / 1e6:.2f} M tokens/s in the forward of transformers alone"

    def one(self, measure):
        contestants = [
            Calls("RolloutDB", lambda call: self.connection.execute(f"SELECT embed('on_{self.device}', %s)", [f"who directed film {call}"]).fetchone()),
            Calls("sentence-transformers", lambda call: self.peer.encode([f"who directed film {call}"], normalize_embeddings=True)),
        ]
        measure.compare(contestants[0], contestants[1:], target=1.0, unit="queries/s")


def least_cosine(left, right):
    return float(np.min(np.sum(left * right, axis=1)))


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


if __name__ == "__main__":
    main()
