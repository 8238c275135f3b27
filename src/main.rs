//! The binary: `rolloutdb serve`, `rolloutdb sql`, `rolloutdb demo`.

mod cli;

use std::process::ExitCode;

/// Large tensors through the system's allocator spend half of their time in page faults.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Planning recurses over the expression tree; a long chain of conditions must not overflow.
const STACK_BYTES: usize = 16 << 20;

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().thread_stack_size(STACK_BYTES).build();
    match runtime {
        Ok(runtime) => runtime.block_on(async { tokio::spawn(cli::run()).await.unwrap_or(ExitCode::FAILURE) }),
        Err(error) => {
            eprintln!("rolloutdb: cannot start: {error}");
            ExitCode::FAILURE
        }
    }
}
