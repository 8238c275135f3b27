#![no_main]

#[allow(dead_code)] // One of its targets is used here.
#[path = "../targets.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::gguf(bytes));
