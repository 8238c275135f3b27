//! Screened search against the search that measures every row.

use std::sync::Arc;

use arrow::array::{ArrayRef, FixedSizeListArray};
use arrow::datatypes::{DataType, Field, Float32Type};

use super::super::nearest::Found;
use super::*;
use crate::Metric;
use crate::resident::Bits;
use crate::resident::columns::{Column, Vectors};
use crate::search::counts::SearchCounts;
use crate::tests::fixture::Random;

const METRICS: [Metric; 3] = [Metric::L2, Metric::Cosine, Metric::Dot];

fn vectors(width: usize, rows: &[Option<Vec<f32>>]) -> Vectors {
    let lists = rows.iter().map(|row| row.as_ref().map(|row| row.iter().copied().map(Some).collect::<Vec<_>>()));
    let array = FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(lists, width as i32);
    let mut column = Column::new(&DataType::FixedSizeList(Arc::new(Field::new("item", DataType::Float32, true)), width as i32));
    column.push_segment(Arc::new(array) as ArrayRef).expect("they are vectors");
    let Column::Vectors(vectors) = column else { panic!("a column of vectors") };
    vectors
}

/// Clusters of rows, some equal to others; some of no length, some absent.
fn clustered(width: usize, count: usize, random: &mut Random) -> Vec<Option<Vec<f32>>> {
    let centres: Vec<Vec<f32>> = (0..20).map(|_| random.vector(width)).collect();
    let mut rows: Vec<Option<Vec<f32>>> = Vec::new();
    for i in 0..count {
        let row = match i % 37 {
            5 => None,
            11 => Some(vec![0.0; width]),
            17 if i > 37 => rows[i - 30].clone(),
            _ => Some(centres[i % 20].iter().map(|value| value + 0.3 * random.signed()).collect()),
        };
        rows.push(row);
    }
    rows
}

/// Bits of the distances and the rows that each query finds, in one order.
fn found(search: &Search<'_>, queries: &[&[f32]]) -> Vec<Vec<(u64, usize)>> {
    let sorted = |found: Vec<Found>| {
        let mut found: Vec<(u64, usize)> = found.into_iter().map(|found| (found.distance.to_bits(), found.row)).collect();
        found.sort_unstable();
        found
    };
    search.exact(queries).into_iter().map(sorted).collect()
}

/// Compares the answers with and without codes, for one query, some and many; all rows, a tenth of them and a few.
fn check(mut vectors: Vectors, queries: &[Vec<f32>]) {
    let num_rows = vectors.norms.len();
    assert!(vectors.codes.is_some(), "vectors of this width have codes");
    let mut sets = vec![Bits::all(num_rows), Bits::none(num_rows), Bits::none(num_rows)];
    (0..num_rows).step_by(10).for_each(|row| sets[1].insert(row));
    (7..num_rows).step_by(num_rows / 5).for_each(|row| sets[2].insert(row));
    let counts = SearchCounts::default();
    for metric in METRICS {
        for accepted in &mut sets {
            accepted.intersect(&vectors.present);
            for k in [1, 10, 50] {
                for num_queries in [1, 3, 9] {
                    let queries: Vec<&[f32]> = queries.iter().take(num_queries).map(Vec::as_slice).collect();
                    let answer = |vectors: &Vectors| {
                        let accepts_all = accepted.count() == num_rows;
                        found(&Search { vectors, metric, k, accepted, accepts_all, counts: &counts }, &queries)
                    };
                    vectors.codes = None;
                    let measured = answer(&vectors);
                    assert!(measured.iter().all(|found| found.len() >= k.min(accepted.count())));
                    vectors.codes = Some(codes_of(&vectors));
                    assert_eq!(answer(&vectors), measured, "{metric:?}, k {k}, {} rows, {num_queries} queries", accepted.count());
                }
            }
        }
    }
}

fn codes_of(vectors: &Vectors) -> Codes {
    let mut codes = Codes::new(vectors.width);
    for (row, norm) in vectors.norms.iter().enumerate() {
        codes.push(vectors.vector(row), *norm);
    }
    codes
}

#[test]
fn the_answers_are_those_of_measuring_every_row() {
    let mut random = Random(11);
    for width in [33, 96] {
        let rows = clustered(width, 2_000, &mut random);
        let mut queries: Vec<Vec<f32>> = (0..6).map(|_| random.vector(width)).collect();
        queries.extend(rows[100..].iter().flatten().filter(|row| row[0] != 0.0).take(3).cloned());
        check(vectors(width, &rows), &queries);
    }
}

#[test]
fn lengths_at_the_ends_of_f32_are_measured() {
    let mut random = Random(12);
    let mut rows = clustered(40, 1_200, &mut random);
    for (i, scale) in [1e-30, 1e-20, 1e-17, 1e17, 1e19, 1e25, f32::INFINITY, f32::NAN].into_iter().enumerate() {
        rows[30 * i + 1] = Some(random.vector(40).into_iter().map(|value| value * scale).collect());
    }
    let mut queries: Vec<Vec<f32>> = (0..8).map(|_| random.vector(40)).collect();
    check(vectors(40, &rows), &queries);
    queries[0].iter_mut().for_each(|value| *value *= 1e-20);
    queries[1].fill(0.0);
    check(vectors(40, &rows), &queries);
}

#[test]
fn rows_that_codes_hardly_tell_apart_are_measured() {
    let mut random = Random(13);
    let centre = random.vector(64);
    let near = |random: &mut Random| -> Vec<f32> { centre.iter().map(|value| value + 1e-4 * random.signed()).collect() };
    let rows: Vec<Option<Vec<f32>>> = (0..1_500).map(|_| Some(near(&mut random))).collect();
    let queries: Vec<Vec<f32>> = (0..9).map(|_| near(&mut random)).collect();
    check(vectors(64, &rows), &queries);
}

#[test]
fn codes_leave_most_rows_out() {
    let mut random = Random(14);
    let rows = clustered(128, 4_000, &mut random);
    let vectors = vectors(128, &rows);
    let codes = vectors.codes.as_ref().expect("they have codes");
    let query = random.vector(128);
    let norm = f64::from(crate::resident::dot(&query, &query)).sqrt();
    for fineness in [Fineness::Coarse, Fineness::Fine] {
        let queries = [codes.query(&query, norm, fineness).expect("an ordinary length")];
        let mut screen = Screen::new(10);
        let numbers: Vec<u32> = (0..4_000).filter(|row| vectors.present.contains(*row as usize)).collect();
        CodedQueries::new(codes, Metric::Cosine, &queries).bounds(&numbers, &mut Block::default(), |_, lowers, uppers| {
            assert!(lowers.iter().zip(uppers).all(|(lower, upper)| lower <= upper));
            screen.offer(&numbers, lowers, uppers);
        });
        let left = screen.candidates.iter().filter(|(lower, _)| *lower <= screen.limit).count();
        assert!((10..400).contains(&left), "{left} of 4,000 rows are measured with {fineness:?}");
    }
}
