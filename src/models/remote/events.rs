//! Server-sent events: bytes as they come, cut into events (WHATWG HTML, 9.2).

use bytes::BytesMut;

/// Reads events from pieces of any size. Lines end with a line feed, with or without a carriage return before it: no server of this API writes others.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// What is not read yet.
    bytes: BytesMut,
    /// No line ends before.
    searched: usize,
    /// Of the event that is being read; None before its first line.
    data: Option<Vec<u8>>,
}

impl Events {
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The data of the next event that is there as a whole. Comments, and events without data, are passed over.
    pub fn next_event(&mut self) -> Option<Vec<u8>> {
        while let Some(line) = self.next_line() {
            if line.is_empty() {
                if let Some(data) = self.data.take() {
                    return Some(data);
                }
            } else if let Some(value) = data_of(&line) {
                match &mut self.data {
                    Some(data) => {
                        data.push(b'\n');
                        data.extend_from_slice(value);
                    }
                    None => self.data = Some(value.to_vec()),
                }
            }
        }
        None
    }

    /// When no more bytes come: the last event, if its lines are whole and the empty line that should end it is missing.
    pub fn last_event(self) -> Option<Vec<u8>> {
        self.data
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

/// What a line says of the event's data; None for other fields and for comments.
fn data_of(line: &[u8]) -> Option<&[u8]> {
    let rest = line.strip_prefix(b"data")?;
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
        found.extend(events.last_event());
        found.into_iter().map(|data| String::from_utf8_lossy(&data).into_owned()).collect()
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
