//! SHA-256 of files, in hexadecimal digits as `sha256sum` writes them.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use ring::digest::{Context, SHA256};

const BLOCK_BYTES: usize = 1 << 20;

/// Of what files hold, one after the other.
pub fn of_files<P: AsRef<Path>>(paths: &[P]) -> io::Result<String> {
    of_files_unless(paths, &|| false).map(|sum| sum.expect("it is over at the end of the files alone"))
}

/// As [`of_files`]. `None`: `is_over` became true before their end.
pub fn of_files_unless<P: AsRef<Path>>(paths: &[P], is_over: &dyn Fn() -> bool) -> io::Result<Option<String>> {
    let (mut context, mut block) = (Context::new(&SHA256), vec![0; BLOCK_BYTES]);
    for path in paths {
        let mut file = File::open(path)?;
        loop {
            let num_read = file.read(&mut block)?;
            if num_read == 0 {
                break;
            }
            context.update(&block[..num_read]);
            if is_over() {
                return Ok(None);
            }
        }
    }
    Ok(Some(hex(context.finish().as_ref())))
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_that_of_sha256sum() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let paths = ["a", "b"].map(|name| directory.path().join(name));
        std::fs::write(&paths[0], "a").expect("it is writable");
        std::fs::write(&paths[1], "bc").expect("it is writable");
        // printf abc | sha256sum
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(of_files(&paths).expect("they are there"), expected);
        assert_eq!(of_files_unless(&paths, &|| true).expect("they are there"), None);
    }
}
