//! Which other hosts the process may ask: none, unless it was started with their names.
//!
//! Whoever makes a connection for a statement asks [`Outbound::check`] about the URL, and [`Outbound::check_addresses`] about what the host's name
//! was resolved to: a name that is allowed must not lead into the network behind the server.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::{Host, Url};

use super::privileges::denied;
use crate::error::{Error, Result};

/// The host that a scheme of a model's source stands for.
const SCHEME_HOSTS: [(&str, &str); 2] = [("hf", "huggingface.co"), ("openai", "api.openai.com")];

/// The hosts that may be asked.
#[derive(Debug, Clone, Default)]
pub struct Outbound {
    hosts: Vec<AllowedHost>,
}

/// `example.org`, `*.example.org`, `10.0.0.7`, with `:8000` for one port and `http://` in front for plain HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AllowedHost {
    /// In lower case; after a star without it: `.example.org`.
    name: String,
    port: Option<u16>,
    allows_plain: bool,
}

impl Outbound {
    /// # Errors
    /// [`Error::InvalidParameter`] for what is no host.
    pub fn new(hosts: &[String]) -> Result<Self> {
        Ok(Self { hosts: hosts.iter().map(|host| AllowedHost::parse(host)).collect::<Result<_>>()? })
    }

    /// A URL whose host may be asked.
    ///
    /// # Errors
    /// [`Error::InsufficientPrivilege`] (42501) for a host that is not among those allowed, a private address that is not named itself, plain HTTP
    /// where it is not allowed; [`Error::InvalidParameter`] for what is no URL, and for one with a user or password in it.
    pub fn check(&self, text: &str) -> Result<Url> {
        let invalid = |expected: &str| Error::InvalidParameter {
            name: "URL".to_owned(),
            // It may hold a password.
            found: format!("a text that begins with '{}'", text.chars().take_while(|c| c.is_ascii_alphabetic()).collect::<String>()),
            expected: expected.to_owned(),
        };
        // Where a URL is read, line breaks are left out of it.
        if text.contains(char::is_control) {
            return Err(invalid("a URL in one line"));
        }
        let known = SCHEME_HOSTS.iter().find(|(scheme, _)| text.split_once("://").is_some_and(|(given, _)| given == *scheme));
        let standing_for = known.map(|(_, host)| format!("https://{host}/"));
        let url = Url::parse(standing_for.as_deref().unwrap_or(text)).map_err(|_| invalid("https://host/path"))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(invalid("a URL without a user or password; CREATE SECRET keeps those"));
        }
        let Some(host) = url.host() else { return Err(invalid("https://host/path")) };
        let is_plain = match url.scheme() {
            "https" => false,
            "http" => true,
            _ => return Err(invalid("https://host/path")),
        };
        let name = host_name(&host);
        let port = url.port_or_known_default();
        let Some(allowed) = self.hosts.iter().find(|allowed| allowed.names(&name, port)) else {
            return Err(denied(format!("the host {name}"), "the server asks no other host unless it was started with --allow-host"));
        };
        if is_plain && !allowed.allows_plain {
            return Err(denied(
                format!("the host {name}"),
                format!("it is allowed for https; --allow-host http://{name} allows plain HTTP"),
            ));
        }
        if let Some(address) = literal_address(&host) {
            self.check_addresses(&name, &[address])?;
        }
        Ok(url)
    }

    /// What the name of a host was resolved to: none of it may be a private address, unless the host was allowed by that address.
    ///
    /// # Errors
    /// [`Error::InsufficientPrivilege`] (42501).
    pub fn check_addresses(&self, host: &str, addresses: &[IpAddr]) -> Result<()> {
        let is_named = |address: &IpAddr| self.hosts.iter().any(|allowed| allowed.name == bare(*address).to_string());
        match addresses.iter().find(|address| is_private(**address) && !is_named(address)) {
            Some(address) => {
                Err(denied(format!("the host {host}"), format!("{address} is a private address; --allow-host {address} allows it")))
            }
            None => Ok(()),
        }
    }
}

impl AllowedHost {
    fn parse(text: &str) -> Result<Self> {
        let invalid = || Error::InvalidParameter {
            name: "--allow-host".to_owned(),
            found: format!("'{text}'"),
            expected: "a host such as example.org, *.example.org, 10.0.0.7 or http://10.0.0.7:8000".to_owned(),
        };
        let (rest, allows_plain) = match text.strip_prefix("http://") {
            Some(rest) => (rest, true),
            None => (text.strip_prefix("https://").unwrap_or(text), false),
        };
        let (rest, is_star) = match rest.strip_prefix("*.") {
            Some(rest) => (rest, true),
            None => (rest, false),
        };
        // Read as a URL's host is, so that both have one form.
        let url = Url::parse(&format!("https://{rest}/")).map_err(|_| invalid())?;
        let Some(host) = url.host().filter(|_| url.path() == "/" && url.username().is_empty() && url.query().is_none()) else {
            return Err(invalid());
        };
        if is_star && literal_address(&host).is_some() || host_name(&host).contains('*') {
            return Err(invalid());
        }
        let dot = if is_star { "." } else { "" };
        Ok(Self { name: format!("{dot}{}", host_name(&host)), port: url.port(), allows_plain })
    }

    fn names(&self, host: &str, port: Option<u16>) -> bool {
        let is_host = if self.name.starts_with('.') { host.ends_with(&self.name) } else { host == self.name };
        is_host && (self.port.is_none() || self.port == port)
    }
}

/// In lower case, without the dot that may end it, an address in its one form.
fn host_name(host: &Host<&str>) -> String {
    match literal_address(host) {
        Some(address) => address.to_string(),
        None => host.to_string().trim_end_matches('.').to_ascii_lowercase(),
    }
}

fn literal_address(host: &Host<&str>) -> Option<IpAddr> {
    match host {
        Host::Domain(_) => None,
        Host::Ipv4(address) => Some(IpAddr::V4(*address)),
        Host::Ipv6(address) => Some(bare(IpAddr::V6(*address))),
    }
}

/// `::ffff:10.0.0.1` is 10.0.0.1.
fn bare(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(six) => six.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

/// Whether an address is not one of the public network: this machine's, its neighbours', the provider's of a cloud (169.254.169.254).
fn is_private(address: IpAddr) -> bool {
    match bare(address) {
        IpAddr::V4(four) => is_private_v4(four),
        IpAddr::V6(six) => is_private_v6(six),
    }
}

fn is_private_v4(address: Ipv4Addr) -> bool {
    let [first, second, third, _] = address.octets();
    address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_unspecified()
        || address.is_multicast()
        || address.is_broadcast()
        || first == 0
        // Shared by the customers of a provider (RFC 6598), for protocols (RFC 6890), for measurements (RFC 2544), and what is not given out.
        || (first == 100 && (64..128).contains(&second))
        || (first == 192 && second == 0 && third == 0)
        || (first == 198 && (18..20).contains(&second))
        || first >= 240
}

fn is_private_v6(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.segments();
    let is_translated = first == 0x64 && second == 0xff9b;
    // 2002::/16 carries an IPv4 address, which leads where that leads.
    let is_tunnelled = first == 0x2002;
    address.is_loopback()
        || address.is_unspecified()
        || address.is_multicast()
        || address.is_unique_local()
        || address.is_unicast_link_local()
        || is_translated
        || is_tunnelled
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outbound(hosts: &[&str]) -> Outbound {
        Outbound::new(&hosts.iter().map(|host| (*host).to_owned()).collect::<Vec<_>>()).expect("these are hosts")
    }

    #[test]
    fn nothing_is_asked_unless_it_is_allowed() {
        for url in ["https://example.org/a", "hf://org/model", "openai://gpt-4o", "http://127.0.0.1/", "https://169.254.169.254/latest"] {
            let error = Outbound::default().check(url).expect_err(url);
            assert!(matches!(error, Error::InsufficientPrivilege(_)), "{url}: {error:?}");
        }
    }

    #[test]
    fn hosts_are_those_that_are_named() {
        let allowed = outbound(&["example.org", "*.example.net", "http://plain.example:8000", "10.0.0.7", "huggingface.co"]);
        for url in [
            "https://example.org/a",
            "https://EXAMPLE.org./a",
            "https://example.org:8443/a",
            "https://a.b.example.net/",
            "http://plain.example:8000/",
            "https://10.0.0.7/",
            "https://[::ffff:10.0.0.7]/",
            "hf://org/model",
        ] {
            allowed.check(url).unwrap_or_else(|error| panic!("{url}: {error}"));
        }
        for url in [
            "http://example.org/a",
            "https://example.org.evil.test/",
            "https://evil-example.org/",
            "https://example.net/",
            "https://evilexample.net/",
            "https://plain.example/",
            "https://10.0.0.8/",
            "https://0x0a.0.0.8/",
            "https://167772168/",
            "openai://gpt-4o",
        ] {
            let error = allowed.check(url).expect_err(url);
            assert!(matches!(error, Error::InsufficientPrivilege(_)), "{url}: {error:?}");
        }
        for url in [
            "https://user:pass@example.org/",
            "https://example.org@evil.test/",
            "ftp://example.org/",
            "https://",
            "gopher://example.org/",
            "https://exam\r\nple.org/",
        ] {
            let error = allowed.check(url).expect_err(url);
            assert!(matches!(error, Error::InvalidParameter { .. }), "{url}: {error:?}");
            assert!(!error.to_string().contains("pass@"), "{error}");
        }
    }

    #[test]
    fn a_name_does_not_lead_to_a_private_address() {
        let allowed = outbound(&["example.org", "10.0.0.7"]);
        let check = |address: &str| allowed.check_addresses("example.org", &[address.parse().expect("an address")]);
        for address in ["93.184.216.34", "2606:2800:220:1::1", "10.0.0.7"] {
            check(address).unwrap_or_else(|error| panic!("{address}: {error}"));
        }
        for address in [
            "127.0.0.1",
            "10.0.0.8",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "198.18.0.1",
            "240.0.0.1",
            "::1",
            "::",
            "fe80::1",
            "fd00::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
        ] {
            assert!(check(address).is_err(), "{address}");
        }
    }

    #[test]
    fn what_is_no_host_is_refused_at_the_start() {
        for text in ["", "a b", "*.10.0.0.1", "example.org/path", "user@example.org", "*.*"] {
            assert!(Outbound::new(&[text.to_owned()]).is_err(), "{text}");
        }
    }
}
