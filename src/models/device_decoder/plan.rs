//! What the rows of a forward read and write, as numbers of rows in tensors: made once, and the same in every layer.

use std::collections::BTreeMap;

use crate::models::kv_cache::BLOCK;

/// Heads of a decoder.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heads {
    /// A multiple of `keys`.
    pub queries: usize,
    /// Of keys, and of values.
    pub keys: usize,
    pub width: usize,
}

/// What one product of attention may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Rows of one sequence that are scored together.
    pub rows: usize,
    /// Scores of one group.
    pub scores: usize,
    /// Values of the keys that a group gathers.
    pub gathered: usize,
}

/// The rows of one segment in the flat batch.
#[derive(Debug)]
pub(super) struct Span {
    pub first_row: usize,
    pub first_position: usize,
    pub len: usize,
    /// The sequence's blocks in the pool, those of these rows too.
    pub blocks: Vec<u32>,
}

/// What a forward of `N` rows reads and writes.
#[derive(Debug)]
pub(super) struct Plan {
    /// Where in `[capacity * BLOCK]` the key and the value of each row go: `[N]`.
    pub written: Vec<u32>,
    pub groups: Vec<Group>,
    /// Where the rows `[N, query heads]` are in the results of the groups, which lie end to end.
    pub restored: Vec<u32>,
    /// The last row of each segment.
    pub last: Vec<u32>,
}

/// Consecutive rows of sequences, about as many of each and after about as many keys: attended together, padded to the largest of each.
#[derive(Debug)]
pub(super) struct Group {
    pub size: usize,
    pub rows: usize,
    pub blocks: usize,
    /// Rows of `[N, query heads]`: `[size, query heads, rows]`.
    pub queries: Vec<u32>,
    /// Rows of the pool's `[2, key heads, capacity]`: `[2, size, key heads, blocks]`, keys and then values.
    pub keys: Vec<u32>,
    /// The last position that a row sees: `[size, rows]`.
    pub last_seen: Vec<u32>,
}

/// Some rows of a segment.
struct Piece<'a> {
    span: &'a Span,
    start: usize,
    len: usize,
}

impl Limits {
    /// Large enough to keep a large GPU busy; the scores of a group take some 700 MB while they are worked on.
    pub const DEFAULT: Self = Self { rows: 256, scores: 1 << 26, gathered: 1 << 27 };

    /// Rows of a sequence of so many tokens that are scored together.
    fn rows_of(self, len: usize, heads: Heads) -> usize {
        (self.scores / (heads.queries * len.next_multiple_of(BLOCK))).clamp(1, self.rows)
    }

    /// Pieces of so many rows and blocks that are scored together.
    fn pieces(self, rows: usize, blocks: usize, heads: Heads) -> usize {
        let keys = blocks * BLOCK;
        (self.scores / (heads.queries * rows * keys)).min(self.gathered / (heads.keys * heads.width * keys)).max(1)
    }
}

impl Plan {
    /// `capacity`: blocks for which the pool has room.
    pub fn new(spans: &[Span], heads: Heads, capacity: usize, limits: Limits) -> Self {
        let rows: usize = spans.iter().map(|span| span.len).sum();
        let (mut groups, mut restored, mut offset) = (Vec::new(), vec![0; rows * heads.queries], 0);
        for ((len, blocks), pieces) in alike(spans, heads, limits) {
            for pieces in pieces.chunks(limits.pieces(len, blocks, heads)) {
                let group = Group::new(pieces, heads, capacity);
                for (index, piece) in pieces.iter().enumerate() {
                    for (head, row) in pairs(heads.queries, piece.len) {
                        let place = offset + (index * heads.queries + head) * group.rows + row;
                        restored[piece.row(row) * heads.queries + head] = place as u32;
                    }
                }
                offset += group.queries.len();
                groups.push(group);
            }
        }
        let last = spans.iter().map(|span| (span.first_row + span.len - 1) as u32).collect();
        Self { written: spans.iter().flat_map(Span::written).collect(), groups, restored, last }
    }
}

impl Span {
    /// Where each row's key and value go.
    fn written(&self) -> impl Iterator<Item = u32> {
        let positions = self.first_position..self.first_position + self.len;
        positions.map(|position| self.blocks[position / BLOCK] * BLOCK as u32 + (position % BLOCK) as u32)
    }
}

impl Group {
    fn new(pieces: &[Piece<'_>], heads: Heads, capacity: usize) -> Self {
        let rows = pieces.iter().map(|piece| piece.len).max().unwrap_or(0);
        let blocks = pieces.iter().map(Piece::num_blocks).max().unwrap_or(0);
        let (mut queries, mut keys, mut last_seen) = (Vec::new(), Vec::new(), Vec::new());
        for piece in pieces {
            // Padding repeats the last row and the last block: what comes of it is not used, or not seen.
            let last_row = piece.len - 1;
            queries.extend(pairs(heads.queries, rows).map(|(head, row)| (piece.row(row.min(last_row)) * heads.queries + head) as u32));
            last_seen.extend((0..rows).map(|row| (piece.first_position() + row.min(last_row)) as u32));
        }
        for part in 0..2 {
            for (piece, (head, block)) in pieces.iter().flat_map(|piece| pairs(heads.keys, blocks).map(move |pair| (piece, pair))) {
                let block = piece.span.blocks[block.min(piece.num_blocks() - 1)] as usize;
                keys.push(((part * heads.keys + head) * capacity + block) as u32);
            }
        }
        Self { size: pieces.len(), rows, blocks, queries, keys, last_seen }
    }
}

impl Piece<'_> {
    /// In the flat batch.
    fn row(&self, row: usize) -> usize {
        self.span.first_row + self.start + row
    }

    fn first_position(&self) -> usize {
        self.span.first_position + self.start
    }

    /// Blocks that its last row sees.
    fn num_blocks(&self) -> usize {
        (self.first_position() + self.len).div_ceil(BLOCK)
    }
}

/// The pieces of the segments by their sizes, rounded up to powers of two: padding at most doubles anything.
fn alike(spans: &[Span], heads: Heads, limits: Limits) -> BTreeMap<(usize, usize), Vec<Piece<'_>>> {
    let mut alike: BTreeMap<_, Vec<Piece<'_>>> = BTreeMap::new();
    for span in spans {
        let rows = limits.rows_of(span.first_position + span.len, heads);
        for start in (0..span.len).step_by(rows) {
            let piece = Piece { span, start, len: rows.min(span.len - start) };
            alike.entry((piece.len.next_power_of_two(), piece.num_blocks().next_power_of_two())).or_default().push(piece);
        }
    }
    alike
}

/// All pairs of numbers below these, the second one faster.
fn pairs(first: usize, second: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..first).flat_map(move |a| (0..second).map(move |b| (a, b)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEADS: Heads = Heads { queries: 6, keys: 2, width: 8 };

    /// Spans of these (tokens before, tokens), whose blocks are numbered as they come.
    fn spans(sizes: &[(usize, usize)]) -> Vec<Span> {
        let (mut first_row, mut next_block) = (0, 0);
        let span = |&(first_position, len): &(usize, usize)| {
            let num_blocks = (first_position + len).div_ceil(BLOCK) as u32;
            let span = Span { first_row, first_position, len, blocks: (next_block..next_block + num_blocks).collect() };
            (first_row, next_block) = (first_row + len, next_block + num_blocks);
            span
        };
        sizes.iter().map(span).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever the sizes and the limits.
        #[test]
        fn every_row_is_attended_once_over_the_keys_before_it(
            sizes in prop::collection::vec((0..200_usize, 1..100_usize), 1..8),
            rows in 1..40_usize,
            scores in 1..100_000_usize,
            gathered in 1..100_000_usize,
            spare in 0..3_usize,
        ) {
            let (spans, limits) = (spans(&sizes), Limits { rows, scores, gathered });
            let capacity = sizes.iter().map(|(before, len)| (before + len).div_ceil(BLOCK)).sum::<usize>() + spare;
            let plan = Plan::new(&spans, HEADS, capacity, limits);
            let num_rows: usize = sizes.iter().map(|(_, len)| len).sum();
            // What is put back in a place was computed from the query of that place.
            let queries: Vec<u32> = plan.groups.iter().flat_map(|group| group.queries.iter().copied()).collect();
            let restored: Vec<u32> = plan.restored.iter().map(|place| queries[*place as usize]).collect();
            prop_assert_eq!(restored, (0..(num_rows * HEADS.queries) as u32).collect::<Vec<_>>());
            let mut written = plan.written.clone();
            written.sort_unstable();
            written.dedup();
            prop_assert_eq!(written.len(), num_rows, "no key is written over another one");
            for group in &plan.groups {
                let keys = group.blocks * BLOCK;
                prop_assert!(group.rows <= rows && group.rows > 0);
                prop_assert!(group.size == 1 || group.size * HEADS.queries * group.rows * keys <= scores);
                prop_assert!(group.size == 1 || group.size * HEADS.keys * HEADS.width * keys <= gathered);
                for index in 0..group.size {
                    for row in 0..group.rows {
                        let query = group.queries[index * HEADS.queries * group.rows + row] as usize / HEADS.queries;
                        let span = spans.iter().rfind(|span| span.first_row <= query).expect("the first begins with row 0");
                        let position = span.first_position + query - span.first_row;
                        prop_assert_eq!(group.last_seen[index * group.rows + row] as usize, position);
                        for ((part, head), block) in pairs(2, HEADS.keys).flat_map(|pair| (0..=position / BLOCK).map(move |block| (pair, block))) {
                            let found = group.keys[((part * group.size + index) * HEADS.keys + head) * group.blocks + block];
                            prop_assert_eq!(found as usize, (part * HEADS.keys + head) * capacity + span.blocks[block] as usize);
                        }
                    }
                }
            }
            let ends: Vec<u32> = spans.iter().map(|span| (span.first_row + span.len - 1) as u32).collect();
            prop_assert_eq!(plan.last, ends);
        }
    }

    #[test]
    fn next_tokens_of_many_sequences_are_one_product_each_octave() {
        let sizes: Vec<(usize, usize)> = (0..64).map(|index| (300 + index, 1)).collect();
        let plan = Plan::new(&spans(&sizes), HEADS, 1000, Limits::DEFAULT);
        assert_eq!(plan.groups.iter().map(|group| (group.size, group.rows, group.blocks)).collect::<Vec<_>>(), [(64, 1, 12)]);
    }
}
