//! Pieces of work in a row, which threads take: each those of its own share one after the other, then what others have left.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The pieces `0..len` in shares of about the same size.
pub struct Shares(Vec<Share>);

/// Pieces that nobody has taken: the first in the lower half, the end in the upper one.
struct Share(AtomicU64);

impl Shares {
    /// # Panics
    /// If there are 2^32 pieces or more.
    pub fn new(len: usize, num_shares: usize) -> Self {
        let border = |share: usize| u32::try_from(len * share / num_shares).expect("less than 2^32 pieces");
        Self((0..num_shares).map(|share| Share::new(border(share), border(share + 1))).collect())
    }

    /// Calls `work` with each piece that is taken, and the one that is likely to be next: those of the share `own` from the front, others from the back, so
    /// that who has a share goes on in order. Each piece is taken once, however many threads take.
    pub fn take(&self, own: usize, mut work: impl FnMut(usize, Option<usize>)) {
        while let Some((piece, next)) = self.0[own].take_first() {
            work(piece, next);
        }
        let others = (own + 1..self.0.len()).chain(0..own);
        for share in others.map(|other| &self.0[other]) {
            while let Some((piece, next)) = share.take_last() {
                work(piece, next);
            }
        }
    }
}

impl Share {
    fn new(first: u32, end: u32) -> Self {
        Self(AtomicU64::new(pack(first, end)))
    }

    fn take_first(&self) -> Option<(usize, Option<usize>)> {
        let (first, end) = self.taken(|first, end| (first + 1, end))?;
        Some((first as usize, Some(first as usize + 1).filter(|next| *next < end as usize)))
    }

    fn take_last(&self) -> Option<(usize, Option<usize>)> {
        let (first, end) = self.taken(|first, end| (first, end - 1))?;
        let last = end as usize - 1;
        Some((last, last.checked_sub(1).filter(|next| *next >= first as usize)))
    }

    /// What was left before one piece was taken.
    fn taken(&self, left: impl Fn(u32, u32) -> (u32, u32)) -> Option<(u32, u32)> {
        // Nothing but the numbers of pieces goes from thread to thread by it.
        let taken = self.0.fetch_update(Relaxed, Relaxed, |packed| {
            let (first, end) = unpack(packed);
            (first < end).then(|| left(first, end)).map(|(first, end)| pack(first, end))
        });
        taken.ok().map(unpack)
    }
}

fn pack(first: u32, end: u32) -> u64 {
    u64::from(end) << 32 | u64::from(first)
}

fn unpack(packed: u64) -> (u32, u32) {
    (packed as u32, (packed >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn own_pieces_come_in_order_and_those_of_others_from_the_back() {
        let shares = Shares::new(7, 2);
        let mut taken = Vec::new();
        shares.take(1, |piece, next| taken.push((piece, next)));
        assert_eq!(taken[..4], [(3, Some(4)), (4, Some(5)), (5, Some(6)), (6, None)]);
        assert_eq!(taken[4..], [(2, Some(1)), (1, Some(0)), (0, None)]);
        shares.take(0, |_, _| panic!("nothing is left"));
    }

    #[test]
    fn threads_take_each_piece_once() {
        for (len, num_threads) in [(0, 3), (2, 5), (1000, 4)] {
            let (shares, taken) = (Shares::new(len, num_threads), Mutex::new(Vec::new()));
            std::thread::scope(|scope| {
                for thread in 0..num_threads {
                    let (shares, taken) = (&shares, &taken);
                    scope.spawn(move || shares.take(thread, |piece, _| taken.lock().expect("no panic").push(piece)));
                }
            });
            let mut taken = taken.into_inner().expect("no panic");
            taken.sort_unstable();
            assert_eq!(taken, (0..len).collect::<Vec<_>>());
        }
    }
}
