//! Models inside the binary, so that a fresh machine without a network has a policy.

/// A file's name and bytes.
pub type BuiltinFile = (&'static str, &'static [u8]);

/// The built-in models by name: `CREATE MODEL m FROM 'builtin://<name>'`. `builtin/tinyhop/train.sql` made tinyhop.
pub const BUILTIN: &[(&str, &[BuiltinFile])] = &[(
    "tinyhop",
    &[
        ("config.json", include_bytes!("builtin/tinyhop/config.json")),
        ("tokenizer.json", include_bytes!("builtin/tinyhop/tokenizer.json")),
        ("tokenizer_config.json", include_bytes!("builtin/tinyhop/tokenizer_config.json")),
        ("model.safetensors", include_bytes!("builtin/tinyhop/model.safetensors")),
    ],
)];
