//! The server's side of SCRAM-SHA-256 (RFC 5802, 7677), against a stored verifier; with TLS, bound to the server's certificate (RFC 5929).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pgwire::api::auth::sasl::scram::random_nonce;
use pgwire::api::auth::sasl::{SCRAM_SHA_256_METHOD, SCRAM_SHA_256_PLUS_METHOD};

use crate::engine::Verifier;

/// Why an exchange ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ScramError {
    /// The client does not speak the protocol.
    Protocol(&'static str),
    /// The password is wrong, or nobody's.
    Password,
}

/// What the server offers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Offer<'a> {
    /// The hash of the certificate that the connection is bound to; `None`: no TLS, or a certificate without such a hash.
    pub end_point: Option<&'a [u8]>,
}

impl Offer<'_> {
    pub fn mechanisms(&self) -> Vec<String> {
        let plus = self.end_point.map(|_| SCRAM_SHA_256_PLUS_METHOD.to_owned());
        plus.into_iter().chain([SCRAM_SHA_256_METHOD.to_owned()]).collect()
    }
}

/// The exchange after the server's first message.
pub(super) struct Exchange {
    verifier: Verifier,
    /// Whether there is such a role with a password; if not, the exchange goes on to its end all the same.
    is_real: bool,
    /// What the client must repeat.
    channel_binding: String,
    nonce: String,
    client_first: String,
    server_first: String,
}

/// Takes the body of a SASL message: mechanism, and what the client says first.
pub(super) fn initial_response(body: &[u8]) -> Result<(&str, &str), ScramError> {
    let malformed = ScramError::Protocol("malformed SASL message");
    let parts = || {
        let end = body.iter().position(|byte| *byte == 0)?;
        let mechanism = std::str::from_utf8(&body[..end]).ok()?;
        let (length, data) = body[end + 1..].split_first_chunk::<4>()?;
        let length = usize::try_from(i32::from_be_bytes(*length)).ok()?;
        (length == data.len()).then_some((mechanism, std::str::from_utf8(data).ok()?))
    };
    parts().ok_or(malformed)
}

impl Exchange {
    /// Answers the client's first message.
    pub fn start(mechanism: &str, message: &str, offer: Offer<'_>, verifier: (Verifier, bool)) -> Result<Self, ScramError> {
        Self::start_with(mechanism, message, offer, verifier, &random_nonce())
    }

    fn start_with(
        mechanism: &str,
        message: &str,
        offer: Offer<'_>,
        (verifier, is_real): (Verifier, bool),
        nonce: &str,
    ) -> Result<Self, ScramError> {
        let malformed = || ScramError::Protocol("malformed SCRAM message");
        let (flag, rest) = message.split_once(',').ok_or_else(malformed)?;
        let (identity, client_first) = rest.split_once(',').ok_or_else(malformed)?;
        if !identity.is_empty() {
            return Err(ScramError::Protocol("client uses an authorization identity, but it is not supported"));
        }
        let channel_binding = channel_binding(mechanism, flag, offer)?;
        let mut parts = client_first.split(',');
        // The name is that of the startup message, as in PostgreSQL.
        let has_name = parts.next().is_some_and(|name| name.starts_with("n="));
        let client_nonce = parts.next().and_then(|part| part.strip_prefix("r=")).filter(|nonce| is_nonce(nonce));
        let (true, Some(client_nonce)) = (has_name, client_nonce) else { return Err(malformed()) };
        let nonce = format!("{client_nonce}{nonce}");
        let server_first = format!("r={nonce},s={},i={}", STANDARD.encode(verifier.salt()), verifier.iterations());
        Ok(Self { verifier, is_real, channel_binding, nonce, client_first: client_first.to_owned(), server_first })
    }

    /// What the server says first.
    pub fn server_first(&self) -> &str {
        &self.server_first
    }

    /// What the server says last, if the client knows the password.
    pub fn finish(self, message: &str) -> Result<String, ScramError> {
        let malformed = || ScramError::Protocol("malformed SCRAM message");
        let (without_proof, proof) = message.rsplit_once(",p=").ok_or_else(malformed)?;
        let proof = STANDARD.decode(proof).map_err(|_| malformed())?;
        let mut parts = without_proof.split(',');
        if parts.next().and_then(|part| part.strip_prefix("c=")) != Some(self.channel_binding.as_str()) {
            return Err(ScramError::Protocol("SCRAM channel binding check failed"));
        }
        if parts.next().and_then(|part| part.strip_prefix("r=")) != Some(self.nonce.as_str()) {
            return Err(ScramError::Protocol("SCRAM nonce does not match"));
        }
        let said = format!("{},{},{without_proof}", self.client_first, self.server_first);
        let accepted = self.verifier.accepts(said.as_bytes(), &proof);
        if accepted && self.is_real {
            Ok(format!("v={}", STANDARD.encode(self.verifier.server_signature(said.as_bytes()))))
        } else {
            Err(ScramError::Password)
        }
    }
}

/// What the client must repeat in its last message: what it said about channel binding, and what it is bound to.
fn channel_binding(mechanism: &str, flag: &str, offer: Offer<'_>) -> Result<String, ScramError> {
    let header = format!("{flag},,");
    match (mechanism, flag, offer.end_point) {
        (SCRAM_SHA_256_PLUS_METHOD, "p=tls-server-end-point", Some(end_point)) => {
            Ok(STANDARD.encode([header.as_bytes(), end_point].concat()))
        }
        (SCRAM_SHA_256_PLUS_METHOD, _, None) => Err(ScramError::Protocol("client selected a SASL mechanism that was not offered")),
        (SCRAM_SHA_256_PLUS_METHOD, _, Some(_)) => {
            Err(ScramError::Protocol("client selected channel binding without its data, or of an unknown type"))
        }
        // Someone between the two took the offer away.
        (SCRAM_SHA_256_METHOD, "y", Some(_)) => Err(ScramError::Protocol("SCRAM channel binding negotiation error")),
        (SCRAM_SHA_256_METHOD, "n" | "y", _) => Ok(STANDARD.encode(header)),
        (SCRAM_SHA_256_METHOD, _, _) => Err(ScramError::Protocol("malformed SCRAM message")),
        _ => Err(ScramError::Protocol("client selected an unknown SASL mechanism")),
    }
}

fn is_nonce(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Offer<'_> = Offer { end_point: None };
    const BOUND: Offer<'_> = Offer { end_point: Some(b"hash") };
    const FIRST: &str = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
    const LAST: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";

    /// Of the password "pencil", as PostgreSQL prints it.
    fn verifier() -> Verifier {
        "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
            .parse()
            .expect("a verifier")
    }

    fn start(mechanism: &str, first: &str, offer: Offer<'_>, is_real: bool) -> Result<Exchange, ScramError> {
        Exchange::start_with(mechanism, first, offer, (verifier(), is_real), "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    }

    /// RFC 7677, section 3.
    #[test]
    fn the_exchange_of_the_standard() {
        let exchange = start(SCRAM_SHA_256_METHOD, FIRST, PLAIN, true).expect("it goes on");
        let expected = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        assert_eq!(exchange.server_first(), expected);
        assert_eq!(exchange.finish(LAST).as_deref(), Ok("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="));
        let wrong = LAST.replace("dHzb", "dHzc");
        assert_eq!(start(SCRAM_SHA_256_METHOD, FIRST, PLAIN, true).expect("it goes on").finish(&wrong), Err(ScramError::Password));
        assert_eq!(start(SCRAM_SHA_256_METHOD, FIRST, PLAIN, false).expect("it goes on").finish(LAST), Err(ScramError::Password));
    }

    #[test]
    fn messages_that_do_not_fit_are_refused() {
        for first in
            ["", "n", "n,,", "n,,n=user", "n,,r=a,n=user", "n,,n=user,r=", "n,a=x,n=user,r=a", "p=x,,n=user,r=a", "n,,m=x,n=user,r=a"]
        {
            assert!(matches!(start(SCRAM_SHA_256_METHOD, first, PLAIN, true), Err(ScramError::Protocol(_))), "{first}");
        }
        let repeated = LAST.replace("r=rOpr", "r=rOps");
        for last in ["", "c=biws", "c=biws,r=x", &repeated, &LAST.replace("biws", "eSws"), &LAST.replace("p=dHzb", "p=!")] {
            let exchange = start(SCRAM_SHA_256_METHOD, FIRST, PLAIN, true).expect("it goes on");
            assert!(matches!(exchange.finish(last), Err(ScramError::Protocol(_))), "{last}");
        }
    }

    #[test]
    fn a_connection_is_bound_to_its_certificate_and_cannot_be_talked_out_of_it() {
        let bound = "p=tls-server-end-point,,n=user,r=a";
        assert!(start(SCRAM_SHA_256_PLUS_METHOD, bound, BOUND, true).is_ok());
        assert!(start(SCRAM_SHA_256_PLUS_METHOD, bound, PLAIN, true).is_err());
        assert!(start(SCRAM_SHA_256_METHOD, bound, BOUND, true).is_err());
        assert!(start(SCRAM_SHA_256_PLUS_METHOD, "p=tls-unique,,n=user,r=a", BOUND, true).is_err());
        // "y": the client could bind and believes that the server cannot.
        assert!(start(SCRAM_SHA_256_METHOD, "y,,n=user,r=a", BOUND, true).is_err());
        assert!(start(SCRAM_SHA_256_METHOD, "y,,n=user,r=a", PLAIN, true).is_ok());
        assert_eq!(BOUND.mechanisms(), ["SCRAM-SHA-256-PLUS", "SCRAM-SHA-256"]);
    }

    #[test]
    fn a_sasl_message_is_taken_apart_within_its_bounds() {
        let message = [b"SCRAM-SHA-256\0".as_slice(), &3_i32.to_be_bytes(), b"n,,"].concat();
        assert_eq!(initial_response(&message), Ok(("SCRAM-SHA-256", "n,,")));
        for length in 0..message.len() {
            assert!(initial_response(&message[..length]).is_err());
        }
        let negative = [b"SCRAM-SHA-256\0".as_slice(), &(-1_i32).to_be_bytes()].concat();
        assert!(initial_response(&negative).is_err());
    }
}
