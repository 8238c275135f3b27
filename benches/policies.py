"""Policies without a tree: tokens that 32 sequences are given per second, and what a call of a remote policy costs beside the server's own time.

Needs torch and transformers beside requirements.txt: they make a random Qwen2 of 0.1 B parameters, and are the peer; with `--device cuda` in bf16 on an NVIDIA
GPU, and a binary with the feature cuda-policies. README.md describes the measures.
"""

import asyncio
import copy
import http.client
import json
import threading
import time

import numpy as np

import random_qwen2
from harness import Bench, Calls, multiply_rate, parse, parser, read_bandwidth
from server import Server, round_trip
from texts import corpus

SEQUENCES, TOKENS = 32, 128
# What the template, the tokenizer and HTTP may add to a remote call.
OVERHEAD_MAX_MS = 2.0


def main():
    options = parser(__doc__)
    options.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options.add_argument("--weights", choices=random_qwen2.WEIGHTS, default="bf16", help="what the policy's weights are stored as")
    options = parse(options, rounds=5)
    with Bench(f"policies, {options.device}", options) as bench:
        bench.run(f"decode, {SEQUENCES} sequences of a 0.1 B Qwen2 with weights in {options.weights}", lambda measure: decode(measure, options))
        bench.run("a call of a remote policy", lambda measure: remote_call(measure, options))


# ---- Decoding ----


def decode(measure, options):
    tokens = 16 if options.quick else TOKENS
    with Server() as server:
        directory = server.folder / "qwen2"
        peer = Transformers(directory, options.device, options.weights)
        connection = server.connect()
        connection.execute(f"CREATE MODEL policy FROM '{directory}' WITH (task = 'generate', device = '{options.device}')")

        def generated(prompts):
            query = "SELECT generate('policy', prompt, max_tokens => %s, temperature => 0) FROM unnest(%s::text[]) AS t(prompt)"
            return [text for (text,) in connection.execute(query, [tokens, prompts]).fetchall()]

        work = SEQUENCES * tokens
        if options.device == "cuda":
            # In bf16 two of 32,768 numbers are often equal but for rounding: texts are not compared, logits are by `cargo test --features cuda-policies`.
            contestants = [
                Calls("RolloutDB", lambda call: generated(prompts_of(call)), work),
                Calls("transformers", lambda call: peer.generated(prompts_of(call), tokens), work),
            ]
            measure.compare(contestants[0], contestants[1:], target=1.0, unit="tokens/s")
            return
        found, expected = generated(prompts_of(-1)), peer.generated(prompts_of(-1), tokens)
        # The largest of 32,768 numbers may be another one where two are equal but for rounding.
        equal = sum(ours == theirs for ours, theirs in zip(found, expected))
        measure.check(f"of {SEQUENCES} texts equal to transformers'", equal, at_least=SEQUENCES - 4)
        products = Products(bytes_per_weight=2 if options.weights == "bf16" else 4)
        floor = SEQUENCES / products.seconds_min()
        contestants = [
            Calls("RolloutDB", lambda call: generated(prompts_of(call)), work),
            Calls("its products alone, NumPy", products.step, SEQUENCES),
            Calls("transformers", lambda call: peer.generated(prompts_of(call), tokens), work),
        ]
        if options.weights == "bf16":
            rounded = peer.in_bf16()
            contestants.append(Calls("transformers with results in bf16", lambda call: rounded.generated(prompts_of(call), tokens), work))
        floor_is = "the products at the rate of a large one, or the weights at the bandwidth of memory, whichever takes longer"
        rates = measure.compare(contestants[0], contestants[1:2], target=0.6, unit="tokens/s", beside=contestants[2:], floor=(floor, floor_is))
        print(f"  of the floor {rates['RolloutDB'] / floor:.2f}, of which 0.6 is the target", flush=True)


def prompts_of(call):
    """Others in every call: what was answered once comes from the cache."""
    return [f"question {call} {number}" for number in range(SEQUENCES)]


class Transformers:
    """Greedy texts of the random Qwen2."""

    def __init__(self, directory, device, weights):
        import torch

        torch.set_num_threads(2)
        self.torch, (model, self.tokenizer) = torch, random_qwen2.save(directory, weights=weights)
        self.model = model.to(device, torch.bfloat16) if device == "cuda" else model

    def in_bf16(self):
        """The same policy, whose results are rounded to bf16: what processors have instructions for (AMX) is several times as fast so."""
        other = copy.copy(self)
        other.model = copy.deepcopy(self.model).to(self.torch.bfloat16)
        return other

    def generated(self, prompts, tokens):
        inputs = self.tokenizer(prompts, return_tensors="pt", padding=True).to(self.model.device)
        with self.torch.no_grad():
            output = self.model.generate(**inputs, do_sample=False, min_new_tokens=tokens, max_new_tokens=tokens)
        return self.tokenizer.batch_decode(output[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)


class Products:
    """The matrix products of one token for each sequence, in NumPy, with weights of their own for every layer: what decoding cannot do without."""

    def __init__(self, bytes_per_weight):
        self.bytes_per_weight = bytes_per_weight
        random = np.random.default_rng(1)
        hidden, inner = random_qwen2.SHAPE["hidden_size"], random_qwen2.SHAPE["intermediate_size"]
        heads = hidden // random_qwen2.SHAPE["num_attention_heads"] * random_qwen2.SHAPE["num_key_value_heads"]
        shapes = [(hidden, hidden + 2 * heads), (hidden, hidden), (hidden, 2 * inner), (inner, hidden)] * random_qwen2.SHAPE["num_hidden_layers"]
        shapes.append((hidden, random_qwen2.SHAPE["vocab_size"]))
        self.weights = [random.standard_normal(shape, dtype=np.float32) for shape in shapes]
        self.inputs = {width: random.standard_normal((SEQUENCES, width), dtype=np.float32) for width in (hidden, inner)}

    def step(self, _call):
        for weights in self.weights:
            self.inputs[weights.shape[0]] @ weights

    def seconds_min(self):
        """What a step takes where nothing but the processor's rate and the memory's bandwidth holds it up."""
        operations = sum(2 * SEQUENCES * weights.size for weights in self.weights)
        return max(operations / multiply_rate(), sum(weights.size for weights in self.weights) * self.bytes_per_weight / read_bandwidth())


# ---- Remote policies ----


def remote_call(measure, options):
    """Milliseconds of `generate()` over a server that answers at once, less those of the same request by a bare client, less the SQL statement's own."""
    with EchoServer() as remote, Server("--allow-host", "http://127.0.0.1") as server:
        connection = server.connect()
        connection.execute(
            f"CREATE MODEL remote FROM 'openai://echo' WITH (task = 'generate', base_url = 'http://127.0.0.1:{remote.port}/v1', cache = false)"
        )
        words = " ".join(next(iter(corpus("hotpotqa"))).split()[:300])

        def ours(call):
            (text,) = connection.execute("SELECT generate('remote', %s)", [f"{call} {words}"]).fetchone()
            if text != "Paris":
                raise ValueError(text)

        bare = http.client.HTTPConnection("127.0.0.1", remote.port)

        def request(call):
            body = json.dumps({"model": "echo", "messages": [{"role": "user", "content": f"{call} {words}"}], "max_tokens": 64})
            bare.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
            json.loads(bare.getresponse().read())

        statement = median_seconds(lambda call: connection.execute("SELECT length(%s)", [f"{call} {words}"]).fetchone(), options.seconds)
        overhead = 1e3 * (median_seconds(ours, options.seconds) - median_seconds(request, options.seconds) - statement)
        print(f"  {overhead:.2f} ms a call beside the request ({1e3 * statement:.2f} ms for a statement without a model)", flush=True)
        measure.check(f"{OVERHEAD_MAX_MS:g} ms to the overhead", OVERHEAD_MAX_MS / max(overhead, 1e-3), at_least=1.0)
        floor = 1 / round_trip(connection), "the round trip of an empty statement"
        measure.compare(Calls("RolloutDB", ours), [Calls("http.client", request)], floor=floor, unit="calls/s")


def median_seconds(call, seconds):
    times, deadline = [], time.monotonic() + seconds
    while time.monotonic() < deadline or len(times) < 20:
        start = time.perf_counter()
        call(len(times))
        times.append(time.perf_counter() - start)
    return float(np.median(times[len(times) // 10 :]))


class EchoServer:
    """Answers every request of a chat completion at once, on connections that it keeps open."""

    ANSWER = json.dumps({
        "id": "1", "object": "chat.completion", "model": "echo", "created": 0,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Paris"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 400, "completion_tokens": 1, "total_tokens": 401},
    }).encode()

    def __enter__(self):
        self.loop, started = asyncio.new_event_loop(), threading.Event()

        async def serve():
            server = await asyncio.start_server(self.answer, "127.0.0.1", 0)
            self.port = server.sockets[0].getsockname()[1]
            started.set()

        def run():
            self.loop.create_task(serve())
            self.loop.run_forever()

        threading.Thread(target=run, daemon=True).start()
        started.wait()
        return self

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self.loop.stop)

    async def answer(self, reader, writer):
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"content-length"))
                await reader.readexactly(length)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(self.ANSWER) + self.ANSWER)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


if __name__ == "__main__":
    main()
