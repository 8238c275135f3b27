//! The binary: `rolloutdb serve`, `rolloutdb sql`, `rolloutdb demo`.

#![recursion_limit = "256"]

mod cli;

use std::process::ExitCode;

/// Large tensors through the system's allocator spend half of their time in page faults.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Planning recurses over the expression tree; a long chain of conditions must not overflow.
const STACK_BYTES: usize = 16 << 20;

fn main() -> ExitCode {
    limit_candle_threads();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().thread_stack_size(STACK_BYTES).build();
    match runtime {
        Ok(runtime) => runtime.block_on(async { tokio::spawn(cli::run()).await.unwrap_or(ExitCode::FAILURE) }),
        Err(error) => {
            eprintln!("rolloutdb: cannot start: {error}");
            ExitCode::FAILURE
        }
    }
}

/// candle's element-wise operations spin on a thread pool of their own, which fights over the cores with the one that the models use.
fn limit_candle_threads() {
    if std::env::var_os("CANDLE_NUM_THREADS").is_none() {
        // SAFETY: the process has one thread here; nobody reads the environment at the same time.
        unsafe { std::env::set_var("CANDLE_NUM_THREADS", "1") };
    }
}
