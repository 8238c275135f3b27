//! A sentence on each column of the views of schema `rollout`, as comments that psql's `\d+` and `col_description` show. Columns of tables carry theirs in
//! their fields.

use rolloutdb_catalogs::system::SYSTEM_SCHEMA;

/// The sentence on a column of a view of the system.
pub fn description(schema: &str, view: &str, column: &str) -> Option<&'static str> {
    if schema != SYSTEM_SCHEMA {
        return None;
    }
    let of = |wanted: &str| COLUMNS.iter().find(|(view, name, _)| *view == wanted && *name == column).map(|(_, _, sentence)| *sentence);
    of(view).or_else(|| of(ANY))
}

/// Columns that are the same in every view that has them.
const ANY: &str = "";

/// View, column, sentence.
const COLUMNS: &[(&str, &str, &str)] = &[
    (ANY, "pid", "Number of the session that runs it."),
    (ANY, "datid", "Number of the database."),
    (ANY, "datname", "Name of the database."),
    (ANY, "relid", "Number of the table in pg_class; 0 where there is none."),
    (ANY, "schema_name", "Schema of the table."),
    (ANY, "table_name", "Name of the table."),
    (ANY, "column_name", "Name of the column."),
    (ANY, "seconds", "Seconds since it began."),
    (ANY, "seconds_left", "Seconds that it will take still, at the pace so far; NULL where that is not known."),
    (ANY, "detail", "What else is known of how far it is."),
    (ANY, "per_second", "Units done in a second, on average."),
    (ANY, "unit", "What is counted."),
    (ANY, "phase", "What is done at the moment."),
    (ANY, "created_at_ms", "When it was made, in milliseconds since 1970."),
    (ANY, "command", "The kind of command."),
    (ANY, "retrievals", "Queries to the corpus."),
    (ANY, "prompt_tokens", "Tokens of prompts that models read."),
    (ANY, "cached_tokens", "Those of the prompt tokens whose keys and values were cached."),
    (ANY, "generated_tokens", "Tokens that models wrote."),
    (ANY, "cache_hits", "Questions that a kept answer served."),
    (ANY, "requests", "Requests to servers."),
    (ANY, "cost", "Price of the tokens; NULL where none has a price."),
    ("models", "name", "Name of the model."),
    ("models", "version", "Number of the version; a training makes the next one."),
    ("models", "task", "generate, embed or rerank."),
    ("models", "architecture", "Architecture of the weights, or how its server is asked."),
    ("models", "parameter_count", "Number of parameters."),
    ("models", "source", "Where it came from: a directory, a URL, or train:// and its base."),
    ("models", "lineage", "JSON: the statement, base, options and figures of what made it; NULL for who may not use the model."),
    ("loaded_models", "name", "Name of the model."),
    ("loaded_models", "version", "Number of its version."),
    ("loaded_models", "task", "generate, embed or rerank."),
    ("loaded_models", "device", "Where it computes."),
    ("loaded_models", "bytes", "Bytes of its weights in memory."),
    ("loaded_models", "prefix_bytes", "Bytes of what a policy keeps of earlier texts."),
    ("loaded_models", "preemptions", "Texts that gave their memory to others before they were done."),
    ("loaded_models", "uses", "Times that it was asked for."),
    ("loaded_models", "last_use", "When it was asked for last."),
    ("remote_models", "name", "Name of the model."),
    ("remote_models", "version", "Number of its version."),
    ("remote_models", "retries", "Requests that were sent once more."),
    ("remote_models", "failures", "Questions without an answer after the last retry."),
    ("remote_models", "empty_answers", "Answers without a text that were not taken for one."),
    ("remote_models", "shared", "Questions that the answer to an equal one in flight served."),
    ("remote_models", "in_flight", "Requests that are not answered yet."),
    ("remote_cache", "answers", "Answers that are kept on the disk."),
    ("remote_cache", "bytes", "Bytes of their files."),
    ("remote_cache", "files", "Number of their files."),
    ("retrieval_cache", "searches", "Searches that were made since the start."),
    ("retrieval_cache", "hits", "Queries that a kept result served."),
    ("retrieval_cache", "shared", "Queries that waited for the search of an equal one."),
    ("retrieval_cache", "queries", "Queries whose results are kept."),
    ("retrieval_cache", "bytes", "Bytes of these results."),
    ("retrieval_cache", "bytes_max", "Most bytes that they may take."),
    ("agents", "name", "Name of the agent."),
    ("agents", "policy", "Model that acts, name or name@version."),
    ("agents", "corpus", "Table that is searched."),
    ("agents", "corpus_version", "Version or tag of the corpus; NULL: the newest."),
    ("agents", "retriever", "How the corpus is searched: text, vector or hybrid."),
    ("agents", "k", "Passages of a query."),
    ("agents", "protocol", "What the policy may do in which state, and how it says so."),
    ("agents", "prompts", "Prompt set of rollout.prompts."),
    ("agents", "max_steps", "Most policy calls of a trajectory."),
    ("agents", "max_tokens", "Most tokens of a policy call."),
    ("agents", "temperature", "Of sampling; 0 is greedy."),
    ("agents", "top_p", "Share of the probability that is sampled from."),
    ("agents", "top_k", "The most probable tokens that are sampled from; 0 is all."),
    ("agents", "min_p", "Least probability of a token beside the most probable one's."),
    ("agents", "repetition_penalty", "What tokens that were there already are divided by; 1 changes nothing."),
    ("agents", "seed", "Seed of the sampling."),
    ("indexes", "name", "Name of the index."),
    ("indexes", "column_name", "Column that is indexed."),
    ("indexes", "method", "Access method: btree, bm25, hnsw, ..."),
    ("indexes", "metric", "Distance of a vector index; NULL of others."),
    ("indexes", "options", "Options that it was made with, as JSON."),
    ("indexes", "rows_indexed", "Rows that it holds."),
    ("indexes", "rows_unindexed", "Rows that came later, which searches look through beside it."),
    ("indexes", "bytes", "Bytes on the disk."),
    ("indexes", "graph", "Where the graph of an hnsw index is: in memory, or in its file; NULL when searches go to the disk."),
    ("pg_stat_progress_create_index", "index_relid", "Number of the index; 0 while it is built."),
    ("pg_stat_progress_create_index", "index_name", "Name of the index."),
    ("pg_stat_progress_create_index", "blocks_total", "Units of this phase."),
    ("pg_stat_progress_create_index", "blocks_done", "Units of this phase that are done."),
    ("pg_stat_progress_create_index", "tuples_total", "Units of this phase."),
    ("pg_stat_progress_create_index", "tuples_done", "Units of this phase that are done."),
    ("pg_stat_progress_create_index", "lockers_total", "Always 0: a build waits for nobody."),
    ("pg_stat_progress_create_index", "lockers_done", "Always 0."),
    ("pg_stat_progress_create_index", "current_locker_pid", "Always 0."),
    ("pg_stat_progress_create_index", "partitions_total", "Always 0: tables have no partitions."),
    ("pg_stat_progress_create_index", "partitions_done", "Always 0."),
    ("privileges", "kind", "Kind of the object: table, schema, model, agent or database."),
    ("privileges", "schema_name", "Schema of a table; NULL of others."),
    ("privileges", "name", "Name of the object."),
    ("privileges", "owner", "Role that owns it."),
    ("privileges", "grantee", "Role that has the privilege."),
    ("privileges", "grantor", "Role that gave it."),
    ("privileges", "privilege", "What may be done."),
    ("privileges", "is_grantable", "Whether the grantee may give it to others."),
    ("secrets", "name", "Name of the secret."),
    ("secrets", "source", "Kind of the place that has its value: env or file."),
    ("table_versions", "version", "Number that VERSION AS OF takes."),
    ("table_versions", "committed_at", "When the version was committed."),
    ("table_versions", "tags", "Tags of the version."),
    ("torn_versions", "version", "Number of the version."),
    ("torn_versions", "file", "Where its file was put."),
    ("torn_versions", "bytes", "Bytes of the file."),
    ("backfills", "expression", "What the column is computed by."),
    ("backfills", "rows_done", "Rows that are computed."),
    ("backfills", "rows_total", "Rows of the table."),
    ("backfills", "running", "Whether a statement is at work on it."),
    ("backfills", "rows_per_second", "Rows computed in a second; NULL while none is."),
    ("tables_in_memory", "version", "Version of the table that is held."),
    ("tables_in_memory", "rows", "Rows that are held."),
    ("tables_in_memory", "bytes", "Bytes that they take."),
    ("builtin_prompts", "prompt_set", "Name of the prompt set."),
    ("builtin_prompts", "protocol", "Protocol that the template is for."),
    ("builtin_prompts", "state", "State of the protocol in which it is shown."),
    ("builtin_prompts", "template", "What the policy is told, with placeholders."),
    ("jobs", "job_id", "Number of the job, for WAIT FOR JOB, CANCEL JOB and RESUME JOB."),
    ("jobs", "kind", "Kind of its statement."),
    ("jobs", "statement", "The statement; NULL for who may not see it."),
    ("jobs", "user_name", "Who asked for it."),
    ("jobs", "status", "queued, running, done, failed, cancelled or interrupted."),
    ("jobs", "progress", "Units that are done, those of earlier runs included."),
    ("jobs", "total", "Units of the whole; NULL where that is not known."),
    ("jobs", "created_at", "When it was asked for."),
    ("jobs", "started_at", "When it began to run, the last time; NULL while it waits."),
    ("jobs", "finished_at", "When it ended; NULL before."),
    ("jobs", "error", "Message of the error that ended it."),
    ("jobs", "sqlstate", "SQLSTATE of that error."),
    ("jobs", "result", "Command tag, or the rows of the statement as JSON."),
    ("jobs", "pid", "Number of the session that runs it; NULL while none does."),
    ("jobs", "notices", "What a client would have been told meanwhile."),
    ("jobs", "parameters", "Values of $1 and the others in the statement, without those of secrets; NULL without any."),
    ("task_history", "task_id", "Number of the task."),
    ("task_history", "role_name", "Role that ran it."),
    ("task_history", "kind", "Kind of its statement."),
    ("task_history", "statement", "The statement, at most 1024 bytes of it."),
    ("task_history", "status", "running, done, failed, cancelled or interrupted."),
    ("task_history", "started_at", "When it began."),
    ("task_history", "finished_at", "When it ended; NULL while it runs, and after a kill."),
    ("task_history", "seconds", "Seconds that it took."),
    ("task_history", "rows", "Rows that it gave or wrote."),
    ("task_history", "model_calls", "Calls of models."),
    ("task_history", "model_inputs", "Texts that models were asked about."),
    ("task_history", "retrieval_hits", "Those of the queries that an equal one had been searched for."),
    ("task_history", "tokens_per_second", "Generated tokens in a second."),
    ("task_history", "error", "Message of its error; NULL for who may not see it."),
    ("task_history", "sqlstate", "SQLSTATE of its error."),
    ("pg_stat_progress_copy", "type", "Where the bytes come from or go to: FILE or PIPE."),
    ("pg_stat_progress_copy", "bytes_processed", "Bytes that were read or written."),
    ("pg_stat_progress_copy", "bytes_total", "Bytes of the file; NULL where that is not known."),
    ("pg_stat_progress_copy", "tuples_processed", "Rows that were read or written."),
    ("pg_stat_progress_copy", "tuples_excluded", "Always 0."),
    ("pg_stat_progress_rollout", "agent", "Agent that acts."),
    ("pg_stat_progress_rollout", "questions_total", "Questions of the run, those of earlier statements included."),
    ("pg_stat_progress_rollout", "questions_done", "Questions whose trees are done."),
    ("pg_stat_progress_rollout", "simulations_done", "Simulations of this statement."),
    ("pg_stat_progress_rollout", "simulations_per_second", "Simulations in a second, on average."),
    ("pg_stat_progress_rollout", "tokens_per_second", "Generated tokens in a second, on average."),
    ("pg_stat_progress_rollout", "cache_hit_rate", "Share of prompt tokens that were cached."),
    ("pg_stat_progress_rollout", "retrieval_hit_rate", "Share of the queries that an equal one had been searched for."),
    ("pg_stat_progress_train", "model", "Model that is made."),
    ("pg_stat_progress_train", "method", "How it is trained."),
    ("pg_stat_progress_train", "units_total", "Units of this phase, those of earlier runs included."),
    ("pg_stat_progress_train", "units_done", "Units of this phase that are done."),
    ("pg_stat_progress_embed", "rows_total", "Rows of the table, or of the statement."),
    ("pg_stat_progress_embed", "rows_done", "Rows that are computed."),
    ("pg_stat_progress_download", "model", "Model that is made of the files."),
    ("pg_stat_progress_download", "source", "Where they come from."),
    ("pg_stat_progress_download", "bytes_total", "Bytes that were not here before."),
    ("pg_stat_progress_download", "bytes_done", "Bytes of them that have come."),
    ("pg_stat_progress_download", "bytes_per_second", "Bytes in a second, on average."),
    ("pg_stat_activity", "pid", "Number of the session, for pg_cancel_backend and pg_terminate_backend."),
    ("pg_stat_activity", "leader_pid", "Always NULL."),
    ("pg_stat_activity", "usesysid", "Number of its role."),
    ("pg_stat_activity", "usename", "Name of its role."),
    ("pg_stat_activity", "application_name", "What the client calls itself."),
    ("pg_stat_activity", "client_addr", "Address of the client; NULL of one on this machine by a socket, and of jobs."),
    ("pg_stat_activity", "client_hostname", "Always NULL."),
    ("pg_stat_activity", "client_port", "Port of the client."),
    ("pg_stat_activity", "backend_start", "When the session began."),
    ("pg_stat_activity", "xact_start", "When its transaction began."),
    ("pg_stat_activity", "query_start", "When its last statement began."),
    ("pg_stat_activity", "state_change", "When its state changed last."),
    ("pg_stat_activity", "wait_event_type", "Kind of what it waits for."),
    ("pg_stat_activity", "wait_event", "What it waits for."),
    ("pg_stat_activity", "state", "active, idle, idle in transaction or idle in transaction (aborted)."),
    ("pg_stat_activity", "backend_xid", "Always NULL."),
    ("pg_stat_activity", "backend_xmin", "Always NULL."),
    ("pg_stat_activity", "query_id", "Always NULL."),
    ("pg_stat_activity", "query", "Its last statement, at most 1024 bytes of it."),
    ("pg_stat_activity", "backend_type", "client backend, or rolloutdb job."),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Database;
    use crate::Result;

    #[tokio::test(flavor = "multi_thread")]
    async fn every_column_of_every_view_has_a_sentence() -> Result<()> {
        let data = tempfile::tempdir().expect("a temporary directory");
        let database = Database::open(data.path()).await?;
        let catalog = database.session().context().catalog(crate::engine::session::CATALOG_NAME).expect("there is one");
        let schema = catalog.schema(SYSTEM_SCHEMA).expect("it is always there");
        let mut without = Vec::new();
        // Columns of tables have theirs in the definitions, which the catalog's own tests see to.
        let is_view = |name: &String| !rolloutdb_catalogs::system::tables().iter().any(|table| table.name == name);
        for name in schema.table_names().into_iter().filter(is_view) {
            let Some(table) = schema.table(&name).await? else { continue };
            for field in table.schema().fields() {
                if description(SYSTEM_SCHEMA, &name, field.name()).is_none() && rolloutdb_catalogs::system::description(field).is_none() {
                    without.push(format!("{name}.{}", field.name()));
                }
            }
        }
        assert_eq!(without, Vec::<String>::new());
        Ok(())
    }
}
