//! How many rows a plan gives, for those who tell how far a statement is: what is known, not what is guessed.

use std::sync::Arc;

use datafusion::common::stats::Precision;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::CardinalityEffect;

use super::apply::row_by_row_input;

/// `None`: only the run will tell, as after a filter or a join.
pub fn known_rows(plan: &Arc<dyn ExecutionPlan>) -> Option<u64> {
    if let Some(input) = row_by_row_input(plan) {
        return known_rows(input);
    }
    let statistics = plan.partition_statistics(None).ok()?;
    match (statistics.num_rows, plan.children().as_slice()) {
        (Precision::Exact(rows), _) => Some(rows as u64),
        // Statistics end at a node that calls a function of ours.
        (_, [input]) if matches!(plan.cardinality_effect(), CardinalityEffect::Equal) && plan.fetch().is_none() => known_rows(input),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt;
    use rolloutdb_sql::Statement;

    use crate::engine::planning::plan_query;
    use crate::engine::session::Session;
    use crate::fixtures::fixture;
    use crate::{Database, Error, Result};

    async fn rows_of(session: &Session, sql: &str) -> Result<Option<u64>> {
        let Some(Statement::Query(query)) = session.parse(sql)?.pop() else { panic!("{sql} is no query") };
        Ok(plan_query(session, &query, &[]).await?.start(None).await?.num_rows())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn rows_are_known_where_nothing_chooses_among_them() -> Result<()> {
        let data = tempfile::tempdir().expect("a temporary directory");
        let session = Database::open(data.path()).await?.session();
        let run = async |sql: &str| session.sql(sql).await?.try_collect::<Vec<_>>().await.map(drop).map_err(Error::from);
        run(&format!("CREATE MODEL encoder FROM '{}' WITH (task = 'embed')", fixture("models/bert").display())).await?;
        run("CREATE TABLE t AS SELECT n AS id, 'text ' || n AS contents FROM generate_series(1, 1000) s(n)").await?;
        run("DELETE FROM t WHERE id <= 10").await?;
        for (sql, expected) in [
            ("SELECT * FROM t", Some(990)),
            ("SELECT id + 1, upper(contents) FROM t ORDER BY contents", Some(990)),
            ("SELECT embed('encoder', contents) FROM t", Some(990)),
            ("SELECT id, vector_dims(embed('encoder', upper(contents))) FROM t", Some(990)),
            ("SELECT * FROM t UNION ALL SELECT * FROM t", Some(1980)),
            ("VALUES (1), (2)", Some(2)),
            ("SELECT * FROM t WHERE id % 7 = 3", None),
            ("SELECT DISTINCT contents FROM t", None),
            ("SELECT * FROM t a JOIN t b ON a.id = b.id", None),
            ("SELECT embed('encoder', contents) FROM t WHERE id > 5", None),
            ("SELECT n FROM generate_series(1, 10) s(n)", None),
        ] {
            assert_eq!(rows_of(&session, sql).await?, expected, "{sql}");
        }
        Ok(())
    }
}
