//! What `has_table_privilege` and its like ask: privileges as texts name them, and whether a role has one of them.

use rolloutdb_sql::Privilege;

use super::{Access, Object};
use crate::error::{Error, Result};

/// The kind of object that is asked about: each has words of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    Table,
    /// A privilege on the table is one on each column: there are none on single ones.
    Column,
    Schema,
    Database,
    Model,
    Agent,
}

/// One privilege of a list such as `SELECT, INSERT WITH GRANT OPTION`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    right: Right,
    with_option: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Right {
    Granted(Privilege),
    /// One that PostgreSQL has and this database has not: nobody but an owner holds it.
    OfOwner,
    /// What everybody may: connect.
    OfAll,
}

impl Question {
    /// The privileges that a text lists.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] (22023) for one that such objects do not have.
    pub fn read(self, text: &str) -> Result<Vec<Asked>> {
        text.split(',').map(|item| self.read_one(item.trim())).collect()
    }

    fn read_one(self, text: &str) -> Result<Asked> {
        let upper = text.to_ascii_uppercase();
        let (word, with_option) = match upper.strip_suffix(" WITH GRANT OPTION") {
            Some(word) => (word.trim_end(), true),
            None => (upper.as_str(), false),
        };
        let granted = self.granted().iter().find(|privilege| privilege.keyword() == word);
        let right = match granted {
            Some(privilege) => Right::Granted(*privilege),
            None if self.of_owner().contains(&word) => Right::OfOwner,
            None if self.of_all().contains(&word) => Right::OfAll,
            None => {
                let words = self.granted().iter().map(|privilege| privilege.keyword());
                let words: Vec<&str> = words.chain(self.of_owner().iter().copied()).chain(self.of_all().iter().copied()).collect();
                let expected = format!("one or more of {}", words.join(", "));
                return Err(Error::InvalidParameter { name: "privilege".to_owned(), found: format!("'{text}'"), expected });
            }
        };
        Ok(Asked { right, with_option })
    }

    const fn granted(self) -> &'static [Privilege] {
        use Privilege::{Create, Delete, Insert, Select, Truncate, Update, Usage};
        match self {
            Self::Table => &[Select, Insert, Update, Delete, Truncate],
            Self::Column => &[Select, Insert, Update],
            Self::Schema => &[Usage, Create],
            Self::Database => &[Create],
            Self::Model | Self::Agent => &[Usage],
        }
    }

    const fn of_owner(self) -> &'static [&'static str] {
        match self {
            Self::Table => &["REFERENCES", "TRIGGER"],
            Self::Column => &["REFERENCES"],
            _ => &[],
        }
    }

    const fn of_all(self) -> &'static [&'static str] {
        match self {
            Self::Database => &["CONNECT", "TEMPORARY", "TEMP"],
            _ => &[],
        }
    }
}

impl Asked {
    pub fn is_held(self, access: &Access, object: &Object) -> bool {
        match self.right {
            Right::Granted(privilege) if self.with_option => access.grantor(object, privilege).is_some(),
            Right::Granted(privilege) => access.has(object, privilege),
            Right::OfAll if !self.with_option => true,
            Right::OfOwner | Right::OfAll => access.owns(object),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_object_has_words_of_its_own() {
        let read = |question: Question, text: &str| question.read(text).map_err(|error| error.to_string());
        let both = read(Question::Table, "select, Insert with grant option").expect("they are privileges of tables");
        let granted = |privilege, with_option| Asked { right: Right::Granted(privilege), with_option };
        assert_eq!(both, [granted(Privilege::Select, false), granted(Privilege::Insert, true)]);
        assert_eq!(read(Question::Table, "TRIGGER").expect("a word of PostgreSQL's")[0].right, Right::OfOwner);
        assert_eq!(read(Question::Database, "connect").expect("a word of PostgreSQL's")[0].right, Right::OfAll);
        for (question, text) in
            [(Question::Table, "USAGE"), (Question::Column, "DELETE"), (Question::Schema, ""), (Question::Model, "SELECT")]
        {
            let error = read(question, text).expect_err(text);
            assert!(error.contains("expected one or more of"), "{error}");
        }
    }
}
