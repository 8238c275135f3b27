//! The subcommands.

mod config;
mod demo;
mod serve;
mod sql;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use rolloutdb::engine::{Notice, Severity};
use rolloutdb::server::sqlstate;
use rolloutdb::{Error, Session};

#[derive(Parser)]
#[command(version, about = "An embedded SQL database for process-supervised agentic retrieval-augmented generation")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve a data directory over the Postgres protocol
    Serve(Box<serve::Arguments>),
    /// Run SQL in this process and print its rows
    Sql(sql::Arguments),
    /// Run the main job from corpus to trained policy, and show the gain
    Demo(demo::Arguments),
}

pub async fn run() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Serve(arguments) => serve::run(*arguments).await,
        Command::Sql(arguments) => sql::run(arguments).await,
        Command::Demo(arguments) => demo::run(arguments).await,
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&error);
            ExitCode::FAILURE
        }
    }
}

/// Ctrl-C, or the polite end that a service manager asks for.
async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let terminated = async {
        match signal(SignalKind::terminate()) {
            Ok(mut terminations) => terminations.recv().await,
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        // Without a handler there is nothing to wait for but the end of the process.
        _ = tokio::signal::ctrl_c() => {}
        _ = terminated => {}
    }
}

fn print_error(error: &Error) {
    eprintln!("ERROR {}: {}", sqlstate::sqlstate(error), sqlstate::message(error));
}

/// Notices and progress go to standard error, so that standard output holds rows only.
fn show_notices(session: &Session) {
    session.set_notice_sink(std::sync::Arc::new(|notice: Notice| match notice.severity {
        Severity::Info => eprintln!("{}", notice.message),
        Severity::Notice => eprintln!("NOTICE: {}", notice.message),
        Severity::Warning => eprintln!("WARNING: {}", notice.message),
    }));
}
