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

/// A session's part of the memory of all queries. As in DataFusion's pool for all of them, operators that can go to the disk have even parts of
/// what the others leave: each of them finds room for the rows that it merges.
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
    unspillable: usize,
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

    /// How much each partition of a sort sorts at once, in bytes.
    pub fn sort_piece(&self, partitions: usize) -> usize {
        sort_piece(self.bound(), partitions)
    }

    /// What the consumer may hold more, in bytes.
    fn left(&self, held: &Held, reservation: &MemoryReservation) -> usize {
        let bound = self.bound();
        match reservation.consumer().can_spill() {
            true => (bound.saturating_sub(held.unspillable) / held.num_spillable.max(1)).saturating_sub(reservation.size()),
            false => bound.saturating_sub(held.unspillable + held.spillable),
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

impl Held {
    /// What operators of the consumer's kind hold together.
    fn of(&mut self, consumer: &MemoryConsumer) -> &mut usize {
        if consumer.can_spill() { &mut self.spillable } else { &mut self.unspillable }
    }
}

impl MemoryPool for SessionMemory {
    fn name(&self) -> &str {
        "session"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.held().num_spillable += usize::from(consumer.can_spill());
        self.queries.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.held().num_spillable -= usize::from(consumer.can_spill());
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
        let held = self.held();
        held.spillable + held.unspillable
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
        memory.set_bound(600);
        sorts[0].try_grow(50).expect("half of more");
        sorts[0].free();
        drop(sorts);
        join.try_grow(500).expect("nobody else has anything");
        assert_eq!(memory.reserved(), 600);
    }
}
