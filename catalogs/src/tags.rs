//! Names for versions. A version with a tag is kept by VACUUM until its tags are gone.

use lance::dataset::refs::check_valid_tag;

use crate::durability::sync_directory;
use crate::names::nearest;
use crate::{Error, Result, Table};

/// Where Lance keeps them.
const FOLDER: &str = "_refs/tags";
/// A tag on its way to another version.
const MOVING: &str = "moving.tag";
const NAME_LENGTH_MAX: usize = 100;

/// A name for a version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tag {
    pub name: String,
    pub version: u64,
}

impl Table {
    /// Gives a version, the newest unless one is named, a name. Returns false when there is such a tag and `if_not_exists`; with `replace` it moves.
    ///
    /// # Errors
    /// [`Error::InvalidName`], [`Error::DuplicateTag`], [`Error::UnknownVersion`], [`Error::Storage`].
    pub async fn create_tag(&self, name: &str, version: Option<u64>, replace: bool, if_not_exists: bool) -> Result<bool> {
        let invalid = |error: lance::Error| Error::InvalidName { kind: "tag", name: name.to_owned(), reason: error.to_string() };
        check_valid_tag(name).map_err(invalid)?;
        if !name.is_ascii() || name == MOVING || name.len() > NAME_LENGTH_MAX || name.bytes().all(|byte| byte.is_ascii_digit()) {
            let reason = format!("a tag has letters, digits, '.', '-' and '_', not digits alone, at most {NAME_LENGTH_MAX}");
            return Err(Error::InvalidName { kind: "tag", name: name.to_owned(), reason });
        }
        // No vacuum removes the version meanwhile.
        let _writer = self.lock_writer().await;
        let latest = self.latest().await?;
        let version = match version {
            Some(version) => latest.at_version(version).await?.version(),
            None => latest.version(),
        };
        let failed = |source| Error::storage(self.name(), source);
        let exists = latest.tags().await?.iter().any(|tag| tag.name == name);
        match (exists, replace) {
            (true, true) => latest.move_tag(name, version).await?,
            (true, false) if if_not_exists => return Ok(false),
            (true, false) => return Err(Error::DuplicateTag { name: name.to_owned(), table: self.name().to_owned() }),
            (false, _) => latest.dataset.tags().create(name, version).await.map_err(failed)?,
        }
        Ok(true)
    }

    /// By a new file in the place of the old one: Lance would write the old one anew, and a crash leave half of it.
    async fn move_tag(&self, name: &str, version: u64) -> Result<()> {
        let failed = |source| Error::storage(self.name(), source);
        let tags = self.dataset.tags();
        // A crash may have left one.
        if tags.list().await.map_err(failed)?.contains_key(MOVING) {
            tags.delete(MOVING).await.map_err(failed)?;
        }
        tags.create(MOVING, version).await.map_err(failed)?;
        let folder = self.state.directory.join(FOLDER);
        let file = |name: &str| folder.join(format!("{name}.json"));
        let moved = std::fs::rename(file(MOVING), file(name)).and_then(|()| sync_directory(&folder));
        moved.map_err(|source| Error::io(&folder, source))
    }

    /// Removes a tag; the version stays until a vacuum.
    ///
    /// # Errors
    /// [`Error::UnknownTag`], [`Error::Storage`].
    pub async fn drop_tag(&self, name: &str) -> Result<()> {
        let _writer = self.lock_writer().await;
        self.tag(name).await?;
        self.dataset.tags().delete(name).await.map_err(|source| Error::storage(self.name(), source))?;
        let folder = self.state.directory.join(FOLDER);
        sync_directory(&folder).map_err(|source| Error::io(&folder, source))
    }

    /// All tags of the table, by name.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub async fn tags(&self) -> Result<Vec<Tag>> {
        let tags = self.dataset.tags().list().await.map_err(|source| Error::storage(self.name(), source))?;
        let tags = tags.into_iter().filter(|(name, _)| name != MOVING);
        let mut tags: Vec<Tag> = tags.map(|(name, contents)| Tag { name, version: contents.version }).collect();
        tags.sort();
        Ok(tags)
    }

    /// The table as it was at the version of a tag.
    ///
    /// # Errors
    /// [`Error::UnknownTag`], [`Error::Storage`].
    pub async fn at_tag(&self, name: &str) -> Result<Self> {
        self.at_version(self.tag(name).await?.version).await
    }

    async fn tag(&self, name: &str) -> Result<Tag> {
        let tags = self.tags().await?;
        let found = tags.iter().find(|tag| tag.name == name).cloned();
        let known = || tags.iter().map(|tag| tag.name.clone()).collect::<Vec<_>>();
        found.ok_or_else(|| Error::UnknownTag { name: name.to_owned(), table: self.name().to_owned(), known: nearest(name, known()) })
    }
}
