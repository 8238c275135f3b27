//! Lists of privileges (`aclitem[]`): what is in them, and what an object has from the start.

use super::{Call, Function, Returns};
use crate::engine::pg_catalog::held::acl_item;
use crate::engine::pg_catalog::types::Kind;
use crate::engine::pg_catalog::value::Value;
use crate::error::{Error, Result};

const RIGHTS: Returns =
    Returns::Record(&[("grantor", Kind::Oid), ("grantee", Kind::Oid), ("privilege_type", Kind::Text), ("is_grantable", Kind::Bool)]);

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("aclexplode", &[Kind::AnyArray], RIGHTS, exploded).set(),
    Function::new("acldefault", &[Kind::Char, Kind::Oid], Returns::Many(Kind::AclItem), defaults),
];

/// PostgreSQL's letters.
const WORDS: &[(char, &str)] = &[
    ('a', "INSERT"),
    ('r', "SELECT"),
    ('w', "UPDATE"),
    ('d', "DELETE"),
    ('D', "TRUNCATE"),
    ('x', "REFERENCES"),
    ('t', "TRIGGER"),
    ('X', "EXECUTE"),
    ('U', "USAGE"),
    ('C', "CREATE"),
    ('T', "TEMPORARY"),
    ('c', "CONNECT"),
    ('s', "SET"),
    ('A', "ALTER SYSTEM"),
];

/// One item of a list.
#[derive(Debug, PartialEq)]
struct Item<'a> {
    /// Empty: everybody.
    grantee: String,
    letters: &'a str,
    grantor: String,
}

/// A row for each privilege of each item.
fn exploded(call: &Call<'_>) -> Result<Value> {
    let snapshot = call.context.snapshot;
    let mut rows = Vec::new();
    for text in call.list(0).iter().filter_map(Value::as_str) {
        let wrong = || Error::BadText { of: "aclitem".to_owned(), text: text.to_owned() };
        let item = parsed(text).ok_or_else(wrong)?;
        let number = |role: &str| Value::oid(snapshot.role_number(role).unwrap_or(0));
        let mut letters = item.letters.chars().peekable();
        while let Some(letter) = letters.next() {
            let (_, word) = WORDS.iter().find(|(known, _)| *known == letter).ok_or_else(wrong)?;
            let is_grantable = letters.next_if_eq(&'*').is_some();
            let row = [number(&item.grantor), number(&item.grantee), Value::text(word), Value::Bool(is_grantable)];
            rows.push(Value::Record(row.into()));
        }
    }
    Ok(Value::list(rows))
}

/// `None`: a text that is no item.
fn parsed(text: &str) -> Option<Item<'_>> {
    let (grantee, rest) = name(text)?;
    let (letters, grantor) = rest.strip_prefix('=')?.split_once('/')?;
    let (grantor, rest) = name(grantor)?;
    rest.is_empty().then_some(Item { grantee, letters, grantor })
}

/// A name, perhaps in quotes, and what is behind it.
fn name(text: &str) -> Option<(String, &str)> {
    let Some(mut rest) = text.strip_prefix('"') else {
        let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
        return Some((text[..end].to_owned(), &text[end..]));
    };
    let mut name = String::new();
    loop {
        let (part, behind) = rest.split_once('"')?;
        name.push_str(part);
        match behind.strip_prefix('"') {
            Some(more) => {
                name.push('"');
                rest = more;
            }
            None => return Some((name, behind)),
        }
    }
}

/// What an object of a kind that a role owns has from the start. Everybody may use functions, types and languages.
fn defaults(call: &Call<'_>) -> Result<Value> {
    let oid = call.oid(1).unwrap_or(0);
    let owner = call.context.snapshot.role(oid).map_or_else(|| oid.to_string(), str::to_owned);
    let (of_all, of_owner) = match call.text(0) {
        "c" => return Ok(Value::list([])),
        "r" => ("", "arwdD"),
        "s" => ("", "rwU"),
        "n" => ("", "UC"),
        "t" => ("", "C"),
        "L" => ("", "rw"),
        "F" | "S" => ("", "U"),
        "p" => ("", "sA"),
        "d" => ("Tc", "CTc"),
        "f" => ("X", "X"),
        "l" | "T" => ("U", "U"),
        other => {
            let expected = "the letter of a kind of object, such as 'r'".to_owned();
            return Err(Error::InvalidParameter { name: "kind of acldefault()".to_owned(), found: format!("'{other}'"), expected });
        }
    };
    let of_all = (!of_all.is_empty()).then(|| acl_item("", of_all, &owner));
    Ok(Value::list(of_all.into_iter().chain([acl_item(&owner, of_owner, &owner)])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_read_as_they_are_written() {
        for (grantee, letters, grantor) in [("alice", "ar*w", "bob"), ("", "r", "bob"), ("a b=\"c\"/", "U", "d.e"), ("b\u{fc}ro", "", "x")]
        {
            let written = acl_item(grantee, letters, grantor);
            let text = written.as_str().expect("it is a text");
            let expected = Item { grantee: grantee.to_owned(), letters, grantor: grantor.to_owned() };
            assert_eq!(parsed(text), Some(expected), "{text}");
        }
        for wrong in ["", "alice", "alice=r", "\"alice=r/bob", "alice=r/bob!"] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }
}
