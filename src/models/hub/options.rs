//! `hf://org/name@revision`, and the options beside it: names, defaults and ranges.

use url::Url;

use super::names::{is_name, is_path};
use crate::error::{Error, Result};
use crate::models::remote::options::{count, number, text};
use crate::value::Value;

/// The scheme of the source.
pub const SCHEME: &str = "hf://";
/// Who is asked unless something else is said.
pub const DEFAULT_ENDPOINT: &str = "https://huggingface.co";

const OF: &str = "CREATE MODEL from hf://";
const DEFAULT_REVISION: &str = "main";
const GGUF: &str = ".gguf";

/// Which model of a hub, and how it is fetched.
#[derive(Debug, Clone, PartialEq)]
pub struct HubOptions {
    pub organisation: String,
    pub name: String,
    /// A branch, a tag or a commit.
    pub revision: String,
    /// In the place of the server's, without a slash at the end.
    pub endpoint: Option<String>,
    /// The name of the secret that is the token.
    pub secret: Option<String>,
    /// The GGUF file that is the model, of several.
    pub file: Option<String>,
    /// Attempts in a row that may bring nothing, after the first.
    pub retries: usize,
    /// Seconds without a byte after which a connection is given up.
    pub timeout: f64,
}

impl HubOptions {
    pub const NAMES: &'static [&'static str] = &["task", "device", "endpoint", "secret", "file", "retries", "timeout"];

    /// The source and the options of `CREATE MODEL ... FROM 'hf://...'`.
    ///
    /// # Errors
    /// [`Error::UnknownOption`], [`Error::WrongType`], [`Error::InvalidParameter`].
    pub fn read(source: &str, options: &[(String, Value)]) -> Result<Self> {
        let (organisation, name, revision) = repository(source).ok_or_else(|| {
            let expected = "hf://org/name, or hf://org/name@revision with a branch, a tag or a commit";
            invalid("source", &format!("'{source}'"), expected)
        })?;
        let (endpoint, secret, file) = (None, None, None);
        let mut read = Self { organisation, name, revision, endpoint, secret, file, retries: 5, timeout: 60.0 };
        for (name, value) in options {
            read.set(name, value)?;
        }
        Ok(read)
    }

    fn set(&mut self, name: &str, value: &Value) -> Result<()> {
        match name {
            "endpoint" => self.endpoint = Some(endpoint(name, text(name, value)?)?),
            "secret" => self.secret = Some(text(name, value)?.to_owned()),
            "file" => self.file = Some(file(text(name, value)?)?),
            "retries" => self.retries = count(name, value, 0..=100)?,
            "timeout" => self.timeout = number(name, value, "seconds from 0.001 to 86400", 0.001..=86_400.0)?,
            _ => {
                let known = Self::NAMES.iter().map(|known| (*known).to_owned()).collect();
                return Err(Error::UnknownOption { kind: "option", name: name.to_owned(), of: OF.to_owned(), known });
            }
        }
        Ok(())
    }

    /// The source with another revision, as a commit.
    pub fn source_at(&self, revision: &str) -> String {
        format!("{SCHEME}{}/{}@{revision}", self.organisation, self.name)
    }

    /// As messages name it.
    pub fn source(&self) -> String {
        self.source_at(&self.revision)
    }
}

/// A URL to ask, without a slash at the end. What is none is not repeated: it may hold a password.
///
/// # Errors
/// [`Error::InvalidParameter`] with the name of the option or variable.
pub fn endpoint(name: &str, text: &str) -> Result<String> {
    let refuse = || invalid(name, "something else", "https://host, without user, password, query and fragment; CREATE SECRET keeps tokens");
    let url = Url::parse(text.trim()).map_err(|_| refuse())?;
    let is_bare = url.username().is_empty() && url.password().is_none() && url.query().is_none() && url.fragment().is_none();
    // As of the servers of remote models.
    let is_one_line = !text.trim().contains(char::is_control);
    if !matches!(url.scheme(), "http" | "https") || !is_bare || !is_one_line || url.host().is_none() {
        return Err(refuse());
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

fn repository(source: &str) -> Option<(String, String, String)> {
    let rest = source.strip_prefix(SCHEME)?;
    let (repository, revision) = rest.split_once('@').unwrap_or((rest, DEFAULT_REVISION));
    let (organisation, name) = repository.split_once('/')?;
    let is_known = is_name(organisation) && is_name(name) && is_path(revision);
    is_known.then(|| (organisation.to_owned(), name.to_owned(), revision.to_owned()))
}

fn file(text: &str) -> Result<String> {
    if is_path(text) && text.ends_with(GGUF) {
        return Ok(text.to_owned());
    }
    Err(invalid("file", &format!("'{text}'"), "a .gguf file of the repository; other models need no file named"))
}

fn invalid(name: &str, found: &str, expected: &str) -> Error {
    Error::InvalidParameter { name: name.to_owned(), found: found.to_owned(), expected: expected.to_owned() }
}
