//! Options of vector indexes as Lance's parameters, with their ranges and defaults.

use lance::index::vector::VectorIndexParams;
use lance_index::vector::bq::RQBuildParams;
use lance_index::vector::hnsw::builder::HnswBuildParams;
use lance_index::vector::ivf::IvfBuildParams;
use lance_index::vector::pq::PQBuildParams;
use lance_index::vector::sq::builder::SQBuildParams;

use super::{IndexDefinition, IndexKind, Metric, invalid, number};
use crate::Result;

/// An HNSW graph per this many rows; below it one graph, whose search needs no choice of partitions.
const HNSW_PARTITION_ROWS: u64 = 500_000;
const PARTITIONS_MAX: usize = 65_536;
/// Numbers of a vector that one code of a product quantizer stands for, the first that divides the width at least twice.
const SUB_VECTOR_WIDTHS: [usize; 4] = [16, 8, 4, 2];

/// `width`: of the column's vectors; `num_rows`: of the table.
pub(super) fn params(index: &IndexDefinition, width: usize, num_rows: u64) -> Result<VectorIndexParams> {
    let metric = index.metric.unwrap_or(Metric::Cosine).lance_type();
    Ok(match index.kind {
        IndexKind::Hnsw => {
            let ivf = IvfBuildParams::new(partitions(num_rows / HNSW_PARTITION_ROWS));
            VectorIndexParams::with_ivf_hnsw_sq_params(metric, ivf, hnsw(index)?, SQBuildParams::default())
        }
        IndexKind::IvfPq => VectorIndexParams::with_ivf_pq_params(metric, ivf(index, num_rows)?, pq(index, width)?),
        IndexKind::IvfSq => VectorIndexParams::with_ivf_sq_params(metric, ivf(index, num_rows)?, SQBuildParams::default()),
        IndexKind::IvfRq => VectorIndexParams::with_ivf_rq_params(metric, ivf(index, num_rows)?, rq(index)?),
        _ => VectorIndexParams::with_ivf_flat_params(metric, ivf(index, num_rows)?),
    })
}

fn hnsw(index: &IndexDefinition) -> Result<HnswBuildParams> {
    let defaults = HnswBuildParams::default();
    Ok(HnswBuildParams {
        m: number(index, "m", 2, 256)?.unwrap_or(defaults.m),
        ef_construction: number(index, "ef_construction", 4, 10_000)?.unwrap_or(defaults.ef_construction),
        ..defaults
    })
}

fn ivf(index: &IndexDefinition, num_rows: u64) -> Result<IvfBuildParams> {
    Ok(IvfBuildParams::new(lists(index, num_rows)?))
}

/// How many partitions an index has: no more than rows. The square root of the rows balances choosing a partition and reading it.
pub(super) fn lists(index: &IndexDefinition, num_rows: u64) -> Result<usize> {
    let lists = number(index, "lists", 1, PARTITIONS_MAX)?;
    Ok(lists.unwrap_or_else(|| partitions(num_rows.isqrt())).min(partitions(num_rows)))
}

/// That `lists` is a number of partitions.
pub(super) fn check_lists(index: &IndexDefinition) -> Result<()> {
    number(index, "lists", 1, PARTITIONS_MAX).map(drop)
}

fn partitions(wanted: u64) -> usize {
    usize::try_from(wanted).unwrap_or(PARTITIONS_MAX).clamp(1, PARTITIONS_MAX)
}

/// Codes of 4 bits are stored in pairs, so that their number must be even.
fn pq(index: &IndexDefinition, width: usize) -> Result<PQBuildParams> {
    let num_bits = match number(index, "num_bits", 4, 8)?.unwrap_or(8) {
        bits @ (4 | 8) => bits,
        other => return Err(invalid("num_bits", &other.to_string(), "4 or 8")),
    };
    let fits = |count: usize| width.is_multiple_of(count) && (num_bits == 8 || count.is_multiple_of(2));
    let num_sub_vectors = match number(index, "num_sub_vectors", 1, width.max(1))? {
        Some(count) if fits(count) => count,
        Some(count) => {
            let even = if num_bits == 4 { "an even divisor" } else { "a divisor" };
            return Err(invalid("num_sub_vectors", &count.to_string(), &format!("{even} of the vectors' width, {width}")));
        }
        None => SUB_VECTOR_WIDTHS.map(|of_one| width / of_one).into_iter().find(|count| *count > 1 && fits(*count)).unwrap_or(width.max(1)),
    };
    if !fits(num_sub_vectors) {
        return Err(invalid("num_bits", "4", &format!("8: codes of 4 bits stand in pairs, and {width} numbers are not even")));
    }
    Ok(PQBuildParams { num_sub_vectors, num_bits, ..Default::default() })
}

fn rq(index: &IndexDefinition) -> Result<RQBuildParams> {
    let num_bits = number(index, "num_bits", 1, 9)?.and_then(|bits| u8::try_from(bits).ok());
    Ok(num_bits.map(RQBuildParams::new).unwrap_or_default())
}
