//! A server that speaks as much of Hugging Face's API as downloads need, and fails in the ways that servers and networks fail.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use serde_json::{Value as Json, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::http_server::{Answers, Asked, HttpServer, hang, lock, response_head};
use crate::project;

/// What the branch `main` of every repository is.
pub(crate) const COMMIT: &str = "c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00";

/// What the server does about a request.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    /// As much of the body as is sent.
    sent: usize,
    end: End,
}

#[derive(Clone, Copy, Debug)]
enum End {
    GoesOn,
    /// The connection ends.
    Cut,
    /// Nothing more, until the client goes away.
    Hang,
}

/// The repository `org/model`, at one commit.
#[derive(Clone, Debug)]
pub(crate) struct Repository {
    files: BTreeMap<String, StoredFile>,
    /// Whether the list of files tells sizes and digests.
    tells: bool,
    /// Whether a part of a file can be had.
    knows_ranges: bool,
}

#[derive(Clone, Debug)]
struct StoredFile {
    bytes: Vec<u8>,
    /// Stored beside the repository (LFS).
    is_large: bool,
}

type Behaviour = dyn Fn(&Asked, usize) -> Reply + Send + Sync;

/// A running server, on a thread of its own; it ends with the process.
pub(crate) struct HubServer {
    http: HttpServer,
    shared: Arc<Shared>,
}

struct Shared {
    behaviour: Box<Behaviour>,
    /// Bytes of bodies, by path.
    sent: Mutex<BTreeMap<String, usize>>,
    given_up: AtomicUsize,
}

impl Reply {
    pub(crate) fn new(status: u16, headers: Vec<(&'static str, String)>, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        Self { status, headers, sent: body.len(), body, end: End::GoesOn }
    }

    /// An error as the hub writes it.
    pub(crate) fn error(status: u16, code: &str, words: &str) -> Self {
        Self::new(status, vec![("X-Error-Code", code.to_owned())], json!({ "error": words }).to_string())
    }

    pub(crate) fn redirect(to: &str) -> Self {
        Self::new(302, vec![("Location", to.to_owned())], "")
    }

    /// The connection ends after so many bytes of the body.
    pub(crate) fn cut_after(self, num_bytes: usize) -> Self {
        Self { sent: num_bytes.min(self.body.len()), end: End::Cut, ..self }
    }

    /// Nothing comes after so many bytes of the body.
    pub(crate) fn hang_after(self, num_bytes: usize) -> Self {
        Self { sent: num_bytes.min(self.body.len()), end: End::Hang, ..self }
    }
}

impl Repository {
    /// A model of the fixtures, with files beside it that a repository has and a model does not need.
    pub(crate) fn of_fixture(model: &str) -> Self {
        let mut repository = Self { files: BTreeMap::new(), tells: true, knows_ranges: true };
        for entry in std::fs::read_dir(project().join("tests/fixtures/models").join(model)).expect("a fixture") {
            let path = entry.expect("it is readable").path();
            let name = path.file_name().expect("a file").to_string_lossy().into_owned();
            if !name.starts_with("goldens") {
                repository = repository.with(&name, std::fs::read(&path).expect("a file"));
            }
        }
        repository.with("README.md", "# A model").with("pytorch_model.bin", "a pickle").with(".gitattributes", "*.safetensors filter=lfs")
    }

    /// As weights are, a file is stored beside the repository if its name says so.
    pub(crate) fn with(mut self, name: &str, bytes: impl Into<Vec<u8>>) -> Self {
        let is_large = Path::new(name).extension().is_some_and(|extension| extension == "safetensors" || extension == "gguf");
        self.files.insert(name.to_owned(), StoredFile { bytes: bytes.into(), is_large });
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.files.remove(name);
        self
    }

    /// Some mirrors do not tell sizes and digests in the list of files.
    pub(crate) fn without_blobs(self) -> Self {
        Self { tells: false, ..self }
    }

    pub(crate) fn without_ranges(self) -> Self {
        Self { knows_ranges: false, ..self }
    }

    pub(crate) fn size(&self, name: &str) -> usize {
        self.files[name].bytes.len()
    }

    pub(crate) fn listing(&self) -> Json {
        let sibling = |(name, file): (&String, &StoredFile)| match (self.tells, file.is_large) {
            (false, _) => json!({ "rfilename": name }),
            (true, false) => json!({ "rfilename": name, "size": file.bytes.len(), "blobId": file.git_blob() }),
            (true, true) => {
                let lfs = json!({ "sha256": file.sha256(), "size": file.bytes.len(), "pointerSize": 134 });
                json!({ "rfilename": name, "size": file.bytes.len(), "blobId": "0".repeat(40), "lfs": lfs })
            }
        };
        json!({ "id": "org/model", "sha": COMMIT, "siblings": self.files.iter().map(sibling).collect::<Vec<_>>() })
    }

    /// What a hub without faults answers.
    pub(crate) fn reply(&self, asked: &Asked) -> Reply {
        let path = asked.path.split('?').next().unwrap_or_default();
        if let Some(revision) = path.strip_prefix("/api/models/org/model/revision/") {
            return match revision {
                "main" | COMMIT | "refs%2Fpr%2F1" => Reply::new(200, vec![], self.listing().to_string()),
                _ => Reply::error(404, "RevisionNotFound", "Invalid rev id"),
            };
        }
        let file = path.strip_prefix(&format!("/org/model/resolve/{COMMIT}/")).and_then(|name| self.files.get(name));
        match file {
            Some(file) => file.reply(asked, self.knows_ranges),
            None if path.starts_with("/org/model/") => Reply::error(404, "EntryNotFound", "Entry not found"),
            None => Reply::error(404, "RepoNotFound", "Repository not found"),
        }
    }
}

impl StoredFile {
    fn reply(&self, asked: &Asked, knows_ranges: bool) -> Reply {
        let tag = if self.is_large { self.sha256() } else { self.git_blob() };
        let mut headers = vec![("X-Repo-Commit", COMMIT.to_owned()), ("ETag", format!("\"{tag}\""))];
        if self.is_large {
            headers.extend([("X-Linked-Size", self.bytes.len().to_string()), ("X-Linked-Etag", format!("\"{tag}\""))]);
        }
        let is_same = asked.headers.get("if-range").is_none_or(|etag| *etag == format!("\"{tag}\""));
        let range = asked.headers.get("range").filter(|_| knows_ranges && is_same);
        let from = range.and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse::<usize>().ok());
        match from {
            None => Reply::new(200, headers, self.bytes.clone()),
            Some(from) if from >= self.bytes.len() => Reply::new(416, vec![("Content-Range", format!("bytes */{}", self.bytes.len()))], ""),
            Some(from) => {
                headers.push(("Content-Range", format!("bytes {from}-{}/{}", self.bytes.len() - 1, self.bytes.len())));
                Reply::new(206, headers, &self.bytes[from..])
            }
        }
    }

    fn sha256(&self) -> String {
        hex(digest(&SHA256, &self.bytes).as_ref())
    }

    fn git_blob(&self) -> String {
        let blob = [format!("blob {}\0", self.bytes.len()).as_bytes(), &self.bytes].concat();
        hex(digest(&SHA1_FOR_LEGACY_USE_ONLY, &blob).as_ref())
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").expect("a String takes all");
        hex
    })
}

impl HubServer {
    /// `behaviour`: what it does about a request, given its number from 0.
    pub(crate) fn start(behaviour: impl Fn(&Asked, usize) -> Reply + Send + Sync + 'static) -> Self {
        let shared = Arc::new(Shared { behaviour: Box::new(behaviour), sent: Mutex::default(), given_up: AtomicUsize::new(0) });
        Self { http: HttpServer::start(Arc::clone(&shared)), shared }
    }

    /// One without faults.
    pub(crate) fn of(repository: &Repository) -> Self {
        let repository = repository.clone();
        Self::start(move |asked, _| repository.reply(asked))
    }

    /// As `--allow-host` and the option `endpoint` name it.
    pub(crate) fn url(&self) -> String {
        self.http.url()
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.http.asked()
    }

    /// The requests for a file, in order.
    pub(crate) fn asked_for(&self, name: &str) -> Vec<Asked> {
        self.asked().into_iter().filter(|asked| asked.path.ends_with(&format!("/{name}"))).collect()
    }

    /// Bytes of a file that were sent.
    pub(crate) fn sent(&self, name: &str) -> usize {
        lock(&self.shared.sent).iter().filter(|(path, _)| path.ends_with(&format!("/{name}"))).map(|(_, sent)| sent).sum()
    }

    /// Clients that went away before the end of a reply that hangs.
    pub(crate) fn given_up(&self) -> usize {
        self.shared.given_up.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Answers for Shared {
    async fn answer(&self, stream: &mut TcpStream, asked: &Asked, number: usize) -> bool {
        let reply = (self.behaviour)(asked, number);
        let head = response_head(reply.status, &reply.headers, reply.body.len());
        let is_sent = stream.write_all(head.as_bytes()).await.is_ok() && stream.write_all(&reply.body[..reply.sent]).await.is_ok();
        *lock(&self.sent).entry(asked.path.clone()).or_default() += reply.sent;
        match reply.end {
            End::GoesOn => is_sent,
            End::Cut => false,
            End::Hang => {
                hang(stream).await;
                self.given_up.fetch_add(1, Ordering::SeqCst);
                false
            }
        }
    }
}
