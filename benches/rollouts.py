"""Tree search: questions per second of GENERATE ROLLOUTS, with what prompts share computed once, and with every prompt computed whole.

A tree workload (`--workload`) is fixed: a corpus, a protocol, prompts, equal options and seeds, so that all contestants grow the same trees (which is checked).
That of the target is `replay`: prompts that begin with 1,500 tokens of worked examples, four children a node, down to depth four, as a replay of a tree of
thoughts, in the protocol ircot, which takes any text for a thought; with tinyhop over HopWorld, or with a random Qwen2 of 0.1 B parameters over HotpotQA's
questions and passages (texts.py says where they are). The peer without shared prefixes is the same program with `--prefix-cache 0`. With
--transformers, which needs torch and transformers beside requirements.txt, as many calls of as many tokens are also made of `transformers`, in batches of calls
of similar lengths. README.md describes the measures.
"""

import copy
import importlib.util
import os
import tempfile
from dataclasses import dataclass

import random_qwen2
from harness import Bench, Calls, multiply_rate, parse, parser
from products import Products
from server import Server
from texts import data_folder, solved

WORLD = 3
# Calls of transformers at a time. Of tinyhop the best of 16 to 128 on two cores; of a Qwen2 a call of 1,900 tokens took 4.7 s in batches of 4 and 32, 4.8 of 8 and 16.
BATCH = {"tinyhop": 64, "qwen2": 16}
HOPWORLD = [
    f"CREATE TABLE wiki AS SELECT id, contents FROM hopworld_passages(seed => {WORLD})",
    f"CREATE TABLE questions AS SELECT * FROM hopworld_questions(seed => {WORLD}, count => 1000)",
]
HOTPOTQA = [
    "CREATE TABLE wiki (id text PRIMARY KEY, contents text)",
    "COPY wiki (id, contents) FROM '{data}/hotpotqa/corpus.jsonl' (FORMAT jsonl)",
    "CREATE TABLE questions (id text PRIMARY KEY, question text, golden_answers text[])",
    "COPY questions (id, question, golden_answers) FROM '{data}/hotpotqa/questions.jsonl' (FORMAT jsonl)",
]
SETUP = [
    "CREATE MODEL policy FROM '{policy}' WITH (task = 'generate')",
    "CREATE INDEX wiki_text ON wiki USING bm25 (contents)",
    "CREATE AGENT qa WITH (policy = 'policy', corpus = 'wiki', retriever = 'text', prompts = '{prompts}', protocol = '{protocol}', max_tokens = 48, max_steps = {steps})",
]
# Steps of questions of another world, and questions of HotpotQA with the passages that hold the answer: about 1,500 tokens of either policy.
HOPWORLD_EXAMPLES = f"""
    SELECT string_agg(step_prompt(state, question, thoughts, passages, 'short') || completion, E'\n\n') FROM (
        SELECT * FROM hopworld_demonstrations(seed => {WORLD + 1}, worlds => 1, questions_per_world => 5) LIMIT 10)"""
HOTPOTQA_EXAMPLES = "SELECT %s::text"
WITH_EXAMPLES = """
    INSERT INTO rollout.prompts SELECT 'examples', protocol, state, ({examples}) || E'\n\n' || template
    FROM rollout.builtin_prompts WHERE protocol = '{protocol}' AND prompt_set = 'short'"""


@dataclass
class Workload:
    """Trees of `questions` questions a call."""

    policy: str
    tables: list
    protocol: str
    prompts: str
    steps: int
    questions: int
    simulations: int
    children: int = 2
    depth: int = 8
    # Simulations in flight inside one tree.
    parallel: int = 1


# tinyhop was trained with the short prompts; with the default ones, whose instructions are as long as those of the published systems, it writes what it writes:
# they are for what is shared, and not for what is answered.
WORKLOADS = {
    "tinyhop": Workload("tinyhop", HOPWORLD, "reasonrag", "short", 8, 12, 16),
    "tinyhop-default-prompts": Workload("tinyhop", HOPWORLD, "reasonrag", "default", 8, 4, 64),
    "tinyhop-replay": Workload("tinyhop", HOPWORLD, "ircot", "examples", 4, 4, 16, children=4, depth=4),
    "qwen2": Workload("qwen2", HOTPOTQA, "ircot", "default", 4, 1, 8),
    "qwen2-replay": Workload("qwen2", HOTPOTQA, "ircot", "examples", 4, 4, 4, children=4, depth=4, parallel=4),
}
# Selection, new nodes, backpropagation and rows, of the time of a statement.
TREE_SHARE = 0.02


def main():
    options = parser(__doc__)
    options.add_argument("--workload", choices=list(WORKLOADS), default="tinyhop-replay")
    options.add_argument("--questions", type=int, help="trees of one call; default that of the workload; quick a quarter")
    options.add_argument("--simulations", type=int, help="of each question; default that of the workload. ReasonRAG took 64")
    options.add_argument("--parallel", type=int, help="simulations in flight inside one tree; default that of the workload")
    options.add_argument("--weights", choices=random_qwen2.WEIGHTS, default="bf16", help="what the weights of the random Qwen2 are stored as")
    options.add_argument("--transformers", action="store_true", help="the prompts in transformers too")
    options = parse(options, rounds=5)
    workload = WORKLOADS[options.workload]
    workload.questions = options.questions or (-(-workload.questions // 4) if options.quick else workload.questions)
    workload.simulations = options.simulations or workload.simulations
    workload.parallel = options.parallel or workload.parallel
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as directory:
        if workload.policy == "qwen2":
            random_qwen2.save(directory, weights=options.weights)
        with Bench("rollouts", options) as bench, Searcher(workload, directory) as ours, Searcher(workload, directory, "--prefix-cache", "0") as without:
            name = f"MCTS with {options.workload}, {workload.simulations} simulations a question"
            bench.run(name, lambda measure: compare(measure, ours, without, options))


class Searcher:
    """A server that grows trees of the same questions, call by call the next ones, in tables of their own."""

    def __init__(self, workload, directory, *options):
        self.workload, self.directory, self.server = workload, directory, Server(*options)

    def __enter__(self):
        self.server.__enter__()
        self.connection = self.server.connect()
        work = self.workload
        policy = self.directory if work.policy == "qwen2" else "builtin://tinyhop"
        if work.prompts == "examples":
            self.write_examples()
        for statement in [*work.tables, *SETUP]:
            self.connection.execute(statement.format(data=data_folder(), policy=policy, protocol=work.protocol, prompts=work.prompts, steps=work.steps))
        self.num_questions = self.rows("SELECT count(*) FROM questions")[0][0]
        return self

    def __exit__(self, *error):
        self.connection.close()
        self.server.__exit__(*error)

    def write_examples(self):
        if self.workload.tables is HOPWORLD:
            return self.connection.execute(WITH_EXAMPLES.format(examples=HOPWORLD_EXAMPLES, protocol=self.workload.protocol))
        examples = "\n\n".join(f"{passages}\nQuestion: {question}\nThought: So the answer is: {answer}" for passages, question, answer in solved("hotpotqa", 8))
        return self.connection.execute(WITH_EXAMPLES.format(examples=HOTPOTQA_EXAMPLES, protocol=self.workload.protocol), [examples])

    def grow(self, call, table=None):
        # Every call has other questions: those of the call before are in the cache. The row says how long it took, and how long in the trees.
        count = self.workload.questions
        first = call * count % (self.num_questions - count)
        return self.connection.execute(
            f"GENERATE ROLLOUTS INTO {table or f'run{call}'} USING AGENT qa "
            f"FROM (SELECT id, question, golden_answers FROM questions ORDER BY id LIMIT {count} OFFSET {first}) "
            f"WITH (simulations = {self.workload.simulations}, children = {self.workload.children}, max_depth = {self.workload.depth}, "
            f"parallel = {self.workload.parallel}, seed = 7)"
        ).fetchone()

    def rows(self, sql):
        return self.connection.execute(sql).fetchall()


def compare(measure, ours, without, options):
    count = ours.workload.questions
    trees = "SELECT question_id, node_id, parent_id, response, visit_count, process_reward FROM checked ORDER BY question_id, node_id"
    *_, seconds, tree_seconds = ours.grow(70, "checked")
    without.grow(70, "checked")
    measure.check("share of the time outside of the trees' bookkeeping", 1 - tree_seconds / seconds, at_least=1 - TREE_SHARE)
    measure.check_equal("the trees without shared prefixes", without.rows(trees), ours.rows(trees))
    prompt_tokens, cached_tokens, generated_tokens, nodes = ours.rows(
        "SELECT sum(prompt_tokens)::int8, sum(cached_tokens)::int8, sum(generated_tokens)::int8, count(*) FROM checked"
    )[0]
    measure.check("share of prompt tokens that were shared", cached_tokens / prompt_tokens, at_least=0.5)
    fewer = (prompt_tokens + generated_tokens) / (prompt_tokens - cached_tokens + generated_tokens)
    print(f"  {nodes} nodes of {count} trees: {prompt_tokens:,} prompt tokens, {generated_tokens:,} generated; {fewer:.2f} times as many without sharing", flush=True)
    least = 1 if ours.workload.policy == "qwen2" else 2
    ours_calls, peers = Calls("RolloutDB", ours.grow, count, least), [Calls("without shared prefixes", without.grow, count, least)]
    beside = []
    if options.transformers and importlib.util.find_spec("transformers"):
        peer = Transformers(ours)
        beside.append(Calls("transformers", peer.run, count, least))
        if ours.workload.policy == "qwen2" and options.weights == "bf16":
            beside.append(Calls("transformers with results in bf16", peer.in_bf16().run, count, least))
    flops, peak = flops_of(ours) / count, multiply_rate()
    floor = peak / flops, f"the products of tokens that are not shared at the {peak / 1e9:.0f} GFLOP/s of NumPy's in f32; weights in bf16 by AMX may be faster"
    before = ours.server.seconds_by_thread()
    rates = measure.compare(ours_calls, peers, target=3.0, floor=floor, unit="questions/s", beside=beside)
    print(f"  {flops / 1e9:.1f} GFLOP a question: {rates['RolloutDB'] * flops / 1e9:.1f} GFLOP/s of {peak / 1e9:.1f}", flush=True)
    spent = ours.server.seconds_by_thread() - before
    shares = ", ".join(f"{name} {seconds / spent.total():.1%}" for name, seconds in spent.most_common() if seconds > 0)
    print(f"  processor time by threads (`models` and those named as the program compute; the search, its corpus and its table are the rest): {shares}", flush=True)


def flops_of(searcher):
    """Of the checked trees: tokens of prompts that no call had read before, and those that were written, each after what its call had before it."""
    products = Products(dict(searcher.rows("DESCRIBE MODEL policy"))["directory"])
    nodes = "SELECT prompt, prompt_tokens, cached_tokens, generated_tokens FROM checked WHERE prompt IS NOT NULL AND prompt_tokens > 0"
    flops = 0
    for prompt, read, cached, written in searcher.rows(nodes):
        # All calls of the node, as in `Transformers`.
        calls = max(1, round(read / products.length(prompt)))
        tokens = read - cached + written
        flops += products.forward(tokens, written, tokens * (cached + read + written) / 2 / calls)
    return flops


class Transformers:
    """The policy calls of the checked trees in transformers, in batches of similar calls, padded on the left, without shared prefixes.

    A node counts the tokens of all its calls: those of equal actions that became one, and the completions that gave it its value. It is taken as so many calls
    with its prompt as there are prompts in its prompt tokens, each with its share of the generated ones: as many tokens read and written in all.
    """

    def __init__(self, searcher):
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.torch = torch
        torch.set_num_threads(2)
        directory = dict(searcher.rows("DESCRIBE MODEL policy"))["directory"]
        self.tokenizer = AutoTokenizer.from_pretrained(directory, padding_side="left")
        self.model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
        nodes = searcher.rows("SELECT prompt, prompt_tokens, generated_tokens FROM checked WHERE prompt IS NOT NULL AND generated_tokens > 0")
        calls = []
        for prompt, read, written in nodes:
            length = len(self.tokenizer(prompt)["input_ids"])
            count = max(1, round(read / length))
            shares = [written // count + (call < written % count) for call in range(count)]
            calls += [(share, length, prompt) for share in shares if share > 0]
        read, written = sum(call[1] for call in calls), sum(call[0] for call in calls)
        print(f"  transformers: {len(calls)} calls, {read:,} prompt tokens, {written:,} generated", flush=True)
        calls.sort()
        steps = [(prompt, share) for share, _, prompt in calls]
        batch = BATCH[searcher.workload.policy]
        self.batches = [steps[start : start + batch] for start in range(0, len(steps), batch)]

    def in_bf16(self):
        """The same calls with results that are rounded to bf16: what processors have instructions for (AMX) is several times as fast so."""
        other = copy.copy(self)
        other.model = copy.deepcopy(self.model).to(self.torch.bfloat16)
        return other

    def run(self, _call):
        for batch in self.batches:
            inputs = self.tokenizer([prompt for prompt, _ in batch], return_tensors="pt", padding=True)
            tokens = max(count for _, count in batch)
            with self.torch.no_grad():
                self.model.generate(**inputs, do_sample=True, temperature=0.9, top_p=0.95, min_new_tokens=tokens, max_new_tokens=tokens)


if __name__ == "__main__":
    main()
