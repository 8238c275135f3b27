//! What files hold, as SHA-256, found out while they are read into a table.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use tokio::task::JoinHandle;

use super::{Kind, Thing};
use crate::engine::files::{FileState, ReadFiles};
use crate::sha256;

/// Files whose digests are being computed. Dropped, the work ends.
pub struct Digests {
    files: Vec<(ReadFiles, Vec<JoinHandle<Option<String>>>)>,
    is_over: Arc<AtomicBool>,
}

impl Digests {
    pub fn begin(files: Vec<ReadFiles>) -> Self {
        let is_over = Arc::<AtomicBool>::default();
        let begin = |(path, state): (&PathBuf, &Option<FileState>)| {
            let (path, is_file, is_over) = (path.clone(), state.is_some(), Arc::clone(&is_over));
            tokio::task::spawn_blocking(move || {
                let is_over = || is_over.load(Ordering::Relaxed);
                if is_file { sha256::of_files_unless(&[path], &is_over).ok().flatten() } else { None }
            })
        };
        let files = files.into_iter().map(|read| {
            let started = read.paths.iter().zip(&read.states).map(begin).collect();
            (read, started)
        });
        let files = files.collect();
        Self { files, is_over }
    }

    /// A thing for each file; without a digest for one that has changed since it was named.
    pub async fn finish(mut self) -> Vec<Thing> {
        let mut things = Vec::new();
        for (read, started) in std::mem::take(&mut self.files) {
            if let Some(client) = &read.client {
                let (bytes, digest) = client.so_far();
                things.push(thing("stdin".to_owned(), Some(bytes), Some(digest)));
                continue;
            }
            for ((path, state), started) in read.paths.iter().zip(&read.states).zip(started) {
                let digest = started.await.ok().flatten().filter(|_| FileState::of(path) == *state);
                things.push(thing(read.name_of(path), state.map(|state| state.bytes), digest));
            }
        }
        things
    }
}

impl Drop for Digests {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

fn thing(name: String, bytes: Option<u64>, digest: Option<String>) -> Thing {
    Thing { digest, options: bytes.map(|bytes| json!({ "size": bytes })), depth: 1, ..Thing::new(Kind::File, name) }
}
