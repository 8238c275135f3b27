"""Training on one NVIDIA GPU beside PyTorch: tokens per second of optimiser steps, and memory, of SFT in bf16 with f32 weights.

`training.py --device cuda` starts it; it needs a binary with the feature cuda-policies, and torch, transformers and peft. Both sides learn the same sequences of
token ids from the same random weights, of the shapes of Qwen2.5: all weights of 0.5 B parameters, and adapters of rank 16 beside 7 B frozen ones. PyTorch runs in
a process of its own (this file with the name of a settings file), by autocast with checkpointing.
"""

import json
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

SHAPES = {
    "0.5 B, all weights": dict(
        vocab_size=151_936, hidden_size=896, intermediate_size=4_864, num_hidden_layers=24, num_attention_heads=14, num_key_value_heads=2
    ),
    "7 B, LoRA": dict(
        vocab_size=152_064, hidden_size=3_584, intermediate_size=18_944, num_hidden_layers=28, num_attention_heads=28, num_key_value_heads=4
    ),
}
# Tokens of a sequence, sequences of a step, steps; the first ones are not counted.
LENGTH, BATCH, STEPS, WARM_UP = 1_024, 8, 12, 4
RANK, ALPHA, LEARNING_RATE = 16, 32, 1e-5


def main(options):
    from harness import Bench

    with Bench("training, cuda", options) as bench:
        for name, shape in SHAPES.items():
            bench.run(f"SFT, {name}", lambda measure, name=name, shape=shape: sft(measure, shape, "LoRA" in name))


def sft(measure, shape, has_adapters):
    import random_qwen2
    from server import Server

    with Server() as server, tempfile.TemporaryDirectory(dir=server.folder) as folder:
        directory, rows = Path(folder) / "policy", Path(folder) / "rows.jsonl"
        random_qwen2.save(directory, shape, tied=not has_adapters)
        numbers = random.Random(7)
        sequences = [[numbers.randrange(1, 30_000) for _ in range(LENGTH)] for _ in range(BATCH * STEPS)]
        rows.write_text("".join(json.dumps({"id": number, "ids": ids}) + "\n" for number, ids in enumerate(sequences)))
        settings = dict(directory=str(directory), rows=str(rows), has_adapters=has_adapters)
        # One after the other, since each wants the whole GPU.
        with Memory(server.process.pid) as ours_memory:
            ours = of_server(server.connect(), directory, rows, has_adapters)
        with Memory(None) as peer_memory:
            theirs = of_peer(folder, settings, peer_memory)
        measure.check("agreement of the first losses", 1 - abs(ours["losses"][0] - theirs["losses"][0]) / theirs["losses"][0], at_least=0.99)
        print(f"  memory: {ours_memory.peak:.0f} MiB, PyTorch {peer_memory.peak:.0f} MiB", flush=True)
        measure.checks.append(f"memory {ours_memory.peak:.0f} MiB, PyTorch {peer_memory.peak:.0f} MiB")
        rates = {side: [BATCH * (LENGTH - 1) / seconds for seconds in found["seconds"][WARM_UP:]] for side, found in (("ours", ours), ("PyTorch", theirs))}
        medians = {side: statistics.median(found) for side, found in rates.items()}
        ratios = [one / medians["PyTorch"] for one in rates["ours"]]
        measure.report(medians["ours"], {"PyTorch": medians["PyTorch"]}, ratios, target=0.8, unit="tokens/s")


def of_server(connection, directory, rows, has_adapters):
    """Seconds and losses of the steps."""
    connection.execute(f"CREATE MODEL policy FROM '{directory}' WITH (task = 'generate', device = 'cpu')")
    connection.execute("CREATE TABLE sequences (id bigint, ids int[])")
    connection.execute(f"COPY sequences FROM '{rows}' (FORMAT jsonl)")
    adapters = f", lora_rank = {RANK}, lora_alpha = {ALPHA}" if has_adapters else ""
    connection.execute(
        "TRAIN SFT MODEL trained FROM policy USING (SELECT ids[1:1] AS prompt_ids, ids[2:] AS completion_ids FROM sequences ORDER BY id) "
        f"WITH (device = 'cuda', batch_size = {BATCH}, batch_tokens = {BATCH * LENGTH}, max_length = {LENGTH}, learning_rate = {LEARNING_RATE}, "
        f"schedule = 'constant', warmup_ratio = 0, shuffle = false, recompute = true, checkpoint_every = 0, resume = false{adapters})"
    )
    metrics = {}
    for name, value in connection.execute("SELECT metric, value FROM rollout.training_metrics WHERE model = 'trained' ORDER BY step").fetchall():
        metrics.setdefault(name, []).append(value)
    seconds = [tokens / rate for tokens, rate in zip(metrics["tokens"], metrics["tokens_per_s"])]
    return {"seconds": seconds, "losses": metrics["loss"]}


def of_peer(folder, settings, memory):
    file = Path(folder) / "peer.json"
    file.write_text(json.dumps(settings))
    with subprocess.Popen([sys.executable, __file__, str(file)], text=True, stdout=subprocess.PIPE) as process:
        memory.pid = process.pid
        answer = process.stdout.readlines()
    if process.returncode != 0 or not answer:
        raise RuntimeError("PyTorch ended early")
    return json.loads(answer[-1])


class Memory:
    """The most MiB that a process has on the GPU, ten times a second by nvidia-smi."""

    def __init__(self, pid):
        self.pid, self.peak, self.ended = pid, 0.0, threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    def watch(self):
        query = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
        while not self.ended.wait(0.1):
            for line in subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines():
                pid, used = line.split(",")
                if int(pid) == self.pid:
                    self.peak = max(self.peak, float(used))


def train_by_pytorch(settings):
    """The same steps: f32 weights under autocast, or adapters beside weights in bf16; prints seconds and losses."""
    import torch
    from transformers import AutoModelForCausalLM

    has_adapters = settings["has_adapters"]
    dtype = torch.bfloat16 if has_adapters else torch.float32
    model = AutoModelForCausalLM.from_pretrained(settings["directory"], dtype=dtype).cuda().train()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if has_adapters:
        from peft import LoraConfig, get_peft_model

        targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
        model = get_peft_model(model, LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=targets))
        model.enable_input_require_grads()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=LEARNING_RATE, weight_decay=0.0, fused=True)
    sequences = torch.tensor([json.loads(line)["ids"] for line in open(settings["rows"], encoding="utf-8")]).cuda()
    seconds, losses = [], []
    for batch in sequences.split(BATCH):
        torch.cuda.synchronize()
        started = time.perf_counter()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        seconds.append(time.perf_counter() - started)
    print(json.dumps({"seconds": seconds, "losses": losses}))


if __name__ == "__main__":
    train_by_pytorch(json.loads(Path(sys.argv[1]).read_text()))
