//! Rules about who may connect from where, in the form of PostgreSQL's `pg_hba.conf`: the first that fits decides.
//!
//! ```text
//! # kind     database  user      address        method
//! local      all       all                      peer
//! hostssl    all       +readers  10.0.0.0/8     scram-sha-256
//! host       all       all       127.0.0.1/32   scram-sha-256
//! ```

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use super::peer::Origin;
use crate::engine::{DATABASE_NAME, Roles};
use crate::error::{Error, Result};
use crate::server::session_start::MAINTENANCE_NAME;

/// How a connection shows whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    /// It says so.
    Trust,
    /// Not at all.
    Reject,
    ScramSha256,
    /// The operating system's user at the other end of the Unix socket has the role's name.
    Peer,
}

/// The rules of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HbaRules {
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    kind: Kind,
    databases: Vec<Item>,
    users: Vec<Item>,
    /// `None`: every address, or none for a local rule.
    network: Option<Network>,
    method: Method,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Local,
    Host,
    HostSsl,
    HostNoSsl,
}

/// A word of a line; in quotes it has no meaning of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Item {
    text: String,
    is_quoted: bool,
}

impl Item {
    fn is(&self, word: &str) -> bool {
        !self.is_quoted && self.text == word
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// `10.0.0.0/8`, `::1/128`; an address alone is itself.
    fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let address: IpAddr = address.parse().ok()?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Some(bits), |prefix| prefix.parse().ok())?;
        (prefix <= bits).then_some(Self { address, prefix })
    }

    fn contains(self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let shift = 32 - u32::from(self.prefix);
                (network.to_bits() ^ address.to_bits()).checked_shr(shift).unwrap_or(0) == 0
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let shift = 128 - u32::from(self.prefix);
                (network.to_bits() ^ address.to_bits()).checked_shr(shift).unwrap_or(0) == 0
            }
            _ => false,
        }
    }

    /// Whether nobody on another machine has an address in it.
    fn is_loopback(self) -> bool {
        self.address.is_loopback() && self.prefix >= if self.address.is_ipv4() { 8 } else { 128 }
    }
}

impl HbaRules {
    /// # Errors
    /// [`Error::Io`]; [`Error::Configuration`] for the first line that is no rule, with its number.
    pub fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
        Self::parse(&text).map_err(|(line, reason)| Error::Configuration { path: PathBuf::from(path), line: Some(line), reason })
    }

    /// The rules, or the number of a line and what is wrong with it.
    fn parse(text: &str) -> Result<Self, (usize, String)> {
        let mut rules = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let fields = fields(line).map_err(|reason| (index + 1, reason))?;
            if !fields.is_empty() {
                rules.push(Rule::parse(&fields).map_err(|reason| (index + 1, reason))?);
            }
        }
        Ok(Self { rules })
    }

    /// The method of the first rule that fits; `None`: no rule does.
    pub(super) fn method(&self, origin: &Origin, database: &str, user: &str, roles: &Roles) -> Option<Method> {
        let fits = |rule: &&Rule| rule.fits_origin(origin) && rule.fits_database(database, user) && rule.fits_user(user, roles);
        self.rules.iter().find(fits).map(|rule| rule.method)
    }
}

impl Rule {
    fn parse(fields: &[Vec<Item>]) -> Result<Self, String> {
        let kind = match word(fields.first())? {
            "local" => Kind::Local,
            "host" => Kind::Host,
            "hostssl" => Kind::HostSsl,
            "hostnossl" => Kind::HostNoSsl,
            other => return Err(format!("\"{other}\" is no kind of rule; there are local, host, hostssl and hostnossl")),
        };
        let expected = if kind == Kind::Local { 4 } else { 5 };
        if fields.len() != expected {
            let form = if kind == Kind::Local { "local database user method" } else { "host database user address method" };
            return Err(format!("expected {expected} fields ({form}), found {}", fields.len()));
        }
        let network = match kind {
            Kind::Local => None,
            _ => network(word(fields.get(3))?)?,
        };
        let method = match word(fields.last())? {
            "trust" => Method::Trust,
            "reject" => Method::Reject,
            "scram-sha-256" => Method::ScramSha256,
            "peer" => Method::Peer,
            other => return Err(format!("\"{other}\" is no method here; there are scram-sha-256, peer, trust and reject")),
        };
        let rule = Self { kind, databases: fields[1].clone(), users: fields[2].clone(), network, method };
        rule.check()?;
        Ok(rule)
    }

    fn check(&self) -> Result<(), String> {
        let is_local = self.kind == Kind::Local;
        if self.method == Method::Peer && !is_local {
            return Err("peer asks the operating system, which knows users of Unix sockets only: write it in a local rule".to_owned());
        }
        if self.method == Method::Trust && !is_local && !self.network.is_some_and(Network::is_loopback) {
            return Err(
                "trust would let anyone in from another machine; write scram-sha-256, or an address such as 127.0.0.1/32".to_owned()
            );
        }
        Ok(())
    }

    fn fits_origin(&self, origin: &Origin) -> bool {
        match (self.kind, origin) {
            (Kind::Local, Origin::Local { .. }) => true,
            (Kind::Local, Origin::Host { .. }) | (_, Origin::Local { .. }) => false,
            (kind, Origin::Host { peer, is_secure, .. }) => {
                let fits_tls = match kind {
                    Kind::HostSsl => *is_secure,
                    Kind::HostNoSsl => !is_secure,
                    _ => true,
                };
                fits_tls && self.network.is_none_or(|network| network.contains(peer.ip()))
            }
        }
    }

    /// A rule for the database holds by whichever of its names a client asks for it; one that names the other holds for those who ask by that.
    fn fits_database(&self, database: &str, user: &str) -> bool {
        let is_it = |name: &str| name == database || (database == MAINTENANCE_NAME && name == DATABASE_NAME);
        self.databases.iter().any(|item| item.is("all") || item.is("sameuser") && database == user || is_it(&item.text))
    }

    /// `+role` stands for the members of a role.
    fn fits_user(&self, user: &str, roles: &Roles) -> bool {
        self.users.iter().any(|item| match item.text.strip_prefix('+').filter(|_| !item.is_quoted) {
            Some(group) => roles.is_member(user, group),
            None => item.is("all") || item.text == user,
        })
    }
}

fn network(text: &str) -> Result<Option<Network>, String> {
    if text == "all" {
        return Ok(None);
    }
    let unknown =
        || format!("\"{text}\" is no address; write all, or one such as 127.0.0.1/32 or ::1/128 (names of machines are not looked up)");
    Network::parse(text).map(Some).ok_or_else(unknown)
}

/// A field that is one word.
fn word(field: Option<&Vec<Item>>) -> Result<&str, String> {
    match field.map(Vec::as_slice) {
        Some([item]) => Ok(&item.text),
        _ => Err("expected one word, found a list".to_owned()),
    }
}

/// A line as fields, each a list of words with commas between; none for a blank line or a comment.
fn fields(line: &str) -> Result<Vec<Vec<Item>>, String> {
    let mut fields: Vec<Vec<Item>> = Vec::new();
    let mut chars = line.chars().peekable();
    // A comma joins what stands on its two sides, with or without blanks.
    let mut is_joined = false;
    while let Some(&next) = chars.peek() {
        match next {
            '#' => break,
            ',' => {
                if fields.is_empty() || is_joined {
                    return Err("a comma stands where a word should".to_owned());
                }
                is_joined = true;
                chars.next();
            }
            blank if blank.is_whitespace() => {
                chars.next();
            }
            _ => {
                let item = item(&mut chars)?;
                match fields.last_mut().filter(|_| is_joined) {
                    Some(field) => field.push(item),
                    None => fields.push(vec![item]),
                }
                is_joined = false;
            }
        }
    }
    if is_joined { Err("the line ends with a comma".to_owned()) } else { Ok(fields) }
}

fn item(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<Item, String> {
    let mut text = String::new();
    if chars.next_if_eq(&'"').is_some() {
        loop {
            match chars.next() {
                Some('"') if chars.next_if_eq(&'"').is_none() => return Ok(Item { text, is_quoted: true }),
                Some(next) => text.push(next),
                None => return Err("a quoted word has no end".to_owned()),
            }
        }
    }
    while let Some(next) = chars.next_if(|next| !next.is_whitespace() && !matches!(next, ',' | '#' | '"')) {
        text.push(next);
    }
    Ok(Item { text, is_quoted: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> (usize, String) {
        HbaRules::parse(text).expect_err(text)
    }

    #[test]
    fn the_first_line_that_is_no_rule_is_named() {
        for (text, line, part) in [
            ("local all all peer\nlocl all all peer", 2, "\"locl\""),
            ("# comment\n\nhost all all trust", 3, "expected 5 fields"),
            ("host all all 127.0.0.1/33 trust", 1, "no address"),
            ("host all all localhost trust", 1, "no address"),
            ("host all all 0.0.0.0/0 trust", 1, "anyone"),
            ("host all all all trust", 1, "anyone"),
            ("host all all ::/0 trust", 1, "anyone"),
            ("host all all 127.0.0.1/32 peer", 1, "local rule"),
            ("host all all 10.0.0.0/8 md5", 1, "no method"),
            ("local all \"a peer", 1, "no end"),
            ("local all a, peer", 1, "expected 4 fields"),
            ("local all, , a peer", 1, "comma"),
        ] {
            let (found, reason) = fault(text);
            assert!(found == line && reason.contains(part), "{text}: line {found}, {reason}");
        }
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let directory = tempfile::tempdir().expect("a directory");
        let roles = Roles::for_tests(directory.path(), "owner");
        let rules = "local all all peer # in the machine\n\
                     hostnossl all all 10.0.0.0/8 reject\n\
                     host sales,\"all\" ann, \"B b\" 10.0.0.0/8 scram-sha-256\n\
                     host sameuser all 10.0.0.0/8 scram-sha-256\n\
                     host rolloutdb all 12.0.0.0/8 reject\n\
                     host postgres all 12.0.0.0/7 scram-sha-256\n\
                     host all +owner ::1/128 trust";
        let rules = HbaRules::parse(rules).expect("rules");
        let host = |address: &str, is_secure| Origin::Host {
            peer: format!("{address}:1").parse().expect("an address"),
            local: "127.0.0.1:5433".parse().expect("an address"),
            is_secure,
        };
        let method = |origin: &Origin, database: &str, user: &str| rules.method(origin, database, user, &roles);
        assert_eq!(method(&Origin::Local { user_id: None }, "d", "u"), Some(Method::Peer));
        assert_eq!(method(&host("10.1.2.3", false), "sales", "ann"), Some(Method::Reject));
        assert_eq!(method(&host("10.1.2.3", true), "sales", "ann"), Some(Method::ScramSha256));
        assert_eq!(method(&host("[::ffff:10.1.2.3]", true), "all", "B b"), Some(Method::ScramSha256));
        assert_eq!(method(&host("10.1.2.3", true), "other", "ann"), None);
        assert_eq!(method(&host("10.1.2.3", true), "bob", "bob"), Some(Method::ScramSha256));
        assert_eq!(method(&host("11.1.2.3", true), "sales", "ann"), None);
        // The database by its other name.
        assert_eq!(method(&host("12.1.2.3", true), "rolloutdb", "ann"), Some(Method::Reject));
        assert_eq!(method(&host("12.1.2.3", true), "postgres", "ann"), Some(Method::Reject));
        assert_eq!(method(&host("13.1.2.3", true), "postgres", "ann"), Some(Method::ScramSha256));
        assert_eq!(method(&host("13.1.2.3", true), "rolloutdb", "ann"), None);
        assert_eq!(method(&host("[::1]", false), "x", "owner"), Some(Method::Trust));
        assert_eq!(method(&host("[::1]", false), "x", "ann"), None);
    }
}
