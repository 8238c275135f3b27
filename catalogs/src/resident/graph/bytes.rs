//! The graph as bytes, for a file beside the table. Little-endian; what is read is checked before it is believed.
//!
//! A header of [`HEADER`] bytes (magic, version, parameters, counts), `levels`, `base`, `upper`, `twins`, and a checksum of all
//! before it. The checksum finds damage, the checks after it keep a wrong but whole file from leading a search astray.

use super::{Graph, M_MAX, NONE, Nearness, Parameters, Pool};

const MAGIC: &[u8; 8] = b"RDB_HNSW";
const VERSION: u32 = 1;
/// Magic, version and nearness, m and entry (u32 each), width, ef_construction, seed, rows, upper slots, twins (u64 each).
const HEADER: usize = 8 + 4 * 4 + 6 * 8;
const CHECKSUM: usize = 8;

impl Graph {
    /// The graph in the form that [`Graph::from_bytes`] reads.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let Parameters { width, nearness, m, ef_construction, seed } = self.parameters;
        let mut bytes = Vec::with_capacity(HEADER + self.memory_bytes() + CHECKSUM);
        bytes.extend_from_slice(MAGIC);
        let nearness = NEARNESS.iter().position(|other| *other == nearness).unwrap_or_default();
        for number in [VERSION, nearness as u32, m as u32, self.entry.unwrap_or(NONE)] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        let counts = [self.levels.len(), self.upper.len(), self.twins.len()].map(|count| count as u64);
        for number in [width as u64, ef_construction as u64, seed].into_iter().chain(counts) {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&self.levels);
        let twins = self.twins.iter().flat_map(|(node, row)| [node, row]);
        for number in self.base.iter().chain(&self.upper).chain(twins) {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        let sum = checksum(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// # Errors
    /// What is wrong with bytes that are not a graph, are damaged or cut off, or of another version.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let (content, sum) = bytes.split_last_chunk::<CHECKSUM>().ok_or("cut off")?;
        let mut reader = Reader(content);
        if reader.take(MAGIC.len())? != MAGIC {
            return Err("not an HNSW graph".to_owned());
        }
        let version = reader.u32()?;
        if version != VERSION {
            return Err(format!("version {version} of the format; this program reads version {VERSION}"));
        }
        if checksum(content) != u64::from_le_bytes(*sum) {
            return Err("damaged: the checksum differs".to_owned());
        }
        let graph = reader.graph()?;
        if !reader.0.is_empty() {
            return Err(format!("{} bytes too many", reader.0.len()));
        }
        graph.check()?;
        Ok(graph)
    }

    /// That every number in it leads to where it should.
    fn check(&self) -> Result<(), String> {
        let Some(entry) = self.entry else {
            return if self.len() == 0 && self.twins.is_empty() { Ok(()) } else { Err("no entry".to_owned()) };
        };
        let in_layer = |node: u32, layer| self.levels.get(node as usize).is_some_and(|level| usize::from(*level) >= layer);
        // Twins have a level that was drawn for them, and no links.
        let is_twin = |row: u32| self.twins.iter().any(|(_, twin)| *twin == row);
        let highest = (0_u32..).zip(&self.levels).filter(|(_, level)| **level > self.levels[entry as usize]);
        if !in_layer(entry, 0) || highest.map(|(row, _)| row).any(|row| !is_twin(row)) {
            return Err(format!("the entry {entry} is not in the highest layer"));
        }
        for (node, level) in (0_u32..).zip(&self.levels) {
            for layer in 0..=usize::from(*level) {
                if let Some(link) = self.links(node, layer).iter().find(|link| !in_layer(**link, layer)) {
                    return Err(format!("in layer {layer} row {node} links to {link}, which is not there"));
                }
            }
        }
        match self.twins.iter().find(|(node, row)| !in_layer(*node, 0) || !in_layer(*row, 0)) {
            Some((node, row)) => Err(format!("row {row} is a twin of {node}, which are not both there")),
            None if self.twins.is_sorted() => Ok(()),
            None => Err("the twins are not in order".to_owned()),
        }
    }
}

const NEARNESS: [Nearness; 2] = [Nearness::InnerProduct, Nearness::SquaredL2];

/// The bytes not read yet.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// All after magic and version.
    fn graph(&mut self) -> Result<Graph, String> {
        let nearness = *NEARNESS.get(self.u32()? as usize).ok_or("unknown nearness")?;
        let (m, entry) = (self.u32()? as usize, self.u32()?);
        let (width, ef_construction, seed) = (self.count()?, self.count()?, self.u64()?);
        if width == 0 || ef_construction == 0 || !(2..=M_MAX).contains(&m) {
            return Err(format!("parameters out of range: width {width}, ef_construction {ef_construction}, m {m}"));
        }
        let (num_rows, num_slots, num_twins) = (self.count()?, self.count()?, self.count()?);
        let levels = self.take(num_rows)?.to_vec();
        let base = self.numbers(num_rows.checked_mul(2 * m))?;
        let upper = self.numbers(Some(num_slots))?;
        let twins = self.numbers(num_twins.checked_mul(2))?.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
        let (upper_start, num_blocks) = starts(&levels).ok_or("more layers than fit")?;
        if num_blocks.checked_mul(m) != Some(num_slots) {
            return Err(format!("{num_slots} upper slots; the layers have {num_blocks} of {m}"));
        }
        let entry = Some(entry).filter(|entry| *entry != NONE);
        let parameters = Parameters { width, nearness, m, ef_construction, seed };
        Ok(Graph { parameters, levels, base, upper, upper_start, entry, twins, pool: Pool::default() })
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or("cut off")?;
        self.0 = rest;
        Ok(taken)
    }

    fn numbers(&mut self, count: Option<usize>) -> Result<Vec<u32>, String> {
        let bytes = self.take(count.and_then(|count| count.checked_mul(4)).ok_or("cut off")?)?;
        Ok(bytes.as_chunks().0.iter().map(|number| u32::from_le_bytes(*number)).collect())
    }

    fn u32(&mut self) -> Result<u32, String> {
        Ok(self.numbers(Some(1))?[0])
    }

    fn u64(&mut self) -> Result<u64, String> {
        let number = self.take(8)?;
        Ok(number.first_chunk().map_or(0, |number| u64::from_le_bytes(*number)))
    }

    fn count(&mut self) -> Result<usize, String> {
        usize::try_from(self.u64()?).map_err(|_| "a count that does not fit into memory".to_owned())
    }
}

/// Where the blocks of upper layers of each node begin, and how many there are.
pub(super) fn starts(levels: &[u8]) -> Option<(Vec<u32>, usize)> {
    let mut num_blocks = 0_usize;
    let mut start_of = |level: &u8| {
        let start = u32::try_from(num_blocks).ok();
        num_blocks += usize::from(*level);
        start
    };
    let starts = levels.iter().map(&mut start_of).collect::<Option<_>>()?;
    Some((starts, num_blocks))
}

/// FNV-1a (Fowler, Noll, Vo) over eight bytes at a time, with the high half mixed back into the low one, which a product
/// alone leaves out. Each step can be undone, so bytes that differ in one word never have one checksum.
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let words = words.iter().chain([&last]).map(|word| u64::from_le_bytes(*word));
    words.fold(0xcbf2_9ce4_8422_2325, |hash, word| {
        let hash = (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        hash ^ hash >> 32
    })
}
