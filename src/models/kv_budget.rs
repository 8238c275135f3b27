//! Memory for keys and values: one budget for the policies of a database, and one for those on each GPU.
//!
//! A sequence takes memory for its prompt when it begins, and for each further block as it comes to it, so that as many run as there is room for what they
//! have. When there is none, kept prefixes give way, and then the sequence that came last: it is computed again later (`scheduler.rs`). What is kept of
//! finished sequences is shared evenly by the policies that have any.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::device::Place;
use super::limits::ModelLimits;

/// The budgets of a database's policies: one for those that compute in the machine's memory, and one for those on each GPU.
#[derive(Debug)]
pub struct KvBudgets {
    limits: ModelLimits,
    machine: Arc<KvBudget>,
    /// By number.
    gpus: Mutex<BTreeMap<usize, Arc<KvBudget>>>,
}

/// How much the policies in one memory may take together, and what they take. In bytes.
#[derive(Debug)]
pub struct KvBudget {
    /// Of the sequences in flight.
    running_max: usize,
    /// Of what is kept of finished ones; 0: nothing is shared.
    kept_max: usize,
    running: AtomicUsize,
    kept: AtomicUsize,
    /// Policies that share `kept_max`.
    shares: AtomicUsize,
}

/// What the cache of one policy has and did, for those who look on.
#[derive(Debug, Default)]
pub struct KvCounters {
    /// Memory of what is kept of finished sequences.
    pub kept_bytes: AtomicUsize,
    /// Sequences that gave their memory to others before they were done, each time counted.
    pub preemptions: AtomicUsize,
}

/// The part of one policy.
#[derive(Debug)]
pub struct KvShare {
    budget: Arc<KvBudget>,
    counters: Arc<KvCounters>,
    /// What it keeps.
    kept: AtomicUsize,
}

/// Memory that a sequence in flight has, until this is dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<KvBudget>,
    bytes: usize,
}

impl KvBudgets {
    /// Budgets of which nothing is taken.
    pub fn new(limits: ModelLimits) -> Self {
        Self { limits, machine: KvBudget::new(limits.running(), limits.kept()), gpus: Mutex::default() }
    }

    /// The budget of the policies at this place. A GPU that cannot be asked what it has gets what the machine's memory has, for weights too (`pool.rs`).
    pub fn of(&self, place: Place) -> Arc<KvBudget> {
        let Place::Gpu(number) = place else { return Arc::clone(&self.machine) };
        let mut gpus = self.gpus.lock().unwrap_or_else(PoisonError::into_inner);
        let budget = gpus.entry(number).or_insert_with(|| {
            let as_machine = (self.limits.running(), self.limits.kept());
            let (running, kept) = place.gpu_memory().map_or(as_machine, |total| self.limits.on_gpu(total));
            KvBudget::new(running, kept)
        });
        Arc::clone(budget)
    }
}

impl KvBudget {
    /// A budget of which nothing is taken.
    pub fn new(running_max: usize, kept_max: usize) -> Arc<Self> {
        Arc::new(Self { running_max, kept_max, running: AtomicUsize::new(0), kept: AtomicUsize::new(0), shares: AtomicUsize::new(0) })
    }

    fn bytes_max(&self) -> usize {
        self.running_max.saturating_add(self.kept_max)
    }
}

impl KvShare {
    /// One more policy that shares the budget. `counters` are kept up.
    pub fn new(budget: &Arc<KvBudget>, counters: &Arc<KvCounters>) -> Self {
        budget.shares.fetch_add(1, Ordering::Relaxed);
        Self { budget: Arc::clone(budget), counters: Arc::clone(counters), kept: AtomicUsize::new(0) }
    }

    /// Whether anything may be kept of finished sequences.
    pub fn keeps(&self) -> bool {
        self.budget.kept_max > 0
    }

    /// What the policy may keep of finished sequences: its part, but no more than sequences in flight and the other policies leave.
    pub fn kept_max(&self) -> usize {
        let part = self.budget.kept_max / self.budget.shares.load(Ordering::Relaxed).max(1);
        part.min(self.left().saturating_add(self.kept.load(Ordering::Relaxed)))
    }

    /// What the sequences in flight and the finished ones of the policy may come to, if no other one has any.
    pub fn bytes_max(&self) -> usize {
        self.budget.bytes_max()
    }

    /// Says what the policy keeps.
    pub fn note_kept(&self, bytes: usize) {
        self.counters.kept_bytes.store(bytes, Ordering::Relaxed);
        let before = self.kept.swap(bytes, Ordering::Relaxed);
        self.budget.kept.fetch_add(bytes, Ordering::Relaxed);
        self.budget.kept.fetch_sub(before, Ordering::Relaxed);
    }

    /// Says that a sequence gave its memory to others.
    pub fn note_preemption(&self) {
        self.counters.preemptions.fetch_add(1, Ordering::Relaxed);
    }

    /// What a sequence that begins may have: of the memory for those in flight, what they have not taken, nor what is kept beyond its own part.
    pub fn free(&self) -> usize {
        let excess = self.budget.kept.load(Ordering::Relaxed).saturating_sub(self.budget.kept_max);
        self.budget.running_max.saturating_sub(self.budget.running.load(Ordering::Relaxed).saturating_add(excess))
    }

    /// What a sequence that runs may have more: all that nobody has, and so also what is for kept prefixes.
    pub fn left(&self) -> usize {
        let taken = self.budget.running.load(Ordering::Relaxed).saturating_add(self.budget.kept.load(Ordering::Relaxed));
        self.budget.bytes_max().saturating_sub(taken)
    }

    /// Memory for a sequence that begins, if it is there and `spare` beside it. The first sequence of a policy always runs, however long: others could
    /// take all that is freed, and it would wait for ever.
    pub fn reserve(&self, bytes: usize, spare: usize, is_first: bool) -> Option<Reservation> {
        // Only the model thread reserves, so that nothing comes between the question and the answer.
        (is_first || bytes.saturating_add(spare) <= self.free()).then(|| {
            self.budget.running.fetch_add(bytes, Ordering::Relaxed);
            Reservation { budget: Arc::clone(&self.budget), bytes }
        })
    }

    /// More memory for a sequence that runs, if it is there; the only one of a policy always has it.
    pub fn grow(&self, reservation: &mut Reservation, bytes: usize, is_only: bool) -> bool {
        let has_room = is_only || bytes <= self.left();
        if has_room {
            self.budget.running.fetch_add(bytes, Ordering::Relaxed);
            reservation.bytes += bytes;
        }
        has_room
    }
}

impl Drop for KvShare {
    fn drop(&mut self) {
        self.note_kept(0);
        self.budget.shares.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.running.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(budget: &Arc<KvBudget>) -> KvShare {
        KvShare::new(budget, &Arc::default())
    }

    #[test]
    fn sequences_of_all_policies_share_what_there_is() {
        let budget = KvBudget::new(100, 0);
        let (a, b) = (share(&budget), share(&budget));
        let first = a.reserve(60, 0, false).expect("there is room");
        assert!(b.reserve(50, 0, false).is_none());
        let mut second = b.reserve(50, 0, true).expect("one of each policy runs");
        assert_eq!(a.free(), 0, "and may take more than there is");
        assert!(!b.grow(&mut second, 1, false) && b.grow(&mut second, 5, true), "also while it runs");
        drop(first);
        assert!(a.reserve(40, 6, false).is_none(), "nothing would be spare");
        assert!(a.reserve(40, 5, false).is_some());
        drop(second);
        assert_eq!(budget.running.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_any_policy_keeps_beyond_its_part_is_not_free() {
        let budget = KvBudget::new(100, 20);
        let (a, b) = (share(&budget), share(&budget));
        a.note_kept(10);
        assert_eq!(b.free(), 100);
        a.note_kept(40);
        b.note_kept(30);
        assert_eq!((a.free(), b.free()), (50, 50));
        assert!(b.reserve(51, 0, false).is_none());
        assert!(b.reserve(50, 0, false).is_some());
        drop(a);
        // It has the whole now.
        assert_eq!(b.free(), 90);
    }

    #[test]
    fn a_sequence_that_runs_may_have_what_is_for_kept_ones() {
        let budget = KvBudget::new(100, 20);
        let (a, b) = (share(&budget), share(&budget));
        let mut running = a.reserve(100, 0, false).expect("there is room");
        a.note_kept(5);
        assert!(!a.grow(&mut running, 16, false));
        assert!(a.grow(&mut running, 12, false));
        assert_eq!((a.left(), a.free(), a.kept_max(), b.kept_max()), (3, 0, 8, 3), "no more is kept than it leaves");
        drop(running);
        assert_eq!((a.left(), a.free(), a.kept_max(), b.kept_max()), (115, 100, 10, 10));
    }

    #[test]
    fn a_gpu_that_cannot_be_asked_has_as_much_as_the_machine() {
        let budgets = KvBudgets::new(ModelLimits { memory: 800, ..ModelLimits::default() });
        // There is no such GPU.
        let budget = budgets.of(Place::Gpu(99));
        assert_eq!((budget.running_max, budget.kept_max), (200, 100));
        assert_eq!(share(&budget).bytes_max(), 300);
    }

    #[test]
    fn what_is_kept_is_shared_evenly() {
        let budget = KvBudget::new(0, 100);
        let (a, counters) = (share(&budget), Arc::<KvCounters>::default());
        assert_eq!(a.kept_max(), 100);
        let b = KvShare::new(&budget, &counters);
        b.note_kept(50);
        assert_eq!((a.kept_max(), b.kept_max(), counters.kept_bytes.load(Ordering::Relaxed)), (50, 50, 50));
        drop(b);
        assert_eq!((a.kept_max(), counters.kept_bytes.load(Ordering::Relaxed)), (100, 0));
    }
}
