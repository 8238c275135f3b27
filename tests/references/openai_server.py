"""A policy behind somebody else's server: `openai_server.py BINARY`.

`transformers serve` serves the directory of a policy that is in the database too. Greedy, both must say the same at every step of every question,
with the stop strings that this server keeps in its texts, and so in a stream, with the stop strings and without the server knowing them; rollouts are
made through the server, which is asked for several samples and gives one; then the server is stopped, and a second process makes the same rollouts again
from the answers that were kept. Needs torch and transformers[serving]. Exits with 0 if all holds.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

SETUP = """
CREATE MODEL here FROM 'builtin://tinyhop' WITH (task = 'generate');
CREATE TABLE wiki AS SELECT id, contents FROM hopworld_passages(seed => 1);
CREATE INDEX wiki_text ON wiki USING bm25 (contents);
CREATE TABLE questions AS SELECT * FROM hopworld_questions(seed => 1, count => 6);
CREATE MODEL there FROM 'openai://{model}' WITH (base_url = '{base_url}', api = 'completions', concurrency = 2, samples_per_request = 4,
  price_input = 1, price_output = 1);
CREATE MODEL streaming FROM 'openai://{model}' WITH (base_url = '{base_url}', api = 'completions', concurrency = 2, cache = false, stream = true);
CREATE MODEL unstopped FROM 'openai://{model}' WITH (base_url = '{base_url}', api = 'completions', concurrency = 2, cache = false, stream = true,
  extra = '{{"stop": null}}');
CREATE AGENT here WITH (policy = 'here', corpus = 'wiki', retriever = 'text', prompts = 'short', max_tokens = 64);
CREATE AGENT there WITH (policy = 'there', corpus = 'wiki', retriever = 'text', prompts = 'short', max_tokens = 64);
CREATE AGENT streaming WITH (policy = 'streaming', corpus = 'wiki', retriever = 'text', prompts = 'short', max_tokens = 64);
CREATE AGENT unstopped WITH (policy = 'unstopped', corpus = 'wiki', retriever = 'text', prompts = 'short', max_tokens = 64);
"""
STEPS = """
COPY (SELECT q.id, s.step, s.state, s.action, s.response, s.generated_tokens FROM questions q CROSS JOIN LATERAL answer_steps(q.question, agent => '{agent}') s
      ORDER BY q.id, s.step) TO '{path}'
"""
ROLLOUTS = """
GENERATE ROLLOUTS INTO {run} USING AGENT there FROM (SELECT id, question, golden_answers FROM questions LIMIT 2)
  WITH (simulations = 4, children = 2, max_depth = 4, temperature = 1.0, seed = 7);
COPY (SELECT question_id, node_id, parent_id, action, response, visit_count, q_value, prompt_tokens, generated_tokens FROM {run}
      ORDER BY question_id, node_id) TO '{path}';
COPY (SELECT requests, cache_hits, retries, failures, prompt_tokens, generated_tokens, cost FROM rollout.remote_models) TO '{tallies}';
"""


def sql(binary, data, host, statements):
    command = [binary, "sql", "--data", data, "--allow-host", host, "-c", statements]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def wait_for(url, server):
    deadline = time.monotonic() + 300
    while True:
        try:
            urllib.request.urlopen(url, timeout=2).read()
            return
        except OSError:
            assert server.poll() is None, "the server ended"
            assert time.monotonic() < deadline, "the server did not come up"
            time.sleep(0.5)


def main(binary):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    host = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as home:
        home = Path(home)
        data = str(home / "data")
        model = home / "data" / "models" / "here" / "1"
        sql(binary, data, host, SETUP.format(model=model, base_url=f"{host}/v1"))
        serve = [Path(sys.executable).parent / "transformers", "serve", str(model), "--host", "127.0.0.1", "--port", str(port),
                 "--device", "cpu", "--dtype", "float32"]
        server = subprocess.Popen(serve, env={**os.environ, "HF_HUB_OFFLINE": "1"}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for(f"{host}/health", server)
            steps = {}
            for agent in ["here", "there", "streaming", "unstopped"]:
                path = home / f"{agent}.jsonl"
                sql(binary, data, host, STEPS.format(agent=agent, path=path))
                steps[agent] = rows(path)
            for agent in ["there", "streaming", "unstopped"]:
                assert [step["response"] for step in steps["here"]] == [step["response"] for step in steps[agent]], steps
                assert [step["action"] for step in steps["here"]] == [step["action"] for step in steps[agent]]
            tokens = {agent: [step["generated_tokens"] for step in steps[agent]] for agent in steps}
            assert tokens["there"] == tokens["streaming"], tokens
            print(f"{len(steps['there'])} greedy steps of 6 questions are the same here, behind transformers serve, and in its streams")
            sql(binary, data, host, ROLLOUTS.format(run="first", path=home / "first.jsonl", tallies=home / "first_tallies.jsonl"))
        finally:
            server.kill()
            server.wait()
        tallies = rows(home / "first_tallies.jsonl")[0]
        assert tallies["requests"] > 0 and tallies["failures"] == 0 and tallies["prompt_tokens"] > 0, tallies
        sql(binary, data, host, ROLLOUTS.format(run="again", path=home / "again.jsonl", tallies=home / "again_tallies.jsonl"))
        assert rows(home / "first.jsonl") == rows(home / "again.jsonl")
        again = rows(home / "again_tallies.jsonl")[0]
        assert again["requests"] == 0 and again["cache_hits"] > 0, again
        print(f"rollouts: {tallies}; again without the server: {again}")


if __name__ == "__main__":
    main(sys.argv[1])
