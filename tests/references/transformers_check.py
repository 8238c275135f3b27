"""What leaves the database is what the usual tools read: `transformers_check.py BINARY`.

Trains a policy for a few steps with the binary, answers questions with it, and exports pairs, labels and trajectories. Then transformers
loads the trained directory and must write the same responses with the same log-probabilities; pyarrow and pandas must read the exported
pairs, and datasets and TRL the layouts of other trainers. So it is with policies that DPO, RFT, GRPO and PPO have made, and with a Qwen3 and a Llama. PEFT loads the adapters of trainings, also those with a score, beside which transformers must
give the logits and the scores of the model in which they are merged, and so must the database. The same policy with a chat template gives conversations, which transformers
must write by that template as the policy has read them. Needs torch, transformers, peft, pandas, pyarrow, datasets, and a TRL that has its
trainer of process reward models (up to 1.13). Exits with 0 if all holds.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas
import pyarrow.parquet
import torch
from datasets import load_dataset
from peft import PeftModel
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer, LlamaConfig, Qwen3Config
from trl import is_conversational
from trl.data_utils import is_conversational_from_value
from trl.experimental.prm import PRMTrainer

SCRIPT = """
CREATE MODEL base FROM 'builtin://tinyhop' WITH (task = 'generate');
TRAIN SFT MODEL policy FROM base
  USING (SELECT step_prompt(state, question, thoughts, passages, 'short') AS prompt, completion
         FROM hopworld_demonstrations(seed => 5, worlds => 1, questions_per_world => 20))
  WITH (max_steps = 5, learning_rate = 1e-4);
CREATE TABLE wiki AS SELECT id, contents FROM hopworld_passages(seed => 1);
CREATE INDEX wiki_text ON wiki USING bm25 (contents);
CREATE TABLE questions AS SELECT * FROM hopworld_questions(seed => 1, count => 10);
CREATE AGENT qa WITH (policy = 'policy', corpus = 'wiki', retriever = 'text', prompts = 'short', max_tokens = 64);
COPY (SELECT s.state, s.prompt, s.response, s.logprob, s.generated_tokens
      FROM questions q CROSS JOIN LATERAL answer_steps(q.question, agent => 'qa') s) TO '{files}/steps.parquet';
GENERATE ROLLOUTS INTO run USING AGENT qa FROM (SELECT id, question, golden_answers FROM questions)
  WITH (simulations = 8, temperature = 1.0, seed = 7);
COPY (SELECT * FROM preference_pairs(run, format => 'rag_proguide')) TO '{files}/rag_proguide.parquet';
CREATE TABLE transcript (run text, question_id text, node_id bigint, parent_id bigint, depth integer, prompt text, response text,
  outcome_reward double precision, process_reward double precision, visit_count bigint, is_terminal boolean);
INSERT INTO transcript VALUES
  ('r', 'q', 0, NULL, 0, 'Q:', NULL, NULL, 0.5, 3, false),
  ('r', 'q', 1, 0, 1, 'Q:', ' search', NULL, 0.6, 3, false),
  ('r', 'q', 2, 1, 2, 'Q: search [found]', ' right', 1.0, 0.9, 2, true),
  ('r', 'q', 3, 1, 2, 'Q: search [found]', ' wrong', 0.0, 0.2, 1, true);
"""
TEMPLATE = """{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content | trim }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
CHATS = """
CREATE MODEL chatting FROM '{files}/chatting' WITH (task = 'generate');
CREATE AGENT chatting WITH (policy = 'chatting', corpus = 'wiki', retriever = 'text', protocol = 'search_r1', prompts = 'short', max_tokens = 16, max_steps = 3);
GENERATE ROLLOUTS INTO chats USING AGENT chatting FROM (SELECT id, question, golden_answers FROM questions LIMIT 4)
  WITH (method = 'sample', simulations = 2, temperature = 1.0, seed = 7);
COPY (SELECT DISTINCT prompt FROM chats WHERE depth = 1) TO '{files}/first_prompts.parquet';
COPY (SELECT * FROM trajectories(chats, format => 'messages', malformed => true, policy => 'chatting')) TO '{files}/chatting.jsonl';
"""
# Adapters by method, targets and scale.
DEMONSTRATIONS = """SELECT step_prompt(state, question, thoughts, passages, 'short') AS prompt, completion
  FROM hopworld_demonstrations(seed => 5, worlds => 1, questions_per_world => 20)"""
ADAPTERS = {
    "lora": ("SFT", DEMONSTRATIONS, "lora_rank = 4"),
    "rslora": ("SFT", DEMONSTRATIONS, "lora_rank = 4, lora_rslora = true, lora_targets = 'q_proj, v_proj'"),
    "pattern": ("DPO", "SELECT prompt, chosen, rejected FROM preference_pairs(run)", "lora_rank = 2, lora_targets = '.*\\.[01]\\.self_attn\\..*'"),
    "online": ("GRPO", "SELECT question, golden_answers FROM questions", "agent = 'qa', reward = 'f1', batch_size = 2, group_size = 4, lora_rank = 4"),
}
# Trainings of all weights, by what they learn from.
WHOLE = {
    "dpo": ("DPO", "SELECT prompt, chosen, rejected FROM preference_pairs(run)", ""),
    "rft": ("RFT", DEMONSTRATIONS.replace("completion\n", "completion, 1.0 AS reward\n"), ""),
    "grpo": ("GRPO", "SELECT question, golden_answers FROM questions", ", agent = 'qa', reward = 'f1', batch_size = 2, group_size = 4"),
    "ppo": ("PPO", "SELECT question, golden_answers FROM questions", ", agent = 'qa', reward = 'f1', batch_size = 2, group_size = 4, updates_per_batch = 1"),
}
# Of other architectures than the base, with its words.
SIZES = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=2048)
LLAMA3 = {
    "rope_theta": 1e4, "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
}
ARCHITECTURES = {"qwen3": (Qwen3Config, {"head_dim": 24}), "llama": (LlamaConfig, {"rope_parameters": LLAMA3})}
# Reward models, by their options.
REWARD_MODELS = {"prm": "lora_rank = 4, lora_keep = true", "prm_whole": "weight_decay = 0.0"}
REWARD_MODEL = """
TRAIN PRM MODEL {name} FROM base USING (SELECT prompt, chosen, rejected FROM preference_pairs(run)) WITH (max_steps = 3, learning_rate = 1e-3, {options});
COPY (SELECT prompt, response, rerank('{name}', prompt, response) AS score FROM run WHERE response <> '' ORDER BY question_id, node_id LIMIT 20) TO '{files}/{name}.parquet';
"""
# A run whose steps ask anew, and one that goes on.
TABLES = ["run", "transcript"]
ENDINGS = {"jsonl": "json", "parquet": "parquet"}
LAYOUTS = {
    "completions": ("trajectories", "trl"),
    "messages": ("trajectories", "messages"),
    "steps": ("trajectories", "llama_factory"),
    "chats": ("trajectories", "sharegpt"),
    "labels": ("step_labels", "trl"),
}
RAG_PROGUIDE = [
    "instruction", "input", "prompt", "chosen", "rejected", "chosen_action_type", "chosen_content", "rejected_action_type",
    "rejected_content", "layer",
]


def check_responses(directory, steps):
    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    worst = 0.0
    for step in steps.itertuples():
        prompt = tokenizer(step.prompt, return_tensors="pt").input_ids
        with torch.no_grad():
            tokens = model.generate(prompt, max_new_tokens=step.generated_tokens, do_sample=False, pad_token_id=0)
            logps = model(tokens).logits.log_softmax(-1)
        completion = tokens[0, prompt.shape[1]:]
        text = tokenizer.decode(completion, skip_special_tokens=True)
        assert text.startswith(step.response), (text, step.response)
        rows = torch.arange(prompt.shape[1] - 1, tokens.shape[1] - 1)
        logprob = logps[0, rows, completion].sum().item()
        worst = max(worst, abs(logprob - step.logprob))
    assert worst < 1e-3, f"log-probabilities of responses differ by {worst}"
    print(f"{len(steps)} responses are transformers' own; their log-probabilities differ by at most {worst:.1e}")


def check_pairs(path):
    table = pyarrow.parquet.read_table(path)
    frame = pandas.read_parquet(path)
    assert table.column_names == RAG_PROGUIDE == list(frame.columns), frame.columns
    assert table.num_rows == len(frame) > 0
    assert (frame.chosen != frame.rejected).all() and (frame.layer >= 0).all()
    assert frame.prompt.map(lambda prompt: isinstance(prompt, str)).all()
    print(f"pyarrow and pandas read {len(frame)} pairs")


def exports():
    for table in TABLES:
        for name, (function, layout) in LAYOUTS.items():
            for ending in ENDINGS:
                yield f"COPY (SELECT * FROM {function}({table}, format => '{layout}')) TO '{{files}}/{table}_{name}.{ending}';"


def check_layouts(files, table, ending, tokenizer):
    """What datasets makes of the files is what TRL takes for rows of the kind, and LLaMA-Factory for turns that alternate."""

    def rows(name):
        return load_dataset(ENDINGS[ending], data_files=f"{files}/{table}_{name}.{ending}", split="train", cache_dir=f"{files}/cache")

    completions, steps = rows("completions"), rows("steps")
    assert completions.column_names == ["prompt", "completion"] and not any(map(is_conversational, completions))
    assert steps.column_names == ["instruction", "input", "output"] and len(steps) == len(completions) > 0
    for row in rows("messages"):
        assert is_conversational(row) and row["messages"][-1]["role"] == "assistant", row
    for row in rows("chats"):
        speakers = [turn["from"] for turn in row["conversations"]]
        assert is_conversational_from_value(row) and len(speakers) % 2 == 0, row
        assert set(speakers[0::2]) <= {"human", "observation"} and set(speakers[1::2]) == {"gpt"}, row
    for row in rows("labels"):
        labels = PRMTrainer.tokenize_row(row, tokenizer, "\n", None, None, False, False)["labels"]
        assert [label for label in labels if label >= 0] == [int(label) for label in row["labels"]], row
    print(f"datasets and TRL read {len(completions)} steps of {table} from {ending} files")


def check_template(binary, files, directory):
    """A trainer that writes the turns by the template of the tokenizer gets what the policy has read, and the template once."""
    shutil.copytree(directory, f"{files}/chatting")
    Path(files, "chatting/chat_template.jinja").write_text(TEMPLATE)
    run(binary, files, CHATS)
    tokenizer = AutoTokenizer.from_pretrained(f"{files}/chatting")
    read = set(pandas.read_parquet(f"{files}/first_prompts.parquet").prompt)
    chats = load_dataset("json", data_files=f"{files}/chatting.jsonl", split="train", cache_dir=f"{files}/cache")
    assert len(chats) > 0 and len(read) == 4, (len(chats), read)
    for chat in chats:
        turns = chat["messages"]
        asked = tokenizer.apply_chat_template(turns[:1], add_generation_prompt=True, tokenize=False)
        assert asked in read, (asked, read)
        written = tokenizer.apply_chat_template(turns, tokenize=False)
        assert written.count("<|im_start|>") == len(turns) and is_conversational(chat), written
    print(f"{len(chats)} conversations are written by transformers as the policy has read them")


def check_whole(binary, files):
    models = Path(files, "data/models")
    base = AutoModelForCausalLM.from_pretrained(models / "base/1", dtype=torch.float32).state_dict()
    for name, (method, query, options) in WHOLE.items():
        run(binary, files, f"TRAIN {method} MODEL {name} FROM base USING ({query}) WITH (max_steps = 3, learning_rate = 1e-3{options});" + answers(name))
        trained = AutoModelForCausalLM.from_pretrained(models / name / "1", dtype=torch.float32).state_dict()
        moved = max((trained[key] - base[key]).abs().max().item() for key in base)
        assert moved > 1e-4, f"{method} has moved no weight by more than {moved}"
        print(f"transformers loads what {method} has made, whose weights it has moved by up to {moved:.1e}")
        check_responses(models / name / "1", pandas.read_parquet(f"{files}/{name}.parquet"))


def check_architectures(binary, files):
    models = Path(files, "data/models")
    tokenizer, base = AutoTokenizer.from_pretrained(models / "base/1"), AutoConfig.from_pretrained(models / "base/1")
    for name, (config_class, options) in ARCHITECTURES.items():
        torch.manual_seed(1)
        tokens = {key: getattr(base, key) for key in ("vocab_size", "eos_token_id", "bos_token_id", "tie_word_embeddings")}
        AutoModelForCausalLM.from_config(config_class(**SIZES, **tokens, **options)).save_pretrained(f"{files}/{name}")
        tokenizer.save_pretrained(f"{files}/{name}")
        script = f"""CREATE MODEL {name}_base FROM '{{files}}/{name}' WITH (task = 'generate');
            TRAIN SFT MODEL {name} FROM {name}_base USING ({DEMONSTRATIONS}) WITH (max_steps = 20, learning_rate = 1e-2);"""
        run(binary, files, script + answers(name))
        print(f"a trained {name}: ", end="")
        check_responses(models / name / "1", pandas.read_parquet(f"{files}/{name}.parquet"))


def answers(model):
    return f"""COPY (SELECT s.state, s.prompt, s.response, s.logprob, s.generated_tokens
        FROM questions q CROSS JOIN LATERAL answer_steps(q.question, agent => 'qa', policy => '{model}') s) TO '{{files}}/{model}.parquet';"""


def check_adapters(binary, files):
    models = Path(files, "data/models")
    tokens = torch.arange(1, 60)[None] * 7 % 1500
    for name, (method, query, options) in ADAPTERS.items():
        train = f"TRAIN {method} MODEL {name} FROM base USING ({query}) WITH (max_steps = 3, learning_rate = 1e-3, lora_keep = true, {options});"
        run(binary, files, train + answers(name))
        base = AutoModelForCausalLM.from_pretrained(models / "base/1", dtype=torch.float32).eval()
        merged = AutoModelForCausalLM.from_pretrained(models / name / "1", dtype=torch.float32).eval()
        with torch.no_grad():
            before, expected = base(tokens).logits, merged(tokens).logits
            found = PeftModel.from_pretrained(base, models / name / "1/adapter").eval()(tokens).logits
        moved, error = (expected - before).abs().max().item(), (found - expected).abs().max().item()
        assert error < 1e-4 < moved, f"{name}: logits differ by {error}, those of the base by {moved}"
        print(f"PEFT loads the adapters {name}: logits differ by at most {error:.1e} from those of the merged model, which {method} has moved by {moved:.1e}")
        check_responses(models / name / "1", pandas.read_parquet(f"{files}/{name}.parquet"))


def check_reward_models(binary, files):
    models = Path(files, "data/models")
    for name, options in REWARD_MODELS.items():
        run(binary, files, REWARD_MODEL.replace("{name}", name).replace("{options}", options))
        tokenizer = AutoTokenizer.from_pretrained(models / name / "1")
        scorers = {"transformers": AutoModelForSequenceClassification.from_pretrained(models / name / "1", dtype=torch.float32).eval()}
        if (models / name / "1/adapter").exists():
            base = AutoModelForSequenceClassification.from_pretrained(models / "base/1", num_labels=1, dtype=torch.float32).eval()
            scorers["PEFT"] = PeftModel.from_pretrained(base, models / name / "1/adapter").eval()
        worst = 0.0
        rows = pandas.read_parquet(f"{files}/{name}.parquet")
        for row in rows.itertuples():
            ids = torch.tensor([tokenizer(row.prompt)["input_ids"] + tokenizer(row.response)["input_ids"]])
            with torch.no_grad():
                scores = [model(ids).logits.item() for model in scorers.values()]
            worst = max([worst, *(abs(score - row.score) for score in scores)])
        assert len(rows) > 5 and worst < 1e-4, f"scores of {len(rows)} steps differ by {worst}"
        print(f"{' and '.join(scorers)} give {len(rows)} steps the scores of rerank('{name}'); they differ by at most {worst:.1e}")


def run(binary, files, script):
    script = script.replace("{files}", files)
    subprocess.run([binary, "sql", "--data", f"{files}/data", "-c", script], check=True, stdout=subprocess.DEVNULL)


def main(binary):
    with tempfile.TemporaryDirectory() as files:
        run(binary, files, "\n".join([SCRIPT, *exports()]))
        check_pairs(f"{files}/rag_proguide.parquet")
        directory = Path(files, "data/models/policy/1")
        tokenizer = AutoTokenizer.from_pretrained(directory)
        for table in TABLES:
            for ending in ENDINGS:
                check_layouts(files, table, ending, tokenizer)
        check_responses(directory, pandas.read_parquet(f"{files}/steps.parquet"))
        check_template(binary, files, directory)
        check_whole(binary, files)
        check_architectures(binary, files)
        check_adapters(binary, files)
        check_reward_models(binary, files)


if __name__ == "__main__":
    main(*sys.argv[1:])
