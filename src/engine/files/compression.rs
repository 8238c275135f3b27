//! Text files compressed as `.gz` and `.zst`. A file that is read tells by its first bytes what it is, whatever its name; one that is written, by its name.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Result, Write};

use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    None,
    Gzip,
    Zstd,
}

impl Compression {
    /// What the name's ending says, and the name without that ending.
    pub fn of_name(name: &str) -> (Self, &str) {
        let endings = [(".gz", Self::Gzip), (".zst", Self::Zstd)];
        let found = endings.into_iter().find(|(ending, _)| name.to_ascii_lowercase().ends_with(ending));
        found.map_or((Self::None, name), |(ending, compression)| (compression, &name[..name.len() - ending.len()]))
    }

    fn of_content(start: &[u8]) -> Self {
        if start.starts_with(GZIP_MAGIC) {
            Self::Gzip
        } else if start.starts_with(ZSTD_MAGIC) {
            Self::Zstd
        } else {
            Self::None
        }
    }
}

/// The text in a file, decompressed.
pub fn reader(mut file: impl Read + Send + 'static) -> Result<Box<dyn Read + Send>> {
    let mut start = Vec::new();
    Read::by_ref(&mut file).take(ZSTD_MAGIC.len() as u64).read_to_end(&mut start)?;
    let compression = Compression::of_content(&start);
    // A pipe cannot go back.
    let file = io::Cursor::new(start).chain(file);
    Ok(match compression {
        Compression::None => Box::new(file),
        // Files that were put together from several are read to their end.
        Compression::Gzip => Box::new(MultiGzDecoder::new(BufReader::new(file))),
        Compression::Zstd => Box::new(zstd::Decoder::new(file)?),
    })
}

/// A file that is written.
pub enum Output {
    Plain(BufWriter<File>),
    Gzip(GzEncoder<BufWriter<File>>),
    Zstd(zstd::Encoder<'static, BufWriter<File>>),
}

impl Output {
    pub fn new(compression: Compression, file: File) -> Result<Self> {
        let file = BufWriter::new(file);
        Ok(match compression {
            Compression::None => Self::Plain(file),
            Compression::Gzip => Self::Gzip(GzEncoder::new(file, flate2::Compression::default())),
            Compression::Zstd => Self::Zstd(zstd::Encoder::new(file, zstd::DEFAULT_COMPRESSION_LEVEL)?),
        })
    }

    /// Ends the compressed stream: without its end, it is a damaged file.
    pub fn finish(self) -> Result<()> {
        let mut file = match self {
            Self::Plain(file) => file,
            Self::Gzip(encoder) => encoder.finish()?,
            Self::Zstd(encoder) => encoder.finish()?,
        };
        file.flush()
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        match self {
            Self::Plain(file) => file.write(bytes),
            Self::Gzip(encoder) => encoder.write(bytes),
            Self::Zstd(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> Result<()> {
        match self {
            Self::Plain(file) => file.flush(),
            Self::Gzip(encoder) => encoder.flush(),
            Self::Zstd(encoder) => encoder.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_format_and_compression() {
        assert_eq!(Compression::of_name("a/b.jsonl.gz"), (Compression::Gzip, "a/b.jsonl"));
        assert_eq!(Compression::of_name("b.CSV.ZST"), (Compression::Zstd, "b.CSV"));
        assert_eq!(Compression::of_name("b.csv"), (Compression::None, "b.csv"));
    }

    #[test]
    fn what_was_written_is_read_also_after_something_else() {
        let text = "one\ntwo\n".repeat(10_000);
        for compression in [Compression::None, Compression::Gzip, Compression::Zstd] {
            let file = tempfile::NamedTempFile::new().expect("a temporary file");
            for _ in 0..2 {
                let appended = std::fs::OpenOptions::new().append(true).open(file.path()).expect("it is there");
                let mut output = Output::new(compression, appended).expect("it can be written");
                output.write_all(text.as_bytes()).and_then(|()| output.finish()).expect("it can be written");
            }
            let mut read = String::new();
            reader(file.reopen().expect("it is there")).and_then(|mut reader| reader.read_to_string(&mut read)).expect("it can be read");
            assert_eq!(read, text.repeat(2), "{compression:?}");
            let written = file.as_file().metadata().expect("it is there").len() as usize;
            assert_eq!(written < text.len() / 10, compression != Compression::None);
        }
    }
}
