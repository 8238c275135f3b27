//! The token ids of the last prompts of a policy.
//!
//! A tree search asks one prompt several times: for each child of a node, for a completion from the node, and once more to know whether the policy can read
//! it. Only the first of them reads the text.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::Result;

/// Of the texts and ids of one generation.
const BYTES_MAX: usize = 8 << 20;

/// Token ids by prompt, by two generations: a full new one becomes the old one, which is forgotten.
#[derive(Debug, Default)]
pub struct PromptTokens(Mutex<Generations>);

#[derive(Debug, Default)]
struct Generations {
    new: HashMap<Box<str>, Arc<[u32]>>,
    old: HashMap<Box<str>, Arc<[u32]>>,
    new_bytes: usize,
}

impl PromptTokens {
    /// The ids of a prompt, by `encode` if they are not known.
    ///
    /// # Errors
    /// Those of `encode`.
    pub fn get(&self, prompt: &str, encode: impl FnOnce(&str) -> Result<Vec<u32>>) -> Result<Arc<[u32]>> {
        let known = self.lock().get(prompt);
        if let Some(ids) = known {
            return Ok(ids);
        }
        // Others encode theirs meanwhile.
        let ids: Arc<[u32]> = encode(prompt)?.into();
        self.lock().put(prompt.into(), Arc::clone(&ids));
        Ok(ids)
    }

    fn lock(&self) -> MutexGuard<'_, Generations> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Generations {
    fn get(&mut self, prompt: &str) -> Option<Arc<[u32]>> {
        if let Some(ids) = self.new.get(prompt) {
            return Some(Arc::clone(ids));
        }
        let (prompt, ids) = self.old.remove_entry(prompt)?;
        self.put(prompt, Arc::clone(&ids));
        Some(ids)
    }

    fn put(&mut self, prompt: Box<str>, ids: Arc<[u32]>) {
        self.new_bytes += prompt.len() + size_of_val(&ids[..]);
        self.new.insert(prompt, ids);
        if self.new_bytes > BYTES_MAX {
            self.old = std::mem::take(&mut self.new);
            self.new_bytes = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_prompt_that_comes_again_is_not_read_again() {
        let (tokens, num_read) = (PromptTokens::default(), Cell::new(0));
        let read = |prompt: &str| {
            num_read.set(num_read.get() + 1);
            Ok(vec![prompt.len() as u32; 100_000])
        };
        let get = |prompt: &str| tokens.get(prompt, read).unwrap()[0];
        assert_eq!((get("one"), get("one"), num_read.get()), (3, 3, 1));
        for number in 0..100 {
            get(&format!("other {number}"));
            assert_eq!(get("one"), 3);
        }
        assert_eq!(num_read.get(), 101, "what is asked again stays");
        get("other 0");
        assert_eq!(num_read.get(), 102, "and the rest is forgotten");
    }
}
