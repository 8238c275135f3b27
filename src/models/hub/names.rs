//! Names that come from a hub and become files here.

const NAME_BYTES_MAX: usize = 200;
const DEPTH_MAX: usize = 8;

/// Whether a text is a name that every file system takes as one: letters, digits, `.`, `_`, `-` and `+`, no dot first.
pub fn is_name(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '+');
    !text.is_empty() && text.len() <= NAME_BYTES_MAX && !text.starts_with('.') && text.chars().all(is_plain)
}

/// Whether a text is such names with slashes between: what it is joined to, it stays in.
pub fn is_path(text: &str) -> bool {
    text.split('/').count() <= DEPTH_MAX && text.split('/').all(is_name)
}
