//! Small runs whose policies must become better, and what must not change them.

use candle_core::{DType, Device};

use super::*;
use crate::models::LoraOptions;
use crate::models::config::{DecoderConfig, HEAD};
use crate::models::ops::Arithmetic;
use crate::training::{Schedule, Warnings};

/// A run that is short and sure of itself.
fn with_run(options: OnlineOptions) -> OnlineOptions {
    let run = RunOptions { epochs: 40.0, learning_rate: 5e-3, ..options.run };
    OnlineOptions { run, batch_size: 4, group_size: 8, ..options }
}

fn reinforce() -> OnlineOptions {
    let mut options = with_run(OnlineOptions::grpo());
    if let Learner::Group(group) = &mut options.learner {
        group.estimator = Estimator::Reinforce;
    }
    options
}

fn ppo() -> OnlineOptions {
    let mut options = with_run(OnlineOptions::ppo());
    options.updates_per_batch = 2;
    if let Learner::Critic(critic) = &mut options.learner {
        critic.critic_learning_rate = 5e-3;
    }
    options
}

const WORLD: Parity = Parity { num_questions: 4, num_validation_questions: 0 };

/// The decoder where the policy computes.
fn beside(policy: &Decoder, decoder: Decoder) -> Result<Decoder> {
    match policy.arithmetic() {
        Arithmetic::Fused => Ok(decoder),
        Arithmetic::Plain(dtype) => decoder.on(policy.device(), dtype),
    }
}

fn train(policy: &mut Decoder, options: &OnlineOptions) -> Result<Vec<StepMetrics>> {
    let reference = if options.kl_weight > 0.0 { Some(beside(policy, tiny_decoder(VOCAB, 11))?) } else { None };
    let is_ppo = matches!(options.learner, Learner::Critic(_));
    let critic = if is_ppo { Some(Critic::new(beside(policy, tiny_decoder(VOCAB, 12))?)?) } else { None };
    let beside = Beside { reference: reference.as_ref(), critic: critic.as_ref() };
    let mut steps = Vec::new();
    train_online(policy, beside, &WORLD, options, &mut |step| {
        steps.push(step.clone());
        Ok(())
    })?;
    Ok(steps)
}

/// The probability of a right answer, over all first tokens, as the mean over the questions.
fn probability_of_right(policy: &Decoder) -> f64 {
    let policy = PackedDecoder::new(policy).expect("its weights are here");
    let probabilities = |tokens: &[u32]| {
        let logits = logits(&policy, tokens);
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let weights: Vec<f64> = logits.iter().map(|logit| f64::from(logit - largest).exp()).collect();
        let sum: f64 = weights.iter().sum();
        weights.into_iter().map(move |weight| weight / sum).collect::<Vec<f64>>()
    };
    let of_question = |question: usize| {
        let prompt = Parity::prompt(question);
        let firsts = probabilities(&prompt);
        let right = |first: u32| {
            let shown = [&prompt[..], &[first, PASSAGE]].concat();
            let answers = (0_u32..).zip(probabilities(&shown)).filter(|(token, _)| Parity::is_right(*token));
            answers.map(|(_, share)| share).sum::<f64>()
        };
        (0_u32..).zip(firsts).map(|(first, share)| share * right(first)).sum::<f64>()
    };
    (0..WORLD.num_questions).map(of_question).sum::<f64>() / WORLD.num_questions as f64
}

fn check_learns(name: &str, options: &OnlineOptions, policy: &mut Decoder) {
    let before = probability_of_right(policy);
    assert!((0.3..0.7).contains(&before), "random weights know nothing: {before}");
    let steps = train(policy, options).expect("finite numbers");
    let after = probability_of_right(policy);
    assert!(after > 0.8, "{name}: from {before} to {after}");
    let (first, last) = (steps[0].get("reward").expect("it is told"), steps[steps.len() - 1].get("reward").expect("it is told"));
    assert!(last > first, "{name}: the reward went from {first} to {last}");
    assert_eq!(steps.len(), 40);
    for step in &steps {
        assert!(step.metrics.iter().all(|(_, value)| value.is_finite()), "{name}: {step:?}");
        assert_eq!((step.get("policy_calls"), step.get("completion_tokens")), (Some(2.0), Some(64.0)));
        let (all, distinct) = (step.get("tokens").expect("told"), step.get("distinct_tokens").expect("told"));
        assert!(distinct <= all, "{name}: {step:?}");
    }
}

#[test]
fn grpo_raises_the_probability_of_what_is_rewarded() {
    check_learns("grpo", &with_run(OnlineOptions::grpo()), &mut tiny_decoder(VOCAB, 1));
    let several = OnlineOptions { updates_per_batch: 2, kl_weight: 0.001, ..with_run(OnlineOptions::grpo()) };
    check_learns("grpo with two updates and a penalty", &several, &mut tiny_decoder(VOCAB, 2));
}

#[test]
fn policies_learn_in_parts_of_a_step() {
    let parts = |options: OnlineOptions| {
        let options = with_run(options);
        OnlineOptions { mini_batches: 2, updates_per_batch: 1, ..options }
    };
    check_learns("grpo in two parts", &parts(OnlineOptions::grpo()), &mut tiny_decoder(VOCAB, 1));
    check_learns("ppo in two parts", &parts(ppo()), &mut tiny_decoder(VOCAB, 4));
}

/// Of one step, on four questions.
#[test]
fn a_step_in_parts_moves_the_weights_once_for_each() {
    let learned = |mini_batches: usize| {
        let options = with_run(OnlineOptions::grpo());
        let run = RunOptions { max_steps: Some(1), ..options.run };
        let mut policy = tiny_decoder(VOCAB, 1);
        train(&mut policy, &OnlineOptions { run, mini_batches, ..options }).expect("finite numbers");
        policy
    };
    // One part is the step; more parts than questions are one for each; two parts are neither.
    let weights = |policy: &Decoder| {
        policy
            .parameters()
            .values()
            .map(|weight| weight.flatten_all().and_then(|flat| flat.to_vec1::<f32>()).expect("f32"))
            .collect::<Vec<_>>()
    };
    let [whole, each, more, halves] = [1, 4, 9, 2].map(|parts| weights(&learned(parts)));
    assert_eq!(each, more);
    assert!(whole != each && whole != halves && halves != each);
}

#[test]
fn reinforce_raises_the_probability_of_what_is_rewarded() {
    check_learns("reinforce", &reinforce(), &mut tiny_decoder(VOCAB, 3));
}

#[test]
fn ppo_raises_the_probability_of_what_is_rewarded() {
    check_learns("ppo", &ppo(), &mut tiny_decoder(VOCAB, 4));
}

#[test]
fn a_bonus_for_entropy_keeps_samples_different() {
    let entropy = |entropy_weight: f64| {
        let options = OnlineOptions { entropy_weight, ..with_run(OnlineOptions::grpo()) };
        let steps = train(&mut tiny_decoder(VOCAB, 1), &options).expect("finite numbers");
        steps[steps.len() - 1].get("entropy").expect("it is told")
    };
    // Of equally probable tokens it is ln 16, 2.77.
    let (with, without) = (entropy(0.5), entropy(0.0));
    assert!(with > without + 0.2, "{with} with a bonus, {without} without");
}

/// By the operations of a GPU, on candle's CPU device: rollouts are sampled by a packed copy in host memory all the same.
#[test]
fn policies_learn_from_rollouts_in_bf16() {
    let in_bf16 = |seed| tiny_decoder(VOCAB, seed).on(&Device::Cpu, DType::BF16).expect("the CPU has room");
    let several = OnlineOptions { updates_per_batch: 2, kl_weight: 0.001, ..with_run(OnlineOptions::grpo()) };
    check_learns("grpo with two updates and a penalty, in bf16", &several, &mut in_bf16(2));
    check_learns("ppo in bf16", &ppo(), &mut in_bf16(4));
}

/// What is sampled has the adapters in it: else the policy would never see what it has learned.
#[test]
fn adapters_learn_from_what_they_sample() {
    // Their head is frozen: with random weights as small as they are, no hidden state would make much of a difference. With larger ones a policy is right or wrong
    // by chance; this one is half and half.
    let with_large_head = |seed| {
        let config = DecoderConfig { tie_word_embeddings: false, ..tiny_decoder(VOCAB, 5).config().clone() };
        let policy = Decoder::random(config, seed).expect("the sizes fit each other");
        let head = &policy.parameters()[HEAD];
        head.set(&(head.as_tensor() * 8.0).expect("numbers").detach()).expect("it has the shape");
        policy
    };
    let mut policies = (5..50).map(with_large_head);
    let mut policy = policies.find(|policy| (0.35..0.6).contains(&probability_of_right(policy))).expect("one of them");
    policy.attach_lora(&LoraOptions { rank: 8, ..LoraOptions::default() }).expect("it has the layers");
    check_learns("grpo with adapters", &with_run(OnlineOptions::grpo()), &mut policy);
    let with_adapters = probability_of_right(&policy);
    policy.merge_lora().expect("they fit");
    assert!((probability_of_right(&policy) - with_adapters).abs() < 1e-12, "a merged policy is the one that was sampled");
}

#[test]
fn adapters_have_their_base_for_a_reference() {
    let mut policy = tiny_decoder(VOCAB, 5);
    let before = weights(&policy);
    policy.attach_lora(&LoraOptions { rank: 4, ..LoraOptions::default() }).expect("it has the layers");
    let reference = policy.without_adapters().expect("it has some");
    let mut options = with_run(OnlineOptions { kl_weight: 0.1, ..OnlineOptions::grpo() });
    options.run.epochs = 3.0;
    let beside = Beside { reference: Some(&reference), critic: None };
    let mut kl = Vec::new();
    train_online(&mut policy, beside, &WORLD, &options, &mut |step| {
        kl.push(step.get("kl").expect("there is a penalty"));
        Ok(())
    })
    .expect("finite numbers");
    assert!(kl[0].abs() < 1e-12 && kl[2] > 0.0, "at first the policy is its base: {kl:?}");
    let of_reference: Vec<f64> = reference.tensors().values().flat_map(crate::training::tests::values).collect();
    assert_eq!(of_reference, before, "the base stays as it was");
}

#[test]
fn rewards_that_are_all_the_same_change_nothing_and_are_told() {
    let heard = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let said = std::sync::Arc::clone(&heard);
    let mut options = with_run(OnlineOptions::grpo());
    options.run.epochs = 8.0;
    options.run.warnings = Warnings::new(move |warning| said.lock().expect("no panic").push(warning));
    let mut policy = tiny_decoder(VOCAB, 6);
    let before = weights(&policy);
    let mut observe = |step: &StepMetrics| {
        assert_eq!((step.get("groups_without_signal"), step.get("loss"), step.get("grad_norm")), (Some(1.0), Some(0.0), Some(0.0)));
        Ok(())
    };
    train_online(&mut policy, Beside::default(), &Flat, &options, &mut observe).expect("nothing is no error");
    assert!(weights(&policy) == before);
    let heard = heard.lock().expect("no panic");
    assert_eq!(heard.len(), 1, "it is said once: {heard:?}");
}

#[test]
fn the_same_seed_gives_the_same_weights() {
    let trained = |seed, learning: &OnlineOptions| {
        let mut options = learning.clone();
        options.run = RunOptions { epochs: 2.0, seed, schedule: Schedule::Linear, ..options.run };
        options.batch_size = 2;
        let mut policy = tiny_decoder(VOCAB, 7);
        train(&mut policy, &options).expect("finite numbers");
        weights(&policy)
    };
    for learning in [with_run(OnlineOptions::grpo()), ppo()] {
        let five = trained(5, &learning);
        assert!(five == trained(5, &learning));
        assert!(five != trained(6, &learning), "another order of the questions");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut policy = tiny_decoder(VOCAB, 8);
    let run = |policy: &mut Decoder, options: &OnlineOptions, world: &Parity| {
        train_online(policy, Beside::default(), world, options, &mut |_| Ok(()))
    };
    let none = Parity { num_questions: 0, num_validation_questions: 0 };
    assert!(matches!(run(&mut policy, &with_run(OnlineOptions::grpo()), &none), Err(Error::NotReady(_))));
    let alone = OnlineOptions { group_size: 1, ..with_run(OnlineOptions::grpo()) };
    assert!(matches!(run(&mut policy, &alone, &WORLD), Err(Error::InvalidParameter { .. })));
    assert!(matches!(run(&mut policy, &ppo(), &WORLD), Err(Error::Internal(_))), "PPO needs its critic");
    let mut frozen = tiny_decoder(VOCAB, 8);
    frozen.attach_lora(&LoraOptions::default()).expect("it has the layers");
    let mut frozen = frozen.without_adapters().expect("it has some");
    assert!(matches!(run(&mut frozen, &with_run(OnlineOptions::grpo()), &WORLD), Err(Error::Internal(_))));
}

#[test]
fn a_reward_that_is_no_number_stops_the_run() {
    struct Broken;

    impl RolloutSource for Broken {
        fn num_questions(&self) -> usize {
            4
        }

        fn num_validation_questions(&self) -> usize {
            0
        }

        fn completion_tokens_max(&self) -> usize {
            2
        }

        fn sample(&self, policy: &Decoder, draw: &Draw<'_>, stop: &Stop) -> Result<Vec<Vec<SampledTrajectory>>> {
            let mut groups = WORLD.sample(policy, draw, stop)?;
            groups[0][0].reward = f64::NAN;
            Ok(groups)
        }

        fn measure(&self, _: &Decoder, _: &Stop) -> Result<Vec<SampledTrajectory>> {
            Ok(vec![])
        }
    }

    let mut policy = tiny_decoder(VOCAB, 9);
    let before = weights(&policy);
    let result = train_online(&mut policy, Beside::default(), &Broken, &with_run(OnlineOptions::grpo()), &mut |_| Ok(()));
    assert!(matches!(result, Err(Error::Diverged { step: 1, .. })), "{result:?}");
    assert!(weights(&policy) == before);
}
