//! What a hub says that a revision has: `GET /api/models/<org>/<name>/revision/<revision>?blobs=true`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::digest::ContentDigest;
use super::names::is_path;
use crate::models::shown::shown;

/// A commit and its files by name. Files with names that no model needs, such as those with spaces, are left out.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Listing {
    pub commit: String,
    pub files: BTreeMap<String, RepositoryFile>,
}

/// A file of a commit. A mirror may tell less.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RepositoryFile {
    /// A path below the repository.
    pub name: String,
    pub size: Option<u64>,
    pub digest: Option<ContentDigest>,
}

#[derive(Deserialize)]
struct Answer {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    blob_id: Option<String>,
    lfs: Option<LargeFile>,
}

#[derive(Deserialize)]
struct LargeFile {
    #[serde(alias = "oid")]
    sha256: Option<String>,
    size: Option<u64>,
}

impl Listing {
    /// Reads an answer; the error says what is wrong with it.
    pub fn read(body: &[u8]) -> Result<Self, String> {
        let no_list = |error: serde_json::Error| format!("it is no list of files: {}", shown(&error.to_string()));
        let answer: Answer = serde_json::from_slice(body).map_err(no_list)?;
        if !is_commit(&answer.sha) {
            return Err("its commit is none".to_owned());
        }
        let mut files = BTreeMap::new();
        for sibling in answer.siblings.into_iter().filter(|sibling| is_path(&sibling.rfilename)) {
            let file = sibling.read()?;
            files.insert(file.name.clone(), file);
        }
        Ok(Self { commit: answer.sha, files })
    }

    /// Whether a revision is a whole commit and the list is that of another one: a commit never moves, as branches and tags do.
    pub fn is_other_than(&self, revision: &str) -> bool {
        is_commit(&revision.to_ascii_lowercase()) && !revision.eq_ignore_ascii_case(&self.commit)
    }
}

impl Sibling {
    fn read(self) -> Result<RepositoryFile, String> {
        let no_digest = || format!("the digest of {} is none", shown(&self.rfilename));
        // Of a large file, `blobId` is that of the text in the repository that stands for it.
        let digest = match &self.lfs {
            Some(LargeFile { sha256: Some(hex), .. }) => Some(ContentDigest::sha256(hex).ok_or_else(no_digest)?),
            Some(_) => None,
            None => self.blob_id.as_deref().map(|hex| ContentDigest::git_blob(hex).ok_or_else(no_digest)).transpose()?,
        };
        let size = self.lfs.and_then(|lfs| lfs.size).or(self.size);
        Ok(RepositoryFile { name: self.rfilename, size, digest })
    }
}

/// A commit becomes the name of a folder.
fn is_commit(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}
