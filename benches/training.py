"""Training beside TRL: time and memory of a DPO step, what trees of shared prompts save, and GRPO from rollouts to update.

Needs torch, transformers, requests and trl (below 1.14) beside requirements.txt, and ROLLOUTDB naming a release binary. Both sides compute on the CPU in single
precision with the same number of threads, from the same weights and the same rows; TRL runs in processes of its own (trl_peer.py). Before anything is
timed, both must have the same losses and the same norm of the first gradient. README.md describes the measures. `--device cuda` measures other things, on a
GPU: training_gpu.py.
"""

import json
import os
import random
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

import training_gpu
from harness import Bench, multiply_rate, parse, parser
from products import Products
from server import Server
from trl_peer import Peer, make_policy

BETA, LEARNING_RATE = 0.1, 5e-5
# A step of DPO and the tokens that ours lays out at a time.
PAIRS, BATCH_TOKENS = 8, 4096
# By policy: pairs of a step of trees, and steps of a turn.
SIZES = {
    "tinyhop": {"tree_pairs": 64, "dpo_steps": 20, "tree_steps": 6, "grpo_steps": 6, "quick_steps": 2},
    "qwen2": {"tree_pairs": 16, "dpo_steps": 2, "tree_steps": 1, "grpo_steps": 2, "quick_steps": 1},
}
# Whose trees give the pairs.
QUESTIONS = 60
WORLD = 3
ROLLOUTS = [
    "CREATE MODEL hopper FROM 'builtin://tinyhop' WITH (task = 'generate')",
    f"CREATE TABLE wiki AS SELECT id, contents FROM hopworld_passages(seed => {WORLD})",
    "CREATE INDEX wiki_text ON wiki USING bm25 (contents)",
    f"CREATE TABLE questions AS SELECT * FROM hopworld_questions(seed => {WORLD}, count => 400)",
    "CREATE AGENT searcher WITH (policy = 'hopper', corpus = 'wiki', retriever = 'text', k = 3, prompts = 'short', max_steps = 8, max_tokens = 48)",
    "GENERATE ROLLOUTS INTO run USING AGENT searcher FROM (SELECT id, question, golden_answers FROM questions ORDER BY id LIMIT {questions}) "
    "WITH (simulations = 64, children = 3, temperature = 1.0, top_p = 1.0, max_depth = 8, seed = 7)",
]
# One pair of a node, in a random order, so that only the two completions of a pair share their prompt; and all pairs of all nodes, a tree after the other.
PAIRS_OF = {
    "pairs": "SELECT prompt, chosen, rejected FROM preference_pairs(run, min_gap => 0.05, per_node => 1, dedupe => true) ORDER BY 1, 2, 3",
    "tree_pairs": "SELECT prompt, chosen, rejected FROM preference_pairs(run, min_gap => 0.01) ORDER BY question_id, depth, prompt, chosen, rejected",
}
# How a training takes the pairs of trees: as the query gives them, drawn in groups that begin alike, and drawn one by one, as it does unless it is told.
ORDERS = {"in order": "shuffle = false", "group_by_prefix": "group_by_prefix = true", "one by one": "shuffle = true"}
# Questions of one step of GRPO, completions of each, and their tokens. Policies without a task still differ in a reward that many words earn.
GRPO = {"questions": 4, "group_size": 8, "max_tokens": 48, "temperature": 1.0}


def main():
    options = parser(__doc__)
    options.add_argument("--policies", default="tinyhop,qwen2", help="of them: tinyhop (a million parameters), qwen2 (0.1 B random ones)")
    options.add_argument("--threads", type=int, default=2, help="of each contestant; the processors are limited to as many")
    options.add_argument("--steps", type=int, help="of one turn")
    options.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options = parse(options, rounds=5)
    if options.device == "cuda":
        return training_gpu.main(options)
    limit_processors(options.threads)
    options.threads = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder, Bench("training", options) as bench:
        contest = Contest(Path(folder), options)
        for policy in options.policies.split(","):
            bench.run(f"DPO step, {policy}", lambda measure, policy=policy: contest.dpo(measure, policy))
            bench.run(f"DPO peak memory, {policy}", lambda measure, policy=policy: contest.memory(measure, policy))
            for name, order in ORDERS.items():
                bench.run(f"DPO on trees, {name}, {policy}", lambda measure, policy=policy, order=order: contest.trees(measure, policy, order))
            bench.run(f"GRPO, rollouts and update, {policy}", lambda measure, policy=policy: contest.grpo(measure, policy))


def limit_processors(threads):
    """Libraries look at the processors once, when they are loaded: so the program begins again where there are too many."""
    processors = sorted(os.sched_getaffinity(0))
    if threads < len(processors):
        os.sched_setaffinity(0, processors[:threads])
        os.execv(sys.executable, [sys.executable, *sys.argv])


class Contest:
    """Files that all measures share, made when the first one asks."""

    def __init__(self, folder, options):
        self.folder, self.options = folder, options
        self.made = {}

    def directory(self, policy):
        """Of the policy's weights and tokenizer."""
        if policy not in self.made:
            directory = self.folder / policy
            if policy == "qwen2":
                make_policy(directory)
            else:
                directory = Path(__file__).resolve().parents[1] / "src/models/builtin/tinyhop"
            self.made[policy] = directory
        return self.made[policy]

    def rows(self, table):
        """The pairs of PAIRS_OF, made when the first measure asks for them."""
        if "pairs" not in self.made:
            self.make_pairs()
        return self.made[table]

    def make_pairs(self):
        count = 8 if self.options.quick else QUESTIONS
        with Server() as server:
            connection = server.connect()
            for statement in ROLLOUTS:
                connection.execute(statement.format(questions=count))
            for table, query in PAIRS_OF.items():
                rows = connection.execute(query).fetchall()
                if table == "pairs":
                    random.Random(7).shuffle(rows)
                self.made[table] = [dict(zip(("id", "prompt", "chosen", "rejected"), (number, *row))) for number, row in enumerate(rows)]
                print(f"  {table}: {len(rows)} of {count} trees", flush=True)

    def file(self, table, count):
        """The first rows of a table: the file that both sides read."""
        rows = self.rows(table)
        if len(rows) < count:
            raise ValueError(f"there are {len(rows)} {table}, but {count} are wanted: take fewer steps")
        path = self.folder / f"{table}.jsonl"
        write(path, rows[:count])
        return path

    def peer(self, name, policy, **settings):
        return Peer(self.folder, name, directory=str(self.directory(policy)), threads=self.options.threads, learning_rate=LEARNING_RATE, **settings)

    def steps(self, policy, kind):
        return self.options.steps or SIZES[policy]["quick_steps" if self.options.quick else kind]

    # ---- Measures ----

    def dpo(self, measure, policy):
        """Pairs per second of optimiser steps alone: the reference is there before the first one."""
        steps = self.steps(policy, "dpo_steps")
        rows = self.file("pairs", PAIRS * (steps + 1))
        common = dict(method="dpo", rows=str(rows), steps=steps + 1, batch_size=PAIRS, beta=BETA)
        work = Work(self.directory(policy), self.rows("pairs")[PAIRS : PAIRS * (steps + 1)])
        with (
            Server() as server,
            self.peer("TRL", policy, precompute=True, checkpointing=False, **common) as trl,
            self.peer("TRL as it comes", policy, precompute=False, checkpointing=True, **common) as default,
        ):
            ours = Trainer(server, self.directory(policy), rows)
            found = ours.dpo(steps + 1, PAIRS).metrics
            losses, norms = found["loss"], found["grad_norm"]
            logged = trl.ask("run")["logged"]
            print(f"  losses {rounded(losses)}, TRL's {rounded([row['loss'] for row in logged])}", flush=True)
            print(f"  norms of the gradient {rounded(norms)}, TRL's {rounded([row['grad_norm'] for row in logged])}", flush=True)
            measure.check("agreement of the first gradient's norm with TRL's", agreement(norms[0], logged[0]["grad_norm"]), at_least=0.999)
            # The later steps also compare the updates; small differences of rounding grow with them.
            worst = min(agreement(found, row["loss"]) for found, row in list(zip(losses, logged))[:4])
            measure.check("agreement of the first losses", worst, at_least=0.98)
            contestants = [
                Steps("RolloutDB", lambda: ours.dpo(steps + 1, PAIRS).step_seconds()[1:], PAIRS),
                Steps("TRL", lambda: trl.ask("run")["seconds"][1:], PAIRS),
                Steps("TRL as it comes", lambda: default.ask("run")["seconds"][1:], PAIRS),
                Steps("RolloutDB, tree_packing = false", lambda: ours.dpo(steps + 1, PAIRS, packed=False).step_seconds()[1:], PAIRS),
            ]
            peak = multiply_rate()
            floor = peak / work.flops_per_pair, f"its products at the {peak / 1e9:.0f} GFLOP/s of NumPy's"
            rates = measure.compare(contestants[0], contestants[1:3], target=1 / 0.7, floor=floor, unit="pairs/s", beside=contestants[3:])
        print(f"  {work.tokens_per_pair:.0f} tokens and {work.flops_per_pair / 1e9:.2f} GFLOP of products a pair, prompts counted for both sides", flush=True)
        for name, rate in rates.items():
            print(f"  {name}: {rate * work.flops_per_pair / 1e9:.1f} GFLOP/s of {peak / 1e9:.1f}", flush=True)

    def memory(self, measure, policy):
        """The most that a process of its own holds in all its life, with the model, the rows and two steps."""
        rows = self.file("pairs", 2 * PAIRS)
        with Server() as server:
            idle = server.memory_peak() / 1e6
            trainer = Trainer(server, self.directory(policy), rows)
            trained = trainer.dpo(2, PAIRS)
            ours = server.memory_peak() / 1e6
            predicted = trainer.dry_run(2, PAIRS)
        bytes_of = {name: int(predicted[f"{name}_bytes"]) / 1e6 for name in ("weight", "optimizer", "activation")}
        print(f"  DRY RUN: {float(predicted['seconds']):.1f} s; the statement took {trained.seconds:.1f}, of which {sum(trained.step_seconds()):.1f} the steps", flush=True)
        print(f"  DRY RUN: {sum(bytes_of.values()):.0f} MB {bytes_of}; the statement took {ours - idle:.0f} beside what there was before", flush=True)
        peers, idle_peers = {}, {}
        # The reference computed before, as ours does, and activations kept or computed again.
        variants = {"TRL": (True, False), "TRL, checkpointing": (True, True), "TRL as it comes": (False, True)}
        for name, (precompute, checkpointing) in variants.items():
            settings = dict(method="dpo", rows=str(rows), steps=2, batch_size=PAIRS, beta=BETA, precompute=precompute, checkpointing=checkpointing)
            with self.peer(name, policy, **settings) as peer:
                peer.ask("run")
                answer = peer.ask("memory")
            peers[name], idle_peers[name] = answer["peak"] / 1e6, answer["idle"] / 1e6
        for name, peak, before in [("RolloutDB", ours, idle), *((name, peers[name], idle_peers[name]) for name in peers)]:
            print(f"  {name}: {peak:.0f} MB, of which {before:.0f} before the model; {peak - before:.0f} beside them", flush=True)
        measure.checks.append(f"before the model {idle:.0f} MB, TRL {min(idle_peers.values()):.0f} MB")
        measure.report(ours, peers, [min(peers.values()) / ours], target=1 / 0.6, unit="MB")

    def trees(self, measure, policy, order):
        """All pairs of the nodes of search trees, laid out as a trie and one after the other; the losses must be the same."""
        steps, pairs = self.steps(policy, "tree_steps"), 16 if self.options.quick else SIZES[policy]["tree_pairs"]
        rows = (steps + 1) * pairs
        if order != ORDERS["in order"]:
            # Of many trees, so that those of one do not meet by themselves.
            rows = min(len(self.rows("tree_pairs")), 20 * rows)
        with Server() as server:
            ours = Trainer(server, self.directory(policy), self.file("tree_pairs", rows))

            def dpo(packed):
                return ours.dpo(steps + 1, pairs, packed, order, rows)

            packed, unpacked = dpo(True), dpo(False)
            worst = min(agreement(found, expected) for found, expected in zip(packed.metrics["loss"], unpacked.metrics["loss"]))
            measure.check("agreement of the losses", worst, at_least=0.999)
            shares = [sum(run.metrics["distinct_tokens"]) for run in (packed, unpacked)]
            print(f"  tokens that went through the model: {shares[0]:,.0f}, and {shares[1]:,.0f} without trees", flush=True)
            contestants = [
                Steps("RolloutDB", lambda: dpo(True).step_seconds()[1:], pairs),
                Steps("tree_packing = false", lambda: dpo(False).step_seconds()[1:], pairs),
            ]
            without = pairs / statistics.mean(unpacked.step_seconds()[1:])
            target = None if order == ORDERS["one by one"] else 2.0
            work, peak = Work(self.directory(policy), self.rows("tree_pairs")[:rows]), multiply_rate()
            # Attention is taken to become less as the tokens do; each completion's rows go through the head.
            packed_flops = work.of_layers * shares[0] / shares[1] + work.of_head
            floor = peak / packed_flops, f"the products of distinct tokens at the {peak / 1e9:.0f} GFLOP/s of NumPy's"
            rates = measure.compare(contestants[0], contestants[1:], target=target, floor=floor, unit="pairs/s")
        print(f"  the rate without trees, times what the tokens become fewer, would be {without * shares[1] / shares[0]:.1f} pairs/s", flush=True)
        for (name, rate), flops in zip(rates.items(), [packed_flops, work.flops_per_pair]):
            print(f"  {name}: {rate * flops / 1e9:.1f} GFLOP/s of {peak / 1e9:.1f}", flush=True)

    def grpo(self, measure, policy):
        """Tokens per second from the question to the updated weights: as many questions, completions and updates, and one prompt and one answer each."""
        steps = self.steps(policy, "grpo_steps")
        batch = GRPO["questions"] * GRPO["group_size"]
        with Server() as server:
            ours = Trainer(server, self.directory(policy))
            rows = self.folder / f"{policy}-questions.jsonl"
            write(rows, ours.questions(policy))
            settings = dict(GRPO, method="grpo", rows=str(rows), steps=steps + 1, batch_size=batch, checkpointing=False)
            with self.peer("TRL", policy, **settings) as trl:
                ours_tokens, trl_tokens = ours.grpo(1).tokens_written() / batch, mean_length(trl.ask("run"))
                print(f"  tokens of a completion: {ours_tokens:.1f}, TRL's {trl_tokens:.1f}", flush=True)
                measure.check("agreement of the lengths", agreement(ours_tokens, trl_tokens), at_least=0.8)
                contestants = [GrpoSteps("RolloutDB", ours, steps), TrlGrpoSteps("TRL", trl, batch)]
                flops, peak = flops_of_grpo(Products(self.directory(policy)), ours.prompts, ours_tokens), multiply_rate()
                floor = peak / flops, f"the products of sampling and of the update, a prompt once for its group, at the {peak / 1e9:.0f} GFLOP/s of NumPy's"
                rates = measure.compare(contestants[0], contestants[1:], target=1.0, floor=floor, unit="tokens/s")
        for name, rate in rates.items():
            print(f"  {name}: {rate * flops / 1e9:.1f} GFLOP/s of {peak / 1e9:.1f}", flush=True)


def flops_of_grpo(products, prompts, completion):
    """Of each token of completions with so many tokens: a forward pass to sample it, and a step to learn from it."""
    prompt, group = statistics.mean(map(products.length, prompts)), GRPO["group_size"]
    tokens, attended = prompt / group + completion, prompt**2 / 2 / group + completion * (prompt + completion / 2)
    return (products.forward(tokens, completion, attended) + products.step(tokens, completion, attended)) / completion


# ---- Contestants: units per second of optimiser steps, without what comes before the first one ----


class Steps:
    """`turn()` trains and gives the seconds of its steps but the first."""

    def __init__(self, name, turn, units):
        self.name, self.turn, self.units = name, turn, units
        self.latencies = []

    def warm_up(self, seconds):
        self.rate(seconds)
        self.latencies.clear()

    def rate(self, _seconds):
        seconds = self.turn()
        self.latencies += seconds
        return len(seconds) * self.units / sum(seconds)


class GrpoSteps:
    """Steps are what a statement takes longer with them than with the first one alone: neither loading nor writing the model counts."""

    def __init__(self, name, trainer, steps):
        self.name, self.trainer, self.steps = name, trainer, steps
        self.latencies = []

    def warm_up(self, _seconds):
        self.trainer.grpo(1)

    def rate(self, _seconds):
        # Another seed in each round; within one, both sample the same in their first step.
        self.trainer.seed += 1
        short, long = self.trainer.grpo(1), self.trainer.grpo(1 + self.steps)
        return (long.tokens_written() - short.tokens_written()) / (long.seconds - short.seconds)


class TrlGrpoSteps:
    def __init__(self, name, peer, batch):
        self.name, self.peer, self.batch = name, peer, batch
        self.latencies = []

    def warm_up(self, _seconds):
        self.peer.ask("run")

    def rate(self, _seconds):
        answer = self.peer.ask("run")
        tokens = sum(row["completions/mean_length"] * self.batch for row in answer["logged"][1:])
        return tokens / sum(answer["seconds"][1:])


def mean_length(answer):
    return statistics.mean(row["completions/mean_length"] for row in answer["logged"])


# ---- Our side ----


class Trainer:
    """A server with a model and, for DPO, a table of pairs; each training makes a version that goes when its metrics are read."""

    def __init__(self, server, directory, rows=None):
        self.connection, self.directory, self.seed = server.connect(), directory, 0
        self.connection.execute(f"CREATE MODEL policy FROM '{directory}' WITH (task = 'generate')")
        if rows:
            self.connection.execute("CREATE TABLE pairs (id bigint, prompt text, chosen text, rejected text)")
            self.connection.execute(f"COPY pairs FROM '{rows}' (FORMAT jsonl)")

    def dpo(self, steps, pairs, packed=True, order=ORDERS["in order"], rows=None):
        """Steps on the first rows, as many as the steps take unless it is said."""
        return self.train(self.statement(steps, pairs, packed, order, rows), "timed")

    def dry_run(self, steps, pairs):
        return dict(self.connection.execute(self.statement(steps, pairs) + " DRY RUN").fetchall())

    def statement(self, steps, pairs, packed=True, order=ORDERS["in order"], rows=None):
        return (
            "TRAIN DPO MODEL timed FROM policy "
            f"USING (SELECT prompt, chosen, rejected FROM pairs ORDER BY id LIMIT {rows or steps * pairs}) "
            f"WITH (beta = {BETA}, learning_rate = {LEARNING_RATE}, schedule = 'constant', warmup_ratio = 0, batch_size = {pairs}, batch_tokens = {BATCH_TOKENS}, "
            f"max_steps = {steps}, epochs = 1, {order}, tree_packing = {str(packed).lower()}, checkpoint_every = 0, resume = false)"
        )

    def grpo(self, steps):
        """What is sampled hangs on `seed`."""
        return self.train(
            "TRAIN GRPO MODEL learned FROM policy USING (SELECT question, golden_answers FROM asked ORDER BY id) "
            f"WITH (agent = 'answerer', group_size = {GRPO['group_size']}, batch_size = {GRPO['questions']}, epochs = 100, max_steps = {steps}, reward = 'f1', "
            f"temperature = {GRPO['temperature']}, learning_rate = {LEARNING_RATE}, schedule = 'constant', warmup_ratio = 0, loss_normalization = 'dapo', "
            f"clip_low = 0.2, clip_high = 0.28, kl_weight = 0, seed = {self.seed}, checkpoint_every = 0, resume = false)",
            "learned",
        )

    def train(self, statement, model):
        started = time.perf_counter()
        (_, version, *_) = self.connection.execute(statement).fetchone()
        seconds = time.perf_counter() - started
        metrics = {}
        logged = f"SELECT metric, value FROM rollout.training_metrics WHERE model = '{model}' AND version = {version} ORDER BY step"
        for name, value in self.connection.execute(logged).fetchall():
            metrics.setdefault(name, []).append(value)
        self.connection.execute(f"DROP MODEL {model}")
        return Run(seconds, metrics)

    def questions(self, policy):
        """Makes the agent that only answers, and gives each question's prompt with the golden answer that many words share."""
        execute = self.connection.execute
        execute(f"CREATE TABLE wiki AS SELECT id, contents FROM hopworld_passages(seed => {WORLD})")
        execute("CREATE INDEX wiki_text ON wiki USING bm25 (contents)")
        words = " ".join(frequent_words(self.directory, 2_000 if policy == "qwen2" else 50)).replace("'", "''")
        execute(
            f"CREATE TABLE asked AS SELECT id, question, '{words}' AS golden_answers FROM hopworld_questions(seed => {WORLD}, count => 200)"
        )
        execute(
            "CREATE AGENT answerer WITH (policy = 'policy', corpus = 'wiki', retriever = 'text', protocol = 'direct', prompts = 'short', "
            f"max_steps = 1, max_tokens = {GRPO['max_tokens']})"
        )
        asked = execute(
            "SELECT s.prompt, q.golden_answers FROM asked q CROSS JOIN LATERAL answer_steps(q.question, agent => 'answerer', max_tokens => 1) s ORDER BY q.id"
        ).fetchall()
        self.prompts = [prompt for prompt, _ in asked]
        return [{"prompt": prompt, "golden_answers": [golden]} for prompt, golden in asked]


@dataclass
class Run:
    """A training: the seconds of its statement, and its metrics by name, step by step."""

    seconds: float
    metrics: dict

    def step_seconds(self):
        return [tokens / rate for tokens, rate in zip(self.metrics["tokens"], self.metrics["tokens_per_s"])]

    def tokens_written(self):
        """By the policy in its rollouts."""
        return sum(self.metrics["completion_tokens"])


class Work:
    """What a step on these pairs cannot do without, prompts for both completions; nothing for the update."""

    def __init__(self, directory, pairs):
        products = Products(directory)
        of_layers = of_head = tokens = 0
        for pair in pairs:
            prompt = products.length(pair["prompt"])
            for side in ("chosen", "rejected"):
                completion = products.length(pair[side]) + 1
                length = prompt + completion - 1
                tokens += length
                of_layers += products.step(length, 0, length**2 / 2)
                of_head += products.step(0, completion, 0)
        self.of_layers, self.of_head, self.tokens_per_pair = of_layers / len(pairs), of_head / len(pairs), tokens / len(pairs)
        self.flops_per_pair = self.of_layers + self.of_head


def frequent_words(directory, count):
    """Words among the first pieces of the vocabulary, in their order."""
    vocabulary = Tokenizer.from_file(str(directory / "tokenizer.json")).get_vocab()
    words = [piece.lstrip("Ġ▁ ") for piece in sorted(vocabulary, key=vocabulary.get)]
    return list(dict.fromkeys(word for word in words if len(word) > 2 and word.isascii() and word.isalpha()))[:count]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def agreement(found, expected):
    """1 of equal numbers, less by their relative difference."""
    return 1 - abs(found - expected) / max(abs(found), abs(expected), 1e-12)


def rounded(values):
    return ", ".join(f"{value:.4f}" for value in values)


if __name__ == "__main__":
    main()
