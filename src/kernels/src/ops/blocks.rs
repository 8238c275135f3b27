//! How the attention over a tree of tokens is cut: blocks of consecutive query rows, and the keys that each of them sees.
//!
//! A block may reach over several branches, which then multiply the keys of their common beginning together. The scores of a block have
//! a column for each key that one of its rows sees; what another branch alone sees is a gap in a row.

use std::ops::Range;

use super::forest::{Segment, joined, path};

/// Query rows of a block at most. A block sees only the keys up to its last row, which skips half of a long sequence's scores.
const ROWS_MAX: usize = 64;
/// The keys and values of a block are copied into panels, which takes about as long as multiplying so many rows by them: branches that
/// have few rows share a block, even if each of them has gaps in it then.
const ROWS_OF_COPY: usize = 16;

/// Consecutive query rows, whose scores are computed at once.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// Counted from the first of the tree.
    pub rows: Range<usize>,
    /// The keys that a row of the block sees, ascending.
    pub runs: Vec<Run>,
    pub num_keys: usize,
    /// The block's rows, branch after branch.
    pub pieces: Vec<Piece>,
}

/// Keys that follow each other.
#[derive(Debug, PartialEq, Eq)]
pub struct Run {
    /// Counted from the first of the tree.
    pub rows: Range<usize>,
    /// Of the first one's scores; those of the others come next to it.
    pub column: usize,
}

/// Rows of a block that belong to one segment.
#[derive(Debug, PartialEq, Eq)]
pub struct Piece {
    pub num_rows: usize,
    /// Of the first row's score of itself; each row sees one column more than the row before it.
    pub column: usize,
    /// Columns before that one which these rows do not see.
    pub gaps: Vec<Range<usize>>,
}

/// Cuts the tree of these segments. A tree without branches is cut into blocks of the same size, and the blocks have no gaps.
pub fn blocks(segments: &[Segment], tree: Range<usize>) -> Vec<Block> {
    let first_row = segments[tree.start].rows.start;
    let mut drafts: Vec<Draft> = Vec::new();
    for index in tree {
        let rows = &segments[index].rows;
        let ancestors = segments[index].parent.map_or_else(Vec::new, |parent| path(segments, parent));
        for start in rows.clone().step_by(ROWS_MAX) {
            let end = rows.end.min(start + ROWS_MAX);
            let keys = joined(ancestors.iter().cloned().chain(std::iter::once(rows.start..end)));
            let draft = Draft { rows: start..end, pieces: vec![(start..end, keys.clone())], keys };
            match drafts.last().and_then(|last| last.with(&draft)) {
                Some(together) => {
                    drafts.pop();
                    drafts.push(together);
                }
                None => drafts.push(draft),
            }
        }
    }
    drafts.into_iter().map(|draft| draft.block(first_row)).collect()
}

/// A block to which more rows may come; all rows are those of the batch.
struct Draft {
    rows: Range<usize>,
    keys: Vec<Range<usize>>,
    /// Rows of one segment each, and the keys that their last one sees.
    pieces: Vec<(Range<usize>, Vec<Range<usize>>)>,
}

impl Draft {
    /// One block of both, if that is less work than two.
    fn with(&self, next: &Self) -> Option<Self> {
        let rows = self.rows.start..next.rows.end;
        if rows.len() > ROWS_MAX {
            return None;
        }
        let mut keys = [self.keys.as_slice(), next.keys.as_slice()].concat();
        keys.sort_by_key(|run| run.start);
        let together = Self { rows, keys: joined(keys), pieces: [self.pieces.as_slice(), next.pieces.as_slice()].concat() };
        (together.work() <= self.work() + next.work()).then_some(together)
    }

    /// In multiplications of a row and a key.
    fn work(&self) -> usize {
        (self.rows.len() + ROWS_OF_COPY) * self.num_keys()
    }

    fn num_keys(&self) -> usize {
        self.keys.iter().map(Range::len).sum()
    }

    /// Keys of the block before the one of `row`.
    fn column(&self, row: usize) -> usize {
        self.keys.iter().map(|run| run.len().min(row.saturating_sub(run.start))).sum()
    }

    fn block(&self, first_row: usize) -> Block {
        let of_tree = |rows: &Range<usize>| rows.start - first_row..rows.end - first_row;
        let piece = |(rows, keys): &(Range<usize>, Vec<Range<usize>>)| Piece {
            num_rows: rows.len(),
            column: self.column(rows.start),
            gaps: self.gaps(keys),
        };
        Block {
            rows: of_tree(&self.rows),
            runs: self.keys.iter().map(|run| Run { rows: of_tree(run), column: self.column(run.start) }).collect(),
            num_keys: self.num_keys(),
            pieces: self.pieces.iter().map(piece).collect(),
        }
    }

    /// The columns between the keys of a piece.
    fn gaps(&self, keys: &[Range<usize>]) -> Vec<Range<usize>> {
        let mut gaps = Vec::new();
        let mut end = 0;
        for run in keys {
            let column = self.column(run.start);
            if column > end {
                gaps.push(end..column);
            }
            end = column + run.len();
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::super::forest::Forest;
    use super::*;

    /// The rows that a block's row sees by its runs and gaps, counted from the first of the tree.
    fn seen(block: &Block, row: usize) -> Vec<usize> {
        let keys: Vec<usize> = block.runs.iter().flat_map(|run| run.rows.clone()).collect();
        let mut left = row;
        for piece in &block.pieces {
            if left < piece.num_rows {
                let columns = (0..=piece.column + left).filter(|column| !piece.gaps.iter().any(|gap| gap.contains(column)));
                return columns.map(|column| keys[column]).collect();
            }
            left -= piece.num_rows;
        }
        panic!("the block has no row {row}");
    }

    /// Each row is in one block, and sees there what it sees in the forest.
    fn check(forest: &Forest) {
        let mut rows = Vec::new();
        for tree in forest.trees() {
            for block in &tree.blocks {
                assert!(block.rows.len() <= ROWS_MAX);
                assert_eq!(block.pieces.iter().map(|piece| piece.num_rows).sum::<usize>(), block.rows.len());
                let mut num_keys = 0;
                for run in &block.runs {
                    assert_eq!(run.column, num_keys, "columns of {block:?}");
                    num_keys += run.rows.len();
                }
                assert_eq!(block.num_keys, num_keys);
                for offset in 0..block.rows.len() {
                    let row = tree.rows.start + block.rows.start + offset;
                    let segment = forest.segments().iter().position(|segment| segment.rows.contains(&row)).unwrap();
                    let ancestors = forest.path(segment).into_iter().flatten().filter(|&key| key <= row);
                    let expected: Vec<usize> = ancestors.map(|key| key - tree.rows.start).collect();
                    assert_eq!(seen(block, offset), expected, "row {row} of {forest:?}");
                    rows.push(row);
                }
            }
        }
        assert_eq!(rows, (0..forest.num_tokens()).collect::<Vec<_>>());
    }

    #[test]
    fn every_row_sees_its_ancestors() {
        check(&Forest::default());
        check(&Forest::sequences(&[1, 0, 200, 64]));
        let branching = [(0, 400), (1, 24), (1, 24), (2, 3), (2, 70), (1, 1), (0, 5), (1, 200), (2, 1), (3, 0), (4, 2), (1, 9)];
        check(&Forest::depth_first(branching));
        // Many trees of which nothing is regular.
        let mut state = 1_u64;
        let mut next = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        for _ in 0..40 {
            let segments: Vec<(usize, usize)> = (0..next(30)).map(|_| (next(6) as usize, next(90) as usize)).collect();
            check(&Forest::depth_first(segments));
        }
    }

    #[test]
    fn a_sequence_is_cut_into_blocks_of_one_size_without_gaps() {
        let forest = Forest::sequences(&[150, 100]);
        let rows = |tree: &super::super::forest::Tree| tree.blocks.iter().map(|block| block.rows.clone()).collect::<Vec<_>>();
        let blocks: Vec<_> = forest.trees().iter().map(rows).collect();
        assert_eq!(blocks, [vec![0..64, 64..128, 128..150], vec![0..64, 64..100]]);
        for block in forest.trees().iter().flat_map(|tree| &tree.blocks) {
            assert_eq!(block.runs, [Run { rows: 0..block.rows.end, column: 0 }]);
            assert_eq!(block.pieces, [Piece { num_rows: block.rows.len(), column: block.rows.start, gaps: vec![] }]);
        }
    }

    #[test]
    fn short_branches_of_a_long_beginning_share_a_block() {
        let forest = Forest::depth_first([(0, 128), (1, 8), (1, 8), (1, 8)]);
        let blocks: Vec<_> = forest.trees()[0].blocks.iter().map(|block| (block.rows.clone(), block.num_keys)).collect();
        assert_eq!(blocks, [(0..64, 64), (64..128, 128), (128..152, 152)]);
        let last = &forest.trees()[0].blocks[2];
        assert_eq!(last.pieces[2], Piece { num_rows: 8, column: 144, gaps: std::iter::once(128..144).collect() });
        // The end of the first branch would be multiplied by all keys of the second one for nothing.
        let forest = Forest::depth_first([(0, 1), (1, 70), (1, 40)]);
        let blocks: Vec<_> = forest.trees()[0].blocks.iter().map(|block| block.rows.clone()).collect();
        assert_eq!(blocks, [0..1, 1..65, 65..71, 71..111]);
    }
}
