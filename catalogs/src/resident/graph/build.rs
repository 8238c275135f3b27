//! Insertion in batches: the points of a batch search the graph as it was before, each on its own, and enter together.
//!
//! Batches grow with the graph (prefix doubling, as in ParlayANN, Manohar et al. 2024, arXiv:2305.04359). Points of one batch
//! are also compared with each other, so that a bundle of new rows far from all old ones holds together. What is computed in
//! parallel is a function of one point, or one target of links, and of the frozen graph; so the threads cannot be told from
//! the result.

use std::sync::{Mutex, PoisonError};

use super::{Distances, Graph, M_MAX, NONE, Parameters, Pool, Scratch, Space, Visited, Walk, distance_of, key_of, node_of};

/// Points of a batch; bounds the work between two calls of `progress`, and the comparisons inside of a batch.
const BATCH_MAX: usize = 256;
/// Points that a thread takes at once.
const SHARE: usize = 8;
const LEVEL_MAX: u8 = 32;

impl Graph {
    /// The graph of all rows of `vectors` `[_, width]`. It depends on the rows and the parameters, not on `threads`.
    ///
    /// `progress` gets the number of rows inserted so far, batch by batch; [`None`] once it returns false.
    ///
    /// # Panics
    /// If there are 2³² - 1 rows or more.
    pub(crate) fn build(
        vectors: &[f32],
        parameters: Parameters,
        threads: usize,
        progress: &(dyn Fn(usize) -> bool + Sync),
    ) -> Option<Self> {
        Self::empty(parameters).extend(vectors, threads, progress)
    }

    /// The graph with those rows of `vectors` `[_, width]` that it does not have yet; the ones that it has come first.
    ///
    /// `progress` gets the number of rows inserted by this call so far, batch by batch; [`None`] once it returns false, and
    /// the graph is gone: one that must survive, or is being searched, is cloned before.
    ///
    /// # Panics
    /// If there are 2³² - 1 rows or more, or fewer than the graph has.
    pub(crate) fn extend(mut self, vectors: &[f32], threads: usize, progress: &(dyn Fn(usize) -> bool + Sync)) -> Option<Self> {
        let order = self.add_rows(vectors.len() / self.parameters.width);
        let space = self.space(vectors);
        Builder::new(self, space, threads).insert_all(&order, progress)
    }

    fn empty(parameters: Parameters) -> Self {
        let Parameters { width, m, ef_construction, .. } = parameters;
        let parameters = Parameters { width: width.max(1), m: m.clamp(2, M_MAX), ef_construction: ef_construction.max(1), ..parameters };
        Self {
            parameters,
            levels: Vec::new(),
            base: Vec::new(),
            upper: Vec::new(),
            upper_start: Vec::new(),
            entry: None,
            twins: Vec::new(),
            pool: Pool::default(),
        }
    }

    /// Makes room for rows up to `num_rows`; the new ones in the order in which to insert them. A random one, because rows
    /// that come sorted, all of one kind first, would link badly to the others.
    fn add_rows(&mut self, num_rows: usize) -> Vec<u32> {
        let Parameters { m, seed, .. } = self.parameters;
        let end = u32::try_from(num_rows).ok().filter(|end| *end != NONE).expect("fewer rows than node numbers");
        let new: Vec<u32> = (0..end).skip(self.len()).collect();
        for node in &new {
            let level = draw_level(seed, *node, m);
            self.upper_start.push(u32::try_from(self.upper.len() / m).expect("about as many blocks as rows at most"));
            self.levels.push(level);
            self.upper.resize(self.upper.len() + usize::from(level) * m, NONE);
        }
        self.base.resize(self.len() * 2 * m, NONE);
        self.in_random_order(new)
    }

    /// The order in which rows are inserted.
    pub(super) fn in_random_order(&self, mut rows: Vec<u32>) -> Vec<u32> {
        rows.sort_by_cached_key(|row| hash(!self.parameters.seed, u64::from(*row)));
        rows
    }

    pub(super) fn num_links_max(&self, layer: usize) -> usize {
        if layer == 0 { 2 * self.parameters.m } else { self.parameters.m }
    }

    pub(super) fn set_links(&mut self, node: u32, layer: usize, links: impl Iterator<Item = u32>) {
        let slots = self.slots(node, layer);
        let slots = if layer == 0 { &mut self.base[slots] } else { &mut self.upper[slots] };
        slots.iter_mut().zip(links.chain(std::iter::repeat(NONE))).for_each(|(slot, link)| *slot = link);
    }
}

/// A graph that grows.
pub(super) struct Builder<'a> {
    pub(super) graph: Graph,
    space: Space<'a>,
    threads: usize,
    /// Per node, how many of its first links in layer 0 were chosen together, and need not be compared with each other again.
    settled: Vec<u16>,
}

/// A new point, and what it found before it enters.
struct Proposal {
    node: u32,
    /// A node of the graph with the same vector.
    twin_of: Option<u32>,
    /// Per layer from 0, the keys of near nodes, ascending.
    candidates: Vec<Vec<u64>>,
}

/// A link to be entered at its target, ordered so that those of one target stand together, nearest first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Backlink {
    layer: usize,
    target: u32,
    /// Of the source, seen from the target.
    key: u64,
}

impl<'a> Builder<'a> {
    /// `space`: the rows of the graph.
    pub(super) fn new(graph: Graph, space: Space<'a>, threads: usize) -> Self {
        let settled = vec![0; graph.len()];
        Self { graph, space, threads, settled }
    }

    /// The graph with all rows of `order`, which have a level and no links yet; see [`Graph::extend`] for `progress`.
    pub(super) fn insert_all(mut self, order: &[u32], progress: &(dyn Fn(usize) -> bool + Sync)) -> Option<Graph> {
        let num_old = self.graph.len() - order.len();
        let mut inserted = 0;
        while inserted < order.len() {
            let size = (num_old + inserted).clamp(1, BATCH_MAX).min(order.len() - inserted);
            self.insert(&order[inserted..inserted + size]);
            inserted += size;
            if !progress(inserted) {
                return None;
            }
        }
        self.reach_all();
        Some(self.graph)
    }

    /// Inserts the points of `batch`, which do not see each other's links.
    fn insert(&mut self, batch: &[u32]) {
        let groups = self.equal_rows(batch);
        let points: Vec<u32> = groups.iter().map(|group| group[0]).collect();
        let mut proposals = self.parallel(points.len(), |i, scratch| self.propose(&points, points[i], scratch));
        self.enter_twins(&groups, &mut proposals);
        let backlinks = self.enter(&proposals);
        self.enter_backlinks(&backlinks);
        for Proposal { node, .. } in proposals {
            if self.graph.entry.is_none_or(|entry| self.graph.level(node) > self.graph.level(entry)) {
                self.graph.entry = Some(node);
            }
        }
    }

    /// The points of `batch`, with rows of the same bits in one group.
    fn equal_rows(&self, batch: &[u32]) -> Vec<Vec<u32>> {
        let bits = |node: &u32| self.space.row(*node).iter().map(|value| value.to_bits());
        let mut sorted = batch.to_vec();
        sorted.sort_unstable_by(|a, b| bits(a).cmp(bits(b)).then(a.cmp(b)));
        sorted.chunk_by(|a, b| bits(a).eq(bits(b))).map(<[u32]>::to_vec).collect()
    }

    /// Nodes near `node`, in every layer that it will be in: of the graph, and of the `points` that enter with it.
    fn propose(&self, points: &[u32], node: u32, scratch: &mut Scratch) -> Proposal {
        let ef = self.graph.parameters.ef_construction;
        let vector = self.space.row(node);
        let mut candidates = vec![Vec::new(); self.graph.level(node) + 1];
        self.search_layers(vector, &mut candidates, scratch);
        let is_equal = |key: &&u64| self.space.row(node_of(**key)).iter().zip(vector).all(|(a, b)| a.to_bits() == b.to_bits());
        let twin_of = candidates[0].iter().find(is_equal).map(|key| node_of(*key));
        let peers: Vec<u64> =
            self.space.seen_from(vector).keys(points, &mut scratch.distances).filter(|key| node_of(*key) != node).collect();
        for (layer, candidates) in candidates.iter_mut().enumerate() {
            let worst = candidates.get(ef - 1).copied().unwrap_or(u64::MAX);
            candidates.extend(peers.iter().filter(|peer| **peer < worst && self.graph.level(node_of(**peer)) >= layer));
            candidates.sort_unstable();
            candidates.truncate(ef);
        }
        Proposal { node, twin_of, candidates }
    }

    /// Fills the lists of layers from 0 with up to `ef_construction` nodes of the graph near `vector`, ascending.
    fn search_layers(&self, vector: &[f32], layers: &mut [Vec<u64>], scratch: &mut Scratch) {
        let Some(entry) = self.graph.entry else { return };
        let from = self.space.seen_from(vector);
        let mut start = self.graph.descend(&from, from.key(entry), layers.len() - 1, scratch);
        for (layer, candidates) in layers.iter_mut().enumerate().take(self.graph.level(entry) + 1).rev() {
            let walk = Walk { from: &from, layer, starts: &[start], ef: self.graph.parameters.ef_construction };
            self.graph.walk(&walk, |_| true, scratch);
            candidates.extend(scratch.frontier.drain_nearest());
            start = candidates[0];
        }
    }

    /// Puts rows that equal another one behind it, and keeps the proposals of the others.
    fn enter_twins(&mut self, groups: &[Vec<u32>], proposals: &mut Vec<Proposal>) {
        let twins = &mut self.graph.twins;
        for (group, Proposal { node, twin_of, .. }) in groups.iter().zip(&*proposals) {
            let node = twin_of.unwrap_or(*node);
            twins.extend(group.iter().filter(|row| **row != node).map(|row| (node, *row)));
        }
        twins.sort_unstable();
        let mut unlinked: Vec<u32> = proposals.iter().filter(|proposal| proposal.twin_of.is_some()).map(|proposal| proposal.node).collect();
        if unlinked.is_empty() {
            return;
        }
        unlinked.sort_unstable();
        proposals.retain(|proposal| proposal.twin_of.is_none());
        for candidates in proposals.iter_mut().flat_map(|proposal| &mut proposal.candidates) {
            candidates.retain(|key| unlinked.binary_search(&node_of(*key)).is_err());
        }
    }

    /// Gives the points their links; the same links from the other side.
    fn enter(&mut self, proposals: &[Proposal]) -> Vec<Backlink> {
        let chosen = self.parallel(proposals.len(), |i, _| self.choose(&proposals[i]));
        let mut backlinks = Vec::new();
        for (Proposal { node, .. }, layers) in proposals.iter().zip(chosen) {
            for (layer, links) in layers.into_iter().enumerate() {
                let back = |key: &u64| Backlink { layer, target: node_of(*key), key: key_of(distance_of(*key), *node) };
                backlinks.extend(links.iter().map(back));
                self.settle(*node, layer, links.len());
                self.graph.set_links(*node, layer, links.into_iter().map(node_of));
            }
        }
        backlinks.sort_unstable();
        backlinks
    }

    /// The links of a new point per layer, as keys.
    fn choose(&self, proposal: &Proposal) -> Vec<Vec<u64>> {
        let candidates = proposal.candidates.iter().map(|keys| keys.iter().map(|key| (*key, false)));
        candidates.enumerate().map(|(layer, candidates)| select(self.space, candidates, self.graph.num_links_max(layer))).collect()
    }

    /// Adds `backlinks`, in order, to the links of their targets.
    fn enter_backlinks(&mut self, backlinks: &[Backlink]) {
        let targets: Vec<&[Backlink]> = backlinks.chunk_by(|a, b| (a.layer, a.target) == (b.layer, b.target)).collect();
        let merged = self.parallel(targets.len(), |i, scratch| self.merge(targets[i], scratch));
        for (backlinks, (links, settled)) in targets.iter().zip(merged) {
            let Backlink { layer, target, .. } = backlinks[0];
            self.settle(target, layer, settled);
            self.graph.set_links(target, layer, links.into_iter());
        }
    }

    /// The links of one target with its backlinks, and how many of them are settled.
    fn merge(&self, backlinks: &[Backlink], scratch: &mut Scratch) -> (Vec<u32>, usize) {
        let Backlink { layer, target, .. } = backlinks[0];
        let num_links_max = self.graph.num_links_max(layer);
        let links = self.graph.links(target, layer);
        let settled = if layer == 0 { usize::from(self.settled[target as usize]) } else { 0 };
        let new = backlinks.iter().map(|backlink| backlink.key).filter(|key| !links.contains(&node_of(*key)));
        if links.len() + new.clone().count() <= num_links_max {
            return (links.iter().copied().chain(new.map(node_of)).collect(), settled);
        }
        let old = self.space.seen_from(self.space.row(target)).keys(links, &mut scratch.distances);
        let old = old.enumerate().map(|(i, key)| (key, i < settled));
        let mut candidates: Vec<(u64, bool)> = old.chain(new.map(|key| (key, false))).collect();
        candidates.sort_unstable();
        let links: Vec<u32> = select(self.space, candidates, num_links_max).into_iter().map(node_of).collect();
        let settled = links.len();
        (links, settled)
    }

    /// Notes that the first `num_links` of a node were chosen together. Only for layer 0: above it there is little to save.
    fn settle(&mut self, node: u32, layer: usize, num_links: usize) {
        if layer == 0 {
            self.settled[node as usize] = u16::try_from(num_links).expect("2 * M_MAX fits");
        }
    }

    /// Gives every node a way from the entry in layer 0: pruning takes the last one from a few, and rows without distances
    /// (NaN) or of no direction (zeros) hardly have one to begin with.
    fn reach_all(&mut self) {
        let Some(entry) = self.graph.entry else { return };
        let mut reached = Visited::default();
        reached.clear(self.graph.len());
        // Twins stand behind their nodes.
        for (_, row) in &self.graph.twins {
            reached.insert(*row);
        }
        self.spread(entry, &mut reached);
        for node in (0..).take(self.graph.len()) {
            if !reached.contains(node) {
                self.adopt(node, entry, &reached);
                self.spread(node, &mut reached);
            }
        }
    }

    /// Marks what can be reached from `node` in layer 0.
    fn spread(&self, node: u32, reached: &mut Visited) {
        reached.insert(node);
        let mut next = vec![node];
        while let Some(node) = next.pop() {
            next.extend(self.graph.links(node, 0).iter().filter(|link| reached.insert(**link)));
        }
    }

    /// Links a node that cannot be reached from the nearest one that can. If that has no slot left, its last link gives way
    /// and goes on from the new node, so that nothing gets out of reach.
    fn adopt(&mut self, node: u32, entry: u32, reached: &Visited) {
        let mut near = [Vec::new()];
        let mut scratch = self.graph.pool.take();
        self.search_layers(self.space.row(node), &mut near, &mut scratch);
        self.graph.pool.give(scratch);
        let parent = near[0].iter().map(|key| node_of(*key)).find(|near| reached.contains(*near)).unwrap_or(entry);
        let num_links_max = self.graph.num_links_max(0);
        let mut of_parent = self.graph.links(parent, 0).to_vec();
        if of_parent.len() == num_links_max {
            let moved = of_parent.pop();
            let others = self.graph.links(node, 0).iter().copied().filter(|link| Some(*link) != moved).take(num_links_max - 1);
            let of_node: Vec<u32> = others.chain(moved).collect();
            self.graph.set_links(node, 0, of_node.into_iter());
        }
        of_parent.push(node);
        self.graph.set_links(parent, 0, of_parent.into_iter());
    }

    /// `make(i, _)` for all `i` below `count`, in order, computed by up to `threads` threads.
    pub(super) fn parallel<T: Send>(&self, count: usize, make: impl Fn(usize, &mut Scratch) -> T + Sync) -> Vec<T> {
        let mut made: Vec<Option<T>> = Vec::new();
        made.resize_with(count, || None);
        let shares = Mutex::new(made.chunks_mut(SHARE).enumerate());
        let work = || {
            let mut scratch = self.graph.pool.take();
            loop {
                let share = shares.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some((share, made)) = share else { break };
                for (i, made) in made.iter_mut().enumerate() {
                    *made = Some(make(share * SHARE + i, &mut scratch));
                }
            }
            self.graph.pool.give(scratch);
        };
        std::thread::scope(|scope| {
            for _ in 1..self.threads.min(count.div_ceil(SHARE)) {
                // A thread that cannot be had is no harm: the others do its work.
                let _ = std::thread::Builder::new().spawn_scoped(scope, work);
            }
            work();
        });
        made.into_iter().flatten().collect()
    }
}

/// Algorithm 4 of the paper: of `candidates` (keys seen from one node, ascending) those that are no nearer to one chosen
/// before them than to the node, at most `limit`. Candidates with a flag were chosen together before and need no comparison.
pub(super) fn select(space: Space<'_>, candidates: impl IntoIterator<Item = (u64, bool)>, limit: usize) -> Vec<u64> {
    let mut chosen = Vec::with_capacity(limit);
    let (mut settled, mut fresh) = (Vec::with_capacity(limit), Vec::with_capacity(limit));
    for (key, is_settled) in candidates {
        let is_diverse = is_settled || is_no_nearer_to(space, key, &settled);
        if is_diverse && is_no_nearer_to(space, key, &fresh) {
            chosen.push(key);
            if is_settled { &mut settled } else { &mut fresh }.push(node_of(key));
        }
        if chosen.len() == limit {
            break;
        }
    }
    chosen
}

/// Whether the node of `key` is as far from all of `nodes` as the key says, or farther.
fn is_no_nearer_to(space: Space<'_>, key: u64, nodes: &[u32]) -> bool {
    let mut distances = [0.0; 4];
    nodes.chunks(distances.len()).all(|nodes| {
        let distances = &mut distances[..nodes.len()];
        space.measure(space.row(node_of(key)), nodes, distances);
        distances.iter().all(|distance| key_of(*distance, node_of(key)) >= key)
    })
}

/// Layer `l` or above is drawn with probability `m^-l`.
pub(super) fn draw_level(seed: u64, node: u32, m: usize) -> u8 {
    let draw = hash(seed, u64::from(node));
    let bounds = std::iter::successors(Some(u64::MAX), |bound| Some(bound / m as u64)).skip(1);
    (0..LEVEL_MAX).zip(bounds).find(|(_, bound)| draw >= *bound).map_or(LEVEL_MAX, |(level, _)| level)
}

/// Counter-based random numbers (SplitMix64, Steele et al. 2014): the `index`th of the sequence of `seed`.
fn hash(seed: u64, index: u64) -> u64 {
    let mut z = seed.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
