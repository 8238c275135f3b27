"""The published chat templates, as transformers renders them: `chat_templates.py BINARY`.

TRL carries the templates of the models that it trains: Qwen2.5, Qwen3 and their kin, Llama 3 to 3.2, DeepSeek's distilled ones and others. Each becomes the
template of a small policy, once for each set of variables, and each conversation is written by `apply_chat_template()` and by transformers' own renderer:
with a system message, with thoughts, with a tool that is called and answers, with and without the beginning of an answer. Both must say the same text, or
both refuse the conversation.

The date is a variable: here no template is told what day it is (`src/models/chat_template.rs`), and the templates take `date_string` before they ask.

Needs transformers and TRL. Exits with 0 if all holds for the models that are read here (`READ_HERE`) and their templates for training; what the others do
is told: some name the day without being asked, or call what transformers alone has.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from transformers.utils.chat_template_utils import render_jinja_template

ROOT = Path(__file__).resolve().parents[2]
READ_HERE = {"qwen2_5", "qwen3", "qwen3_instruct_2507", "llama3", "llama3_1", "llama3_2", "deepseek_r1_distill"}
TOKENS = {"bos_token": "<|begin_of_text|>", "eos_token": "<|endoftext|>"}
TOOL = {
    "type": "function",
    "function": {
        "name": "search", "description": "Finds passages, e.g. \"Emma\" <or> 'Ünïcode'.",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}, "k": {"type": "integer"}}, "required": ["query"]},
    },
}
DATE = {"date_string": "26 Jul 2024"}
VARIABLES = [DATE, DATE | {"enable_thinking": False}, DATE | {"tools": [TOOL]}]
CALL = {"type": "function", "function": {"name": "search", "arguments": {"query": "Who wrote \"Emma\"?", "k": 3}}}
CONVERSATIONS = [
    [{"role": "user", "content": "Who wrote Emma?"}],
    [{"role": "system", "content": "  Use short words.\n"}, {"role": "user", "content": " Who wrote <Emma> & \"E.T.\"?\n"}],
    [
        {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "<think>\nA greeting.\n</think>\n\nHello!"},
        {"role": "user", "content": "it's 100% {{ not }} {% markup %}, Größe, 東京"},
    ],
    [
        {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!", "reasoning_content": "A greeting."},
        {"role": "user", "content": "Who wrote Emma?"}, {"role": "assistant", "content": "Jane Austen.", "reasoning_content": "\nI know it.\n"},
    ],
    [
        {"role": "system", "content": "Search first."}, {"role": "user", "content": "Who wrote Emma?"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]}, {"role": "tool", "content": "Emma is by Jane Austen."},
        {"role": "assistant", "content": "Jane Austen."}, {"role": "user", "content": "And Persuasion?"},
    ],
    [{"role": "assistant", "content": "out of turn"}, {"role": "user", "content": "then the user"}],
]


def expected(template, conversation, opens, variables):
    """The text, or None where the template refuses."""
    try:
        variables = dict(variables)
        tools = variables.pop("tools", None)
        texts, _ = render_jinja_template(
            conversations=[conversation], tools=tools, chat_template=template, add_generation_prompt=opens, **TOKENS, **variables
        )
        return texts[0]
    except Exception:
        return None


def quoted(text):
    return "'" + text.replace("'", "''") + "'"


def sql(binary, data, statements):
    return subprocess.run([binary, "sql", "--data", data, "-c", statements], capture_output=True, text=True)


def checkpoint(folder, template):
    """A small policy with this template."""
    shutil.copytree(ROOT / "src/models/builtin/tinyhop", folder)
    (folder / "chat_template.jinja").write_text(template)
    config = folder / "tokenizer_config.json"
    fields = json.loads(config.read_text()) if config.exists() else {}
    fields.pop("chat_template", None)
    config.write_text(json.dumps(fields | TOKENS))


def check(binary, root, name, template):
    """Texts and refusals that were the same; what differs is told and ends the program."""
    folder, data = root / name, str(root / f"{name}_data")
    checkpoint(folder, template)
    models = [f"m{number}" for number in range(len(VARIABLES))]
    made = sql(binary, data, "".join(
        f"CREATE MODEL {model} FROM {quoted(str(folder))} WITH (task = 'generate', chat_template_kwargs = {quoted(json.dumps(variables))});"
        for model, variables in zip(models, VARIABLES)
    ))
    if made.returncode != 0:
        print(f"{name}: {made.stderr.strip()}")
        return None
    asked, texts, refused = [], [], []
    for model, variables in zip(models, VARIABLES):
        for conversation in CONVERSATIONS:
            for opens in (True, False):
                text = expected(template, conversation, opens, variables)
                call = f"apply_chat_template('{model}', {quoted(json.dumps(conversation))}, {str(opens).lower()})"
                if text is None:
                    refused.append(call)
                else:
                    asked.append(call)
                    texts.append(text)
    path = root / f"{name}.jsonl"
    rows = " UNION ALL ".join(f"SELECT {number} AS number, {call} AS text" for number, call in enumerate(asked))
    done = sql(binary, data, f"COPY ({rows} ORDER BY number) TO {quoted(str(path))} (FORMAT jsonl)")
    if done.returncode != 0:
        print(f"{name}: {done.stderr.strip()[:600]}")
        return None
    found = [json.loads(line)["text"] for line in path.read_text().splitlines()]
    assert len(found) == len(texts), name
    different = [number for number, (ours, theirs) in enumerate(zip(found, texts)) if ours != theirs]
    for number in different[:2]:
        print(f"{name}: {asked[number][:300]}\n  here         {found[number]!r}\n  transformers {texts[number]!r}")
    written = [call for call in refused if sql(binary, data, f"SELECT {call}").returncode == 0]
    for call in written[:2]:
        print(f"{name}: transformers refuses {call[:300]}")
    shutil.rmtree(data)
    return None if different or written else (len(texts), len(refused))


def main():
    binary = sys.argv[1]
    templates = {path.name.removesuffix(".jinja"): path.read_text() for path in files("trl").joinpath("chat_templates").iterdir() if path.name.endswith(".jinja")}
    assert READ_HERE <= templates.keys(), READ_HERE - templates.keys()
    with tempfile.TemporaryDirectory() as root:
        results = {name: check(binary, Path(root), name, text) for name, text in sorted(templates.items())}
    right = {name: result for name, result in results.items() if result}
    print(f"{len(right)} of {len(results)} templates, {sum(texts for texts, _ in right.values())} texts and {sum(refused for _, refused in right.values())} refusals as transformers has them")
    others = results.keys() - right.keys()
    print(f"not: {', '.join(sorted(others))}")
    return 1 if {name.removesuffix("_training") for name in others} & READ_HERE else 0


if __name__ == "__main__":
    sys.exit(main())
