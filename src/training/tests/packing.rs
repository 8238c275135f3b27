//! Batches as trees: the losses and gradients of whole sequences, in the same steps, with fewer tokens.

use std::collections::{BTreeMap, HashSet};
use std::time::Instant;

use proptest::prelude::*;

use super::backward::take_peak_bytes;
use super::*;
use crate::models::ops::Forest;
use crate::training::batch::Batch;
use crate::training::example::{Sequence, sft_sequences};
use crate::training::forest::Packed;
use crate::training::plan::Plan;
use crate::training::sft::Sft;

/// Of few tokens, so that many begin alike, some are the beginning of others, and some are equal.
fn sequences() -> impl Strategy<Value = Vec<Vec<u32>>> {
    prop::collection::vec(prop::collection::vec(1_u32..4, 1..14), 1..10)
}

/// Demonstrations with weights and masks, over the vocabulary of the fixtures.
fn demonstrations() -> impl Strategy<Value = Vec<SftExample>> {
    let example = (prop::collection::vec(1_u32..4, 1..12), prop::collection::vec(1_u32..4, 1..8), 1_u8..4, any::<bool>());
    let example = example.prop_map(|(prompt, completion, weight, is_masked)| {
        let mask = if is_masked { (0..completion.len()).map(|index| f32::from(u8::from(index % 3 == 0))).collect() } else { vec![] };
        SftExample { prompt, completion, weight: f32::from(weight) / 2.0, mask }
    });
    prop::collection::vec(example, 1..8)
}

fn pairs() -> impl Strategy<Value = Vec<DpoExample>> {
    let tokens = |max: usize| prop::collection::vec(1_u32..4, 1..max);
    let pair = (tokens(16), tokens(8), tokens(8)).prop_map(|(prompt, chosen, mut rejected)| {
        if chosen == rejected {
            rejected.push(5);
        }
        DpoExample { prompt, chosen, rejected }
    });
    prop::collection::vec(pair, 1..8)
}

fn all<T>(examples: &[T]) -> Vec<usize> {
    (0..examples.len()).collect()
}

/// Both objectives have one loss and one gradient, whose rounding is measured by the whole gradient where a part of it is small.
fn assert_same_step(decoder: &Decoder, [packed, whole]: [&impl Objective; 2], examples: &[usize]) {
    let [packed, whole] = [packed, whole].map(|objective| step_gradients(decoder, objective, &[examples]).expect("finite numbers"));
    assert_eq!(packed.num_tokens, whole.num_tokens);
    assert_eq!(whole.num_distinct_tokens, whole.num_tokens);
    assert!(packed.num_distinct_tokens <= whole.num_tokens);
    for ((name, packed), (_, whole)) in packed.metrics.iter().zip(&whole.metrics) {
        assert!((packed - whole).abs() < 1e-4 * whole.abs().max(1.0), "{name}: {packed} as trees, {whole} end to end");
    }
    let norm = whole.gradients.norm().expect("gradients");
    for name in decoder.parameters().keys() {
        let [packed, whole] = [&packed, &whole].map(|step| values(step.gradients.get(name).expect(name)));
        let length = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
        let error = length(&mut packed.iter().zip(&whole).map(|(packed, whole)| packed - whole));
        let expected = length(&mut whole.iter().copied());
        assert!(error < 1e-4 * expected.max(0.1 * norm), "{name}: error {error} of {expected}, of {norm} in all");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_rows_of_a_sequence_are_its_tokens(sequences in sequences()) {
        let packed = Packed::of(&sequences, true);
        let positions: Vec<u32> = packed.layout.positions().collect();
        for (index, sequence) in sequences.iter().enumerate() {
            let rows: Vec<usize> = packed.rows(index).collect();
            prop_assert_eq!(&rows.iter().map(|&row| packed.tokens[row]).collect::<Vec<_>>(), sequence);
            prop_assert_eq!(rows.iter().map(|&row| positions[row]).collect::<Vec<_>>(), (0..sequence.len() as u32).collect::<Vec<_>>());
            // What the row of its last token sees are the rows before it.
            let last = rows[rows.len() - 1];
            let segment = packed.layout.segments().iter().position(|segment| segment.rows.contains(&last)).expect("a row of the layout");
            let seen: Vec<usize> = packed.layout.path(segment).into_iter().flatten().filter(|&row| row <= last).collect();
            prop_assert_eq!(seen, rows);
        }
        let beginnings = sequences.iter().flat_map(|sequence| (1..=sequence.len()).map(move |length| &sequence[..length]));
        let beginnings: HashSet<&[u32]> = beginnings.collect();
        prop_assert_eq!((packed.tokens.len(), packed.layout.num_tokens()), (beginnings.len(), beginnings.len()));
    }

    #[test]
    fn sequences_that_share_nothing_lie_end_to_end(completions in sequences()) {
        let prompts: Vec<[u32; 1]> = (0..completions.len()).map(|index| [10 + index as u32]).collect();
        let sequences: Vec<Sequence<'_>> =
            prompts.iter().zip(&completions).map(|(prompt, completion)| sequence(prompt, completion)).collect();
        prop_assert_eq!(Batch::pack(&sequences), Batch::of(&sequences, false));
    }

    #[test]
    fn what_is_shared_is_counted_as_it_is_laid_out(
        sequences in sequences(), others in sequences(), order: u64, batch_tokens in 1_usize..40,
    ) {
        // Pairs where there are two, as DPO has them, and single sequences behind them.
        let example = |index: usize| {
            let tokens = [sequences.get(index), others.get(index)].into_iter().flatten();
            tokens.map(|tokens| sequence(&tokens[..1], &tokens[1..])).collect()
        };
        let examples: Vec<Vec<Sequence<'_>>> = (0..sequences.len()).map(example).collect();
        let sharing = Sharing::new(examples.iter().map(Vec::as_slice));
        let laid_out = |examples_of_batch: &[usize]| {
            let inputs: Vec<Vec<u32>> =
                examples_of_batch.iter().flat_map(|&example| &examples[example]).map(|sequence| sequence.inputs().collect()).collect();
            Packed::of(&inputs, true)
        };
        let mut some = all(&examples);
        crate::training::plan::shuffle(&mut some, order, 0);
        prop_assert_eq!(sharing.num_tokens(), laid_out(&some).tokens.len());
        some.truncate(1 + order as usize % some.len());
        let (size, packed) = (sharing.size(&some), laid_out(&some));
        let squares: f64 = packed.layout.positions().map(|position| f64::from(2 * position + 1)).sum();
        prop_assert_eq!((size.num_tokens, size.squares), (packed.tokens.len(), squares));

        let batches = sharing.batches(&some, batch_tokens);
        for batch in &batches {
            prop_assert!(laid_out(batch).tokens.len() <= batch_tokens || batch.len() == 1, "{:?}", batches);
        }
        let (mut found, mut expected) = (batches.concat(), some);
        found.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn packing_changes_no_step(
        examples in demonstrations(), seed: u64, batch_size in prop::option::of(1_usize..4), step_tokens in prop::option::of(1_usize..60),
        gradient_accumulation in 1_usize..3,
    ) {
        let run = RunOptions { epochs: 2.5, batch_tokens: 40, gradient_accumulation, step_tokens, seed, ..RunOptions::default() };
        let sequences = sft_sequences(&examples, 0.5, &run);
        prop_assume!(sequences.is_ok());
        let objective = Sft { sequences: sequences.expect("as assumed"), tree_packing: true };
        let (costs, sharing) = (objective.costs(), objective.sharing());
        let steps = |run: &RunOptions| {
            let plan = Plan::new(&costs, run, batch_size).with_sharing(sharing.as_ref());
            let num_steps = plan.num_steps();
            let steps: Vec<Vec<Vec<usize>>> = plan.collect();
            assert_eq!(steps.len(), num_steps);
            steps
        };
        let (packed, whole) = (steps(&run), steps(&RunOptions { tree_packing: false, ..run.clone() }));
        let of_step = |step: &Vec<Vec<usize>>| {
            let mut examples = step.concat();
            examples.sort_unstable();
            examples
        };
        let of_steps = |steps: &[Vec<Vec<usize>>]| steps.iter().map(of_step).collect::<Vec<_>>();
        prop_assert_eq!(of_steps(&packed), of_steps(&whole));
        for batch in packed.iter().flatten() {
            prop_assert!(objective.batch(batch).tokens.len() <= run.batch_tokens);
        }
        let without: Vec<_> = Plan::new(&costs, &run, batch_size).collect();
        prop_assert_eq!(whole, without, "who shares nothing has the batches of before");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_step_of_demonstrations_is_that_of_whole_sequences(examples in demonstrations()) {
        let decoder = checkpoint("policy");
        let run = RunOptions::default();
        prop_assume!(sft_sequences(&examples, 0.3, &run).is_ok());
        let sft = |tree_packing| Sft { sequences: sft_sequences(&examples, 0.3, &run).expect("as assumed"), tree_packing };
        let (packed, whole) = (sft(true), sft(false));
        assert_same_step(&decoder, [&packed, &whole], &all(&packed.sequences));
    }

    #[test]
    fn a_step_of_pairs_is_that_of_whole_sequences(examples in pairs()) {
        let decoder = checkpoint("reference");
        let options = DpoOptions::default();
        let reference: Vec<ReferenceLogps> =
            (0..examples.len()).map(|pair| ReferenceLogps { chosen: -20.0 - pair as f64, rejected: -15.0 }).collect();
        let dpo = |tree_packing| {
            let pairs = dpo_sequences(&examples, &options.run).expect("they fit");
            Dpo { pairs, reference: &reference, preference: options.preference, tree_packing }
        };
        let (packed, whole) = (dpo(true), dpo(false));
        assert_same_step(&decoder, [&packed, &whole], &all(&packed.pairs));
    }
}

fn sequence<'a>(prompt: &'a [u32], completion: &'a [u32]) -> Sequence<'a> {
    Sequence { prompt, completion, mask: &[], prompt_weight: 0.5, completion_weight: 1.0 }
}

#[test]
fn siblings_read_the_rows_of_their_prompt() {
    let siblings = [sequence(&[1, 2], &[3, 4, 5]), sequence(&[1, 2], &[3, 6]), sequence(&[7], &[8]), sequence(&[1, 2], &[9, 9])];
    let expected = Batch {
        // The last tokens predict nothing: of the second sibling 3 is left, which the first one has too.
        tokens: vec![1, 2, 3, 4, 9, 7],
        layout: Forest::depth_first([(0, 2), (1, 2), (1, 1), (0, 1)]),
        lengths: vec![4, 3, 1, 3],
        rows: vec![0, 1, 2, 3, 0, 1, 2, 5, 0, 1, 4],
        targets: vec![2, 3, 4, 5, 2, 3, 6, 8, 2, 9, 9],
        weights: vec![0.5, 1.0, 1.0, 1.0, 0.5, 1.0, 1.0, 1.0, 0.5, 1.0, 1.0],
        row_ranges: vec![0..4, 4..7, 7..8, 8..11],
    };
    assert_eq!(Batch::pack(&siblings), expected);
}

/// Pairs of a search over six questions, ten of each: an instruction, the question, up to two steps, and what comes next.
fn searched() -> Vec<DpoExample> {
    let pair = |index: u32| {
        // No two neighbours are of one question.
        let (question, node) = (index % 6, index / 6);
        let instruction = 100..130;
        let words = (0..20).map(move |word| 1 + (question * 5 + word * (question + 1)) % 40);
        let steps = (0..node % 3).flat_map(move |step| [50 + step, 51 + node % 2]);
        let prompt: Vec<u32> = instruction.chain(words).chain(steps).collect();
        DpoExample { prompt, chosen: vec![60, 61 + node % 4, 0], rejected: vec![60, 71 + node, 0] }
    };
    (0..60).map(pair).collect()
}

#[test]
fn examples_of_one_question_are_a_group() {
    let pairs = searched();
    let groups = Sharing::of_pairs(&pairs, &RunOptions::default()).expect("they fit").expect("trees are the default").groups();
    let mut by_group: BTreeMap<usize, HashSet<&[u32]>> = BTreeMap::new();
    for (pair, &group) in pairs.iter().zip(&groups) {
        by_group.entry(group).or_default().insert(&pair.prompt[30..50]);
    }
    assert_eq!(by_group.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    assert!(by_group.values().all(|questions| questions.len() == 1), "{by_group:?}");
}

#[test]
fn groups_are_shuffled_as_wholes() {
    let pairs = searched();
    let run = RunOptions { epochs: 2.0, group_by_prefix: true, seed: 5, ..RunOptions::default() };
    let objective = Dpo {
        pairs: dpo_sequences(&pairs, &run).expect("they fit"),
        reference: &[],
        preference: Preference::sigmoid(0.3),
        tree_packing: true,
    };
    let (costs, sharing) = (objective.costs(), objective.sharing());
    // The steps, each with its examples in the order of their numbers.
    let steps = |run: &RunOptions| {
        let plan = Plan::new(&costs, run, Some(10)).with_sharing(sharing.as_ref());
        let sorted = |step: Vec<Vec<usize>>| {
            let mut step = step.concat();
            step.sort_unstable();
            step
        };
        plan.map(sorted).collect::<Vec<Vec<usize>>>()
    };
    let grouped = steps(&run);
    assert_eq!(grouped, steps(&run), "the seed decides");
    let questions = |steps: &[Vec<usize>]| {
        let of_step = |step: &Vec<usize>| step.iter().map(|pair| pair % 6).collect::<HashSet<_>>().len();
        steps.iter().map(of_step).collect::<Vec<_>>()
    };
    assert_eq!(questions(&grouped), [1; 12], "a group is a step here");
    let [first, second] = [&grouped[..6], &grouped[6..]].map(|epoch| epoch.iter().map(|step| step[0] % 6).collect::<Vec<_>>());
    assert_ne!(first, second, "another order of groups in each epoch");
    assert_ne!(grouped, steps(&RunOptions { seed: 6, ..run.clone() }));
    let plain = steps(&RunOptions { group_by_prefix: false, ..run.clone() });
    assert!(questions(&plain).iter().all(|&questions| questions > 1), "{plain:?}");
    let in_order = steps(&RunOptions { shuffle: false, ..run });
    assert_eq!(in_order[0], (0..10).collect::<Vec<_>>(), "the query's order stays");
}

#[test]
fn a_run_learns_the_same_from_trees() {
    let pairs = searched();
    let decoder = || tiny_decoder(160, 3);
    let train = |tree_packing: bool| {
        let run = RunOptions { epochs: 0.5, learning_rate: 1e-3, batch_tokens: 600, max_length: 64, tree_packing, ..RunOptions::default() };
        let options = DpoOptions { run, batch_size: 6, preference: Preference::sigmoid(0.3) };
        let mut policy = decoder();
        let reference = reference_logps(&policy, &pairs, &options, &mut |_, _| Ok(())).expect("the pairs fit");
        let mut steps = Vec::new();
        let mut observer = |metrics: &StepMetrics| {
            steps.push(metrics.clone());
            Ok(())
        };
        train_dpo(&mut policy, &reference, &pairs, &options, &mut observer).expect("finite numbers");
        (reference, steps, weights(&policy))
    };
    let (packed, whole) = (train(true), train(false));
    for (packed, whole) in packed.0.iter().zip(&whole.0) {
        assert!((packed.chosen - whole.chosen).abs() < 1e-4 && (packed.rejected - whole.rejected).abs() < 1e-4);
    }
    assert_eq!(packed.1.len(), 5);
    for (packed, whole) in packed.1.iter().zip(&whole.1) {
        let [loss, other] = [packed, whole].map(|step| step.get("loss").expect("the first metric"));
        assert!((loss - other).abs() < 1e-4, "step {}: {loss} and {other}", packed.step);
        let [tokens, other] = [packed, whole].map(|step| step.get("tokens").expect("of every step"));
        assert_eq!((tokens, whole.get("distinct_tokens")), (other, Some(other)));
        assert!(packed.get("distinct_tokens").expect("of every step") < 0.6 * tokens, "at least the prompts of pairs are shared");
    }
    let distance = |other: &[f64]| packed.2.iter().zip(other).map(|(one, other)| (one - other) * (one - other)).sum::<f64>().sqrt();
    let (apart, moved) = (distance(&whole.2), distance(&weights(&decoder())));
    // AdamW divides by the size of a gradient, so that the rounding of small ones shows.
    assert!(apart < 0.05 * moved, "the weights are {apart} apart and have moved by {moved}");
}

/// Run with `--release --ignored --nocapture --test-threads 1`.
#[test]
#[ignore = "a timing, not a check"]
fn cost_of_tree_packing() {
    let config = DecoderConfig {
        vocab_size: 1500,
        hidden_size: 256,
        intermediate_size: 768,
        num_hidden_layers: 4,
        head_dim: 64,
        max_position_embeddings: 1024,
        ..tiny_decoder(VOCAB, 1).config().clone()
    };
    let decoder = Decoder::random(config, 1).expect("the sizes fit each other");
    let tokens = |start: u32, count: u32| (start..start + count).map(|index| (index * 7919) % 1500).collect::<Vec<u32>>();
    let siblings: Vec<Vec<u32>> = (0..8).map(|sibling| tokens(400 + 100 * sibling, 24)).collect();
    let pair = |(chosen, rejected): (usize, usize)| DpoExample {
        prompt: tokens(0, 400),
        chosen: siblings[chosen].clone(),
        rejected: siblings[rejected].clone(),
    };
    let best_of_all = (1..8).map(|other| (0, other)).collect();
    for (what, pairs) in [
        ("one pair", vec![(0, 1)]),
        ("4 pairs of 8 siblings", vec![(0, 1), (2, 3), (4, 5), (6, 7)]),
        ("the best of 8 siblings against the others", best_of_all),
    ] {
        let pairs: Vec<DpoExample> = pairs.into_iter().map(pair).collect();
        let reference = vec![ReferenceLogps { chosen: -170.0, rejected: -175.0 }; pairs.len()];
        let options = DpoOptions::default();
        // The least memory first: an allocator keeps what it had.
        let [packed, whole] = [true, false].map(|tree_packing| {
            let sequences = dpo_sequences(&pairs, &options.run).expect("they fit");
            let objective = Dpo { pairs: sequences, reference: &reference, preference: options.preference, tree_packing };
            let plan = vec![all(&pairs)];
            let work = |_: &mut dyn FnMut(()) -> Result<()>| {
                take_peak_bytes();
                let timed = |_| -> Result<(f64, usize)> {
                    let start = Instant::now();
                    let step = gradients(&decoder, &objective, &plan, &Stop::default(), false)?;
                    Ok((start.elapsed().as_secs_f64(), step.num_distinct_tokens))
                };
                (0..7).map(timed).collect::<Result<Vec<(f64, usize)>>>()
            };
            let mut seconds = with_deep_stack(work, &mut |()| Ok(())).expect("finite numbers");
            let peak = take_peak_bytes() >> 20;
            seconds.sort_by(|(one, _), (other, _)| one.total_cmp(other));
            let (median, num_tokens) = seconds[3];
            let layout = if tree_packing { "as trees" } else { "end to end" };
            let least = 1e3 * seconds[0].0;
            println!("{what}, {layout}: {num_tokens} tokens, median {:.1} ms, least {least:.1} ms, peak {peak} MiB", 1e3 * median);
            median
        });
        println!("{what}: {:.2} times as fast", whole / packed);
    }
}
