-- Makes the built-in policy tinyhop from random weights. Run it in a fresh data directory:
--
--   RAYON_NUM_THREADS=1 rolloutdb sql --data DIR -f src/models/builtin/tinyhop/train.sql
--
-- The weights are then in DIR/models/tinyhop/4. About an hour and a half on one core.

-- Its tokenizer: byte-level BPE over prompts and completions of a few train worlds.
CREATE MODEL seedling FROM 'random://qwen2'
USING (
  SELECT step_prompt(state, question, thoughts, passages, 'short') || completion
  FROM hopworld_demonstrations(seed => 700000, worlds => 40, questions_per_world => 60)
)
WITH (task = 'generate', vocab_size = 1500, hidden_size = 128, intermediate_size = 384, num_hidden_layers = 4, num_attention_heads = 4,
      num_key_value_heads = 2, max_position_embeddings = 2048, rope_theta = 10000, seed = 1);

-- Demonstrations of mixed quality, a fresh world every 60 questions, easy ones first: one hop and the right passage alone, then all kinds of
-- questions with up to one, two, and always some passages that do not help. Within a phase the order is by a hash, so worlds are mixed.
TRAIN SFT MODEL tinyhop FROM seedling
USING (
  SELECT step_prompt(state, question, thoughts, passages, 'short') AS prompt, completion
  FROM (
    SELECT 1 AS phase, * FROM hopworld_demonstrations(seed => 1000, worlds => 110, questions_per_world => 60, one_hop => 1, two_hop => 0,
      three_hop => 0, comparison => 0, distractors_min => 0, distractors_max => 0, evidence_repeat => 2)
    UNION ALL
    SELECT 2 AS phase, * FROM hopworld_demonstrations(seed => 2000, worlds => 50, questions_per_world => 60, distractors_min => 0,
      distractors_max => 1, evidence_repeat => 2)
    UNION ALL
    SELECT 3 AS phase, * FROM hopworld_demonstrations(seed => 3000, worlds => 45, questions_per_world => 60, distractors_min => 0,
      distractors_max => 2, evidence_repeat => 2)
    UNION ALL
    SELECT 4 AS phase, * FROM hopworld_demonstrations(seed => 4000, worlds => 60, questions_per_world => 60, distractors_min => 1,
      distractors_max => 2, evidence_repeat => 2)
  ) demonstrations
  ORDER BY phase, md5(id || completion)
)
WITH (epochs = 1, learning_rate = 2e-3, batch_tokens = 3000, prompt_weight = 0.3, warmup_ratio = 0.02, max_grad_norm = 1.0, shuffle = false, seed = 1);

-- Then completions alone, on more fresh worlds. The protocol is learned by now; what takes long is to read the right fact out of several passages.
TRAIN SFT MODEL tinyhop FROM tinyhop
USING (
  SELECT step_prompt(state, question, thoughts, passages, 'short') AS prompt, completion
  FROM hopworld_demonstrations(seed => 5000, worlds => 110, questions_per_world => 60, distractors_min => 0, distractors_max => 2, evidence_repeat => 3)
  ORDER BY md5(id || completion)
)
WITH (epochs = 1, learning_rate = 1.5e-3, batch_tokens = 3000, warmup_ratio = 0.02, max_grad_norm = 1.0, shuffle = false, seed = 2);

TRAIN SFT MODEL tinyhop FROM tinyhop
USING (
  SELECT step_prompt(state, question, thoughts, passages, 'short') AS prompt, completion
  FROM hopworld_demonstrations(seed => 6000, worlds => 120, questions_per_world => 60, distractors_min => 1, distractors_max => 2, evidence_repeat => 3)
  ORDER BY md5(id || completion)
)
WITH (epochs = 1, learning_rate = 1e-3, batch_tokens = 3000, warmup_ratio = 0.02, max_grad_norm = 1.0, shuffle = false, seed = 3);

TRAIN SFT MODEL tinyhop FROM tinyhop
USING (
  SELECT step_prompt(state, question, thoughts, passages, 'short') AS prompt, completion
  FROM hopworld_demonstrations(seed => 7000, worlds => 120, questions_per_world => 60, distractors_min => 1, distractors_max => 2, evidence_repeat => 2)
  ORDER BY md5(id || completion)
)
WITH (epochs = 1, learning_rate = 7e-4, batch_tokens = 3000, warmup_ratio = 0.02, max_grad_norm = 1.0, shuffle = false, seed = 4);
