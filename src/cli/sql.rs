//! `rolloutdb sql --data DIR [-c SQL | -f FILE]`: statements from an argument, a file or standard input.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::util::pretty::pretty_format_batches_with_schema;
use clap::ValueEnum;
use datafusion::error::DataFusionError;
use futures::{FutureExt, TryStreamExt};
use rolloutdb::engine::{
    CopyIn, CopyOut, Response, copy_channel, infinity_as_text, json_rows, nested_as_text, parse_bytes, parse_retention,
};
use rolloutdb::{Database, DatabaseOptions, Error, Result, Session};
use tokio::runtime::Handle;

use super::{interrupted, show_notices};

/// Read at once for COPY.
const INPUT_BYTES: usize = 64 << 10;

#[derive(clap::Args)]
pub struct Arguments {
    /// Data directory, made if it does not exist
    #[arg(long)]
    data: PathBuf,
    /// Memory for queries, tables held for search and caches, as 4GB; without it 70 % of the machine's. Models come on top
    #[arg(long, value_parser = parse_bytes)]
    memory_limit: Option<u64>,
    /// Of this, memory for what a statement and the open cursors of its session hold, as 1GB; without it half of the limit
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    statement_memory: Option<u64>,
    /// How long a version of a table can be read after the next one was written, as "12 hours"; without it 7 days
    #[arg(long, value_parser = parse_retention)]
    version_retention: Option<Duration>,
    /// Host that statements may make this process ask, as example.org or http://10.0.0.7:8000; may be given several times. Without it none
    #[arg(long = "allow-host", value_name = "HOST")]
    allowed_hosts: Vec<String>,
    /// Statements to run, separated by semicolons
    #[arg(short, long, conflicts_with = "file")]
    command: Option<String>,
    /// File of statements
    #[arg(short, long)]
    file: Option<PathBuf>,
    /// How rows are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Table,
    Json,
    Csv,
}

pub async fn run(arguments: Arguments) -> Result<()> {
    let text = statements(&arguments)?;
    let options = DatabaseOptions {
        memory_limit: arguments.memory_limit,
        statement_memory: arguments.statement_memory,
        version_retention: arguments.version_retention,
        allowed_hosts: arguments.allowed_hosts.clone(),
        ..DatabaseOptions::default()
    };
    let database = Database::open_with(&arguments.data, options).await?;
    let session = database.session();
    show_notices(&session);
    for statement in session.parse(&text)? {
        let run = async { print(session.execute(&statement, vec![]).await?, arguments.format).await };
        tokio::select! {
            result = run => result?,
            () = interrupted().map(|()| session.interrupt()) => {
                database.settle().await;
                return Err(Error::Cancelled("the statement"));
            }
        }
    }
    // Jobs that were started and not waited for do not outlive the process: they can be resumed.
    database.settle().await;
    Ok(())
}

fn statements(arguments: &Arguments) -> Result<String> {
    let io_error = |path: &PathBuf, source| Error::Io { path: path.clone(), source };
    match (&arguments.command, &arguments.file) {
        (Some(text), _) => Ok(text.clone()),
        (None, Some(path)) => std::fs::read_to_string(path).map_err(|source| io_error(path, source)),
        (None, None) => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map_err(|source| io_error(&PathBuf::from("standard input"), source))?;
            Ok(text)
        }
    }
}

async fn print(response: Response, format: Format) -> Result<()> {
    let stream = match response {
        Response::Done { tag } => {
            if matches!(format, Format::Table) {
                println!("{tag}");
            }
            return Ok(());
        }
        Response::Rows { stream, .. } => stream,
        Response::CopyIn(copy) => return copy_from_input(copy).await,
        Response::CopyOut(copy) => return copy_to_output(copy).await,
    };
    let schema = stream.schema();
    let batches: Vec<RecordBatch> = stream.try_collect().await?;
    match format {
        Format::Table => {
            let batches = batches.iter().map(infinity_as_text).collect::<Result<Vec<_>>>()?;
            let table = pretty_format_batches_with_schema(schema, &batches).map_err(DataFusionError::from)?;
            let count: usize = batches.iter().map(RecordBatch::num_rows).sum();
            println!("{table}\n({count} row{})", if count == 1 { "" } else { "s" });
        }
        Format::Json => {
            let mut output = std::io::stdout().lock();
            for batch in &batches {
                output.write_all(&json_rows(batch)?.bytes).map_err(DataFusionError::from)?;
            }
        }
        Format::Csv => {
            let mut writer = arrow::csv::WriterBuilder::new().with_header(true).build(std::io::stdout());
            for batch in &batches {
                writer.write(&nested_as_text(batch)?).map_err(DataFusionError::from)?;
            }
        }
    }
    Ok(())
}

/// `COPY t FROM STDIN`: the rows are what is left of standard input.
async fn copy_from_input(copy: CopyIn) -> Result<()> {
    let (mut sender, input) = copy_channel();
    let runtime = Handle::current();
    // A thread of its own: after an error nobody waits for the rest of the input.
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        loop {
            let mut chunk = vec![0; INPUT_BYTES];
            // An input that cannot be read is one that is not whole: the sender is dropped.
            let Ok(num_read) = input.read(&mut chunk) else { return };
            if num_read == 0 {
                runtime.block_on(sender.finish());
                return;
            }
            chunk.truncate(num_read);
            if !runtime.block_on(sender.send(chunk.into())) {
                return;
            }
        }
    });
    let tag = copy.run(input).await?;
    eprintln!("{tag}");
    Ok(())
}

async fn copy_to_output(mut copy: CopyOut) -> Result<()> {
    let mut output = std::io::stdout();
    let io_error = |source| Error::Io { path: PathBuf::from("standard output"), source };
    while let Some(messages) = copy.messages.try_next().await? {
        for message in messages.iter() {
            output.write_all(&message).map_err(io_error)?;
        }
    }
    output.flush().map_err(io_error)
}

/// The rows of one statement, for the demo.
pub async fn rows(session: &Session, text: &str) -> Result<Vec<RecordBatch>> {
    Ok(session.sql(text).await?.try_collect().await?)
}
