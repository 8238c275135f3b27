//! Threads decide nothing: a policy writes the same on one as on several.

use std::sync::Arc;

use super::{memory, run, tiny_policy};
use crate::models::generation::GenerateRequest;
use crate::models::random::CounterRng;
use crate::models::sampling::Sampler;
use crate::models::scheduler::Scheduler;

/// So many that products, attention and sampling are each worth several threads.
const REQUESTS: u64 = 120;

fn request(number: u64) -> GenerateRequest {
    let token = |place: u64| (CounterRng::new(number).bits(place) % 300) as u32;
    GenerateRequest {
        prompt: (0..80 + number % 40).map(token).collect(),
        max_new_tokens: 16,
        sampler: Sampler { temperature: 1.0, top_p: 0.95, ..Sampler::default() },
        seed: number,
        stop: Vec::new(),
    }
}

#[test]
fn completions_do_not_depend_on_the_number_of_threads() {
    let policy = tiny_policy();
    let completions = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let mut scheduler = Scheduler::new(Arc::clone(&policy.packed), policy.tokenizer.clone(), vec![0], memory(64 << 20));
            let completions = run(&mut scheduler, (0..REQUESTS).map(request).collect());
            completions.into_iter().map(Result::unwrap).map(|one| (one.token_ids, one.token_logprobs, one.text)).collect::<Vec<_>>()
        })
    };
    let on_one = completions(1);
    for threads in [2, 3, 8] {
        assert!(completions(threads) == on_one, "{threads} threads");
    }
}
