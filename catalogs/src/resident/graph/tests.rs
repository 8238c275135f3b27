//! The graph against the sorted list of all distances.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Mutex;

use super::bytes::checksum;
use super::*;

const WIDTH: usize = 16;

/// Numbers from a seed (xorshift64*).
struct Random(u64);

impl Random {
    /// Uniform in -1..1.
    fn value(&mut self) -> f32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    fn values(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.value()).collect()
    }

    /// Rows around 40 centers, those of one center one after the other.
    fn clusters(&mut self, num_rows: usize, width: usize) -> Vec<f32> {
        let size = num_rows.div_ceil(40);
        let centers = self.values(40 * width);
        let rows = (0..num_rows).flat_map(|row| centers[row / size * width..][..width].to_vec());
        rows.collect::<Vec<f32>>().into_iter().map(|center| center + 0.3 * self.value()).collect()
    }
}

fn parameters(width: usize, nearness: Nearness) -> Parameters {
    Parameters { width, nearness, m: 8, ef_construction: 40, seed: 7 }
}

fn build(vectors: &[f32], width: usize, nearness: Nearness) -> Graph {
    Graph::build(vectors, parameters(width, nearness), 2, &|_| true).expect("not cancelled")
}

/// What a search with unlimited `ef` should give.
fn all_by_distance(graph: &Graph, vectors: &[f32], query: &[f32]) -> Vec<(f32, u32)> {
    let mut keys: Vec<u64> = (0..graph.len() as u32).map(|row| graph.space(vectors).seen_from(query).key(row)).collect();
    keys.sort_unstable();
    keys.into_iter().map(|key| (distance_of(key), node_of(key))).collect()
}

/// The share of the nearest ten that searches find.
fn recall(graph: &Graph, vectors: &[f32], queries: &[f32], ef: usize) -> f64 {
    let queries = queries.chunks(graph.parameters.width);
    let num_queries = queries.len();
    let found = queries.map(|query| {
        let found = graph.search(vectors, query, ef, None);
        assert!(found.is_sorted_by(|a, b| key_of(a.0, a.1) < key_of(b.0, b.1)));
        all_by_distance(graph, vectors, query).iter().take(10).filter(|hit| found[..10].contains(hit)).count()
    });
    found.sum::<usize>() as f64 / (10 * num_queries) as f64
}

#[test]
fn finds_nearly_all_of_the_nearest_ten() {
    let mut random = Random(1);
    let vectors = random.clusters(800, WIDTH);
    let queries: Vec<f32> = vectors.chunks(WIDTH).step_by(20).flatten().map(|value| value + 0.2 * random.value()).collect();
    for nearness in [Nearness::InnerProduct, Nearness::SquaredL2] {
        let recall = recall(&build(&vectors, WIDTH, nearness), &vectors, &queries, 40);
        assert!(recall >= 0.95, "{nearness:?}: {recall}");
    }
}

#[test]
fn number_of_threads_does_not_matter_and_the_seed_does() {
    let vectors = Random(2).clusters(600, WIDTH);
    let bytes = |threads, seed| {
        let parameters = Parameters { seed, ..parameters(WIDTH, Nearness::SquaredL2) };
        Graph::build(&vectors, parameters, threads, &|_| true).expect("not cancelled").to_bytes()
    };
    assert!(bytes(1, 7) == bytes(2, 7));
    assert!(bytes(1, 7) == bytes(5, 7));
    assert!(bytes(1, 7) != bytes(1, 8));
}

#[test]
fn bytes_come_back_and_damage_is_found() {
    let mut vectors = Random(3).clusters(300, WIDTH);
    vectors.extend_from_within(..3 * WIDTH);
    let graph = build(&vectors, WIDTH, Nearness::InnerProduct);
    assert!(!graph.twins.is_empty() && !graph.upper.is_empty());
    let bytes = graph.to_bytes();
    let same = Graph::from_bytes(&bytes).expect("what was written");
    assert!(same.to_bytes() == bytes);
    assert_eq!(same.search(&vectors, &vectors[..WIDTH], 20, None), graph.search(&vectors, &vectors[..WIDTH], 20, None));
    let empty = build(&[], WIDTH, Nearness::InnerProduct).to_bytes();
    assert_eq!(Graph::from_bytes(&empty).expect("what was written").len(), 0);

    for length in (0..bytes.len()).step_by(997).chain(bytes.len() - 9..bytes.len()) {
        assert!(Graph::from_bytes(&bytes[..length]).is_err(), "cut off at {length}");
    }
    for at in (0..bytes.len()).step_by(1009).chain(0..80) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        assert!(Graph::from_bytes(&damaged).is_err(), "damaged at {at}");
    }
}

/// Wrong numbers under a right checksum: an error or a graph that can be searched, but no panic.
#[test]
fn bytes_that_lie_lead_nowhere() {
    let vectors = Random(4).clusters(60, 2);
    let bytes = build(&vectors, 2, Nearness::SquaredL2).to_bytes();
    let content = bytes.len() - 8;
    for at in 8..content {
        for value in [0, 1, 60, 0xff] {
            let mut lie = bytes.clone();
            lie[at] = value;
            let sum = checksum(&lie[..content]);
            lie[content..].copy_from_slice(&sum.to_le_bytes());
            if let Ok(graph) = Graph::from_bytes(&lie)
                && graph.parameters.width == 2
                && at % 7 == 0
            {
                graph.search(&vectors, &[0.5, 0.5], 5, None);
            }
        }
    }
}

#[test]
fn a_filter_is_honoured() {
    let vectors = Random(5).clusters(500, WIDTH);
    let graph = build(&vectors, WIDTH, Nearness::SquaredL2);
    let query = &vectors[..WIDTH];
    for every in [2, 7, 100] {
        let accept = |row: u32| row % every == 1;
        let expected: Vec<(f32, u32)> = all_by_distance(&graph, &vectors, query).into_iter().filter(|(_, row)| accept(*row)).collect();
        assert_eq!(graph.search(&vectors, query, 500, Some(&accept)), expected);
        assert_eq!(graph.search(&vectors, query, 40, Some(&accept))[..5], expected[..5]);
    }
    assert_eq!(graph.search(&vectors, query, 10, Some(&|_| false)), []);
    assert_eq!(graph.search(&vectors, query, 0, None), []);
}

#[test]
fn rows_that_equal_each_other_are_all_found() {
    let kinds = Random(6).values(8 * WIDTH);
    let vectors: Vec<f32> = (0..800).flat_map(|row| kinds[row * 5 % 8 * WIDTH..][..WIDTH].to_vec()).collect();
    for nearness in [Nearness::InnerProduct, Nearness::SquaredL2] {
        let graph = build(&vectors, WIDTH, nearness);
        Graph::from_bytes(&graph.to_bytes()).expect("a whole graph, although the highest level was drawn for a twin");
        for query in kinds.chunks(WIDTH) {
            let expected = all_by_distance(&graph, &vectors, query);
            for ef in [8, 10, 150, 800] {
                assert_eq!(graph.search(&vectors, query, ef, None), expected[..ef]);
            }
        }
    }
}

#[test]
fn every_row_of_an_extended_graph_is_found() {
    let mut random = Random(8);
    let mut vectors = random.clusters(300, WIDTH);
    let graph = build(&vectors, WIDTH, Nearness::SquaredL2);
    // A bundle far from all that was there, and more of the same.
    vectors.extend((0..200 * WIDTH).map(|_| 5.0 + 0.01 * random.value()));
    vectors.extend(random.clusters(100, WIDTH));
    let extended = graph.clone().extend(&vectors, 2, &|_| true).expect("not cancelled");
    assert_eq!((graph.len(), extended.len()), (300, 600));
    for (row, vector) in vectors.chunks(WIDTH).enumerate() {
        assert_eq!(extended.search(&vectors, vector, 16, None)[0], (0.0, row as u32));
    }
    assert!(extended.search(&vectors, &[5.0; WIDTH], 50, None).iter().all(|(_, row)| (300..500).contains(row)));
    let graph_bytes = extended.to_bytes();
    assert!(extended.extend(&vectors, 2, &|_| false).expect("nothing to insert").to_bytes() == graph_bytes);
}

#[test]
fn a_graph_that_has_not_moved_is_the_same() {
    let mut vectors = Random(13).clusters(500, WIDTH);
    vectors.extend_from_within(..40 * WIDTH);
    let graph = build(&vectors, WIDTH, Nearness::InnerProduct);
    let stay: Vec<Option<u32>> = (0..540).map(Some).collect();
    assert!(graph.moved(&stay, &vectors, 2, &|_| true).expect("not cancelled").to_bytes() == graph.to_bytes());
    assert!(graph.moved(&[None; 540], &vectors, 2, &|_| false).is_none());
}

/// As after a compaction: a half of the rows is gone, the others stand elsewhere, and some came that the graph did not have.
#[test]
fn a_moved_graph_finds_as_much_as_a_new_one() {
    let mut random = Random(14);
    let old = random.clusters(1_200, WIDTH);
    let kept: Vec<usize> = (0..1_200).filter(|row| row * 7 % 12 < 6).collect();
    let late = random.clusters(150, WIDTH);
    // The late rows first, then the kept ones in reverse.
    let kept_vectors = kept.iter().rev().flat_map(|row| &old[row * WIDTH..][..WIDTH]);
    let vectors: Vec<f32> = late.iter().chain(kept_vectors).copied().collect();
    let mut moves = vec![None; 1_200];
    for (place, row) in kept.iter().rev().enumerate() {
        moves[*row] = Some(150 + place as u32);
    }
    let queries: Vec<f32> = vectors.chunks(WIDTH).step_by(20).flatten().map(|value| value + 0.2 * random.value()).collect();
    for nearness in [Nearness::InnerProduct, Nearness::SquaredL2] {
        let graph = build(&old, WIDTH, nearness);
        let moved = graph.moved(&moves, &vectors, 2, &|_| true).expect("not cancelled");
        assert_eq!(moved.len(), 750);
        let recall = recall(&moved, &vectors, &queries, 40);
        assert!(recall >= 0.95, "{nearness:?}: {recall}");
        assert_eq!(moved.search(&vectors, &vectors[..WIDTH], 750, None), all_by_distance(&moved, &vectors, &vectors[..WIDTH]));
        assert!(graph.moved(&moves, &vectors, 5, &|_| true).expect("not cancelled").to_bytes() == moved.to_bytes());
        Graph::from_bytes(&moved.to_bytes()).expect("a whole graph");
    }
}

#[test]
fn the_twins_of_a_row_that_is_gone_stand_in_for_it() {
    let kinds = Random(15).values(8 * WIDTH);
    let of_kind = |row: usize| &kinds[row * 5 % 8 * WIDTH..][..WIDTH];
    let old: Vec<f32> = (0..800).flat_map(|row| of_kind(row).to_vec()).collect();
    let graph = build(&old, WIDTH, Nearness::SquaredL2);
    let kept: Vec<usize> = (0..800).filter(|row| graph.twins.iter().any(|(_, twin)| *twin as usize == *row)).collect();
    let vectors: Vec<f32> = kept.iter().flat_map(|row| of_kind(*row).to_vec()).collect();
    let mut moves = vec![None; 800];
    kept.iter().enumerate().for_each(|(place, row)| moves[*row] = Some(place as u32));
    let moved = graph.moved(&moves, &vectors, 2, &|_| true).expect("not cancelled");
    assert_eq!((moved.len(), moved.twins.len()), (792, 784));
    for query in kinds.chunks(WIDTH) {
        assert_eq!(moved.search(&vectors, query, 150, None), all_by_distance(&moved, &vectors, query)[..150]);
    }
    Graph::from_bytes(&moved.to_bytes()).expect("a whole graph");
}

/// Every row can be reached from the entry, so an unlimited search gives them all, in order.
#[test]
fn strange_rows_are_reached() {
    let mut random = Random(9);
    let mut strange: Vec<f32> = random.clusters(200, 2);
    for row in 0..100 {
        strange.extend(match row % 4 {
            0 => [f32::NAN, row as f32],
            1 => [0.0, 0.0],
            2 => [f32::INFINITY, row as f32],
            _ => [1e30, -1e30],
        });
    }
    let line = random.values(300);
    for nearness in [Nearness::InnerProduct, Nearness::SquaredL2] {
        for (vectors, width) in [(&strange[..], 2), (&line[..], 1), (&line[..2], 2), (&line[..2], 1), (&[f32::NAN; 9][..], 3)] {
            let graph = build(vectors, width, nearness);
            assert_eq!(graph.search(vectors, &vectors[..width], graph.len(), None), all_by_distance(&graph, vectors, &vectors[..width]));
        }
        let empty = build(&[], 3, nearness);
        assert_eq!((empty.len(), empty.search(&[], &[0.0; 3], 5, None)), (0, vec![]));
    }
}

#[test]
fn progress_counts_and_cancels() {
    let vectors = Random(10).clusters(700, WIDTH);
    let seen = Mutex::new(Vec::new());
    let build = |stop: usize| {
        let progress = |inserted| {
            seen.lock().expect("no panic").push(inserted);
            inserted < stop
        };
        Graph::build(&vectors, parameters(WIDTH, Nearness::SquaredL2), 2, &progress).is_some()
    };
    assert!(!build(100));
    assert!(build(usize::MAX));
    let seen = seen.into_inner().expect("no panic");
    assert_eq!(seen[..8], [1, 2, 4, 8, 16, 32, 64, 128]);
    assert_eq!(seen[8..], [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 700]);
}

#[test]
fn working_memory_outlasts_many_searches() {
    let vectors = Random(11).clusters(50, WIDTH);
    let graph = build(&vectors, WIDTH, Nearness::SquaredL2);
    let expected = graph.search(&vectors, &vectors[..WIDTH], 20, None);
    // More than the rounds that a mark can tell apart.
    for _ in 0..600 {
        assert_eq!(graph.search(&vectors, &vectors[..WIDTH], 20, None), expected);
    }
    // A search from inside of a search has memory of its own.
    let rows = RefCell::new(BTreeSet::new());
    let accept = |row| {
        rows.borrow_mut().extend(graph.search(&vectors, &vectors[WIDTH..2 * WIDTH], 5, None).into_iter().map(|hit| hit.1));
        row > 0
    };
    assert_eq!(graph.search(&vectors, &vectors[..WIDTH], 19, Some(&accept)), expected[1..]);
    assert_eq!(rows.into_inner().len(), 5);
}

#[test]
fn keys_order_like_distances_then_rows() {
    let distances = [f32::NEG_INFINITY, -2.0, -1e-40, 0.0, 1e-40, 1.0, f32::MAX, f32::INFINITY];
    let keys: Vec<u64> = distances.iter().flat_map(|distance| [key_of(*distance, 0), key_of(*distance, NONE)]).collect();
    assert!(keys.is_sorted_by(|a, b| a < b));
    assert!(keys.iter().map(|key| distance_of(*key)).eq(distances.into_iter().flat_map(|distance| [distance; 2])));
    assert_eq!([f32::NAN, -f32::NAN].map(|nan| key_of(nan, 3)), [key_of(f32::INFINITY, 3); 2]);
}

#[test]
fn memory_is_that_of_the_links() {
    let graph = build(&Random(12).clusters(500, WIDTH), WIDTH, Nearness::SquaredL2);
    assert!((500 * 16 * 4..500 * 16 * 8).contains(&graph.memory_bytes()), "{}", graph.memory_bytes());
}
