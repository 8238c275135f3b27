//! `rollout.training_metrics`: what TRAIN reports, one row per step and metric.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, StringArray};
use arrow::datatypes::DataType::{Float64, Int32, Int64, Utf8};
use arrow::datatypes::{DataType, Field, Int32Type, Schema};
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::col;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::TryStreamExt;

use super::{define, optional, required};
use crate::{Error, ROW_ADDRESS, Result, Table, TableDefinition};

pub(super) const NAME: &str = "training_metrics";
/// The column that tables of older versions of this program lack.
const RUN: &str = "run";

/// Without a key: `run`, `step` and `metric` are one row because a run has one writer, and a key would have it read those of all runs
/// before each of its commits.
pub(super) fn definition() -> TableDefinition {
    let columns = vec![
        required("model", Utf8, "Name of the model being made."),
        optional("version", Int32, "Version that was made; NULL while the training runs, and if it made none."),
        required("method", Utf8, "sft, rft, dpo, prm, grpo or ppo."),
        required("step", Int32, "Optimizer step, from 1."),
        required("metric", Utf8, "loss, reward_margin, reward_accuracy, learning_rate, grad_norm, ..."),
        required("value", Float64, "Value of the metric at the step."),
        required("at_ms", Int64, "When the step ended, in milliseconds since 1970 UTC."),
        required(RUN, Utf8, "Name of the training; one that goes on at a checkpoint keeps it."),
    ];
    define(columns, &[])
}

/// Changes a table that an older version of this program made: the rows of a version get its name as their `run`, `version` may be NULL,
/// and there is no key.
///
/// Two commits: after a crash between them the next call does the second.
///
/// # Errors
/// [`Error::NotReady`] for a table with other columns than it ever had; [`Error::Conflict`], [`Error::Storage`].
pub(super) async fn upgrade(table: &Table) -> Result<()> {
    let wanted = definition();
    if *table.definition() == wanted {
        return Ok(());
    }
    let all: Vec<String> = wanted.schema.fields().iter().map(|field| field.name().clone()).collect();
    let found: Vec<String> = table.definition().schema.fields().iter().map(|field| field.name().clone()).collect();
    if found == all[..all.len() - 1] {
        add_run(table, &wanted).await?;
    } else if found != all {
        return Err(Error::NotReady(format!("its columns are {}, expected {}", found.join(", "), all.join(", "))));
    }
    table.begin_alter().await?.redefine(&wanted, &all).await
}

async fn add_run(table: &Table, wanted: &TableDefinition) -> Result<()> {
    let rewrite = table.begin_alter().await?;
    let mut definition = rewrite.table().definition().clone();
    let fields = definition.schema.fields().iter().chain(wanted.schema.fields().last()).map(|field| field.as_ref().clone());
    definition.schema = Arc::new(Schema::new(fields.collect::<Vec<Field>>()));
    let runs = runs_of_versions(rewrite.table()).await?;
    rewrite.add_column(&definition, Some(runs)).await
}

/// Row addresses, ascending, and `model@version`.
async fn runs_of_versions(table: &Table) -> Result<SendableRecordBatchStream> {
    let context = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(1));
    let rows = context.read_table(table.with_addresses())?.select_columns(&[ROW_ADDRESS, "model", "version"])?;
    let rows = rows.sort(vec![col(ROW_ADDRESS).sort(true, false)])?.execute_stream().await?;
    let schema = Arc::new(Schema::new(vec![Field::new(ROW_ADDRESS, DataType::UInt64, false), Field::new(RUN, Utf8, false)]));
    let target = Arc::clone(&schema);
    let named = rows.and_then(move |batch| {
        let (models, versions) = (batch.column(1).as_string::<i32>(), batch.column(2).as_primitive::<Int32Type>());
        let runs = models.iter().zip(versions).map(|(model, version)| Some(format!("{}@{}", model?, version?)));
        let runs: ArrayRef = Arc::new(runs.collect::<StringArray>());
        let named: DataFusionResult<RecordBatch> =
            RecordBatch::try_new(Arc::clone(&target), vec![Arc::clone(batch.column(0)), runs]).map_err(Into::into);
        std::future::ready(named)
    });
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, named)))
}
