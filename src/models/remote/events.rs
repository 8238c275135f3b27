//! Server-sent events: bytes as they come, cut into events (WHATWG HTML, 9.2).

use bytes::BytesMut;

/// There are servers that begin a text with it.
pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";
/// Fields of an event; other lines say nothing to who reads events.
const FIELDS: [&[u8]; 4] = [b"data", b"event", b"id", b"retry"];
/// Of lines that are no part of an event, as much as a message shows, in any encoding.
const STRAY_BYTES_MAX: usize = 2_000;

/// Whether a body comes in events, by how it begins: JSON and pages begin otherwise. None: it has not said enough.
pub(super) fn is_stream(head: &[u8]) -> Option<bool> {
    if BYTE_ORDER_MARK.starts_with(head) {
        return None;
    }
    let head = head.strip_prefix(BYTE_ORDER_MARK).unwrap_or(head).trim_ascii_start();
    if *head.first()? == b':' {
        return Some(true);
    }
    let Some(field) = FIELDS.iter().find(|field| head.starts_with(field) || field.starts_with(head)) else { return Some(false) };
    head.get(field.len()).map(|next| matches!(next, b':' | b'\r' | b'\n'))
}

/// What an event says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Event {
    pub data: Vec<u8>,
    /// Whether it has the name of an error, whatever its data look like.
    pub is_error: bool,
}

/// Reads events from pieces of any size. Lines end with a line feed, with or without a carriage return before it: no server of this API writes others.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// What is not read yet.
    bytes: BytesMut,
    /// No line ends before.
    searched: usize,
    /// Of the event that is being read; None before its first line.
    data: Option<Vec<u8>>,
    is_error: bool,
    /// Lines that are no part of an event: what a server says that has lost the thread.
    stray: Vec<u8>,
}

impl Events {
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next event that is there as a whole. Comments, and events without data, are passed over.
    pub fn next_event(&mut self) -> Option<Event> {
        while let Some(line) = self.next_line() {
            if line.is_empty() {
                let is_error = std::mem::take(&mut self.is_error);
                if let Some(data) = self.data.take() {
                    return Some(Event { data, is_error });
                }
            } else {
                self.take(&line);
            }
        }
        None
    }

    /// When no more bytes come: the last event, if its lines are whole and the empty line that should end it is missing; and what came beside events, a
    /// line that did not end included.
    pub fn last_event(mut self) -> (Option<Event>, Vec<u8>) {
        let line = std::mem::take(&mut self.bytes);
        if !line.starts_with(b":") && !FIELDS.iter().any(|field| line.starts_with(field)) {
            self.keep_stray(&line);
        }
        let Self { data, is_error, stray, .. } = self;
        (data.map(|data| Event { data, is_error }), stray)
    }

    fn take(&mut self, line: &[u8]) {
        if let Some(value) = value_of(line, b"data") {
            match &mut self.data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                None => self.data = Some(value.to_vec()),
            }
        } else if let Some(name) = value_of(line, b"event") {
            self.is_error = name == b"error";
        } else if let Some(value) = value_of(line, b"error") {
            // Earlier versions of llama.cpp.
            (self.data, self.is_error) = (Some(value.to_vec()), true);
        } else if !line.starts_with(b":") && !FIELDS.iter().any(|field| value_of(line, field).is_some()) {
            self.keep_stray(line);
        }
    }

    fn keep_stray(&mut self, line: &[u8]) {
        let room = STRAY_BYTES_MAX.saturating_sub(self.stray.len());
        if room > 0 && !line.is_empty() {
            self.stray.extend_from_slice(&line[..line.len().min(room)]);
            self.stray.push(b' ');
        }
    }

    /// Without its end.
    fn next_line(&mut self) -> Option<BytesMut> {
        let Some(len) = self.bytes[self.searched..].iter().position(|byte| *byte == b'\n') else {
            self.searched = self.bytes.len();
            return None;
        };
        let mut line = self.bytes.split_to(self.searched + len + 1);
        self.searched = 0;
        line.truncate(line.len() - 1);
        if line.last() == Some(&b'\r') {
            line.truncate(line.len() - 1);
        }
        Some(line)
    }
}

/// What a line says of a field; None for other fields and for comments.
fn value_of<'a>(line: &'a [u8], field: &[u8]) -> Option<&'a [u8]> {
    let rest = line.strip_prefix(field)?;
    match rest.first() {
        None => Some(rest),
        Some(b':') => Some(rest.strip_prefix(b": ").unwrap_or(&rest[1..])),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(pieces: &[&[u8]]) -> Vec<String> {
        let mut events = Events::default();
        let mut found = Vec::new();
        for piece in pieces {
            events.push(piece);
            found.extend(std::iter::from_fn(|| events.next_event()));
        }
        found.extend(events.last_event().0);
        found.into_iter().map(|event: Event| String::from_utf8_lossy(&event.data).into_owned()).collect()
    }

    #[test]
    fn a_body_tells_whether_it_is_events() {
        for (head, expected) in [
            ("", None),
            ("\u{feff}", None),
            (" \n", None),
            ("dat", None),
            ("data", None),
            ("data:", Some(true)),
            ("\u{feff}data: {", Some(true)),
            ("\r\n: ping", Some(true)),
            ("event: x", Some(true)),
            ("id\n", Some(true)),
            ("{\"data\": 1}", Some(false)),
            ("\u{feff} [", Some(false)),
            ("<!DOCTYPE html>", Some(false)),
            ("database is locked", Some(false)),
            ("Internal Server Error", Some(false)),
        ] {
            assert_eq!(is_stream(head.as_bytes()), expected, "{head:?}");
        }
    }

    #[test]
    fn errors_have_a_name_and_words_beside_events_are_kept() {
        let mut events = Events::default();
        events.push(b"event: error\ndata: worn out\n\ndata: {}\n\nerror: {\"code\": 500}\n\nInternal Server Error\nid: 7\n: ping\n<html>");
        let found: Vec<(String, bool)> = std::iter::from_fn(|| events.next_event())
            .map(|event| (String::from_utf8_lossy(&event.data).into_owned(), event.is_error))
            .collect();
        let expected = [("worn out", true), ("{}", false), ("{\"code\": 500}", true)];
        assert_eq!(found, expected.map(|(data, is_error)| (data.to_owned(), is_error)));
        assert_eq!(events.last_event(), (None, b"Internal Server Error <html> ".to_vec()));
    }

    #[test]
    fn events_are_their_data() {
        assert_eq!(read(&[b"data: {\"a\": 1}\n\ndata:[DONE]\n\n"]), ["{\"a\": 1}", "[DONE]"]);
        assert_eq!(read(&[b": ping\n\nevent: x\ndata: one\r\ndata: two\r\nid: 3\r\n\r\nretry: 4\n\n"]), ["one\ntwo"]);
        assert_eq!(read(&[b"data\n\ndata:\n\ndata:  b\n\ndatum: c\n\n"]), ["", "", " b"]);
        assert_eq!(read(&[b"data: whole\n"]), ["whole"]);
        assert_eq!(read(&[b"data: whole\n\ndata: hal"]), ["whole"]);
        assert_eq!(read(&[b"\n\n: nothing\n"]), Vec::<String>::new());
    }

    proptest! {
        #[test]
        fn pieces_of_any_size_are_the_same_events(
            texts in proptest::collection::vec("[ -~é漢\u{1f600}]{0,20}", 0..8),
            cuts in proptest::collection::vec(0..400_usize, 0..12),
            is_crlf in any::<bool>(),
        ) {
            let end = if is_crlf { "\r\n" } else { "\n" };
            let whole: String = texts.iter().map(|text| format!(": comment{end}data: {text}{end}{end}")).collect();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(whole.len())).collect();
            cuts.sort_unstable();
            let ends = cuts.iter().copied().chain([whole.len()]);
            let starts = [0].into_iter().chain(cuts.iter().copied());
            let pieces: Vec<&[u8]> = starts.zip(ends).map(|(start, end)| &whole.as_bytes()[start..end]).collect();
            prop_assert_eq!(read(&pieces), texts);
        }
    }
}
