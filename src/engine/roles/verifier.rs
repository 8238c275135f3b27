//! What a password is checked against without being kept: SCRAM-SHA-256 (RFC 5802 and 7677), in PostgreSQL's form.

use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::rand::{SecureRandom, SystemRandom};
use ring::{digest, hmac, pbkdf2};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// SHA-256's.
const KEY_BYTES: usize = 32;
/// PostgreSQL's.
const ITERATIONS: NonZeroU32 = NonZeroU32::new(4096).expect("it is not 0");
/// A second of work.
const ITERATIONS_CHECKED_MAX: u32 = 1_000_000;
const SALT_BYTES: usize = 16;

const PREFIX: &str = "SCRAM-SHA-256$";

/// `SCRAM-SHA-256$<iterations>:<salt>$<stored key>:<server key>`.
///
/// Who has it can check a password but does not know it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Verifier {
    iterations: NonZeroU32,
    salt: Vec<u8>,
    stored_key: [u8; KEY_BYTES],
    server_key: [u8; KEY_BYTES],
}

impl Verifier {
    /// Of a password, with a salt of its own.
    ///
    /// # Errors
    /// If the system gives no random numbers.
    pub fn new(password: &str) -> Result<Self> {
        let mut salt = [0; SALT_BYTES];
        SystemRandom::new().fill(&mut salt).map_err(|_| Error::Internal("the system gives no random numbers".to_owned()))?;
        Ok(Self::with_salt(password, &salt, ITERATIONS))
    }

    fn with_salt(password: &str, salt: &[u8], iterations: NonZeroU32) -> Self {
        // As in PostgreSQL, a password that SASLprep refuses is taken as it is.
        let normalized = stringprep::saslprep(password).unwrap_or(Cow::Borrowed(password));
        let mut salted = [0; KEY_BYTES];
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, iterations, salt, normalized.as_bytes(), &mut salted);
        Self {
            iterations,
            salt: salt.to_vec(),
            stored_key: hash(&keyed_hash(&salted, b"Client Key")),
            server_key: keyed_hash(&salted, b"Server Key"),
        }
    }

    /// Whether it is of the empty password, with which nobody may connect. One that takes longer than any client makes it is not looked at.
    pub fn is_of_nothing(&self) -> bool {
        self.iterations.get() <= ITERATIONS_CHECKED_MAX && Self::with_salt("", &self.salt, self.iterations) == *self
    }

    /// One that fits no password, always the same for a name.
    pub(super) fn mock(secret: &[u8], name: &str) -> Self {
        let derived = |what: &str| keyed_hash(secret, format!("{what} of {name}").as_bytes());
        let salt = derived("salt")[..SALT_BYTES].to_vec();
        Self { iterations: ITERATIONS, salt, stored_key: derived("stored key"), server_key: derived("server key") }
    }

    pub fn iterations(&self) -> u32 {
        self.iterations.get()
    }

    pub fn salt(&self) -> &[u8] {
        &self.salt
    }

    /// Whether the client's proof shows that it knows the password; `auth_message` is what was said before.
    pub fn accepts(&self, auth_message: &[u8], proof: &[u8]) -> bool {
        let signature = keyed_hash(&self.stored_key, auth_message);
        if proof.len() != KEY_BYTES {
            return false;
        }
        let client_key: Vec<u8> = proof.iter().zip(signature).map(|(left, right)| left ^ right).collect();
        // All bytes are looked at, whichever differ: how long it takes tells nothing.
        hash(&client_key).iter().zip(self.stored_key).fold(0, |difference, (left, right)| difference | (left ^ right)) == 0
    }

    /// What shows the client that the server knows the verifier.
    pub fn server_signature(&self, auth_message: &[u8]) -> Vec<u8> {
        keyed_hash(&self.server_key, auth_message).to_vec()
    }
}

/// What is no verifier.
#[derive(Debug, PartialEq, Eq)]
pub struct NotAVerifier;

impl fmt::Display for NotAVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a SCRAM-SHA-256 verifier")
    }
}

impl FromStr for Verifier {
    type Err = NotAVerifier;

    fn from_str(text: &str) -> Result<Self, NotAVerifier> {
        let parts = || {
            let (parameters, keys) = text.strip_prefix(PREFIX)?.split_once('$')?;
            let ((iterations, salt), (stored_key, server_key)) = (parameters.split_once(':')?, keys.split_once(':')?);
            let key = |text: &str| <[u8; KEY_BYTES]>::try_from(STANDARD.decode(text).ok()?).ok();
            Some(Self {
                iterations: iterations.parse().ok()?,
                salt: STANDARD.decode(salt).ok().filter(|salt| !salt.is_empty())?,
                stored_key: key(stored_key)?,
                server_key: key(server_key)?,
            })
        };
        parts().ok_or(NotAVerifier)
    }
}

impl TryFrom<String> for Verifier {
    type Error = NotAVerifier;

    fn try_from(text: String) -> Result<Self, NotAVerifier> {
        text.parse()
    }
}

impl From<Verifier> for String {
    fn from(verifier: Verifier) -> Self {
        let Verifier { iterations, salt, stored_key, server_key } = verifier;
        let (salt, stored_key, server_key) = (STANDARD.encode(salt), STANDARD.encode(stored_key), STANDARD.encode(server_key));
        format!("{PREFIX}{iterations}:{salt}${stored_key}:{server_key}")
    }
}

/// Never its parts: who has them can try passwords in peace.
impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier")
    }
}

fn keyed_hash(key: &[u8], message: &[u8]) -> [u8; KEY_BYTES] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message);
    tag.as_ref().try_into().expect("SHA-256 gives 32 bytes")
}

fn hash(message: &[u8]) -> [u8; KEY_BYTES] {
    digest::digest(&digest::SHA256, message).as_ref().try_into().expect("SHA-256 gives 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(text: &str) -> Vec<u8> {
        STANDARD.decode(text).expect("base64")
    }

    #[test]
    fn an_empty_password_is_known_in_its_verifier() {
        assert!(Verifier::new("").expect("random numbers").is_of_nothing());
        assert!(!Verifier::new("secret").expect("random numbers").is_of_nothing());
    }

    /// The exchange of RFC 7677, section 3: user "user", password "pencil".
    #[test]
    fn the_example_of_the_standard() {
        let verifier = Verifier::with_salt("pencil", &decoded("W22ZaJ0SNY7soEsUEjb6gQ=="), ITERATIONS);
        let nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let said = format!("n=user,r=rOprNGfwEbeRWgbNEkqO,r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r={nonce}");
        assert!(verifier.accepts(said.as_bytes(), &decoded("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")));
        assert_eq!(STANDARD.encode(verifier.server_signature(said.as_bytes())), "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
        assert!(!verifier.accepts(said.as_bytes(), &decoded("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVU=")));
        assert!(!verifier.accepts(said.as_bytes(), b"short"));
        // The keys of that password and salt, as PostgreSQL prints them.
        let printed = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
        assert_eq!(String::from(verifier.clone()), printed);
        assert_eq!(printed.parse(), Ok(verifier));
    }

    #[test]
    fn passwords_are_normalized() {
        // A Roman numeral nine is an I and an X, and a soft hyphen nothing.
        let salt = [7; SALT_BYTES];
        assert_eq!(Verifier::with_salt("I\u{ad}X", &salt, ITERATIONS), Verifier::with_salt("\u{2168}", &salt, ITERATIONS));
        assert_ne!(Verifier::with_salt("IX", &salt, ITERATIONS), Verifier::with_salt("ix", &salt, ITERATIONS));
    }

    #[test]
    fn what_is_no_verifier_is_refused() {
        for text in [
            "",
            "secret",
            "SCRAM-SHA-256$",
            "SCRAM-SHA-256$4096:c2FsdA==$a:b",
            "SCRAM-SHA-256$0:c2FsdA==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=",
        ] {
            assert_eq!(text.parse::<Verifier>(), Err(NotAVerifier), "{text}");
        }
    }

    #[test]
    fn debug_prints_no_keys() {
        let verifier = Verifier::new("secret").expect("random numbers");
        assert_eq!(format!("{verifier:?}"), "Verifier");
    }
}
