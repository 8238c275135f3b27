//! What remote models need of the engine, and what they show: the rules for other hosts and the secrets, `rollout.remote_models`, `rollout.remote_cache`.

use std::net::IpAddr;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::error::DataFusionError;
use url::Url;

use super::outbound::Outbound;
use super::secrets::Secrets;
use crate::error::Result;
use crate::models::remote::{Connections, Credential, Remotes, UsageRow};

/// The hosts that may be asked and the secrets of a database.
#[derive(Debug)]
pub struct Outside {
    pub outbound: Outbound,
    pub secrets: Secrets,
}

impl Connections for Outside {
    fn check(&self, url: &str) -> Result<Url> {
        self.outbound.check(url)
    }

    fn check_addresses(&self, host: &str, addresses: &[IpAddr]) -> Result<()> {
        self.outbound.check_addresses(host, addresses)
    }

    fn credential(&self, secret: &str) -> Result<Credential> {
        Ok(Credential::new(self.secrets.value(secret)?.reveal()))
    }
}

/// One number of a row.
type Tally = fn(&UsageRow) -> u64;

/// Tallies of `rollout.remote_models`, in order.
const TALLIES: [(&str, Tally); 10] = [
    ("requests", |row| row.requests),
    ("retries", |row| row.retries),
    ("failures", |row| row.failures),
    ("empty_answers", |row| row.empty_answers),
    ("cache_hits", |row| row.cache_hits),
    ("shared", |row| row.shared),
    ("prompt_tokens", |row| row.prompt_tokens),
    ("cached_tokens", |row| row.cached_tokens),
    ("generated_tokens", |row| row.generated_tokens),
    ("in_flight", |row| row.in_flight),
];

pub fn schema() -> SchemaRef {
    let mut fields = vec![Field::new("name", DataType::Utf8, false), Field::new("version", DataType::Int32, false)];
    fields.extend(TALLIES.iter().map(|(name, _)| Field::new(*name, DataType::Int64, false)));
    fields.push(Field::new("cost", DataType::Float64, true));
    Arc::new(Schema::new(fields))
}

/// One row per version that was asked since the database was opened.
pub fn rows(remotes: &Remotes) -> Result<RecordBatch> {
    let rows = remotes.usage();
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter_values(rows.iter().map(|row| &row.name))),
        Arc::new(Int32Array::from_iter_values(rows.iter().map(|row| row.version as i32))),
    ];
    for (_, read) in TALLIES {
        columns.push(Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| signed(read(row))))));
    }
    columns.push(Arc::new(rows.iter().map(|row| row.cost).collect::<Float64Array>()));
    Ok(RecordBatch::try_new(schema(), columns).map_err(DataFusionError::from)?)
}

pub fn cache_schema() -> SchemaRef {
    let count = |name: &str| Field::new(name, DataType::Int64, false);
    Arc::new(Schema::new(vec![count("answers"), count("bytes"), count("files")]))
}

/// How many answers of servers are kept.
pub async fn cache_rows(remotes: &Remotes) -> Result<RecordBatch> {
    let counts = remotes.answer_counts().await?;
    let column = |count: u64| -> ArrayRef { Arc::new(Int64Array::from(vec![signed(count)])) };
    let columns = vec![column(counts.answers), column(counts.bytes), column(counts.files)];
    Ok(RecordBatch::try_new(cache_schema(), columns).map_err(DataFusionError::from)?)
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
