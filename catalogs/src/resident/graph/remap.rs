//! A graph moved to another matrix: rows have other numbers there, some are gone, others are new.
//!
//! A node that is gone leaves its neighbours to those that were linked to it, who choose among them and their own as they did when they were
//! inserted (FreshDiskANN, Singh et al. 2021, arXiv:2105.09613, Algorithm 4). The result is a function of the graph, the moves and the rows.

use std::cmp::Reverse;

use super::build::{Builder, draw_level, select};
use super::bytes::starts;
use super::{Distances, Graph, NONE, Pool, Space};

/// Where rows have gone: for each row of the old matrix its number in the new one; `None`: it is no longer there.
pub(crate) type Moves = [Option<u32>];

impl Graph {
    /// The graph over the rows of `vectors` `[_, width]`: those of this graph that `moves` names, which have the same values there, and all others,
    /// which are inserted.
    ///
    /// `progress` gets the number of rows inserted so far; [`None`] once it returns false.
    ///
    /// # Panics
    /// If `moves` is shorter than the graph, or two rows move to one place, or to none of the matrix.
    pub(crate) fn moved(&self, moves: &Moves, vectors: &[f32], threads: usize, progress: &(dyn Fn(usize) -> bool + Sync)) -> Option<Self> {
        let num_rows = vectors.len() / self.parameters.width;
        let nodes = Nodes::new(self, moves, num_rows);
        let mut graph = nodes.empty_graph(self, num_rows);
        graph.twins = nodes.twins.clone();
        let space = graph.space(vectors);
        let mut builder = Builder::new(graph, space, threads);
        let linked: Vec<(u32, u32)> = nodes.linked();
        let links = builder.parallel(linked.len(), |i, _| nodes.links(self, space, linked[i]));
        for ((_, new), layers) in linked.iter().zip(links) {
            for (layer, links) in layers.into_iter().enumerate() {
                builder.graph.set_links(*new, layer, links.into_iter());
            }
        }
        // The old entry, if it is as high as any: a graph that has not moved stays as it is.
        let entry = self.entry.and_then(|entry| nodes.stand_ins[entry as usize]);
        let rank = |new: &u32| (builder.graph.level(*new), entry == Some(*new), Reverse(*new));
        builder.graph.entry = linked.iter().map(|(_, new)| *new).max_by_key(rank);
        let missing = builder.graph.in_random_order(nodes.missing());
        builder.insert_all(&missing, progress)
    }
}

/// What becomes of the nodes of a graph.
struct Nodes {
    /// By old number: the row that stands in the node's place, the node itself or, when it is gone, the first of its twins that is not. `None` for twins
    /// and for nodes that are gone.
    stand_ins: Vec<Option<u32>>,
    /// In new numbers, ascending.
    twins: Vec<(u32, u32)>,
    /// By new number: whether the row is a node or a twin already.
    is_known: Vec<bool>,
}

impl Nodes {
    fn new(graph: &Graph, moves: &Moves, num_rows: usize) -> Self {
        let mut stand_ins: Vec<Option<u32>> = moves[..graph.len()].to_vec();
        for (_, twin) in &graph.twins {
            stand_ins[*twin as usize] = None;
        }
        let mut twins = Vec::with_capacity(graph.twins.len());
        for group in graph.twins.chunk_by(|a, b| a.0 == b.0) {
            let node = group[0].0 as usize;
            let mut rows: Vec<u32> = group.iter().filter_map(|(_, twin)| moves[*twin as usize]).collect();
            if stand_ins[node].is_none() {
                rows.sort_unstable();
                stand_ins[node] = rows.first().copied();
            }
            let Some(stand_in) = stand_ins[node] else { continue };
            twins.extend(rows.into_iter().filter(|row| *row != stand_in).map(|row| (stand_in, row)));
        }
        twins.sort_unstable();
        let mut is_known = vec![false; num_rows];
        for row in stand_ins.iter().flatten().chain(twins.iter().map(|(_, twin)| twin)) {
            assert!(!std::mem::replace(&mut is_known[*row as usize], true), "a place for each row");
        }
        Self { stand_ins, twins, is_known }
    }

    /// The levels of all rows, and room for their links.
    fn empty_graph(&self, old: &Graph, num_rows: usize) -> Graph {
        let parameters = old.parameters;
        let end = u32::try_from(num_rows).ok().filter(|end| *end != NONE).expect("fewer rows than node numbers");
        let mut levels: Vec<u8> = (0..end).map(|row| draw_level(parameters.seed, row, parameters.m)).collect();
        for (node, stand_in) in self.stand_ins.iter().enumerate() {
            if let Some(row) = stand_in {
                levels[*row as usize] = old.levels[node];
            }
        }
        let (upper_start, num_blocks) = starts(&levels).expect("about as many blocks as rows at most");
        let base = vec![NONE; num_rows * 2 * parameters.m];
        let upper = vec![NONE; num_blocks * parameters.m];
        Graph { parameters, levels, base, upper, upper_start, entry: None, twins: Vec::new(), pool: Pool::default() }
    }

    /// The nodes that stay, as (old, new) number.
    fn linked(&self) -> Vec<(u32, u32)> {
        (0..).zip(&self.stand_ins).filter_map(|(old, new)| Some((old, (*new)?))).collect()
    }

    /// The rows that the old graph did not have.
    fn missing(&self) -> Vec<u32> {
        (0..).zip(&self.is_known).filter(|(_, is_known)| !**is_known).map(|(row, _)| row).collect()
    }

    /// The links of a node per layer, in new numbers.
    fn links(&self, old: &Graph, space: Space<'_>, (node, new): (u32, u32)) -> Vec<Vec<u32>> {
        let stand_in = |node: &u32| self.stand_ins[*node as usize];
        let of_layer = |layer| {
            let links = old.links(node, layer);
            let stay: Vec<u32> = links.iter().filter_map(stand_in).collect();
            if stay.len() == links.len() {
                return stay;
            }
            let gone = links.iter().filter(|link| stand_in(link).is_none());
            let theirs = gone.flat_map(|gone| old.links(*gone, layer)).filter_map(stand_in).filter(|row| *row != new);
            let mut candidates: Vec<u32> = stay.iter().copied().chain(theirs).collect();
            candidates.sort_unstable();
            candidates.dedup();
            let mut keys: Vec<u64> = space.seen_from(space.row(new)).keys(&candidates, &mut Vec::new()).collect();
            keys.sort_unstable();
            select(space, keys.into_iter().map(|key| (key, false)), old.num_links_max(layer)).into_iter().map(super::node_of).collect()
        };
        (0..=old.level(node)).map(of_layer).collect()
    }
}
