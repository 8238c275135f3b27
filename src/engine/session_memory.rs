//! The memory that the statements of one session may hold: a part of what all queries have, so that none of them takes it from the others.
//!
//! It is one bound for the statement that runs and for the cursors that are open beside it: with one for each, many cursors would have many shares.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use datafusion::execution::runtime_env::RuntimeEnv;

use super::memory::{bytes_text, sort_piece};
use super::progress::size_text;
use super::setting_definitions::STATEMENT_MEMORY;

/// A sort sets twice a piece aside, and a piece may exceed its size by a batch.
const PIECES_OF_SHARE: usize = 6;

/// By this DataFusion names what merges the pieces of a sort, in memory and from the disk.
const MERGE: &str = "ExternalSorterMerge";
/// Of the memory: kept for the merges of sorts, as long as there are any. A merge cannot go to the disk, and takes all that it finds free, so that without room
/// of their own merges and sorts take each other's last.
const MERGES_SHARE: usize = 4;
/// Of the memory: what a merge may hold where there are many. More than [`super::memory::fit`] lets a sort set aside for it.
const MERGE_SHARE: usize = 16;

/// A session's part of the memory of all queries. As in DataFusion's pool for all of them, operators that can go to the disk have even parts of
/// what the others leave. Other than there, merges have room that nobody else gets.
#[derive(Debug)]
pub struct SessionMemory {
    queries: Arc<dyn MemoryPool>,
    bound: AtomicUsize,
    held: Mutex<Held>,
}

/// In bytes.
#[derive(Debug, Default)]
struct Held {
    /// Operators that can go to the disk.
    num_spillable: usize,
    spillable: usize,
    num_merges: usize,
    merges: usize,
    /// All others.
    unspillable: usize,
}

/// What an operator does when there is no more memory.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Spillable,
    Merge,
    Unspillable,
}

impl SessionMemory {
    /// `queries`: the memory of all sessions; `bound`: in bytes.
    pub fn new(queries: Arc<dyn MemoryPool>, bound: usize) -> Arc<Self> {
        Arc::new(Self { queries, bound: AtomicUsize::new(bound), held: Mutex::default() })
    }

    /// What the plans of the session run in.
    pub fn runtime_env(self: &Arc<Self>, of_queries: &RuntimeEnv) -> Arc<RuntimeEnv> {
        Arc::new(RuntimeEnv { memory_pool: Arc::clone(self) as Arc<dyn MemoryPool>, ..of_queries.clone() })
    }

    pub fn bound(&self) -> usize {
        self.bound.load(Ordering::Relaxed)
    }

    /// Holds from the next piece of memory on; what is held already stays.
    pub fn set_bound(&self, bound: usize) {
        self.bound.store(bound, Ordering::Relaxed);
    }

    /// How much a partition of a sort sorts at once now, in bytes: less where many operators share the memory, since room for two pieces must always be
    /// found in the share of one of them.
    pub fn sort_piece(&self, partitions: usize) -> usize {
        sort_piece(self.bound(), partitions).min(self.spillable_share(&self.held()) / PIECES_OF_SHARE)
    }

    /// What each operator that can go to the disk may hold, in bytes.
    fn spillable_share(&self, held: &Held) -> usize {
        self.bound().saturating_sub(held.unspillable + self.merge_room(held)) / held.num_spillable.max(1)
    }

    /// What merges hold, or may hold at any time, in bytes.
    fn merge_room(&self, held: &Held) -> usize {
        if held.num_merges == 0 { 0 } else { held.merges.max(self.bound() / MERGES_SHARE) }
    }

    /// What the consumer may hold more, in bytes.
    fn left(&self, held: &Held, reservation: &MemoryReservation) -> usize {
        let bound = self.bound();
        match Kind::of(reservation.consumer()) {
            Kind::Spillable => self.spillable_share(held).saturating_sub(reservation.size()),
            Kind::Merge => {
                let share = (bound / MERGES_SHARE / held.num_merges.max(1)).max(bound / MERGE_SHARE);
                let of_merges = (bound / MERGES_SHARE).saturating_sub(held.merges);
                let free = bound.saturating_sub(held.all());
                share.saturating_sub(reservation.size()).min(of_merges.max(free))
            }
            Kind::Unspillable => bound.saturating_sub(held.unspillable + held.spillable + self.merge_room(held)),
        }
    }

    /// Of a kind that makes operators go to the disk, where they can.
    fn exceeded(&self, reservation: &MemoryReservation, additional: usize, left: usize) -> DataFusionError {
        DataFusionError::ResourcesExhausted(format!(
            "{} needs {} more, and has {} left of the {} that a statement may hold ({STATEMENT_MEMORY})",
            reservation.consumer().name(),
            size_text(additional as u64),
            size_text(left as u64),
            bytes_text(self.bound() as u64),
        ))
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kind {
    fn of(consumer: &MemoryConsumer) -> Self {
        match consumer.can_spill() {
            true => Self::Spillable,
            false if consumer.name().starts_with(MERGE) => Self::Merge,
            false => Self::Unspillable,
        }
    }
}

impl Held {
    /// What operators of the consumer's kind hold together.
    fn of(&mut self, consumer: &MemoryConsumer) -> &mut usize {
        match Kind::of(consumer) {
            Kind::Spillable => &mut self.spillable,
            Kind::Merge => &mut self.merges,
            Kind::Unspillable => &mut self.unspillable,
        }
    }

    /// How many operators of the consumer's kind there are, if that matters.
    fn number(&mut self, consumer: &MemoryConsumer) -> Option<&mut usize> {
        match Kind::of(consumer) {
            Kind::Spillable => Some(&mut self.num_spillable),
            Kind::Merge => Some(&mut self.num_merges),
            Kind::Unspillable => None,
        }
    }

    fn all(&self) -> usize {
        self.spillable + self.merges + self.unspillable
    }
}

impl MemoryPool for SessionMemory {
    fn name(&self) -> &str {
        "session"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        if let Some(number) = self.held().number(consumer) {
            *number += 1;
        }
        self.queries.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        if let Some(number) = self.held().number(consumer) {
            *number -= 1;
        }
        self.queries.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        *self.held().of(reservation.consumer()) += additional;
        self.queries.grow(reservation, additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        *self.held().of(reservation.consumer()) -= shrink;
        self.queries.shrink(reservation, shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let mut held = self.held();
        let left = self.left(&held, reservation);
        if additional > left {
            return Err(self.exceeded(reservation, additional, left));
        }
        self.queries.try_grow(reservation, additional)?;
        *held.of(reservation.consumer()) += additional;
        Ok(())
    }

    fn reserved(&self) -> usize {
        self.held().all()
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.bound())
    }
}

impl fmt::Display for SessionMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({} of {})", self.name(), bytes_text(self.reserved() as u64), bytes_text(self.bound() as u64))
    }
}

#[cfg(test)]
mod tests {
    use datafusion::execution::memory_pool::FairSpillPool;

    use super::*;

    fn register(memory: &Arc<SessionMemory>, name: &str, can_spill: bool) -> MemoryReservation {
        let pool = Arc::clone(memory) as Arc<dyn MemoryPool>;
        MemoryConsumer::new(name).with_can_spill(can_spill).register(&pool)
    }

    #[test]
    fn one_session_leaves_the_others_their_memory() {
        let queries: Arc<dyn MemoryPool> = Arc::new(FairSpillPool::new(1000));
        let [greedy, other] = [SessionMemory::new(Arc::clone(&queries), 600), SessionMemory::new(Arc::clone(&queries), 600)];
        let join = register(&greedy, "join", false);
        join.try_grow(600).expect("its bound");
        let refused = join.try_grow(1).expect_err("more than its bound");
        assert!(matches!(&refused, DataFusionError::ResourcesExhausted(text) if text.contains(STATEMENT_MEMORY)), "{refused}");
        let sort = register(&other, "sort", true);
        sort.try_grow(400).expect("what is left of all");
        sort.try_grow(1).expect_err("there is no more for anybody");
        assert_eq!((greedy.reserved(), other.reserved(), queries.reserved()), (600, 400, 1000));
        drop(join);
        sort.try_grow(200).expect("it is free again");
        assert_eq!((greedy.reserved(), queries.reserved()), (0, 600));
    }

    #[test]
    fn operators_that_spill_have_even_parts_of_what_the_others_leave() {
        let queries: Arc<dyn MemoryPool> = Arc::new(FairSpillPool::new(1000));
        let memory = SessionMemory::new(queries, 500);
        let join = register(&memory, "join", false);
        let sorts = [register(&memory, "sort", true), register(&memory, "sort", true)];
        join.try_grow(100).expect("it is free");
        for sort in &sorts {
            sort.try_grow(200).expect("half of what is left");
            sort.try_grow(1).expect_err("more than half of it");
        }
        assert_eq!(memory.sort_piece(1), 500 / 16, "of a partition that has all memory");
        let others: Vec<_> = (0..8).map(|_| register(&memory, "sort", true)).collect();
        assert_eq!(memory.sort_piece(1), 40 / 6, "ten share what is left");
        drop(others);
        memory.set_bound(600);
        sorts[0].try_grow(50).expect("half of more");
        sorts[0].free();
        drop(sorts);
        join.try_grow(500).expect("nobody else has anything");
        assert_eq!(memory.reserved(), 600);
    }

    #[test]
    fn merges_find_room_whatever_sorts_hold_and_leave_them_theirs() {
        let queries: Arc<dyn MemoryPool> = Arc::new(FairSpillPool::new(2000));
        let memory = SessionMemory::new(queries, 1600);
        let sorts = [register(&memory, "ExternalSorter[0]", true), register(&memory, "ExternalSorter[1]", true)];
        let merges = [register(&memory, "ExternalSorterMerge[0]", false), register(&memory, "ExternalSorterMerge[1]", false)];
        let join = register(&memory, "join", false);
        for sort in &sorts {
            sort.try_grow(600).expect("half of what merges leave");
            sort.try_grow(1).expect_err("more than half of it");
        }
        join.try_grow(1).expect_err("the rest is for merges");
        for merge in &merges {
            merge.try_grow(200).expect("half of the room of merges");
            merge.try_grow(1).expect_err("a merge leaves the other its part");
        }
        // Where there are many, each may still hold what a sort has set aside for it, as long as something is free.
        sorts[0].free();
        let others: Vec<_> = (2..10).map(|number| register(&memory, &format!("ExternalSorterMerge[{number}]"), false)).collect();
        others[0].try_grow(100).expect("a sixteenth");
        others[0].try_grow(1).expect_err("more than a sixteenth");
        sorts[0].try_grow(551).expect_err("merges hold 500, more than their room");
        sorts[0].try_grow(550).expect("half of what they leave");
    }
}
