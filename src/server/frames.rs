//! Messages of a client as bytes: where one ends, and whether what it says of its own parts is true.
//!
//! The protocol library decodes from all that has arrived and believes the counts inside a message: a short Bind makes it panic, and a long count reads
//! on in the message after it. So a message is cut out at its length and checked here first, and the library gets those that hold together. What the
//! parts mean is not known here.

use bytes::BytesMut;
use pgwire::error::{PgWireError, PgWireResult};
use pgwire::messages::{DecodeContext, PgWireFrontendMessage, ProtocolVersion};

use super::messages::DATA_BYTES_MAX;
use super::response::{client_error, fatal};

/// Messages that hold no statement and no data, and all that comes before a client is known; PostgreSQL's bound.
const SMALL_BYTES_MAX: usize = 10_000;

/// Of the length that all messages have.
const LENGTH_BYTES: usize = 4;
/// A length and a protocol version, or the number of a request.
const STARTUP_BYTES_MIN: usize = 8;
/// Before the key of a cancel request: length, number, process.
const CANCEL_BYTES: usize = 12;
const CANCEL_KEY_BYTES: std::ops::RangeInclusive<usize> = 4..=256;

/// A request in the place of a protocol version.
const CANCEL_REQUEST: u32 = 80_877_102;
const PROTOCOL_MAJOR: u32 = 3;

/// How far a connection is, as far as it decides what may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing has come yet; the first messages have no type.
    Startup,
    /// The client shows who it is.
    Authentication,
    Established,
}

/// How much of the first message is there.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// All of it: its bytes.
    Whole(usize),
    /// At least so many bytes are missing.
    Missing(usize),
}

/// The first message's extent in what has arrived. `data_bytes_max`: of the text of a statement, the values of its parameters, and a piece of what COPY brings.
///
/// # Errors
/// FATAL: a type that is not known or not expected (08P01), a length that no message has (08P01) or that is too much (54000). The place of the next
/// message is not known then, so the connection can not go on.
pub(super) fn extent(bytes: &[u8], phase: Phase, data_bytes_max: usize) -> PgWireResult<Extent> {
    let (start, most, least) = match (phase, bytes.first()) {
        (_, None) => return Ok(Extent::Missing(1 + LENGTH_BYTES)),
        (Phase::Startup, _) => (0, SMALL_BYTES_MAX, STARTUP_BYTES_MIN),
        (_, Some(kind)) => (1, bytes_max(*kind, phase, data_bytes_max)?, LENGTH_BYTES),
    };
    let Some(length) = bytes.get(start..).and_then(|rest| rest.first_chunk::<LENGTH_BYTES>()) else {
        return Ok(Extent::Missing(start + LENGTH_BYTES - bytes.len()));
    };
    // A negative length is far too much here.
    let length = u32::from_be_bytes(*length) as usize;
    if length < least || length > i32::MAX as usize {
        return Err(fatal("08P01", "invalid length of message"));
    }
    if length > most {
        return Err(fatal(
            "54000",
            &format!("a message of {length} bytes is too long: at most {most}; send the data in parts, or with COPY"),
        ));
    }
    let end = start + length;
    Ok(match end.checked_sub(bytes.len()) {
        Some(missing) if missing > 0 => Extent::Missing(missing),
        _ => Extent::Whole(end),
    })
}

fn bytes_max(kind: u8, phase: Phase, data_bytes_max: usize) -> PgWireResult<usize> {
    match (kind, phase) {
        (b'p', Phase::Authentication) | (b'X', _) => Ok(SMALL_BYTES_MAX),
        (b'Q' | b'P' | b'B' | b'd', Phase::Established) => Ok(data_bytes_max),
        (b'C' | b'D' | b'E' | b'H' | b'S' | b'c' | b'f', Phase::Established) => Ok(SMALL_BYTES_MAX),
        _ => Err(fatal("08P01", &format!("invalid frontend message type {kind:#04x}"))),
    }
}

fn startup_number(startup: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(*startup.get(LENGTH_BYTES..)?.first_chunk()?))
}

/// The message that a whole frame is.
///
/// # Errors
/// A message whose parts do not fit it (08P01), text that is not UTF-8 (22021), a protocol version that is not ours (0A000), a client without a
/// name (28000).
pub(super) fn decode(mut frame: BytesMut, phase: Phase, version: ProtocolVersion) -> PgWireResult<PgWireFrontendMessage> {
    match phase {
        Phase::Startup => check_startup(&frame)?,
        Phase::Authentication | Phase::Established => check(frame[0], &frame[1 + LENGTH_BYTES..])?,
    }
    let mut context = DecodeContext::new(version);
    context.awaiting_frontend_ssl = false;
    context.awaiting_frontend_startup = phase == Phase::Startup;
    PgWireFrontendMessage::decode(&mut frame, &context)?.ok_or_else(broken)
}

fn check_startup(frame: &[u8]) -> PgWireResult<()> {
    let number = startup_number(frame).ok_or_else(broken)?;
    if number == CANCEL_REQUEST {
        let key = frame.len().checked_sub(CANCEL_BYTES).filter(|key| CANCEL_KEY_BYTES.contains(key));
        return key.map(|_| ()).ok_or_else(|| fatal("08P01", "invalid length of the key of a cancel request"));
    }
    let (major, minor) = (number >> 16, number & 0xffff);
    if major != PROTOCOL_MAJOR {
        return Err(fatal("0A000", &format!("unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.2")));
    }
    let mut parts = Parts(&frame[STARTUP_BYTES_MIN..]);
    let mut has_user = false;
    loop {
        let name = parts.string().ok_or_else(|| fatal("08P01", "invalid startup packet layout: expected terminator as last byte"))?;
        if name.is_empty() {
            break;
        }
        let value = parts.string().ok_or_else(|| fatal("08P01", "invalid startup packet layout: a parameter without a value"))?;
        if std::str::from_utf8(name).is_err() || std::str::from_utf8(value).is_err() {
            return Err(fatal("22021", "invalid byte sequence for encoding \"UTF8\" in the startup packet"));
        }
        has_user |= name == b"user" && !value.is_empty();
    }
    if !parts.0.is_empty() {
        return Err(fatal("08P01", "invalid startup packet layout: expected terminator as last byte"));
    }
    if has_user { Ok(()) } else { Err(fatal("28000", "no user name specified in startup packet")) }
}

/// Whether the body of a message is what messages of its type are.
fn check(kind: u8, body: &[u8]) -> PgWireResult<()> {
    let mut parts = Parts(body);
    let is_whole = match kind {
        b'Q' | b'f' => parts.text()?,
        b'P' => parts.text()? && parts.text()? && parts.counted(4).is_some(),
        b'B' => parts.text()? && parts.text()? && parts.counted(2).is_some() && parts.values().is_some() && parts.counted(2).is_some(),
        b'C' | b'D' => parts.take(1).is_some() && parts.text()?,
        b'E' => parts.text()? && parts.take(4).is_some(),
        b'H' | b'S' | b'X' | b'c' => true,
        // Passwords and data of COPY are bytes to whoever reads them.
        _ => return Ok(()),
    };
    if is_whole && parts.0.is_empty() { Ok(()) } else { Err(broken()) }
}

fn broken() -> PgWireError {
    client_error("08P01", "invalid message format".to_string())
}

/// What is left of a message's body.
struct Parts<'a>(&'a [u8]);

impl<'a> Parts<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// The bytes before the next zero, which is passed over.
    fn string(&mut self) -> Option<&'a [u8]> {
        let end = memchr::memchr(0, self.0)?;
        let string = self.take(end)?;
        self.take(1)?;
        Some(string)
    }

    /// Passes over a string; `false` if there is none.
    fn text(&mut self) -> PgWireResult<bool> {
        let Some(string) = self.string() else { return Ok(false) };
        // The library would put other characters in the place of what it cannot read.
        match std::str::from_utf8(string) {
            Ok(_) => Ok(true),
            Err(error) => {
                Err(client_error("22021", format!("invalid byte sequence for encoding \"UTF8\" at byte {}", error.valid_up_to())))
            }
        }
    }

    fn count(&mut self) -> Option<usize> {
        let count = self.take(2)?.first_chunk()?;
        Some(usize::from(u16::from_be_bytes(*count)))
    }

    /// Passes over a count and as many items.
    fn counted(&mut self, bytes_each: usize) -> Option<()> {
        let count = self.count()?;
        self.take(count * bytes_each).map(|_| ())
    }

    /// Passes over a count and as many values, each with its length; -1 is NULL.
    fn values(&mut self) -> Option<()> {
        for _ in 0..self.count()? {
            let length = i32::from_be_bytes(*self.take(4)?.first_chunk()?);
            if length != -1 {
                self.take(usize::try_from(length).ok()?)?;
            }
        }
        Some(())
    }
}

/// Reads `bytes` as all that a client sends, the first message as a startup if `starts`, and counts the messages that a server would act on. For tests
/// that throw bytes at the decoder.
#[doc(hidden)]
#[must_use]
pub fn count_messages(bytes: &[u8], starts: bool) -> usize {
    let mut rest = BytesMut::from(bytes);
    let mut phase = if starts { Phase::Startup } else { Phase::Established };
    let mut count = 0;
    while let Ok(Extent::Whole(length)) = extent(&rest, phase, DATA_BYTES_MAX) {
        let decoded = decode(rest.split_to(length), phase, ProtocolVersion::default());
        count += usize::from(decoded.is_ok());
        if phase == Phase::Startup && decoded.is_err() {
            break;
        }
        phase = Phase::Established;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + LENGTH_BYTES).expect("it is short").to_be_bytes();
        [&[kind][..], &length, body].concat()
    }

    fn startup(number: u32, rest: &[u8]) -> Vec<u8> {
        let length = u32::try_from(rest.len() + STARTUP_BYTES_MIN).expect("it is short").to_be_bytes();
        [&length[..], &number.to_be_bytes(), rest].concat()
    }

    /// The SQLSTATE with which bytes are refused; none for those that are read.
    fn refused(bytes: &[u8], phase: Phase) -> String {
        let read = match extent(bytes, phase, DATA_BYTES_MAX) {
            Ok(Extent::Whole(length)) => decode(BytesMut::from(&bytes[..length]), phase, ProtocolVersion::default()).map(|_| ()),
            Ok(Extent::Missing(_)) => return "missing".to_string(),
            Err(error) => Err(error),
        };
        match read {
            Ok(()) => String::new(),
            Err(PgWireError::UserError(info)) => info.code,
            Err(other) => other.to_string(),
        }
    }

    #[test]
    fn messages_whose_parts_fit_are_read() {
        for message in [
            frame(b'Q', b"SELECT 1\0"),
            frame(b'P', b"\0SELECT $1\0\0\x01\0\0\0\x17"),
            frame(b'B', b"\0\0\0\x01\0\x01\0\x02\0\0\0\x01x\xff\xff\xff\xff\0\0"),
            frame(b'D', b"S\0"),
            frame(b'E', b"\0\0\0\0\0"),
            frame(b'S', b""),
            frame(b'd', b"anything"),
        ] {
            assert_eq!(refused(&message, Phase::Established), "", "{message:?}");
        }
        assert_eq!(refused(&startup(0x0003_0000, b"user\0me\0\0"), Phase::Startup), "");
        assert_eq!(refused(&startup(CANCEL_REQUEST, b"\0\0\0\x01\0\0\0\x02"), Phase::Startup), "");
        assert_eq!(refused(&frame(b'p', b"secret\0"), Phase::Authentication), "");
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (body, kind, code) in [
            (&b""[..], b'P', "08P01"),
            (b"\0SELECT 1\0\xff\xff", b'P', "08P01"),
            (b"\0\0", b'B', "08P01"),
            (b"\0\0\0\0\0\x01\x7f\xff\xff\xff\0\0", b'B', "08P01"),
            (b"\0\0\0\0\0\x01\xff\xff\xff\xfe\0\0", b'B', "08P01"),
            (b"SELECT 1", b'Q', "08P01"),
            (b"SELECT 1\0garbage\0", b'Q', "08P01"),
            (b"SELECT '\xff'\0", b'Q', "22021"),
            (b"", b'D', "08P01"),
            (b"\0", b'E', "08P01"),
            (b"more", b'S', "08P01"),
            (b"secret\0", b'p', "08P01"),
            (b"", b'F', "08P01"),
        ] {
            assert_eq!(refused(&frame(kind, body), Phase::Established), code, "{} {body:?}", char::from(kind));
        }
        assert_eq!(refused(&frame(b'Q', b"SELECT 1\0"), Phase::Authentication), "08P01");
        for (bytes, code) in [
            (startup(0x0002_0000, b"user\0me\0\0"), "0A000"),
            (startup(0x0003_0000, b"user\0me"), "08P01"),
            (startup(0x0003_0000, b"user\0me\0\0more"), "08P01"),
            (startup(0x0003_0000, b"\0"), "28000"),
            (startup(CANCEL_REQUEST, b"\0\0\0\x01"), "08P01"),
            (vec![0; 8], "08P01"),
            (vec![0xff; 8], "08P01"),
            (vec![0x7f, 0xff, 0xff, 0xff, 0, 3, 0, 0], "54000"),
        ] {
            assert_eq!(refused(&bytes, Phase::Startup), code, "{bytes:?}");
        }
    }

    #[test]
    fn lengths_are_judged_before_anything_is_held() {
        let declared = |kind: u8, length: u32| refused(&[&[kind][..], &length.to_be_bytes()].concat(), Phase::Established);
        assert_eq!(declared(b'Q', 0), "08P01");
        assert_eq!(declared(b'Q', u32::MAX), "08P01");
        assert_eq!(declared(b'Q', 2 << 30), "08P01");
        assert_eq!(declared(b'Q', (2 << 30) - 1), "54000");
        assert_eq!(declared(b'E', 10_001), "54000");
        assert_eq!(declared(b'Q', 10_001), "missing");
        assert_eq!(
            extent(&frame(b'Q', b"SELECT 1\0")[..3], Phase::Established, DATA_BYTES_MAX).expect("so far it is right"),
            Extent::Missing(2)
        );
        assert_eq!(extent(&[], Phase::Startup, DATA_BYTES_MAX).expect("nothing is wrong"), Extent::Missing(5));
    }

    /// Counts of one message do not reach into the next.
    #[test]
    fn a_message_ends_where_it_says() {
        let bytes = [frame(b'B', b"\0\0\0\0\0\x01\0\0\0\x10\0\0"), frame(b'Q', b"SELECT 1\0"), frame(b'S', b"")].concat();
        assert_eq!(count_messages(&bytes, false), 2);
    }
}
