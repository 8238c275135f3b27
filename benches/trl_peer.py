"""TRL as a peer, in a process of its own so that its memory is its own: DPO and GRPO on the CPU, in single precision, by PyTorch's eager mode.

`trl_peer.py SETTINGS` reads its work from a JSON file, sets up a trainer, and answers each line of its standard input with a line of JSON:

    run      trains the same steps from the same weights again: `seconds` of each (forward, backward, clipping and update; of GRPO the completions too), and
             what the trainer logs
    memory   `peak` and, before there was a trainer but with torch and TRL imported, `idle`: bytes of memory, the most so far

`Peer` is the other end. Needs torch, transformers and trl (below 1.14).
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
# Bars and warnings of what will be called otherwise in a later version.
QUIET = {"TQDM_DISABLE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "PYTHONWARNINGS": "ignore"}


class Peer:
    """A trainer of TRL in another process.

    `settings`: `method` (`dpo` or `grpo`), `directory` of the model and its tokenizer, `rows` (a file of JSON lines), `steps` of one run, `threads`, and
    the options of the method that `dpo_trainer` and `grpo_trainer` read.
    """

    def __init__(self, folder, name, **settings):
        self.name = name
        file = Path(folder) / f"{name.replace(' ', '-').replace(',', '')}.json"
        file.write_text(json.dumps(settings | {"folder": str(folder)}))
        environment = os.environ | QUIET | {"OMP_NUM_THREADS": str(settings["threads"]), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        command = [sys.executable, str(FOLDER / "trl_peer.py"), str(file)]
        self.process = subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.process.stdin.close()
            self.process.wait(timeout=30)
        # One that has ended takes no more lines.
        except (subprocess.TimeoutExpired, BrokenPipeError):
            self.process.kill()
            self.process.wait()

    def ask(self, what):
        try:
            self.process.stdin.write(f"{what}\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise RuntimeError(f"{self.name} ended early")
        return json.loads(line)


def make_policy(directory):
    """Writes the random Qwen2 of 0.1 B parameters to a directory, by a process of its own, so that the bench's is small."""
    command = [sys.executable, "-c", "import random_qwen2, sys; random_qwen2.save(sys.argv[1])", str(directory)]
    subprocess.run(command, check=True, cwd=FOLDER)


# ---- The process ----


def main():
    answers = os.fdopen(os.dup(1), "w")
    # What libraries print must not come between the answers.
    os.dup2(2, 1)
    settings = json.loads(Path(sys.argv[1]).read_text())
    import torch

    torch.set_num_threads(settings["threads"])
    trainer_of = {"dpo": dpo_trainer, "grpo": grpo_trainer}[settings["method"]]
    trainer, idle = trainer_of(settings)
    from transformers import PrinterCallback

    trainer.remove_callback(PrinterCallback)
    timer = Timer()
    trainer.add_callback(timer.callback())
    for line in sys.stdin:
        if line.strip() == "memory":
            answer = {"peak": memory_peak(), "idle": idle}
        else:
            timer.seconds.clear()
            if trainer.state.global_step > 0:
                begin_again(trainer, settings)
            # It begins a history of its own.
            trainer.train()
            answer = {"seconds": timer.seconds, "logged": [row for row in trainer.state.log_history if "loss" in row]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def begin_again(trainer, settings):
    """Without it the next run would go on with the weights, and completions of a policy that has learned more have another length."""
    trainer.model.load_state_dict(load(settings["directory"])[0].state_dict())
    trainer.optimizer = None


class Timer:
    def __init__(self):
        self.seconds = []

    def callback(self):
        from transformers import TrainerCallback

        timer = self

        class Steps(TrainerCallback):
            def on_step_begin(self, *_given, **_named):
                timer.begun = time.perf_counter()

            def on_step_end(self, *_given, **_named):
                timer.seconds.append(time.perf_counter() - timer.begun)

        return Steps()


def memory_peak():
    line = next(line for line in open("/proc/self/status") if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def common(settings):
    """Options that every trainer gets: nothing saved, nothing sent, each step logged, a constant learning rate, the order of the rows kept."""
    return dict(
        output_dir=str(Path(settings["folder"]) / "trl"), use_cpu=True, bf16=False, fp16=False, max_steps=settings["steps"], logging_steps=1,
        save_strategy="no", report_to="none", disable_tqdm=True, dataloader_pin_memory=False, lr_scheduler_type="constant",
        learning_rate=settings["learning_rate"], gradient_checkpointing=settings["checkpointing"], per_device_train_batch_size=settings["batch_size"],
    )


def load(directory):
    import torch
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

    # By the file alone: for a Qwen2 AutoTokenizer splits texts as Qwen's own tokenizer does, whatever the file says.
    tokenizer = PreTrainedTokenizerFast.from_pretrained(directory)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    return AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32), tokenizer


def read(settings):
    from datasets import Dataset

    return Dataset.from_list([json.loads(line) for line in open(settings["rows"], encoding="utf-8")])


def dpo_trainer(settings):
    """`beta`; `precompute`: the reference's log-probabilities before the first step, and not in each; `checkpointing`."""
    import torch
    from trl import DPOConfig, DPOTrainer

    class InOrder(DPOTrainer):
        def _get_train_sampler(self, *_given):
            return torch.utils.data.SequentialSampler(self.train_dataset)

    idle = memory_peak()
    model, tokenizer = load(settings["directory"])
    options = DPOConfig(**common(settings), beta=settings["beta"], max_length=None, precompute_ref_log_probs=settings["precompute"])
    # Loaded here, for it would be loaded in the precision that the files have.
    reference = None if settings["precompute"] else load(settings["directory"])[0]
    return InOrder(model, ref_model=reference, args=options, train_dataset=read(settings), processing_class=tokenizer), idle


def grpo_trainer(settings):
    """`group_size`, `max_tokens`, `temperature`: of the completions; a step is `batch_size` completions, sampled and learned at once."""
    from trl import GRPOConfig, GRPOTrainer

    idle = memory_peak()
    model, tokenizer = load(settings["directory"])
    options = GRPOConfig(
        **common(settings), num_generations=settings["group_size"], max_completion_length=settings["max_tokens"], temperature=settings["temperature"],
        top_p=1.0, top_k=0, beta=0.0, epsilon=0.2, epsilon_high=0.28, loss_type="dapo", scale_rewards="group",
    )
    return GRPOTrainer(model, reward_funcs=[f1_rewards], args=options, train_dataset=read(settings), processing_class=tokenizer), idle


def f1_rewards(completions, golden_answers, **_columns):
    """Token F1 as of SQuAD, the best over the golden answers; of the first line, which is what the protocol reads."""
    return [max(f1(completion.strip().split("\n")[0], golden) for golden in goldens) for completion, goldens in zip(completions, golden_answers)]


def f1(answer, golden):
    from collections import Counter

    found, wanted = normalized(answer).split(), normalized(golden).split()
    common_words = sum((Counter(found) & Counter(wanted)).values())
    return 2 * common_words / (len(found) + len(wanted)) if common_words else 0.0


def normalized(text):
    import re
    import string

    text = "".join(letter for letter in text.lower() if letter not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


if __name__ == "__main__":
    main()
