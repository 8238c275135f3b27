"""A Qwen2 of 0.1 B parameters, or of another shape, with random weights and a tokenizer of its own: as costly as a real one of its size. Needs torch and transformers."""

from texts import corpus

SHAPE = {
    "vocab_size": 32_768,
    "hidden_size": 768,
    "intermediate_size": 2_048,
    "num_hidden_layers": 14,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
}


# What the weights of a policy are stored as: as nearly all published ones, or twice as long.
WEIGHTS = ["bf16", "f32"]


def save(directory, shape=SHAPE, tied=True, weights="f32"):
    """Writes it to a directory, and gives the model in single precision and the tokenizer of transformers."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    pieces = Tokenizer(models.BPE())
    pieces.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pieces.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=min(shape["vocab_size"], SHAPE["vocab_size"]), special_tokens=["<|end|>"], initial_alphabet=alphabet, show_progress=False)
    pieces.train_from_iterator(corpus("hotpotqa"), trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=pieces, eos_token="<|end|>", pad_token="<|end|>", padding_side="left")
    tokenizer.save_pretrained(directory)
    torch.manual_seed(1)
    config = Qwen2Config(**shape, tie_word_embeddings=tied, max_position_embeddings=4_096, bos_token_id=None, eos_token_id=0)
    model = Qwen2ForCausalLM(config).eval().float()
    with torch.no_grad():
        # The logit of the end is 0, never the largest: no greedy text ends early.
        model.model.embed_tokens.weight[0] = 0
    if weights == "bf16":
        model.to(torch.bfloat16).save_pretrained(directory)
        return model.float(), tokenizer
    model.save_pretrained(directory)
    return model, tokenizer
