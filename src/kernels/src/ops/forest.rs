//! Where the tokens of a batch lie: in trees, whose branches share the beginning that they have in common.
//!
//! Tree training lays a beginning out once for all sequences that have it, depth first, and lets each token see its own ancestors alone
//! (arXiv:2511.00413; arXiv:2410.20305 for the two sequences of a preference pair). Sequences that share nothing are trees without
//! branches, end to end.

use std::ops::Range;
use std::sync::Arc;

use super::blocks::{Block, blocks};

/// Consecutive tokens between which no sequence branches off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// The segment that it follows, which comes before it in the forest; none where a tree begins.
    pub parent: Option<usize>,
    /// Of the batch.
    pub rows: Range<usize>,
    /// Tokens between the root of its tree and its first one, which is that one's position.
    pub depth: usize,
}

/// The trees of a batch. A token sees those on the way from the root of its tree to itself, and nothing else.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Forest {
    segments: Arc<[Segment]>,
    trees: Arc<[Tree]>,
}

/// One tree, and how its attention is cut.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Tree {
    /// Of the batch.
    pub rows: Range<usize>,
    pub blocks: Vec<Block>,
}

impl Forest {
    /// Sequences of these lengths, end to end.
    pub fn sequences(lengths: &[usize]) -> Self {
        Self::depth_first(lengths.iter().map(|&length| (0, length)))
    }

    /// The levels and lengths of the segments, depth first. A tree begins with a segment of level 0; any other one follows the nearest
    /// one before it whose level is lower.
    pub fn depth_first(segments: impl IntoIterator<Item = (usize, usize)>) -> Self {
        let mut placed: Vec<Segment> = Vec::new();
        // From the root to the segment placed last.
        let mut path: Vec<usize> = Vec::new();
        for (level, length) in segments {
            path.truncate(level);
            let parent = path.last().copied();
            let first_row = placed.last().map_or(0, |segment| segment.rows.end);
            let depth = parent.map_or(0, |parent| placed[parent].depth + placed[parent].rows.len());
            path.push(placed.len());
            placed.push(Segment { parent, rows: first_row..first_row + length, depth });
        }
        Self { trees: trees(&placed).into(), segments: placed.into() }
    }

    /// In the order of their rows.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Rows of the batch.
    pub fn num_tokens(&self) -> usize {
        self.segments.last().map_or(0, |segment| segment.rows.end)
    }

    /// Tokens of the longest way from a root.
    pub fn longest(&self) -> usize {
        self.segments.iter().map(|segment| segment.depth + segment.rows.len()).max().unwrap_or(0)
    }

    /// The position of each row's token in its sequence.
    pub fn positions(&self) -> impl Iterator<Item = u32> {
        self.segments.iter().flat_map(|segment| (0..segment.rows.len()).map(move |offset| (segment.depth + offset) as u32))
    }

    /// The rows from the root to the end of a segment, as ascending runs that do not touch.
    pub fn path(&self, segment: usize) -> Vec<Range<usize>> {
        path(&self.segments, segment)
    }

    /// The rows of each tree.
    pub(super) fn tree_rows(&self) -> impl Iterator<Item = Range<usize>> {
        self.trees.iter().map(|tree| tree.rows.clone())
    }

    pub(super) fn trees(&self) -> &[Tree] {
        &self.trees
    }
}

fn trees(segments: &[Segment]) -> Vec<Tree> {
    let roots: Vec<usize> = (0..segments.len()).filter(|&index| segments[index].parent.is_none()).collect();
    let ends = roots.iter().skip(1).copied().chain([segments.len()]);
    let tree = |(&root, end): (&usize, usize)| {
        let rows = segments[root].rows.start..segments[end - 1].rows.end;
        Tree { rows, blocks: blocks(segments, root..end) }
    };
    roots.iter().zip(ends).map(tree).collect()
}

/// See [`Forest::path`].
pub(super) fn path(segments: &[Segment], segment: usize) -> Vec<Range<usize>> {
    let upwards = std::iter::successors(Some(segment), |&segment| segments[segment].parent);
    let mut rows: Vec<Range<usize>> = upwards.map(|segment| segments[segment].rows.clone()).collect();
    // A parent's rows come before those of its children.
    rows.reverse();
    joined(rows)
}

/// Runs in the order of their starts, those that touch or overlap made one.
pub(super) fn joined(runs: impl IntoIterator<Item = Range<usize>>) -> Vec<Range<usize>> {
    let mut joined: Vec<Range<usize>> = Vec::new();
    for run in runs.into_iter().filter(|run| !run.is_empty()) {
        match joined.last_mut() {
            Some(last) if run.start <= last.end => last.end = last.end.max(run.end),
            _ => joined.push(run),
        }
    }
    joined
}
