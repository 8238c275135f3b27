//! Reward models against transformers and TRL in float64 (`tests/fixtures/make_prm_goldens.py`), and what they learn.

use serde_json::Value as Json;

use super::golden::{
    ALL, Place, assert_gradients, assert_parameters, assert_relative, assert_same_metrics, assert_steps, here, number, pairs,
};
use super::*;
use crate::models::lora::LoraOptions;
use crate::training::backward;
use crate::training::batch::Batch;
use crate::training::example::{ScoredSequence, scored_pairs, scored_steps};
use crate::training::prm::{PairScores, StepScores};
use crate::training::score_head::ScoreHead;

const ALL_STEPS: &[&[usize]] = &[&[0, 1, 2, 3]];

fn prm_golden() -> Json {
    let text = std::fs::read_to_string(fixture("prm.json")).expect("the fixture is committed");
    serde_json::from_str(&text).expect("the fixture is JSON")
}

fn tokens(json: &Json) -> Vec<u32> {
    serde_json::from_value(json.clone()).expect("a list of token ids")
}

fn steps(golden: &Json) -> Vec<StepExample> {
    let step = |step: &Json| StepExample { prompt: tokens(&step["prompt"]), step: tokens(&step["step"]), label: number(&step["label"]) };
    golden["steps"].as_array().expect("a list").iter().map(step).collect()
}

fn options(loss: RewardLoss) -> PrmOptions {
    PrmOptions { loss: Some(loss), ..PrmOptions::default() }
}

fn scores(decoder: &Decoder, sequences: &[ScoredSequence<'_>]) -> Vec<f64> {
    let batch = Batch::of_scored(sequences, true);
    let head = ScoreHead::new(decoder.head_weight()).expect("it has a score");
    backward::rows(decoder, &batch).and_then(|rows| head.scores(&rows)).expect("the tokens fit")
}

fn assert_scores(found: &[f64], expected: &Json, what: &str) {
    let flat = |value: &Json| value.as_array().map_or_else(|| vec![number(value)], |values| values.iter().map(number).collect());
    let expected: Vec<f64> = expected.as_array().expect("a list").iter().flat_map(flat).collect();
    assert_eq!(found.len(), expected.len(), "{what}");
    for (found, expected) in found.iter().zip(&expected) {
        assert!((found - expected).abs() < 1e-4, "{what}: {found}, expected {expected}");
    }
}

#[test]
fn pairs_equal_trl() {
    check_pairs(here);
}

pub fn check_pairs(place: Place) {
    let golden = prm_golden();
    for (name, margin) in [("bradley_terry", 0.0), ("bradley_terry_margin", number(&golden["bradley_terry_margin"]["margin"]))] {
        let (decoder, pairs) = (place(checkpoint("prm")), pairs(&golden));
        let options = PrmOptions { margin, ..options(RewardLoss::BradleyTerry) };
        let sequences = scored_pairs(&pairs, &options.run).expect("they fit").concat();
        assert_scores(&scores(&decoder, &sequences), &golden[name]["scores"], name);
        for tree_packing in [true, false] {
            let objective = PairScores { tree_packing, ..PairScores::new(&pairs, &options).expect("they fit") };
            let step = step_gradients(&decoder, &objective, ALL).expect("finite numbers");
            assert_relative(step.metrics[0].1, number(&golden[name]["loss"]), 1e-5, "loss");
            assert_gradients(&decoder, &step.gradients, &format!("prm_{name}_gradients.safetensors"));
        }
    }
}

#[test]
fn labelled_steps_equal_torch() {
    check_labelled_steps(here);
}

pub fn check_labelled_steps(place: Place) {
    let golden = prm_golden();
    let (decoder, steps) = (place(checkpoint("prm")), steps(&golden));
    for loss in [RewardLoss::CrossEntropy, RewardLoss::SquaredError] {
        let (expected, options) = (&golden[loss.name()], options(loss));
        assert_scores(&scores(&decoder, &scored_steps(&steps, &options.run).expect("they fit")), &expected["scores"], loss.name());
        let objective = StepScores::new(&steps, &options).expect("they fit");
        let step = step_gradients(&decoder, &objective, ALL_STEPS).expect("finite numbers");
        assert_relative(step.metrics[0].1, number(&expected["loss"]), 1e-5, loss.name());
        assert_gradients(&decoder, &step.gradients, &format!("prm_{}_gradients.safetensors", loss.name()));
    }
}

#[test]
fn scores_stand_at_every_position() {
    let golden = &prm_golden()["positions"];
    let (decoder, tokens) = (checkpoint("prm"), tokens(&golden["tokens"]));
    let beginnings: Vec<ScoredSequence<'_>> =
        (1..=tokens.len()).map(|len| ScoredSequence { prompt: &tokens[..len - 1], completion: &tokens[len - 1..len] }).collect();
    assert_scores(&scores(&decoder, &beginnings), &golden["scores"], "positions");
}

#[test]
fn five_clipped_steps_with_warm_up_equal_torch() {
    check_training(here);
}

pub fn check_training(place: Place) {
    let golden = prm_golden();
    let adamw = &golden["adamw"];
    let mut decoder = place(checkpoint("prm"));
    let run = RunOptions {
        epochs: number(&adamw["num_steps"]),
        learning_rate: number(&adamw["learning_rate"]),
        weight_decay: number(&adamw["weight_decay"]),
        max_grad_norm: number(&adamw["max_grad_norm"]),
        warmup_ratio: number(&adamw["warmup_ratio"]),
        ..RunOptions::default()
    };
    let options = PrmOptions { run, batch_size: 3, ..PrmOptions::default() };
    let found = train(&mut decoder, &PrmExamples::Pairs(pairs(&golden)), &options);
    assert_steps(&found, &adamw["steps"]);
    assert_parameters(&decoder, "prm_adamw_parameters.safetensors");
}

fn train(decoder: &mut Decoder, examples: &PrmExamples, options: &PrmOptions) -> Vec<StepMetrics> {
    let validation = match examples {
        PrmExamples::Pairs(_) => PrmExamples::Pairs(vec![]),
        PrmExamples::Steps(_) => PrmExamples::Steps(vec![]),
    };
    let mut seen = Vec::new();
    let mut observer = |metrics: &StepMetrics| {
        seen.push(metrics.clone());
        Ok(())
    };
    train_prm_validated(decoder, examples, &validation, options, &mut observer).expect("finite numbers");
    seen
}

/// A step is good if it copies the prompt.
fn copy_steps(num_steps: usize) -> Vec<StepExample> {
    let step = |(index, pair): (usize, DpoExample)| {
        let is_good = index % 2 == 0;
        StepExample { prompt: pair.prompt, step: if is_good { pair.chosen } else { pair.rejected }, label: f64::from(u8::from(is_good)) }
    };
    copy_pairs(num_steps).into_iter().enumerate().map(step).collect()
}

#[test]
fn chosen_completions_come_to_score_more() {
    let mut decoder = tiny_reward_model(VOCAB, 3);
    let run = RunOptions { epochs: 30.0, learning_rate: 5e-3, ..RunOptions::default() };
    let steps = train(&mut decoder, &PrmExamples::Pairs(copy_pairs(16)), &PrmOptions { run, margin: 0.5, ..PrmOptions::default() });
    let [first, last] = [&steps[0], &steps[steps.len() - 1]].map(|step| step.get("loss").expect("a loss"));
    // -log sigmoid(-margin) where nothing is known.
    assert!((first - 0.974).abs() < 0.2, "{first}");
    assert!(last < 0.5 * first, "the loss went from {first} to {last}");
    let last = &steps[steps.len() - 1];
    assert_eq!(last.get("reward_accuracy"), Some(1.0));
    let [chosen, rejected, mean] = ["chosen_reward", "rejected_reward", "mean_score"].map(|name| last.get(name).expect(name));
    assert!((last.get("reward_margin").expect("a margin") - (chosen - rejected)).abs() < 1e-9 && chosen > rejected);
    assert!((mean - 0.5 * (chosen + rejected)).abs() < 1e-9);
}

#[test]
fn labels_are_learned() {
    for loss in [RewardLoss::CrossEntropy, RewardLoss::SquaredError] {
        let mut decoder = tiny_reward_model(VOCAB, 4);
        let run = RunOptions { epochs: 30.0, learning_rate: 5e-3, ..RunOptions::default() };
        let steps = train(&mut decoder, &PrmExamples::Steps(copy_steps(16)), &PrmOptions { run, ..options(loss) });
        let (first, last) = (&steps[0], &steps[steps.len() - 1]);
        assert!(last.get("loss") < first.get("loss").map(|loss| 0.5 * loss), "{loss:?}: {last:?}");
        assert_eq!(last.get("accuracy"), Some(1.0), "{loss:?}");
    }
}

#[test]
fn a_score_learns_beside_adapters_and_stays_when_they_are_merged() {
    let mut decoder = tiny_reward_model(VOCAB, 5);
    decoder.attach_lora(&LoraOptions { rank: 4, alpha: 8.0, ..LoraOptions::default() }).expect("the layers exist");
    assert!(decoder.parameters().contains_key("score.weight"));
    assert!(decoder.parameters().keys().all(|name| name.contains(".lora_") || name == "score.weight"));
    let before = values(decoder.head_weight());
    let frozen = values(&decoder.tensors()["model.layers.0.self_attn.q_proj.weight"]);
    let examples = PrmExamples::Pairs(copy_pairs(8));
    let run = RunOptions { epochs: 10.0, learning_rate: 5e-3, ..RunOptions::default() };
    train(&mut decoder, &examples, &PrmOptions { run, ..PrmOptions::default() });
    assert!(values(decoder.head_weight()) != before, "the score is learned");
    assert_eq!(values(&decoder.tensors()["model.layers.0.self_attn.q_proj.weight"]), frozen);

    let directory = tempfile::tempdir().expect("a temporary directory");
    decoder.save_adapter(directory.path(), Some("base@1")).expect("it has adapters");
    let file = candle_core::safetensors::load(directory.path().join("adapter_model.safetensors"), &Device::Cpu).expect("a file");
    assert_eq!(values(&file["base_model.model.score.weight"]), values(decoder.head_weight()));
    let text = std::fs::read_to_string(directory.path().join("adapter_config.json")).expect("a file");
    let config: Json = serde_json::from_str(&text).expect("JSON");
    assert_eq!((&config["task_type"], &config["modules_to_save"]), (&Json::from("SEQ_CLS"), &serde_json::json!(["score"])));

    let pairs = copy_pairs(3);
    let sequences = scored_pairs(&pairs, &RunOptions::default()).expect("they fit").concat();
    let with_adapters = scores(&decoder, &sequences);
    decoder.merge_lora().expect("the shapes fit");
    assert!(decoder.parameters().is_empty());
    decoder.save(directory.path()).expect("a folder");
    let loaded = Decoder::load(directory.path(), &Device::Cpu, false).expect("it was just saved");
    for merged in [scores(&decoder, &sequences), scores(&loaded, &sequences)] {
        for (found, expected) in merged.iter().zip(&with_adapters) {
            assert!((found - expected).abs() < 1e-4, "{found}, expected {expected}");
        }
    }
}

#[test]
fn every_parameter_has_a_gradient_from_the_first_step() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    tiny_decoder(VOCAB, 6).save(directory.path()).expect("a folder");
    let load = |seed| Decoder::load_with_score(directory.path(), ScoreConfig::default(), seed).expect("a policy");
    let decoder = load(1);
    assert!(decoder.parameters().contains_key("score.weight") && !decoder.parameters().contains_key("lm_head.weight"));
    assert!(values(load(1).head_weight()) == values(decoder.head_weight()), "the same seed");
    assert!(values(load(2).head_weight()) != values(decoder.head_weight()), "another seed");
    let pairs = copy_pairs(4);
    let objective = PairScores::new(&pairs, &PrmOptions::default()).expect("they fit");
    let step = step_gradients(&decoder, &objective, &[&[0, 1, 2, 3]]).expect("finite numbers");
    assert_eq!(silent(decoder.parameters(), &step.gradients), [""; 0]);
}

#[test]
fn what_is_measured_is_what_is_learned_from() {
    let (decoder, pairs, steps) = (tiny_reward_model(VOCAB, 7), copy_pairs(3), copy_steps(3));
    let of_pairs = PairScores::new(&pairs, &PrmOptions::default()).expect("they fit");
    let names = ["loss", "reward_margin", "reward_accuracy", "chosen_reward", "rejected_reward", "mean_score"];
    assert_same_metrics(&decoder, &of_pairs, &names);
    let of_steps = StepScores::new(&steps, &PrmOptions::default()).expect("they fit");
    assert_same_metrics(&decoder, &of_steps, &["loss", "accuracy", "mean_score"]);
}

#[test]
fn examples_that_teach_nothing_are_refused() {
    let mut decoder = tiny_reward_model(VOCAB, 8);
    let mut refused = |examples: PrmExamples, options: PrmOptions| {
        let none = match examples {
            PrmExamples::Pairs(_) => PrmExamples::Pairs(vec![]),
            PrmExamples::Steps(_) => PrmExamples::Steps(vec![]),
        };
        train_prm_validated(&mut decoder, &examples, &none, &options, &mut |_| Ok(())).expect_err("it teaches nothing").to_string()
    };
    let same = DpoExample { prompt: vec![2], chosen: vec![3, 4], rejected: vec![3, 4] };
    assert!(refused(PrmExamples::Pairs(vec![copy_pairs(1)[0].clone(), same]), PrmOptions::default()).contains("rejected of row 2"));
    for label in [-0.1, 1.5, f64::NAN] {
        let step = StepExample { prompt: vec![2], step: vec![3], label };
        assert!(refused(PrmExamples::Steps(vec![step]), PrmOptions::default()).contains("label of row 1"), "{label}");
    }
    let steps = || PrmExamples::Steps(copy_steps(2));
    assert!(refused(steps(), options(RewardLoss::BradleyTerry)).contains("loss"));
    assert!(refused(PrmExamples::Pairs(copy_pairs(2)), options(RewardLoss::SquaredError)).contains("loss"));
    assert!(refused(steps(), PrmOptions { margin: 1.0, ..PrmOptions::default() }).contains("margin"));
    assert!(refused(PrmExamples::Steps(vec![]), PrmOptions::default()).contains("at least one labelled step"));
    let both = train_prm_validated(&mut decoder, &steps(), &PrmExamples::Pairs(copy_pairs(1)), &PrmOptions::default(), &mut |_| Ok(()));
    assert!(matches!(both, Err(Error::Internal(_))), "{both:?}");
}

/// A policy has no score, and a reward model no vocabulary.
#[test]
fn heads_are_not_taken_for_each_other() {
    let examples = PrmExamples::Pairs(copy_pairs(2));
    let none = PrmExamples::Pairs(vec![]);
    let result = train_prm_validated(&mut tiny_decoder(VOCAB, 9), &examples, &none, &PrmOptions::default(), &mut |_| Ok(()));
    assert!(matches!(result, Err(Error::Internal(_))), "{result:?}");
    let result = train_sft(&mut tiny_reward_model(VOCAB, 9), &copy_task(2), &SftOptions::default(), &mut |_| Ok(()));
    assert!(matches!(result, Err(Error::Internal(_))), "{result:?}");
}
