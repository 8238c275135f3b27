//! The thread that runs the models.
//!
//! One thread per process runs every forward: the machine's cores are shared by rayon inside a product, not by products
//! that fight over them, and no async worker is ever blocked. The thread is the first worker of a pool of its own: it begins on each
//! product at once, and the others take parts of it as they wake up, instead of the thread waiting for them to do all of it.
//! Requests arrive over a channel, results leave by one-shot channels. Between two decode steps the thread takes new requests and
//! runs waiting jobs (embeddings, loading).

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rayon::ThreadPoolBuilder;
use tokio::sync::oneshot;

use super::awake::Awake;
use super::chat_template::ChatTemplate;
use super::kv_budget::{KvBudget, KvCounters, KvShare};
use super::policy_decoder::PolicyDecoder;
use super::scheduler::{Job, Schedule};
use super::tokenizer::Tokenizer;
use crate::error::{Error, Result};

/// Of the thread and of those that help it.
const THREAD: &str = "models";

/// candle's backward pass recurses over the graph, some frames per operation.
const STACK_BYTES: usize = 64 << 20;

/// How often the thread looks whether a policy that has no work is held by anybody: nobody says so when the last one lets it go.
const UNUSED_CHECK: Duration = Duration::from_secs(1);

/// A policy in memory.
#[derive(Debug)]
pub struct LoadedPolicy {
    pub decoder: PolicyDecoder,
    pub tokenizer: Tokenizer,
    /// Or why it cannot be read, which matters to those who want it.
    pub chat_template: Result<Option<ChatTemplate>, String>,
    /// Any of these ends a completion.
    pub eos_token_ids: Vec<u32>,
    /// Memory for keys and values, of which the policy has a part.
    pub kv_budget: Arc<KvBudget>,
    /// What its cache has and did.
    pub kv_counters: Arc<KvCounters>,
}

enum Message {
    Generate(Arc<LoadedPolicy>, Job),
    Run(Box<dyn FnOnce() + Send>),
}

/// The sending side of the model thread; cheap to clone.
#[derive(Debug, Clone)]
pub struct Owner {
    sender: Sender<Message>,
}

impl Owner {
    /// The thread of this process, started on first use.
    ///
    /// # Errors
    /// [`Error::Internal`] if the system refuses a thread.
    pub fn get() -> Result<Self> {
        static OWNER: OnceLock<Result<Owner, String>> = OnceLock::new();
        OWNER.get_or_init(|| start().map_err(|error| error.to_string())).clone().map_err(Error::Internal)
    }

    /// Queues a generation; its result goes to the job's own channel.
    ///
    /// # Errors
    /// [`Error::Internal`] if the thread has ended.
    pub fn generate(&self, policy: Arc<LoadedPolicy>, job: Job) -> Result<()> {
        self.send(Message::Generate(policy, job))
    }

    /// Runs a function on the model thread, after the jobs before it and between two decode steps.
    ///
    /// If the caller drops the future before the function starts, it is not run.
    ///
    /// # Errors
    /// The function's own; [`Error::Internal`] if it panicked.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        let (reply, result) = oneshot::channel();
        let job = move || {
            if !reply.is_closed() {
                // A caller that goes away during the work needs no answer.
                drop(reply.send(work()));
            }
        };
        self.send(Message::Run(Box::new(job)))?;
        result.await.unwrap_or_else(|_| Err(Error::Internal("a job on the model thread panicked".to_owned())))
    }

    /// Queues a function for the model thread, as [`Self::run`] does; it says itself what came of it.
    ///
    /// # Errors
    /// [`Error::Internal`] if the thread has ended.
    pub fn post(&self, work: impl FnOnce() + Send + 'static) -> Result<()> {
        self.send(Message::Run(Box::new(work)))
    }

    fn send(&self, message: Message) -> Result<()> {
        self.sender.send(message).map_err(|_| Error::Internal("the model thread has ended".to_owned()))
    }
}

fn start() -> Result<Owner, std::io::Error> {
    let (sender, receiver) = channel();
    let run = move || {
        // Without a pool of its own products run in the one of the process.
        let _pool = ThreadPoolBuilder::new().use_current_thread().thread_name(|_| THREAD.to_owned()).build();
        serve(&receiver);
    };
    std::thread::Builder::new().name(THREAD.to_owned()).stack_size(STACK_BYTES).spawn(run)?;
    Ok(Owner { sender })
}

/// The sequences in flight by policy, and the policies that they belong to.
type Schedulers = BTreeMap<usize, (Arc<LoadedPolicy>, Box<dyn Schedule>)>;

fn serve(receiver: &Receiver<Message>) {
    let (mut schedulers, mut awake) = (Schedulers::new(), Awake::default());
    loop {
        let idle = schedulers.values().all(|(_, scheduler)| scheduler.is_idle());
        // Without work the thread sleeps until a message comes; with work it takes what is there and goes on.
        let mut next = match (idle, schedulers.is_empty()) {
            (true, true) => receiver.recv().map_err(|_| TryRecvError::Disconnected),
            (true, false) => receiver.recv_timeout(UNUSED_CHECK).map_err(|error| match error {
                RecvTimeoutError::Timeout => TryRecvError::Empty,
                RecvTimeoutError::Disconnected => TryRecvError::Disconnected,
            }),
            (false, _) => receiver.try_recv(),
        };
        while let Ok(message) = next {
            handle(message, &mut schedulers);
            next = receiver.try_recv();
        }
        if matches!(next, Err(TryRecvError::Disconnected)) {
            return;
        }
        step(&mut schedulers, &mut awake);
    }
}

fn handle(message: Message, schedulers: &mut Schedulers) {
    match message {
        Message::Generate(policy, job) => {
            let key = Arc::as_ptr(&policy) as usize;
            if !schedulers.contains_key(&key) {
                let memory = KvShare::new(&policy.kv_budget, &policy.kv_counters);
                // The parts of the others are smaller now.
                schedulers.values_mut().for_each(|(_, scheduler)| scheduler.keep_its_part());
                let scheduler = policy.decoder.scheduler(policy.tokenizer.clone(), policy.eos_token_ids.clone(), memory);
                schedulers.insert(key, (policy, scheduler));
            }
            if let Some((_, scheduler)) = schedulers.get_mut(&key) {
                scheduler.add(job);
            }
        }
        // A panic drops the job's reply channel, which tells its caller; the thread goes on with the others.
        Message::Run(job) => drop(catch_unwind(AssertUnwindSafe(job))),
    }
}

/// One step of every policy with work. A policy that nobody else holds any more leaves memory with its prefix cache.
fn step(schedulers: &mut Schedulers, awake: &mut Awake) {
    schedulers.retain(|_, (policy, scheduler)| {
        if scheduler.is_idle() {
            return Arc::strong_count(policy) > 1;
        }
        if scheduler.uses_threads() {
            awake.renew();
        }
        // A panic is our bug: its sequences are dropped, which tells their callers.
        catch_unwind(AssertUnwindSafe(|| scheduler.step())).is_ok()
    });
}
