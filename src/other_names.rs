//! What people call a function or an option who come from another system: pgvector, DuckDB, PostgreSQL, FlashRAG, TRL, transformers, LLaMA-Factory.
//!
//! They are no aliases: a statement that uses one is refused, and told the name that there is here.

use crate::error::nearest;

/// Functions and what stands here for them: a function's name, or an expression.
const FUNCTIONS: &[(&str, &str)] = &[
    // DuckDB's readers of files.
    ("read_json", "read_jsonl"),
    ("read_json_auto", "read_jsonl"),
    ("read_json_objects", "read_jsonl"),
    ("read_ndjson", "read_jsonl"),
    ("read_ndjson_auto", "read_jsonl"),
    ("read_ndjson_objects", "read_jsonl"),
    ("read_csv_auto", "read_csv"),
    ("sniff_csv", "read_csv"),
    ("parquet_scan", "read_parquet"),
    ("scan_parquet", "read_parquet"),
    ("arrow_scan", "read_arrow"),
    // Vectors and searches elsewhere.
    ("array_distance", "l2_distance"),
    ("list_distance", "l2_distance"),
    ("euclidean_distance", "l2_distance"),
    ("array_inner_product", "inner_product"),
    ("array_dot_product", "inner_product"),
    ("list_inner_product", "inner_product"),
    ("list_dot_product", "inner_product"),
    ("dot_product", "inner_product"),
    ("array_negative_inner_product", "negative_inner_product"),
    ("list_negative_inner_product", "negative_inner_product"),
    ("array_cosine_distance", "cosine_distance"),
    ("list_cosine_distance", "cosine_distance"),
    ("cosine_similarity", "1 - cosine_distance(a, b)"),
    ("array_cosine_similarity", "1 - cosine_distance(a, b)"),
    ("list_cosine_similarity", "1 - cosine_distance(a, b)"),
    ("taxicab_distance", "l1_distance"),
    ("manhattan_distance", "l1_distance"),
    ("vector_dimensions", "vector_dims"),
    ("match_bm25", "text_search(table, query) in FROM"),
    ("bm25", "text_search(table, query) in FROM"),
    ("fts_search", "text_search(table, query) in FROM"),
    ("to_tsvector", "text_search(table, query) in FROM, over an index USING bm25"),
    ("to_tsquery", "text_search(table, query) in FROM, over an index USING bm25"),
    ("plainto_tsquery", "text_search(table, query) in FROM, over an index USING bm25"),
    ("phraseto_tsquery", "text_search(table, query) in FROM, over an index USING bm25"),
    ("websearch_to_tsquery", "text_search(table, query) in FROM, over an index USING bm25"),
    ("ts_rank", "text_search(table, query) in FROM, whose score it gives"),
    ("ts_rank_cd", "text_search(table, query) in FROM, whose score it gives"),
    ("vss_match", "vector_search(table, query) in FROM"),
    ("dense_search", "vector_search(table, query) in FROM"),
    ("similarity_search", "vector_search(table, query) in FROM"),
    ("knn", "vector_search(table, query) in FROM"),
    ("retrieve", "hybrid_search(table, query) in FROM"),
    // Metrics as FlashRAG and others call them.
    ("em", "exact_match"),
    ("em_score", "exact_match"),
    ("f1", "f1_score"),
    ("token_f1", "f1_score"),
    ("acc", "accuracy"),
    ("sub_em", "accuracy"),
    ("cover_em", "accuracy"),
    ("precision", "precision_score"),
    ("recall", "recall_score"),
    ("hit", "hit_at_k"),
    ("hits_at_k", "hit_at_k"),
    ("hit_rate", "hit_at_k"),
    ("ndcg", "ndcg_at_k"),
    ("retrieval_recall", "recall_at_k"),
    ("retrieval_precision", "precision_at_k"),
    ("reciprocal_rank", "mrr"),
    ("mean_reciprocal_rank", "mrr"),
    // Models.
    ("embedding", "embed"),
    ("ai_embed", "embed"),
    ("encode_text", "embed"),
    ("llm", "generate"),
    ("complete", "generate"),
    ("completion", "generate"),
    ("ai_complete", "generate"),
    ("chat", "generate"),
    ("prompt", "generate"),
    ("cross_encoder", "rerank"),
    ("rerank_score", "rerank"),
    ("llm_judge", "judge"),
    ("chunk_text", "chunk(table) in FROM"),
    ("split_text", "chunk(table) in FROM"),
    // DuckDB's and others' names of what PostgreSQL has.
    ("nvl2", "CASE"),
    ("group_concat", "string_agg"),
    ("listagg", "string_agg"),
    ("list", "array_agg"),
    ("list_agg", "array_agg"),
    ("collect_list", "array_agg"),
    ("list_value", "make_array"),
    ("list_pack", "make_array"),
    ("list_contains", "array_has"),
    ("list_has", "array_has"),
    ("array_contains", "array_has"),
    ("list_length", "array_length"),
    ("list_sort", "array_sort"),
    ("list_distinct", "array_distinct"),
    ("list_concat", "array_cat"),
    ("list_slice", "array_slice"),
    ("len", "length"),
    ("strftime", "to_char"),
    ("date_format", "to_char"),
    ("strptime", "to_timestamp"),
    ("string_split", "string_to_array"),
    ("str_split", "string_to_array"),
    ("split", "string_to_array"),
    ("regexp_extract", "regexp_match"),
    ("regexp_full_match", "text ~ '^(..)$'"),
    ("json_extract", "json_extract_path"),
    ("json_extract_string", "json_extract_path_text"),
    ("json_value", "json_extract_path_text"),
    ("json_object", "json_build_object"),
    ("json_array", "json_build_array"),
    ("json_group_array", "json_agg"),
    ("struct_pack", "named_struct"),
    ("quantile_cont", "percentile_cont(..) WITHIN GROUP (ORDER BY ..)"),
    ("quantile", "percentile_cont(..) WITHIN GROUP (ORDER BY ..)"),
    ("approx_count_distinct", "approx_distinct"),
    ("epoch", "extract(epoch FROM ..)"),
    ("today", "current_date"),
    ("get_current_timestamp", "now"),
    ("typeof", "pg_typeof"),
    ("uuidv4", "gen_random_uuid"),
    ("uuid_generate_v4", "gen_random_uuid"),
];

/// Options and what they are called here, the likelier one first.
const OPTIONS: &[(&str, &[&str])] = &[
    ("lr", &["learning_rate"]),
    ("critic_lr", &["critic_learning_rate"]),
    ("lora_r", &["lora_rank"]),
    ("lora_dim", &["lora_rank"]),
    ("rank", &["lora_rank"]),
    ("r", &["lora_rank"]),
    ("target_modules", &["lora_targets"]),
    ("lora_target", &["lora_targets"]),
    ("lora_target_modules", &["lora_targets"]),
    ("use_rslora", &["lora_rslora"]),
    ("num_train_epochs", &["epochs"]),
    ("num_epochs", &["epochs"]),
    ("n_epochs", &["epochs"]),
    ("epoch", &["epochs"]),
    ("total_epochs", &["epochs"]),
    ("num_steps", &["max_steps"]),
    ("steps", &["max_steps"]),
    ("per_device_train_batch_size", &["batch_size"]),
    ("train_batch_size", &["batch_size"]),
    ("micro_batch_size", &["batch_size"]),
    ("per_device_batch_size", &["batch_size"]),
    ("gradient_accumulation_steps", &["gradient_accumulation"]),
    ("grad_accum", &["gradient_accumulation"]),
    ("max_seq_length", &["max_length"]),
    ("max_seq_len", &["max_length"]),
    ("max_sequence_length", &["max_length"]),
    ("cutoff_len", &["max_length"]),
    ("model_max_length", &["max_length"]),
    ("lr_scheduler_type", &["schedule"]),
    ("lr_scheduler", &["schedule"]),
    ("scheduler", &["schedule"]),
    ("warmup", &["warmup_ratio"]),
    ("warmup_steps", &["warmup_ratio"]),
    ("clip_grad_norm", &["max_grad_norm"]),
    ("gradient_clipping", &["max_grad_norm"]),
    ("weight_decay_rate", &["weight_decay"]),
    ("beta1", &["adam_beta1"]),
    ("beta2", &["adam_beta2"]),
    ("gradient_checkpointing", &["recompute"]),
    ("save_steps", &["checkpoint_every"]),
    ("eval_steps", &["evaluate_every"]),
    ("eval_every", &["evaluate_every"]),
    ("early_stopping_patience", &["early_stopping"]),
    ("resume_from_checkpoint", &["resume"]),
    ("pref_beta", &["beta"]),
    ("dpo_beta", &["beta"]),
    ("pref_loss", &["loss"]),
    ("loss_type", &["loss", "loss_normalization"]),
    ("simpo_gamma", &["gamma"]),
    ("num_generations", &["group_size"]),
    ("rollout_n", &["group_size"]),
    ("num_iterations", &["updates_per_batch"]),
    ("num_ppo_epochs", &["updates_per_batch"]),
    ("ppo_epochs", &["updates_per_batch"]),
    ("num_mini_batches", &["mini_batches"]),
    ("kl_coef", &["kl_weight"]),
    ("kl_beta", &["kl_weight"]),
    ("init_kl_coef", &["kl_weight"]),
    ("entropy_coef", &["entropy_weight"]),
    ("ent_coef", &["entropy_weight"]),
    ("epsilon", &["clip_low"]),
    ("cliprange", &["clip_low"]),
    ("clip_range", &["clip_low"]),
    ("epsilon_high", &["clip_high"]),
    ("cliprange_value", &["value_clip"]),
    ("scale_rewards", &["advantage_scaling"]),
    ("lam", &["lambda"]),
    ("gae_lambda", &["lambda"]),
    ("reward_model", &["prm"]),
    ("reward_func", &["reward"]),
    ("data_seed", &["seed"]),
    ("random_seed", &["seed"]),
    // Of agents, searches and models.
    ("model", &["policy"]),
    ("llm", &["policy"]),
    ("generator", &["policy"]),
    ("generator_model", &["policy"]),
    ("table", &["corpus"]),
    ("knowledge_base", &["corpus"]),
    ("retrieval_method", &["retriever"]),
    ("retrieval_topk", &["k"]),
    ("topk", &["top_k", "k"]),
    ("top_n", &["k"]),
    ("limit", &["k"]),
    ("num_results", &["k"]),
    ("max_new_tokens", &["max_tokens"]),
    ("max_completion_tokens", &["max_tokens"]),
    ("max_completion_length", &["max_tokens"]),
    ("max_iterations", &["max_steps", "simulations"]),
    ("max_iter", &["max_steps"]),
    ("max_turns", &["max_steps"]),
    ("num_simulations", &["simulations"]),
    ("n_simulations", &["simulations"]),
    ("num_rollouts", &["simulations"]),
    ("budget", &["simulations"]),
    ("n", &["simulations"]),
    ("expansion_width", &["children"]),
    ("num_children", &["children"]),
    ("branching_factor", &["children"]),
    ("c_puct", &["exploration"]),
    ("cpuct", &["exploration"]),
    ("exploration_constant", &["exploration"]),
    ("exploration_weight", &["exploration"]),
    ("frequency_penalty", &["repetition_penalty"]),
    ("num_workers", &["concurrency"]),
    ("where", &["filter"]),
    ("condition", &["filter"]),
    ("ef", &["ef_search"]),
    ("nprobe", &["probes"]),
    ("nprobes", &["probes"]),
    ("delimiter", &["delim", "delimiter"]),
    ("sep", &["delim", "delimiter"]),
];

/// What a function of another system is here; `None` for one that nobody has.
pub fn function_here(name: &str) -> Option<&'static str> {
    FUNCTIONS.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, here)| *here)
}

/// The one of the options that was meant: that of another system's name, or else the one that is spelt most alike. `None` where the statement has none that
/// the other name stands for.
pub fn option_here<'a>(name: &str, known: &'a [String]) -> Option<&'a str> {
    let name = name.to_ascii_lowercase();
    match OPTIONS.iter().find(|(other, _)| *other == name) {
        Some((_, here)) => here.iter().find_map(|here| known.iter().find(|known| known == here)).map(String::as_str),
        None => nearest(&name, known),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_of_another_system_is_the_one_that_the_statement_has() {
        let known = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let training = known(&["epochs", "learning_rate", "lora_rank", "max_length", "batch_size", "max_steps"]);
        for (other, here) in [
            ("lr", "learning_rate"),
            ("LR", "learning_rate"),
            ("lora_r", "lora_rank"),
            ("num_train_epochs", "epochs"),
            ("per_device_train_batch_size", "batch_size"),
            ("max_seq_length", "max_length"),
            ("learning_rte", "learning_rate"),
        ] {
            assert_eq!(option_here(other, &training), Some(here), "{other}");
        }
        assert_eq!(option_here("lr", &known(&["k", "filter"])), None, "it has none of that kind");
        assert_eq!(option_here("topk", &known(&["top_k"])), Some("top_k"));
    }

    #[test]
    fn no_name_stands_twice() {
        let mut functions: Vec<&str> = FUNCTIONS.iter().map(|(other, _)| *other).collect();
        let mut options: Vec<&str> = OPTIONS.iter().map(|(other, _)| *other).collect();
        for names in [&mut functions, &mut options] {
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count);
        }
    }
}
