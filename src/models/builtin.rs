//! Models inside the binary, so that a fresh machine without a network has a policy.

/// A file's name and bytes.
pub type BuiltinFile = (&'static str, &'static [u8]);

/// The built-in models by name: `CREATE MODEL m FROM 'builtin://<name>'`.
pub const BUILTIN: &[(&str, &[BuiltinFile])] = &[];
