"""What a policy cannot do without: the products of its weights with every token, and attention over what comes before it. Nothing for norms and activations."""

import json
from pathlib import Path

from tokenizers import Tokenizer


class Products:
    """Operations of the policy of a directory: two for each weight that a token is multiplied with."""

    def __init__(self, directory):
        directory = Path(directory)
        config = json.loads((directory / "config.json").read_text())
        hidden, heads = config["hidden_size"], config["num_attention_heads"]
        width = heads * (config.get("head_dim") or hidden // heads)
        kv_width = width // heads * config["num_key_value_heads"]
        self.weights = config["num_hidden_layers"] * (2 * hidden * (width + kv_width) + 3 * hidden * config["intermediate_size"])
        self.head_weights = hidden * config["vocab_size"]
        self.width_of_layers = config["num_hidden_layers"] * width
        self.tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))

    def length(self, text):
        """Tokens of it."""
        return len(self.tokenizer.encode(text).ids)

    def forward(self, tokens, predicted, attended):
        """`predicted`: tokens whose successor is; `attended`: sum over the tokens of what comes before each, itself included."""
        return 2 * (self.weights * tokens + self.head_weights * predicted) + 4 * self.width_of_layers * attended

    def step(self, tokens, predicted, attended):
        """Forward, and twice as much backward."""
        return 3 * self.forward(tokens, predicted, attended)
