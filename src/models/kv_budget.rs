//! Memory for keys and values: one budget for the policies of a database, and one for those on each GPU.
//!
//! A sequence reserves what it may come to before it runs, so that none that runs is ever stopped or computed again for another one. What is kept
//! of finished sequences is shared evenly by the policies that have any.

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
    /// Of what policies keep, what is beyond their parts, since sequences in flight have it.
    excess: AtomicUsize,
    /// Policies that share `kept_max`.
    shares: AtomicUsize,
}

/// The part of one policy.
#[derive(Debug)]
pub struct KvShare {
    budget: Arc<KvBudget>,
    /// What it keeps, for those who look on.
    kept_bytes: Arc<AtomicUsize>,
    /// Its own of the budget's.
    excess: AtomicUsize,
}

/// Memory that a sequence in flight may come to, until it is dropped.
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
        Arc::new(Self { running_max, kept_max, running: AtomicUsize::new(0), excess: AtomicUsize::new(0), shares: AtomicUsize::new(0) })
    }
}

impl KvShare {
    /// One more policy that shares the budget. `kept_bytes` is kept up by [`Self::note_kept`].
    pub fn new(budget: &Arc<KvBudget>, kept_bytes: &Arc<AtomicUsize>) -> Self {
        budget.shares.fetch_add(1, Ordering::Relaxed);
        Self { budget: Arc::clone(budget), kept_bytes: Arc::clone(kept_bytes), excess: AtomicUsize::new(0) }
    }

    /// What the policy may keep of finished sequences.
    pub fn kept_max(&self) -> usize {
        self.budget.kept_max / self.budget.shares.load(Ordering::Relaxed).max(1)
    }

    /// What the sequences in flight and the finished ones of the policy may come to, if no other one has any.
    pub fn bytes_max(&self) -> usize {
        self.budget.running_max.saturating_add(self.budget.kept_max)
    }

    /// Says what the policy keeps. What is beyond its part is taken from the sequences in flight, of all policies.
    pub fn note_kept(&self, bytes: usize) {
        self.kept_bytes.store(bytes, Ordering::Relaxed);
        let excess = bytes.saturating_sub(self.kept_max());
        let before = self.excess.swap(excess, Ordering::Relaxed);
        self.budget.excess.fetch_add(excess, Ordering::Relaxed);
        self.budget.excess.fetch_sub(before, Ordering::Relaxed);
    }

    /// What nobody has taken of the memory for sequences in flight.
    pub fn free(&self) -> usize {
        let taken = self.budget.running.load(Ordering::Relaxed).saturating_add(self.budget.excess.load(Ordering::Relaxed));
        self.budget.running_max.saturating_sub(taken)
    }

    /// Memory for a sequence, if it is there. The first sequence of a policy always runs, however long: others could take all that is freed, and it
    /// would wait for ever.
    pub fn reserve(&self, bytes: usize, is_first: bool) -> Option<Reservation> {
        // Only the model thread reserves, so that nothing comes between the question and the answer.
        (is_first || bytes <= self.free()).then(|| {
            self.budget.running.fetch_add(bytes, Ordering::Relaxed);
            Reservation { budget: Arc::clone(&self.budget), bytes }
        })
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
        let first = a.reserve(60, false).expect("there is room");
        assert!(b.reserve(50, false).is_none());
        let second = b.reserve(50, true).expect("one of each policy runs");
        assert_eq!(a.free(), 0, "and may take more than there is");
        drop(first);
        assert!(a.reserve(50, false).is_some());
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
        assert!(b.reserve(51, false).is_none());
        assert!(b.reserve(50, false).is_some());
        drop(a);
        assert_eq!(b.free(), 80);
        // It has the whole now.
        b.note_kept(30);
        assert_eq!(b.free(), 90);
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
        let (a, kept_bytes) = (share(&budget), Arc::default());
        assert_eq!(a.kept_max(), 100);
        let b = KvShare::new(&budget, &kept_bytes);
        b.note_kept(50);
        assert_eq!((a.kept_max(), b.kept_max(), kept_bytes.load(Ordering::Relaxed)), (50, 50, 50));
        drop(b);
        assert_eq!((a.kept_max(), kept_bytes.load(Ordering::Relaxed)), (100, 0));
    }
}
