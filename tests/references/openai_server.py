"""A policy behind somebody else's server: `openai_server.py BINARY`.

`transformers serve` serves the directory of a policy that is in the database too, first through its completions. Greedy, both must say the same at every
step of every question, with the stop strings that this server keeps in its texts, and so in a stream, with the stop strings and without the server knowing
them; rollouts are made through the server, which is asked for several samples and gives one; then the server is stopped, and a second process makes the same
rollouts again from the answers that were kept.

Then through its chat interface, with a chat template in the directory. What `generate()` says is what transformers itself says after the messages as its
template has them: greedy, with a stop string, and sampled with two seeds, at once and in a stream, and where log-probabilities are asked for, which this
server does not give. The database writes a prompt by the same template. Rollouts are made through it too, and again from what was kept.

Needs torch and transformers[serving]. Exits with 0 if all holds.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager
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


# In the words of the prompts that the policy knows; a system message and an earlier answer would stand before them.
CHAT_TEMPLATE = """{% for message in messages %}{% if message['role'] == 'user' %}Question: {{ message['content'] }}
{% else %}{{ message['content'] }}
{% endif %}{% endfor %}{% if add_generation_prompt %}Thought:{% endif %}"""
RESPONSE_TEMPLATE = {
    "defaults": {"role": "assistant"}, "start_anchor": "Thought:", "fields": {"content": {"close": "<|endoftext|>", "content": "text"}},
}
MAX_TOKENS = 48
STOP = "query"
SEEDS = [3, 4]
CHAT_SETUP = """
CREATE MODEL chat FROM 'openai://{model}' WITH (base_url = '{base_url}', concurrency = 1, samples_per_request = 4);
CREATE MODEL chat_stream FROM 'openai://{model}' WITH (base_url = '{base_url}', concurrency = 1, cache = false, stream = true);
CREATE MODEL chat_logprobs FROM 'openai://{model}' WITH (base_url = '{base_url}', concurrency = 1, cache = false, logprobs = true);
CREATE MODEL chat_here FROM '{model}' WITH (task = 'generate');
CREATE AGENT there WITH (policy = 'chat', corpus = 'wiki', retriever = 'text', prompts = 'short', max_tokens = 64);
"""
CHAT = """
COPY (SELECT id, question,
        apply_chat_template('chat_here', '[{{"role": "user", "content": "' || question || '"}}]', true) AS prompt,
        generate('{name}', question, max_tokens => {max_tokens}) AS greedy,
        generate('{name}', question, max_tokens => {max_tokens}, stop => ['{stop}']) AS stopped,
        generate('{name}', question, max_tokens => {max_tokens}, temperature => 1.0, seed => {seeds[0]}) AS sampled,
        generate('{name}', question, max_tokens => {max_tokens}, temperature => 1.0, seed => {seeds[1]}) AS sampled_otherwise
      FROM questions ORDER BY id) TO '{path}'
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


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextmanager
def serving(model, host):
    """transformers' server of this directory, for as long as it is needed."""
    port = host.rpartition(":")[2]
    command = [Path(sys.executable).parent / "transformers", "serve", str(model), "--host", "127.0.0.1", "--port", port, "--device", "cpu",
               "--dtype", "float32"]
    server = subprocess.Popen(command, env={**os.environ, "HF_HUB_OFFLINE": "1"}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(f"{host}/health", server)
        yield
    finally:
        server.kill()
        server.wait()


def make_rollouts(binary, data, host, home, name):
    """Rollouts through the agent `there`, and what they took."""
    files = {"path": home / f"{name}.jsonl", "tallies": home / f"{name}_tallies.jsonl"}
    sql(binary, data, host, ROLLOUTS.format(run=name, **files))
    return rows(files["path"]), rows(files["tallies"])


def check_again(binary, data, host, home, name, first):
    """The same rollouts without the server: all of them are kept."""
    again, tallies = make_rollouts(binary, data, host, home, name)
    assert first == again
    assert sum(row["requests"] for row in tallies) == 0 and sum(row["cache_hits"] for row in tallies) > 0, tallies
    print(f"rollouts again without the server: {tallies}")


def check_completions(binary, data, host, home, model):
    sql(binary, data, host, SETUP.format(model=model, base_url=f"{host}/v1"))
    with serving(model, host):
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
        first, tallies = make_rollouts(binary, data, host, home, "first")
    assert tallies[0]["requests"] > 0 and tallies[0]["failures"] == 0 and tallies[0]["prompt_tokens"] > 0, tallies
    print(f"rollouts: {tallies}")
    check_again(binary, data, host, home, "again", first)


def chat_directory(model, home):
    """The policy with a chat template, and with settings by which the server samples where a temperature is asked for."""
    directory = home / "chat"
    shutil.copytree(model, directory)
    (directory / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    # transformers serve takes answers of Qwen models apart by the marks of ChatML; where a template has none, the tokenizer says where an answer begins.
    tokenizer = json.loads((directory / "tokenizer_config.json").read_text())
    tokenizer["response_template"] = RESPONSE_TEMPLATE
    (directory / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    config = json.loads((directory / "config.json").read_text())
    settings = {"do_sample": True, "top_k": 0, "top_p": 1.0, "eos_token_id": config["eos_token_id"], "pad_token_id": 0}
    (directory / "generation_config.json").write_text(json.dumps(settings))
    return directory


def own_texts(directory, questions):
    """What transformers says to each question, in this process: the prompt, and the texts by name."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()

    def texts(question):
        messages = [{"role": "user", "content": question}]
        inputs = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)

        def text(**options):
            with torch.no_grad():
                tokens = model.generate(**inputs, max_new_tokens=MAX_TOKENS, **options)
            return tokenizer.decode(tokens[0, inputs["input_ids"].shape[1]:], skip_special_tokens=True)

        def sampled(seed):
            torch.manual_seed(seed)
            return text(do_sample=True, temperature=1.0)

        greedy = text(do_sample=False)
        prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        return {"prompt": prompt, "greedy": greedy, "stopped": greedy.partition(STOP)[0], "sampled": sampled(SEEDS[0]), "sampled_otherwise": sampled(SEEDS[1])}

    return [texts(question) for question in questions]


def check_chat(binary, data, host, home, model):
    directory = chat_directory(model, home)
    sql(binary, data, host, CHAT_SETUP.format(model=directory, base_url=f"{host}/v1"))
    with serving(directory, host):
        said = {}
        for name in ["chat", "chat_stream", "chat_logprobs"]:
            path = home / f"{name}.jsonl"
            sql(binary, data, host, CHAT.format(name=name, path=path, max_tokens=MAX_TOKENS, stop=STOP, seeds=SEEDS))
            said[name] = rows(path)
        first, tallies = make_rollouts(binary, data, host, home, "chatted")
    expected = own_texts(directory, [row["question"] for row in said["chat"]])
    for name, texts in said.items():
        for text, own in zip(texts, expected, strict=True):
            assert text["prompt"] == own["prompt"], (text, own)
            for what, words in own.items():
                # The server takes the white space from both ends of an answer.
                assert text[what].strip() == words.strip(), f"{name}, {what} of {text['question']!r}: {text[what]!r}, transformers says {words!r}"
    assert any(own["greedy"] != own["stopped"] for own in expected), "no text has the stop string"
    assert any(own["sampled"] != own["sampled_otherwise"] for own in expected), "both seeds say the same"
    print(f"{len(expected)} questions through chat: greedy, stopped and sampled texts are transformers' own, at once, in streams, and without log-probabilities")
    assert sum(row["requests"] for row in tallies) > 0 and sum(row["failures"] for row in tallies) == 0, tallies
    print(f"rollouts through chat: {tallies}")
    check_again(binary, data, host, home, "chatted_again", first)


def main(binary):
    with tempfile.TemporaryDirectory() as home:
        home = Path(home)
        model = home / "data" / "models" / "here" / "1"
        check_completions(binary, str(home / "data"), f"http://127.0.0.1:{free_port()}", home, model)
        sql(binary, str(home / "data"), "http://127.0.0.1", "DROP AGENT there; DROP MODEL streaming; DROP MODEL unstopped")
        check_chat(binary, str(home / "data"), f"http://127.0.0.1:{free_port()}", home, model)


if __name__ == "__main__":
    main(sys.argv[1])
