//! Forwards that callers share: inputs wait until the model thread is free, and the next forward takes those of all who wait.
//!
//! A query's embedding has a few tokens, and a forward of a few tokens costs nearly as much as one of a hundred: twenty sessions that search at the same
//! time need one forward, not twenty. What a caller gets does not hang on the others (`panels.rs`).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

use super::owner::Owner;
use crate::error::{Error, Result};

/// Tokens of one forward on the CPU. Small, so that a long column of texts lets decode steps of other callers in between.
pub(super) const FORWARD_TOKENS: usize = 1024;

/// A model whose forward takes inputs of several callers.
pub(super) trait SharedForward: Send + Sync + 'static {
    type Input: Send;
    type Output: Send;

    fn waiting(&self) -> &Waiting<Self::Input, Self::Output>;

    /// Tokens of one forward.
    fn forward_tokens(&self) -> usize {
        FORWARD_TOKENS
    }

    /// One output for each input. On the CPU it is the same whatever the others are.
    fn forward(&self, inputs: &[Self::Input]) -> Result<Vec<Self::Output>>;
}

/// Inputs that no forward has taken yet, in the order in which they came.
#[derive(Debug)]
pub(super) struct Waiting<T, R>(Mutex<VecDeque<Request<T, R>>>);

#[derive(Debug)]
struct Request<T, R> {
    inputs: Vec<T>,
    num_tokens: usize,
    reply: oneshot::Sender<Result<Vec<R>>>,
}

impl<T, R> Default for Waiting<T, R> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T, R> Waiting<T, R> {
    fn push(&self, request: Request<T, R>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(request);
    }

    /// The requests that fit into one forward, at least one if there are any. Those whose callers have gone are dropped.
    fn take(&self, forward_tokens: usize) -> Vec<Request<T, R>> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|request| !request.reply.is_closed());
        let mut num_tokens = 0_usize;
        let fits = |request: &&Request<T, R>| {
            num_tokens = num_tokens.saturating_add(request.num_tokens);
            num_tokens <= forward_tokens
        };
        let num_taken = waiting.iter().take_while(fits).count().max(1).min(waiting.len());
        waiting.drain(..num_taken).collect()
    }
}

/// The outputs of `inputs`, of `num_tokens` together. Dropping the future takes them back if no forward has begun.
///
/// # Errors
/// Those of the forward; [`Error::Internal`] if it panicked.
pub(super) async fn ask<M: SharedForward>(
    model: &Arc<M>,
    owner: &Owner,
    inputs: Vec<M::Input>,
    num_tokens: usize,
) -> Result<Vec<M::Output>> {
    let (reply, outputs) = oneshot::channel();
    model.waiting().push(Request { inputs, num_tokens, reply });
    let model = Arc::clone(model);
    owner.post(move || run_waiting(model.as_ref()))?;
    outputs.await.unwrap_or_else(|_| Err(Error::Internal("a job on the model thread panicked".to_owned())))
}

/// One forward over what waits. There are as many of these jobs as requests, so that none waits for ever; most find nothing left.
fn run_waiting<M: SharedForward>(model: &M) {
    let taken = model.waiting().take(model.forward_tokens());
    let mut inputs = Vec::new();
    let mut replies = Vec::with_capacity(taken.len());
    for request in taken {
        replies.push((request.inputs.len(), request.reply));
        inputs.extend(request.inputs);
    }
    if replies.is_empty() {
        return;
    }
    match model.forward(&inputs) {
        Ok(outputs) => {
            let mut outputs = outputs.into_iter();
            for (len, reply) in replies {
                // A caller that goes away during the work needs no answer.
                drop(reply.send(Ok(outputs.by_ref().take(len).collect())));
            }
        }
        // One caller's fault is not the others'.
        Err(_) => {
            let mut start = 0;
            for (len, reply) in replies {
                drop(reply.send(model.forward(&inputs[start..start + len])));
                start += len;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Doubles numbers, refuses zero, and notes how many each forward had.
    #[derive(Default)]
    struct Doubler {
        waiting: Waiting<u32, u32>,
        forwards: Mutex<Vec<usize>>,
    }

    impl SharedForward for Doubler {
        type Input = u32;
        type Output = u32;

        fn waiting(&self) -> &Waiting<u32, u32> {
            &self.waiting
        }

        fn forward(&self, inputs: &[u32]) -> Result<Vec<u32>> {
            self.forwards.lock().expect("one thread").push(inputs.len());
            match inputs.contains(&0) {
                true => Err(Error::NotReady("zero".to_owned())),
                false => Ok(inputs.iter().map(|input| 2 * input).collect()),
            }
        }
    }

    fn push(model: &Doubler, inputs: &[u32], num_tokens: usize) -> oneshot::Receiver<Result<Vec<u32>>> {
        let (reply, outputs) = oneshot::channel();
        model.waiting.push(Request { inputs: inputs.to_vec(), num_tokens, reply });
        outputs
    }

    fn answer(mut outputs: oneshot::Receiver<Result<Vec<u32>>>) -> Option<Vec<u32>> {
        outputs.try_recv().expect("it was answered").ok()
    }

    #[test]
    fn those_who_wait_share_a_forward() {
        let model = Doubler::default();
        let (first, gone, second) = (push(&model, &[1, 2], 10), push(&model, &[9], 10), push(&model, &[3], 10));
        let long = push(&model, &[4], FORWARD_TOKENS);
        drop(gone);
        run_waiting(&model);
        assert_eq!((answer(first), answer(second)), (Some(vec![2, 4]), Some(vec![6])));
        run_waiting(&model);
        assert_eq!(answer(long), Some(vec![8]));
        run_waiting(&model);
        assert_eq!(*model.forwards.lock().expect("one thread"), [3, 1]);
    }

    #[test]
    fn the_fault_of_one_is_not_that_of_the_others() {
        let model = Doubler::default();
        let (good, bad) = (push(&model, &[1], 10), push(&model, &[0], 10));
        run_waiting(&model);
        assert_eq!((answer(good), answer(bad)), (Some(vec![2]), None));
    }
}
