//! Memory that forwards work on, used again by the next forward on the same thread.
//!
//! A step of a small policy takes a millisecond and makes a dozen arrays. An allocator gives the memory of large ones back to the system, which clears it
//! before it gives it out again: a sixth of the time of such a policy, when each step had arrays of its own.

use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut};

/// Arrays that a thread keeps, and the floats of all of them: those of a large model are few beside the time that they are worked on.
const ARRAYS_MAX: usize = 24;
const FLOATS_MAX: usize = 8 << 20;

thread_local! {
    static KEPT: RefCell<Kept> = const { RefCell::new(Kept { arrays: Vec::new(), num_floats: 0 }) };
}

/// The arrays of a thread that nobody uses.
struct Kept {
    arrays: Vec<Vec<f32>>,
    num_floats: usize,
}

/// An array to be written before it is read: what is in it is left from earlier work.
pub struct Scratch {
    /// At least `len` long.
    values: Vec<f32>,
    len: usize,
}

impl Scratch {
    /// An array of `len` numbers, whatever they are.
    pub fn new(len: usize) -> Self {
        let mut values = KEPT.try_with(|kept| kept.borrow_mut().take(len)).ok().flatten().unwrap_or_default();
        if values.len() < len {
            // Arrays of similar lengths then fit the next time.
            values = vec![0.0; len.next_power_of_two()];
        }
        Self { values, len }
    }

    /// An array of these numbers.
    pub fn of(numbers: &[f32]) -> Self {
        let mut scratch = Self::new(numbers.len());
        scratch.copy_from_slice(numbers);
        scratch
    }
}

impl Kept {
    /// The smallest that is long enough.
    fn take(&mut self, len: usize) -> Option<Vec<f32>> {
        let fitting = self.arrays.iter().enumerate().filter(|(_, array)| array.len() >= len);
        let (index, _) = fitting.min_by_key(|(_, array)| array.len())?;
        let array = self.arrays.swap_remove(index);
        self.num_floats -= array.len();
        Some(array)
    }

    /// Of too many the smallest goes, which costs the least to make again.
    fn put(&mut self, array: Vec<f32>) {
        if self.num_floats + array.len() > FLOATS_MAX {
            return;
        }
        self.num_floats += array.len();
        self.arrays.push(array);
        if self.arrays.len() > ARRAYS_MAX
            && let Some((index, _)) = self.arrays.iter().enumerate().min_by_key(|(_, array)| array.len())
        {
            self.num_floats -= self.arrays.swap_remove(index).len();
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let values = std::mem::take(&mut self.values);
        if !values.is_empty() {
            // A thread that ends keeps nothing.
            let _ = KEPT.try_with(|kept| kept.borrow_mut().put(values));
        }
    }
}

impl Deref for Scratch {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.values[..self.len]
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.values[..self.len]
    }
}

impl From<Vec<f32>> for Scratch {
    fn from(values: Vec<f32>) -> Self {
        Self { len: values.len(), values }
    }
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_come_again_on_their_thread_and_are_bounded() {
        let mut first = Scratch::new(1000);
        first.fill(7.0);
        let place = first.as_ptr();
        drop(first);
        let again = Scratch::new(900);
        assert_eq!((again.as_ptr(), again.len(), again[899]), (place, 900, 7.0));
        assert_ne!(Scratch::new(2000).as_ptr(), place, "it is too short, and in use");
        let other_thread = std::thread::spawn(move || Scratch::new(900)[899]).join().expect("it ends");
        assert_eq!(other_thread, 0.0);
        drop((0..2 * ARRAYS_MAX).map(|_| Scratch::new(10)).collect::<Vec<_>>());
        drop(Scratch::new(5000));
        assert!(
            KEPT.with_borrow(|kept| kept.arrays.iter().any(|array| array.len() >= 5000)),
            "many small ones do not keep a large one out"
        );
        drop(Scratch::new(FLOATS_MAX + 1));
        KEPT.with_borrow(|kept| {
            assert!(kept.arrays.len() <= ARRAYS_MAX && kept.num_floats <= FLOATS_MAX);
            assert_eq!(kept.num_floats, kept.arrays.iter().map(Vec::len).sum::<usize>());
        });
        assert!(Scratch::new(0).is_empty());
    }
}
