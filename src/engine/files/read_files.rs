//! Which files a table of a query reads, for those who keep where rows came from.

use std::any::Any;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{ScanArgs, ScanResult, Session, TableProvider};
use datafusion::common::{Constraints, Statistics};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use ring::digest::{Context, SHA256};

use crate::sha256::hex;

/// The files of a table, as the gate gave them, or what a client sends.
#[derive(Debug, Clone)]
pub struct ReadFiles {
    /// As the statement names them: one file, or a pattern.
    given: String,
    pub paths: Vec<PathBuf>,
    /// As the files were when they were named.
    pub states: Vec<Option<FileState>>,
    pub client: Option<Arc<ClientDigest>>,
}

/// By which one sees that a file has changed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FileState {
    pub bytes: u64,
    changed: Option<SystemTime>,
}

impl FileState {
    /// `None` for what is no file: reading a pipe would take from others what is in it.
    pub fn of(path: &Path) -> Option<Self> {
        let file = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
        Some(Self { bytes: file.len(), changed: file.modified().ok() })
    }
}

impl ReadFiles {
    pub fn new(given: &str, paths: Vec<PathBuf>) -> Self {
        let states = paths.iter().map(|path| FileState::of(path)).collect();
        Self { given: given.to_owned(), paths, states, client: None }
    }

    pub fn of_client(client: Arc<ClientDigest>) -> Self {
        Self { given: String::new(), paths: Vec::new(), states: Vec::new(), client: Some(client) }
    }

    /// What one of the files is called: as it was given, or what matched the pattern.
    pub fn name_of(&self, path: &Path) -> String {
        if self.paths.len() == 1 { self.given.clone() } else { path.display().to_string() }
    }

    /// Those that a provider reads, if it reads files.
    pub fn of(provider: &Arc<dyn TableProvider>) -> Option<&Self> {
        (provider.as_ref() as &dyn Any).downcast_ref::<FilesTable>().map(|table| &table.files)
    }
}

/// A table of files that tells which they are.
#[derive(Debug)]
pub struct FilesTable {
    table: Arc<dyn TableProvider>,
    files: ReadFiles,
}

impl FilesTable {
    pub fn provider(table: Arc<dyn TableProvider>, files: ReadFiles) -> Arc<dyn TableProvider> {
        Arc::new(Self { table, files })
    }
}

#[async_trait]
impl TableProvider for FilesTable {
    fn schema(&self) -> SchemaRef {
        self.table.schema()
    }

    fn constraints(&self) -> Option<&Constraints> {
        self.table.constraints()
    }

    fn table_type(&self) -> TableType {
        self.table.table_type()
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.table.scan(state, projection, filters, limit).await
    }

    async fn scan_with_args<'a>(&self, state: &dyn Session, args: ScanArgs<'a>) -> Result<ScanResult> {
        self.table.scan_with_args(state, args).await
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        self.table.supports_filters_pushdown(filters)
    }

    fn statistics(&self) -> Option<Statistics> {
        self.table.statistics()
    }
}

/// The bytes that a client has sent so far: how many, and their SHA-256.
#[derive(Default)]
pub struct ClientDigest(Mutex<(u64, Option<Context>)>);

impl std::fmt::Debug for ClientDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClientDigest")
    }
}

impl ClientDigest {
    /// The same bytes, which are counted as they are read.
    pub fn watch<R: Read + Send + 'static>(self: &Arc<Self>, source: R) -> impl Read + Send + use<R> {
        Watched { source, digest: Arc::clone(self) }
    }

    /// How many bytes, and the digits.
    pub fn so_far(&self) -> (u64, String) {
        let read = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let digest = read.1.clone().unwrap_or_else(|| Context::new(&SHA256)).finish();
        (read.0, hex(digest.as_ref()))
    }

    fn add(&self, bytes: &[u8]) {
        let mut read = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        read.0 += bytes.len() as u64;
        read.1.get_or_insert_with(|| Context::new(&SHA256)).update(bytes);
    }
}

struct Watched<R> {
    source: R,
    digest: Arc<ClientDigest>,
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let num_read = self.source.read(buffer)?;
        self.digest.add(&buffer[..num_read]);
        Ok(num_read)
    }
}
