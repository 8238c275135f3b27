//! Sets of rows.

use arrow::array::{Array, BooleanArray};

/// One bit per row, the lowest of a word first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bits {
    words: Vec<u64>,
    num_rows: usize,
}

impl Bits {
    pub(crate) fn none(num_rows: usize) -> Self {
        Self { words: vec![0; num_rows.div_ceil(64)], num_rows }
    }

    pub(crate) fn all(num_rows: usize) -> Self {
        let mut bits = Self::none(0);
        bits.extend_with(num_rows);
        bits
    }

    /// Appends rows that are in the set.
    pub(crate) fn extend_with(&mut self, count: usize) {
        let end = self.num_rows + count;
        if let Some(last) = self.words.last_mut()
            && !self.num_rows.is_multiple_of(64)
        {
            *last |= u64::MAX << (self.num_rows % 64);
        }
        self.words.resize(end.div_ceil(64), u64::MAX);
        if let Some(last) = self.words.last_mut()
            && !end.is_multiple_of(64)
        {
            *last &= (1 << (end % 64)) - 1;
        }
        self.num_rows = end;
    }

    pub(crate) fn contains(&self, row: usize) -> bool {
        self.words[row / 64] >> (row % 64) & 1 == 1
    }

    pub(crate) fn remove(&mut self, row: usize) {
        self.words[row / 64] &= !(1 << (row % 64));
    }

    pub(crate) fn insert(&mut self, row: usize) {
        self.words[row / 64] |= 1 << (row % 64);
    }

    /// Adds the rows, counted from `first`, for which `mask` is true.
    pub(crate) fn insert_mask(&mut self, first: usize, mask: &BooleanArray) {
        let is_in = match mask.nulls() {
            Some(nulls) => mask.values() & nulls.inner(),
            None => mask.values().clone(),
        };
        // A word of the mask covers parts of two words, unless `first` is a multiple of 64.
        let (start, shift) = (first / 64, first % 64);
        for (index, word) in is_in.bit_chunks().iter_padded().enumerate().filter(|(_, word)| *word != 0) {
            self.words[start + index] |= word << shift;
            // None of these bits is left where the last word of the set ends.
            let carried = if shift == 0 { 0 } else { word >> (64 - shift) };
            if carried != 0 {
                self.words[start + index + 1] |= carried;
            }
        }
    }

    pub(crate) fn intersect(&mut self, other: &Self) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word &= other;
        }
    }

    /// In the set or not.
    pub(crate) fn num_rows(&self) -> usize {
        self.num_rows
    }

    pub(crate) fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The rows, ascending.
    pub(crate) fn rows(&self) -> impl Iterator<Item = usize> + '_ {
        let first = (0..).step_by(64);
        self.words.iter().zip(first).flat_map(|(word, first)| ones_of(*word).map(move |at| first + at as usize))
    }

    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }
}

pub(crate) fn bit(words: &[u64], at: usize) -> bool {
    words.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
}

/// The 64 bits from bit `start` on; 0 beyond the end.
pub(crate) fn word_from(words: &[u64], start: usize) -> u64 {
    let word = |at: usize| words.get(at).copied().unwrap_or(0);
    match start % 64 {
        0 => word(start / 64),
        shift => word(start / 64) >> shift | word(start / 64 + 1) << (64 - shift),
    }
}

/// The bits `start..start + len`, in words of their own.
pub(crate) fn slice(words: &[u64], start: usize, len: usize) -> impl Iterator<Item = u64> {
    let end = start + len;
    (start..end).step_by(64).map(move |at| word_from(words, at) & if end - at < 64 { (1 << (end - at)) - 1 } else { u64::MAX })
}

pub(crate) fn count(words: &[u64], start: usize, len: usize) -> usize {
    slice(words, start, len).map(|word| word.count_ones() as usize).sum()
}

/// Places of the set bits of `start..start + len`, counted from `start`.
pub(crate) fn ones(words: &[u64], start: usize, len: usize) -> impl Iterator<Item = u32> {
    slice(words, start, len).zip((0..).step_by(64)).flat_map(|(word, first)| ones_of(word).map(move |at| first + at))
}

pub(crate) fn ones_of(word: u64) -> impl Iterator<Item = u32> {
    let without_lowest = |word: &u64| Some(word & word.checked_sub(1)?);
    std::iter::successors(Some(word), without_lowest).take_while(|word| *word != 0).map(u64::trailing_zeros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_the_rows_that_were_put_into_it() {
        let mut bits = Bits::all(130);
        bits.remove(0);
        bits.remove(64);
        assert_eq!((bits.count(), bits.contains(129), bits.contains(64)), (128, true, false));
        let mut mask = Bits::none(130);
        mask.insert_mask(63, &BooleanArray::from(vec![Some(true), Some(true), None, Some(false), Some(true)]));
        mask.insert_mask(0, &BooleanArray::from(vec![false; 130]));
        bits.intersect(&mask);
        assert_eq!(ones(bits.words(), 0, 70).collect::<Vec<_>>(), [63, 67]);
        for first in [0, 1, 60, 64, 70] {
            let (mut by_words, mut one_by_one) = (Bits::none(200), Bits::none(200));
            let is_in: Vec<bool> = (0..130).map(|row| row % 7 == 0 || row > 120).collect();
            // A part of an array begins within a byte.
            by_words.insert_mask(first, &BooleanArray::from(is_in.clone()).slice(3, 127));
            (3..130).filter(|row| is_in[*row]).for_each(|row| one_by_one.insert(first + row - 3));
            assert_eq!(by_words.words(), one_by_one.words(), "from row {first} on");
        }
        let mut steps = Bits::none(3);
        for (count, len) in [(0, 0), (5, 5), (56, 61), (1, 62), (130, 192), (64, 256)] {
            steps.extend_with(count);
            assert_eq!((steps.count(), steps.num_rows(), steps.contains(2)), (len, len + 3, false));
        }
        assert_eq!(steps.words().last(), Some(&0b111));
    }
}
