//! Between the thread that trains and the statement that samples for it: weights go one way, trajectories the other.
//!
//! Rollouts belong to the statement, as those of GENERATE ROLLOUTS do: they are counted with it, and go when it is dropped. The thread waits for them.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

use crate::error::{Error, Result};
use crate::models::{Decoder, Policy, TrainingPolicy};
use crate::training::{Draw, RolloutSource, SampledTrajectory, Stop};

/// Between two looks at the flag that ends a run.
const PAUSE: Duration = Duration::from_millis(20);

/// The trajectories of each question.
pub type Groups = Vec<Vec<SampledTrajectory>>;

/// What the thread asks of the statement.
#[derive(Debug)]
pub struct Request {
    /// With the weights of the moment.
    pub policy: Policy,
    pub wanted: Wanted,
    pub reply: Sender<Result<Groups>>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Wanted {
    /// Groups of these questions, to learn from.
    Groups { step: usize, questions: Vec<usize>, group_size: usize, temperature: f64 },
    /// The most probable trajectory of each question that is only measured.
    Measured,
}

/// The thread's end.
#[derive(Debug)]
pub struct Rollouts {
    pub policy: TrainingPolicy,
    pub requests: UnboundedSender<Request>,
    pub num_questions: usize,
    pub num_validation_questions: usize,
    pub completion_tokens_max: usize,
}

impl Rollouts {
    /// Waits for what the statement samples.
    fn ask(&self, policy: &Decoder, wanted: Wanted, stop: &Stop) -> Result<Groups> {
        let (reply, answer) = channel();
        let policy = self.policy.with_weights(policy)?;
        let gone = || Error::Cancelled("TRAIN");
        self.requests.send(Request { policy, wanted, reply }).map_err(|_| gone())?;
        loop {
            stop.check()?;
            match answer.recv_timeout(PAUSE) {
                Ok(groups) => return groups,
                Err(RecvTimeoutError::Timeout) => {}
                // The statement was dropped, and its rollouts with it.
                Err(RecvTimeoutError::Disconnected) => return Err(gone()),
            }
        }
    }
}

impl RolloutSource for Rollouts {
    fn num_questions(&self) -> usize {
        self.num_questions
    }

    fn num_validation_questions(&self) -> usize {
        self.num_validation_questions
    }

    fn completion_tokens_max(&self) -> usize {
        self.completion_tokens_max
    }

    fn sample(&self, policy: &Decoder, draw: &Draw<'_>, stop: &Stop) -> Result<Groups> {
        let Draw { step, questions, group_size, temperature } = *draw;
        self.ask(policy, Wanted::Groups { step, questions: questions.to_vec(), group_size, temperature }, stop)
    }

    fn measure(&self, policy: &Decoder, stop: &Stop) -> Result<Vec<SampledTrajectory>> {
        Ok(self.ask(policy, Wanted::Measured, stop)?.into_iter().flatten().collect())
    }
}
