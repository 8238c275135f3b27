//! Options of what statements may reach outside of the database, and how much of the machine they may take at once.

use std::path::PathBuf;

use rolloutdb::DatabaseOptions;

#[derive(clap::Args)]
#[command(next_help_heading = "What statements may reach")]
pub struct Reach {
    /// Folder of files that COPY, read_csv and the like, CREATE MODEL and CREATE SECRET may name; may be given several times, and then holds for
    /// superusers too. Without it superusers name any file, others those below the folder that the server was started in
    #[arg(long = "file-root", value_name = "DIR")]
    file_roots: Vec<PathBuf>,
    /// Host that statements may make the server ask, as example.org, *.example.org or http://10.0.0.7:8000; may be given several times. Without it none
    #[arg(long = "allow-host", value_name = "HOST")]
    allowed_hosts: Vec<String>,
    /// Trainings and generations of rollouts at once; more are refused. Without it 4
    #[arg(long, value_name = "N")]
    model_jobs: Option<usize>,
}

impl Reach {
    pub fn database_options(self, others: DatabaseOptions) -> DatabaseOptions {
        let Self { file_roots, allowed_hosts, model_jobs } = self;
        let file_roots = (!file_roots.is_empty()).then_some(file_roots);
        DatabaseOptions { file_roots, allowed_hosts, model_jobs, ..others }
    }
}
