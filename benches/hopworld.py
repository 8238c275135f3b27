"""What each method of training makes of the same policy, on questions of HopWorlds that it has never seen: the table of docs/results.md.

For each seed a world to train on and another one, without a common name, to be measured on. A row is a method: its training data come from the train
world alone, it is trained once, and answers every question of the test world greedily. Rows that the results file has are not done again, and a run that
was stopped goes on where it was, as long as its data directory is there.

    ROLLOUTDB=target/release/rolloutdb python benches/hopworld.py

Needs psycopg and NumPy. Hours on two cores; `--quick` takes minutes and shows that everything works.
"""

import argparse
import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from harness import machine
from server import Server

PROJECT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- benches/hopworld.py: begin -->", "<!-- benches/hopworld.py: end -->"
WORLD = "num_people => 120, num_films => 80, num_books => 60, num_companies => 40, num_cities => 60, num_countries => 24"
AGENT = "policy = 'tinyhop', retriever = 'text', k = 3, prompts = 'short', max_steps = 12, max_tokens = 64"
TREES = "simulations = 12, children = 3, alpha = 0.9, max_depth = 10, temperature = 1.0, top_p = 1.0, concurrency = 64"
SAMPLES = "method = 'sample', simulations = 8, temperature = 1.0, top_p = 1.0, concurrency = 64"
DPO = "beta = 0.1, learning_rate = 5e-5, epochs = 2, batch_size = 32, batch_tokens = 8192"
SFT = "learning_rate = 5e-5, epochs = 2, batch_size = 32, batch_tokens = 8192"
# Right trajectories have more steps than there are pairs: one epoch of them is more updates than two of the others.
RFT = "learning_rate = 5e-5, epochs = 1, batch_size = 32, batch_tokens = 8192"
PRM = "learning_rate = 1e-4, epochs = 2, batch_size = 32, batch_tokens = 8192"
GRPO = (
    "reward = 'f1', temperature = 1.0, loss_normalization = 'dapo', clip_low = 0.2, clip_high = 0.28, kl_weight = 0, learning_rate = 5e-5, batch_tokens = 8192"
)
STEP_PAIRS = "min_gap => 0.05"
# About as many as trees give pairs of steps.
WHOLE_PAIRS = "level => 'trajectory', min_gap => 0.05, per_node => 4, dedupe => true"
# Steps below this score by the reward model are left out, as in ProRAG; trajectories below this reward are no demonstrations.
MIN_SCORE, MIN_REWARD = 0, 1
STEP_WEIGHT = 0.3


@dataclass
class Row:
    """`needs`: what was sampled for it, by the names of the methods of `Seed`. `train`: the statement; None for the policy as it is."""

    name: str
    label: str
    needs: tuple = ()
    train: str | None = None


# `{s}` is the seed. Statements read the tables that `Seed` makes.
ROWS = [
    Row("base", "base (tinyhop)"),
    Row(
        "sft",
        "SFT on the chosen halves",
        ("trees",),
        f"TRAIN SFT MODEL sft{{s}} FROM tinyhop USING (SELECT DISTINCT prompt, chosen AS completion FROM pairs{{s}}) WITH ({SFT}, seed = {{s}})",
    ),
    Row(
        "dpo_outcome",
        "DPO, outcome pairs of whole trajectories",
        ("samples",),
        f"TRAIN DPO MODEL dpo_outcome{{s}} FROM tinyhop USING (SELECT prompt, chosen, rejected FROM trajectory_pairs{{s}}) WITH ({DPO}, seed = {{s}})",
    ),
    Row(
        "dpo_samples",
        "DPO, siblings among samples",
        ("samples",),
        f"TRAIN DPO MODEL dpo_samples{{s}} FROM tinyhop USING (SELECT prompt, chosen, rejected FROM sample_pairs{{s}}) WITH ({DPO}, seed = {{s}})",
    ),
    Row(
        "dpo_process",
        "DPO, process pairs (ReasonRAG)",
        ("trees",),
        f"TRAIN DPO MODEL dpo_process{{s}} FROM tinyhop USING (SELECT prompt, chosen, rejected FROM pairs{{s}}) WITH ({DPO}, seed = {{s}})",
    ),
    Row(
        "rft",
        "RFT",
        ("samples",),
        "TRAIN RFT MODEL rft{s} FROM tinyhop USING (SELECT prompt, completion, reward FROM steps{s}) "
        f"WITH ({RFT}, min_reward = {MIN_REWARD}, seed = {{s}})",
    ),
    Row(
        "rft_prm",
        "RFT, steps filtered by a PRM (ProRAG)",
        ("samples", "trees"),
        "TRAIN RFT MODEL rft_prm{s} FROM tinyhop USING (SELECT prompt, completion, reward, rerank('prm{s}', prompt, completion) AS score "
        f"FROM steps{{s}} WHERE reward >= {MIN_REWARD}) WITH ({RFT}, min_reward = {MIN_REWARD}, min_score = {MIN_SCORE}, seed = {{s}})",
    ),
    Row(
        "grpo_outcome",
        "GRPO, outcome reward",
        (),
        "TRAIN GRPO MODEL grpo_outcome{s} FROM tinyhop USING (SELECT question, golden_answers FROM train{s}_questions ORDER BY id) "
        f"WITH (agent = 'train{{s}}_agent', {GRPO}, {{grpo}}, seed = {{s}})",
    ),
    Row(
        "grpo_dual",
        "GRPO, outcome and step advantages (ProRAG)",
        ("trees",),
        "TRAIN GRPO MODEL grpo_dual{s} FROM tinyhop USING (SELECT question, golden_answers FROM train{s}_questions ORDER BY id) "
        f"WITH (agent = 'train{{s}}_agent', {GRPO}, {{grpo}}, prm = 'prm{{s}}', step_weight = {STEP_WEIGHT}, seed = {{s}})",
    ),
]
# Rows whose statement asks a reward model, which is trained once for both.
WITH_PRM = ("rft_prm", "grpo_dual")
PRM_STATEMENT = f"TRAIN PRM MODEL prm{{s}} FROM tinyhop USING (SELECT prompt, chosen, rejected FROM pairs{{s}}) WITH ({PRM}, seed = {{s}})"
# The metric of a step of online training that counts the tokens that the policy wrote.
WRITTEN = "completion_tokens"
# What a paper says is better, and than what.
COMPARISONS = [
    ("dpo_process", "dpo_outcome"),
    ("dpo_process", "dpo_samples"),
    ("dpo_process", "sft"),
    ("rft_prm", "rft"),
    ("grpo_outcome", "rft"),
    ("grpo_dual", "grpo_outcome"),
    ("grpo_outcome", "dpo_process"),
]


def main():
    options = arguments()
    results = Results(options)
    print(machine(), flush=True)
    with Server(data=options.folder / "data") as server:
        connection = server.connect()
        for number in options.seeds:
            for row in (row for row in ROWS if row.name in options.rows):
                seed = Seed(connection, number, options, results)
                if not results.has(number, row.name, seed.statements(row)):
                    results.add(number, row.name, seed.measure(row))
        page = tables(connection, server, results, options)
    print("\n" + page)
    if options.page:
        write(Path(options.page), page)


def arguments():
    options = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    names = [row.name for row in ROWS]
    options.add_argument("--seeds", default="1,2,3", help="of the worlds, the rollouts and the training")
    options.add_argument("--rows", default=",".join(names), help="of them: " + ", ".join(names))
    options.add_argument("--questions", type=int, help="of each train world; default 300, quick 20")
    options.add_argument("--test-questions", type=int, help="of each test world; default 300, quick 20")
    options.add_argument("--grpo-steps", type=int, help="updates of each GRPO; default 60, quick 2")
    options.add_argument("--group-size", type=int, default=8, help="trajectories of a question")
    options.add_argument("--questions-per-step", type=int, default=16, help="of each update of GRPO")
    options.add_argument("--folder", type=Path, help="database and results, which stay; default .cache/hopworld of the project")
    options.add_argument("--page", help="whose table is written; default docs/results.md, with --quick none")
    options.add_argument("--quick", action="store_true", help="small worlds, to see that everything works: nothing worth keeping")
    options = options.parse_args()
    options.questions = options.questions or (20 if options.quick else 300)
    options.test_questions = options.test_questions or (20 if options.quick else 300)
    options.grpo_steps = options.grpo_steps or (2 if options.quick else 60)
    options.seeds = [int(seed) for seed in options.seeds.split(",")]
    options.rows = options.rows.split(",")
    unknown = [row for row in options.rows if row not in names]
    if unknown:
        sys.exit(f"unknown rows {', '.join(unknown)}; known: {', '.join(names)}")
    if options.page is None and not options.quick:
        options.page = PROJECT / "docs/results.md"
    options.folder = options.folder or PROJECT / ".cache" / ("hopworld-quick" if options.quick else "hopworld")
    options.folder.mkdir(parents=True, exist_ok=True)
    return options


class Results:
    """What was measured, question by question, and by which statements models were made; in a file that is written after every row and model.

    A row is done if it was measured with the statements that it has now. All of a file are of the same worlds, agent and rollouts.
    """

    def __init__(self, options):
        self.path = options.folder / "results.json"
        data = {"questions": options.questions, "test_questions": options.test_questions}
        data |= {"world": WORLD, "agent": AGENT, "trees": TREES, "samples": SAMPLES, "pairs": [STEP_PAIRS, WHOLE_PAIRS]}
        self.all = json.loads(self.path.read_text()) if self.path.exists() else {"data": data, "rows": {}, "models": {}}
        if self.all["data"] != data:
            sys.exit(f"{self.path} has results of other data ({self.all['data']}): name another --folder")

    def has(self, seed, row, statements):
        return self.get(seed, row) is not None and self.get(seed, row)["statements"] == statements

    def get(self, seed, row):
        return self.all["rows"].get(f"{row}/{seed}")

    def add(self, seed, row, result):
        self.all["rows"][f"{row}/{seed}"] = result
        self.save()

    def made(self, model, statements, took):
        self.all["models"][model] = {"statements": statements} | took
        self.save()

    def save(self):
        written = self.path.with_suffix(".written")
        written.write_text(json.dumps(self.all))
        written.replace(self.path)


@dataclass
class Spent:
    """Questions that trajectories were made of, a question as often as it was taken, and the tokens that the policy wrote."""

    questions: int = 0
    tokens: int = 0

    def add(self, other):
        self.questions, self.tokens = self.questions + other.questions, self.tokens + other.tokens


@dataclass
class Seed:
    """The worlds of one seed, and what is made of them: tables and models that are there are not made again."""

    connection: object
    number: int
    options: object
    results: Results
    spent: Spent = field(default_factory=Spent)

    def measure(self, row):
        """Trains and evaluates; the result of the row for this seed."""
        print(f"\nseed {self.number}: {row.label}", flush=True)
        self.worlds()
        for need in row.needs:
            self.spent.add(getattr(self, need)())
        model, seconds, examples, statements = "tinyhop", 0.0, 0, self.statements(row)
        for count, statement in enumerate(statements, 1):
            # TRAIN method MODEL name
            model = statement.split()[3]
            took = self.model(model, statements[:count])
            seconds, examples = seconds + took["seconds"], took["examples"]
            self.spent.add(Spent(took["questions"], took["tokens"]))
        scores = self.evaluate(row, model)
        print(f"  EM {mean(scores['em']):.3f}, F1 {mean(scores['f1']):.3f}; trained for {seconds:.0f} s", flush=True)
        result = {"statements": statements, "examples": examples, "questions": self.spent.questions, "tokens": self.spent.tokens}
        return result | {"seconds": seconds, "scores": scores}

    def statements(self, row):
        """What trains the row, with the reward model first where it asks one; none for the base."""
        options = self.options
        epochs = -(-options.grpo_steps * options.questions_per_step // options.questions)
        online = f"group_size = {options.group_size}, batch_size = {options.questions_per_step}, epochs = {epochs}, max_steps = {options.grpo_steps}"
        statements = [PRM_STATEMENT] * (row.name in WITH_PRM) + [row.train] * (row.train is not None)
        return [statement.format(s=self.number, grpo=online) for statement in statements]

    # ---- What there is ----

    def execute(self, statement):
        print(f"  {statement};", flush=True)
        return self.connection.execute(statement)

    def rows(self, query):
        return self.connection.execute(query).fetchall()

    def table(self, name, query):
        """Makes a table of a query unless it is there, and tells its number of rows."""
        if not self.has_table(name):
            self.execute(f"CREATE TABLE {name} AS {query}")
            print(f"  {self.rows(f'SELECT count(*) FROM {name}')[0][0]} rows", flush=True)

    def has_table(self, name):
        return bool(self.rows(f"SELECT 1 FROM information_schema.tables WHERE table_name = '{name}'"))

    def model(self, name, statements):
        """Makes a model by the last of these statements, unless it was made by all of them, and tells the seconds that it took, questions and tokens.

        A training that was stopped goes on at its last checkpoint, and its seconds are those since then.
        """
        statement = statements[-1]
        known = self.results.all["models"].get(name)
        if known and known["statements"] == statements and self.rows(f"SELECT 1 FROM rollout.models WHERE name = '{name}'"):
            return known
        started = time.perf_counter()
        (_, version, examples, *_) = self.execute(statement).fetchone()
        took = {"seconds": time.perf_counter() - started, "examples": examples, "questions": 0, "tokens": 0}
        if statement.startswith("TRAIN GRPO"):
            took |= self.spent_online(name, version)
        self.results.made(name, statements, took)
        return took

    # ---- Worlds ----

    def worlds(self):
        """As `rolloutdb demo` makes them."""
        s, counts = self.number, {"train": self.options.questions, "test": self.options.test_questions}
        self.connection.execute("CREATE MODEL IF NOT EXISTS tinyhop FROM 'builtin://tinyhop' WITH (task = 'generate')")
        for split, count in counts.items():
            world = f"seed => {s}, split => '{split}', {WORLD}"
            self.table(f"{split}{s}_passages", f"SELECT id, contents FROM hopworld_passages({world})")
            if not self.rows(f"SELECT 1 FROM rollout.indexes WHERE name = '{split}{s}_bm25'"):
                self.execute(f"CREATE INDEX {split}{s}_bm25 ON {split}{s}_passages USING bm25 (contents)")
            self.table(f"{split}{s}_questions", f"SELECT * FROM hopworld_questions({world}, count => {count})")
            self.connection.execute(f"CREATE AGENT IF NOT EXISTS {split}{s}_agent WITH ({AGENT}, corpus = '{split}{s}_passages')")

    def trees(self):
        """Search trees and the pairs of their steps."""
        s = self.number
        spent = self.rollouts(f"trees{s}", TREES)
        self.table(f"pairs{s}", f"SELECT prompt, chosen, rejected FROM preference_pairs(trees{s}, {STEP_PAIRS})")
        return spent

    def samples(self):
        """Independent trajectories, their steps with the reward of the answer, and pairs of those that ended differently: whole, and siblings where they part."""
        s = self.number
        spent = self.rollouts(f"samples{s}", SAMPLES)
        steps = f"SELECT unnest(prompts) AS prompt, unnest(completions) AS completion, reward FROM trajectories(samples{s})"
        self.table(f"steps{s}", f"SELECT prompt, completion, max(reward) AS reward FROM ({steps}) steps GROUP BY prompt, completion")
        self.table(f"trajectory_pairs{s}", f"SELECT prompt, chosen, rejected FROM preference_pairs(samples{s}, {WHOLE_PAIRS})")
        self.table(f"sample_pairs{s}", f"SELECT prompt, chosen, rejected FROM preference_pairs(samples{s}, {STEP_PAIRS})")
        return spent

    def rollouts(self, table, how):
        """Rollouts of all train questions. Those that the table has already are skipped by the statement itself."""
        s = self.number
        self.execute(
            f"GENERATE ROLLOUTS INTO {table} USING AGENT train{s}_agent FROM (SELECT id, question, golden_answers FROM train{s}_questions) WITH ({how}, seed = {s})"
        )
        ((questions, tokens),) = self.rows(f"SELECT count(DISTINCT question_id), CAST(sum(generated_tokens) AS bigint) FROM {table}")
        return Spent(questions, tokens)

    def spent_online(self, model, version):
        """What the rollouts of an online training took, of all its steps."""
        steps = self.rows(f"SELECT step, metric, value FROM rollout.training_metrics WHERE model = '{model}' AND version = {version}")
        # An epoch ends with a step of what is left of its questions.
        per_epoch = -(-self.options.questions // self.options.questions_per_step)
        epochs, rest = divmod(len({step for step, _, _ in steps}), per_epoch)
        questions = epochs * self.options.questions + rest * self.options.questions_per_step
        return {"questions": questions, "tokens": int(sum(value for _, metric, value in steps if metric == WRITTEN))}

    def evaluate(self, row, model):
        """Scores of each question, in the order of the questions."""
        s, table = self.number, f"answers_{row.name}{self.number}"
        self.connection.execute(f"DROP TABLE IF EXISTS {table}")
        self.table(
            table,
            "SELECT q.id, exact_match(a.answer, q.golden_answers) AS em, f1_score(a.answer, q.golden_answers) AS f1, "
            "CAST(a.steps AS double precision) AS steps, CAST(a.retrievals AS double precision) AS retrievals "
            f"FROM test{s}_questions q CROSS JOIN LATERAL answer(q.question, agent => 'test{s}_agent', policy => '{model}') a",
        )
        columns = zip(*self.rows(f"SELECT em, f1, steps, retrievals FROM {table} ORDER BY id"))
        return {name: list(column) for name, column in zip(("em", "f1", "steps", "retrievals"), columns)}


def mean(values):
    return sum(values) / len(values)


# ---- The page ----


def tables(connection, server, results, options):
    """Both tables as Markdown: statistics by the functions of the database, over the questions of all seeds."""
    load(connection, server, results, options)
    seeds, (hardware, commit) = ", ".join(map(str, options.seeds)), machine().split("; ")[:2]
    lines = [
        f"`{command(options)}`: {hardware}, {commit}; {options.questions} questions of each train world, {options.test_questions} of each test world, seeds {seeds}.",
        "",
        "| method | EM % | EM % by seed | F1 % | EM against base | p | steps | retrievals | examples | questions | policy tokens | training s |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in ROWS:
        done = {seed: results.get(seed, row.name) for seed in options.seeds if results.get(seed, row.name)}
        if done:
            lines.append(f"| {' | '.join(method_cells(connection, row, done))} |")
    lines += ["", "| method | against | difference of EM | p | difference of F1 | p |", "|---|---|---|---|---|---|"]
    labels = {row.name: row.label for row in ROWS}
    for better, other in COMPARISONS:
        cells = difference_cells(connection, better, other)
        if cells:
            lines.append(f"| {labels[better]} | {labels[other]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def command(options):
    """What makes these tables again, wherever the database is."""
    online = f"--grpo-steps {options.grpo_steps} --group-size {options.group_size} --questions-per-step {options.questions_per_step}"
    seeds = ",".join(map(str, options.seeds))
    return f"benches/hopworld.py --seeds {seeds} --questions {options.questions} --test-questions {options.test_questions} {online}"


def load(connection, server, results, options):
    """A table of what every method scored on every question."""
    path = server.folder / "measured.jsonl"
    with open(path, "w", encoding="utf-8") as file:
        for name, result in results.all["rows"].items():
            row, seed = name.split("/")
            if int(seed) in options.seeds:
                for question, scores in enumerate(zip(*result["scores"].values())):
                    file.write(json.dumps(dict(zip(("method", "seed", "question", *result["scores"]), (row, int(seed), question, *scores)))) + "\n")
    connection.execute("DROP TABLE IF EXISTS measured")
    numbers = "em double precision, f1 double precision, steps double precision, retrievals double precision"
    connection.execute(f"CREATE TABLE measured (method text, seed bigint, question bigint, {numbers})")
    connection.execute(f"COPY measured FROM '{path}' (FORMAT jsonl)")


def method_cells(connection, row, done):
    scores = connection.execute(
        "SELECT avg(em), ci95(em), avg(f1), ci95(f1), avg(steps), ci95(steps), avg(retrievals), ci95(retrievals) "
        f"FROM measured WHERE method = '{row.name}'"
    ).fetchone()
    by_seed = ", ".join(f"{100 * mean(result['scores']['em']):.1f}" for result in done.values())
    against_base = difference_cells(connection, row.name, "base") if row.name != "base" else None
    difference, p_value = against_base[:2] if against_base else ("", "")
    amounts = [f"{mean([result[what] for result in done.values()]):,.0f}" for what in ("examples", "questions", "tokens", "seconds")]
    spent = amounts if row.train else [""] * len(amounts)
    return [row.label, percent(*scores[:2]), by_seed, percent(*scores[2:4]), difference, p_value, plain(*scores[4:6]), plain(*scores[6:8]), *spent]


def difference_cells(connection, better, other):
    """EM and F1 of the one less those of the other on the same questions, each with its p-value; None where one of them was not measured."""
    found = connection.execute(
        "SELECT count(*), avg(a.em - b.em), ci95(a.em - b.em), paired_test(a.em, b.em), avg(a.f1 - b.f1), ci95(a.f1 - b.f1), paired_test(a.f1, b.f1) "
        "FROM measured a JOIN measured b ON b.seed = a.seed AND b.question = a.question "
        f"WHERE a.method = '{better}' AND b.method = '{other}'"
    ).fetchone()
    if found[0] == 0:
        return None
    _, em, em_half, em_p, f1, f1_half, f1_p = found
    return [percent(em, em_half, "+"), p_text(em_p), percent(f1, f1_half, "+"), p_text(f1_p)]


def percent(value, half, sign=""):
    return f"{100 * value:{sign}.1f} ± {100 * half:.1f}"


def plain(value, half):
    return f"{value:.2f} ± {half:.2f}"


def p_text(p_value):
    # A test of 10,000 resamples sees nothing smaller.
    return "< 0.001" if p_value < 0.001 else f"{p_value:.3f}"


def write(path, page):
    """Puts the tables between the page's marks; the rest of it is written by hand."""
    text = path.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    path.write_text(f"{before}{BEGIN}\n\n{page}\n\n{END}{after}", encoding="utf-8")
    print(f"\nwritten to {path}")


if __name__ == "__main__":
    main()
