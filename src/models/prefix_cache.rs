//! Keys and values of finished prompts, for prompts that begin like them.

use super::kv_cache::KvCache;

/// Finished prompts, the least recently used dropped first beyond a budget of bytes.
#[derive(Debug)]
pub struct PrefixCache {
    entries: Vec<Entry>,
    size_bytes_max: usize,
    clock: u64,
}

#[derive(Debug)]
struct Entry {
    tokens: Vec<u32>,
    cache: KvCache,
    last_use: u64,
}

/// Number of leading tokens that two sequences share.
pub fn shared_prefix(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl PrefixCache {
    /// An empty cache that holds at most `size_bytes_max` bytes.
    pub fn new(size_bytes_max: usize) -> Self {
        Self { entries: Vec::new(), size_bytes_max, clock: 0 }
    }

    /// The length of the longest prefix of `tokens` that is held, and the cache that holds it.
    pub fn longest(&mut self, tokens: &[u32]) -> Option<(usize, &KvCache)> {
        self.clock += 1;
        let shared = |entry: &Entry| shared_prefix(&entry.tokens, tokens);
        let entry = self.entries.iter_mut().max_by_key(|entry| shared(entry))?;
        entry.last_use = self.clock;
        Some((shared_prefix(&entry.tokens, tokens), &entry.cache))
    }

    /// Keeps the cache of `tokens`, in place of every entry that is a prefix of it, unless a longer one is there already.
    pub fn insert(&mut self, tokens: Vec<u32>, cache: KvCache) {
        if self.entries.iter().any(|entry| entry.tokens.starts_with(&tokens)) {
            return;
        }
        self.clock += 1;
        self.entries.retain(|entry| !tokens.starts_with(&entry.tokens));
        self.entries.push(Entry { tokens, cache, last_use: self.clock });
        while self.size_bytes() > self.size_bytes_max {
            let oldest = self.entries.iter().enumerate().min_by_key(|(_, entry)| entry.last_use).map(|(index, _)| index);
            let Some(oldest) = oldest else { break };
            self.entries.swap_remove(oldest);
        }
    }

    fn size_bytes(&self) -> usize {
        self.entries.iter().map(|entry| entry.cache.size_bytes()).sum()
    }
}
