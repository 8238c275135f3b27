//! Keys and values of what a policy has read and written, for prompts that begin like it.
//!
//! A tree of blocks: a node holds the tokens of one block, its children what followed it. Only whole blocks have children; a shorter one ends what was
//! read, and gives way to a longer one that begins like it. A prompt shares the whole blocks that it begins with and copies the one in which it departs,
//! so that not one token is computed twice while the blocks are held.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Weak};

use super::kv_cache::{BLOCK, BlockSource, KvCache, KvShape};

/// Blocks by the tokens that lead to them. Beyond a budget of bytes those go first that nobody holds, the least recently used before others.
#[derive(Debug)]
pub struct PrefixTree<S: BlockSource = KvShape> {
    source: S,
    /// The first is the root, which holds nothing; those in `free` hold nothing either.
    nodes: Vec<Node<S::Block>>,
    free: Vec<usize>,
    blocks_max: usize,
    clock: u64,
}

#[derive(Debug)]
struct Node<B> {
    /// At most [`BLOCK`].
    tokens: Vec<u32>,
    block: Option<Arc<B>>,
    parent: usize,
    children: Vec<usize>,
    last_use: u64,
    /// Of the last one that was kept here: more that begins so will come as long as it is there.
    holder: Weak<()>,
}

const ROOT: usize = 0;

/// Number of leading tokens that two sequences share.
pub fn shared_prefix(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl<S: BlockSource> PrefixTree<S> {
    /// An empty tree that holds at most `size_bytes_max` bytes of blocks.
    pub fn new(source: S, size_bytes_max: usize) -> Self {
        let blocks_max = size_bytes_max / source.block_bytes().max(1);
        Self { source, nodes: vec![Node::default()], free: Vec::new(), blocks_max, clock: 0 }
    }

    /// Holds at most so many bytes from now on; what sequences in flight have stays until they are done.
    pub fn limit(&mut self, size_bytes_max: usize) {
        self.blocks_max = size_bytes_max / self.source.block_bytes().max(1);
        self.shrink(self.blocks_max);
    }

    /// Lets `count` blocks go, those that were unused longest; fewer if sequences in flight have the rest.
    pub fn give_up(&mut self, count: usize) {
        self.shrink(self.num_blocks().saturating_sub(count));
    }

    /// Bytes of the blocks that are held.
    pub fn size_bytes(&self) -> usize {
        self.num_blocks() * self.source.block_bytes()
    }

    /// How many of the first tokens are held.
    pub fn longest(&self, tokens: &[u32]) -> usize {
        let (path, shared) = self.find(tokens);
        path.len() * BLOCK + shared.map_or(0, |(_, count)| count)
    }

    /// A cache of the longest prefix of `tokens` that is held; it counts as used.
    pub fn take(&mut self, tokens: &[u32]) -> KvCache<S> {
        let (path, shared) = self.find(tokens);
        self.clock += 1;
        for node in path.iter().copied().chain(shared.map(|(node, _)| node)) {
            self.nodes[node].last_use = self.clock;
        }
        let whole = path.iter().filter_map(|node| self.nodes[*node].block.clone()).collect();
        let rest = shared.and_then(|(node, count)| Some((self.nodes[node].block.as_deref()?, count)));
        KvCache::of_blocks(self.source.clone(), whole, rest)
    }

    /// Keeps the blocks of `tokens`, as many as `cache` holds.
    pub fn insert(&mut self, tokens: &[u32], cache: KvCache<S>, holder: &Weak<()>) {
        self.clock += 1;
        let mut parent = ROOT;
        let tokens = &tokens[..cache.len()];
        // Those that are not kept are in flight no more.
        for (tokens, block) in tokens.chunks(BLOCK).zip(cache.into_shared()) {
            let found = self.nodes[parent].children.iter().copied().find(|child| {
                let held = &self.nodes[*child].tokens;
                held.starts_with(tokens) || tokens.starts_with(held)
            });
            let node = found.unwrap_or_else(|| self.add(parent));
            let held = &mut self.nodes[node];
            held.last_use = self.clock;
            held.holder.clone_from(holder);
            if held.tokens.len() < tokens.len() {
                held.tokens = tokens.to_vec();
                held.block = Some(block);
            }
            parent = node;
        }
        self.shrink(self.blocks_max);
    }

    /// Blocks that are held.
    fn num_blocks(&self) -> usize {
        self.nodes.len() - 1 - self.free.len()
    }

    /// The nodes of the whole blocks that `tokens` begin with, and the one that shares most of what follows, with the number of tokens.
    fn find(&self, tokens: &[u32]) -> (Vec<usize>, Option<(usize, usize)>) {
        let (mut path, mut parent, mut rest) = (Vec::new(), ROOT, tokens);
        loop {
            let shared = |child: &usize| (*child, shared_prefix(&self.nodes[*child].tokens, rest));
            match self.nodes[parent].children.iter().map(shared).max_by_key(|(_, count)| *count) {
                Some((node, BLOCK)) => {
                    path.push(node);
                    (parent, rest) = (node, &rest[BLOCK..]);
                }
                other => return (path, other.filter(|(_, count)| *count > 0)),
            }
        }
    }

    fn add(&mut self, parent: usize) -> usize {
        let node = self.free.pop().unwrap_or_else(|| {
            self.nodes.push(Node::default());
            self.nodes.len() - 1
        });
        self.nodes[node].parent = parent;
        self.nodes[parent].children.push(node);
        node
    }

    /// Drops blocks at the ends that no sequence in flight has until no more than `blocks_max` are left: those that nobody holds, then the others, and of
    /// both those that were unused longest.
    fn shrink(&mut self, blocks_max: usize) {
        if self.num_blocks() <= blocks_max {
            return;
        }
        let by_use = |(index, node): (usize, &Node<S::Block>)| node.is_idle().then(|| Reverse((node.is_held(), node.last_use, index)));
        let mut idle: BinaryHeap<_> = self.nodes.iter().enumerate().filter_map(by_use).collect();
        while self.num_blocks() > blocks_max {
            let Some(Reverse((_, _, oldest))) = idle.pop() else { return };
            let parent = std::mem::take(&mut self.nodes[oldest]).parent;
            self.nodes[parent].children.retain(|child| *child != oldest);
            self.free.push(oldest);
            // It may be the end now.
            idle.extend(by_use((parent, &self.nodes[parent])));
        }
    }
}

impl<B> Node<B> {
    /// Whether nothing follows it and no sequence in flight has it; never the root, nor a free one.
    fn is_idle(&self) -> bool {
        self.children.is_empty() && self.block.as_ref().is_some_and(|block| Arc::strong_count(block) == 1)
    }

    fn is_held(&self) -> bool {
        self.holder.strong_count() > 0
    }
}

impl<B> Default for Node<B> {
    fn default() -> Self {
        Self { tokens: Vec::new(), block: None, parent: ROOT, children: Vec::new(), last_use: 0, holder: Weak::new() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SHAPE: KvShape = KvShape { num_layers: 1, num_heads: 1, head_dim: 2 };

    /// A cache in which every key is the number of its token.
    fn cache(tokens: &[u32]) -> KvCache {
        let mut cache = KvCache::new(SHAPE);
        for (position, token) in tokens.iter().enumerate() {
            cache.push(0, position, &[*token as f32; 2], &[*token as f32; 2]);
        }
        cache.advance(tokens.len());
        cache
    }

    fn keys(cache: &KvCache) -> Vec<u32> {
        let keys = cache.blocks().flat_map(|block| block.layer(SHAPE, 0).0[..BLOCK].to_vec());
        keys.take(cache.len()).map(|key| key as u32).collect()
    }

    fn keep(tree: &mut PrefixTree, tokens: &[u32], cache: KvCache) {
        tree.insert(tokens, cache, &Weak::new());
    }

    fn tree(blocks: usize) -> PrefixTree {
        PrefixTree::new(SHAPE, blocks * SHAPE.block_bytes())
    }

    /// Sequences that branch anywhere, from few tokens.
    fn sequences() -> impl Strategy<Value = Vec<Vec<u32>>> {
        let piece = (0_u32..3, 1_usize..50).prop_map(|(token, count)| vec![token; count]);
        prop::collection::vec(prop::collection::vec(piece, 1..5).prop_map(|pieces| pieces.concat()), 1..12)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

        /// With room for all, the hits are those that could be had: the longest prefix shared with anything before.
        #[test]
        fn nothing_that_was_read_is_computed_again(sequences in sequences()) {
            let mut tree = tree(1000);
            for (index, tokens) in sequences.iter().enumerate() {
                let optimum = sequences[..index].iter().map(|before| shared_prefix(before, tokens)).max().unwrap_or(0);
                prop_assert_eq!(tree.longest(tokens), optimum);
                let found = tree.take(tokens);
                prop_assert_eq!(keys(&found), &tokens[..optimum]);
                keep(&mut tree, tokens, cache(tokens));
            }
        }

        /// With little room, what is found is right, the budget holds, and what a sequence in flight has stays.
        #[test]
        fn what_is_held_is_right_within_the_budget(sequences in sequences(), blocks in 1_usize..8) {
            let mut tree = tree(blocks);
            let in_flight = cache(&sequences[0]);
            keep(&mut tree, &sequences[0], in_flight.clone());
            let pinned = in_flight.len() / BLOCK;
            for tokens in &sequences {
                let found = tree.take(tokens);
                prop_assert_eq!(keys(&found), &tokens[..found.len()]);
                drop(found);
                keep(&mut tree, tokens, cache(tokens));
                prop_assert!(tree.num_blocks() <= blocks.max(pinned), "{} blocks, {pinned} of them in flight", tree.num_blocks());
                prop_assert!(tree.longest(&sequences[0]) >= pinned * BLOCK);
            }
            let reachable = |tree: &PrefixTree| {
                let (mut count, mut nodes) = (0, tree.nodes[ROOT].children.clone());
                while let Some(node) = nodes.pop() {
                    count += 1;
                    nodes.extend(&tree.nodes[node].children);
                }
                count
            };
            prop_assert_eq!(reachable(&tree), tree.num_blocks());
        }
    }

    #[test]
    fn the_blocks_unused_longest_go_first() {
        let mut tree = tree(2);
        let sequences = [[1; BLOCK], [2; BLOCK], [3; BLOCK]];
        keep(&mut tree, &sequences[0], cache(&sequences[0]));
        keep(&mut tree, &sequences[1], cache(&sequences[1]));
        tree.take(&sequences[0]);
        keep(&mut tree, &sequences[2], cache(&sequences[2]));
        assert_eq!(sequences.map(|tokens| tree.longest(&tokens)), [BLOCK, 0, BLOCK]);
    }

    /// As the ways of a tree that is in work, between those of others.
    #[test]
    fn what_is_held_goes_last_and_goes_all_the_same() {
        let mut tree = tree(2);
        let sequences = [[1; BLOCK], [2; BLOCK], [3; BLOCK], [4; BLOCK]];
        let holders = [Arc::new(()), Arc::new(())];
        let held = |tree: &PrefixTree| sequences.map(|tokens| tree.longest(&tokens) > 0);
        tree.insert(&sequences[0], cache(&sequences[0]), &Arc::downgrade(&holders[0]));
        keep(&mut tree, &sequences[1], cache(&sequences[1]));
        keep(&mut tree, &sequences[2], cache(&sequences[2]));
        assert_eq!(held(&tree), [true, false, true, false]);
        // Two hold all that there is room for: the older one of them goes.
        tree.insert(&sequences[3], cache(&sequences[3]), &Arc::downgrade(&holders[1]));
        tree.insert(&sequences[2], cache(&sequences[2]), &Arc::downgrade(&holders[1]));
        assert_eq!(held(&tree), [false, false, true, true]);
        // It is done.
        drop(holders);
        keep(&mut tree, &sequences[1], cache(&sequences[1]));
        assert_eq!(held(&tree), [false, true, true, false]);
    }

    #[test]
    fn a_way_whose_end_has_gone_is_an_end_itself() {
        let mut tree = tree(100);
        let (old, new): (Vec<u32>, Vec<u32>) = (vec![1; 3 * BLOCK], vec![2; 3 * BLOCK]);
        keep(&mut tree, &old, cache(&old));
        keep(&mut tree, &new, cache(&new));
        // The first block of the old way is used last of all.
        drop(tree.take(&old[..BLOCK]));
        let lengths = [5, 4, 3, 2, 1, 0].map(|blocks| {
            tree.limit(blocks * SHAPE.block_bytes());
            [tree.longest(&old), tree.longest(&new)].map(|tokens| tokens / BLOCK)
        });
        assert_eq!(lengths, [[2, 3], [1, 3], [1, 2], [1, 1], [1, 0], [0, 0]]);
        // All at once comes to the same.
        tree.limit(100 * SHAPE.block_bytes());
        keep(&mut tree, &old, cache(&old));
        keep(&mut tree, &new, cache(&new));
        drop(tree.take(&old[..BLOCK]));
        tree.limit(2 * SHAPE.block_bytes());
        assert_eq!([&old, &new].map(|tokens| tree.longest(tokens) / BLOCK), [1, 1]);
    }

    /// As simulations below one node of a search tree: each of them uses the way to the node.
    #[test]
    fn what_many_share_outlives_what_each_adds() {
        let (mut tree, trunk) = (tree(4), [7_u32; 2 * BLOCK]);
        for own in 10..30 {
            let tokens: Vec<u32> = trunk.iter().copied().chain([own; 2 * BLOCK]).collect();
            drop(tree.take(&tokens));
            keep(&mut tree, &tokens, cache(&tokens));
            assert_eq!(tree.longest(&trunk), trunk.len());
            assert!(tree.size_bytes() <= 4 * SHAPE.block_bytes());
        }
        tree.limit(2 * SHAPE.block_bytes());
        assert_eq!((tree.longest(&trunk), tree.num_blocks()), (trunk.len(), 2));
    }
}
