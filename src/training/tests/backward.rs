//! The trunk block by block: the same bits as one graph over the whole decoder, less memory, and nothing for frozen weights.

use std::time::Instant;

use super::*;
use crate::models::decoder::Keep;
use crate::models::lora::LoraOptions;
use crate::models::ops::{Arithmetic, Forest};
use crate::training::backward::{activation_bytes, rows};
use crate::training::example::sft_sequences;
use crate::training::head::DecoderHead;
use crate::training::prm::PairScores;
use crate::training::sft::Sft;

/// A decoder like `tiny_decoder`, with these layers.
pub fn decoder_of(architecture: DecoderArchitecture, num_hidden_layers: usize) -> Decoder {
    let config = DecoderConfig { architecture, num_hidden_layers, max_position_embeddings: 256, ..tiny_decoder(VOCAB, 1).config().clone() };
    Decoder::random(config, 11).expect("the sizes fit each other")
}

/// What `add_batch` gives, by one graph over the whole decoder.
fn whole_graph<O: Objective>(decoder: &Decoder, objective: &O, examples: &[usize]) -> Result<Gradients> {
    let batch = objective.batch(examples);
    let hidden = decoder.hidden_of_forest(&batch.tokens, &batch.layout)?;
    let rows = Tensor::from_slice(&batch.rows, batch.rows.len(), hidden.device())?;
    let counted = hidden.detach().index_select(&rows, 0)?;
    let head = O::Head::of(decoder)?;
    let (of_head, _) = objective.differentiate(&head, &counted, &batch, examples, objective.normalizer(examples))?;
    let d_hidden = hidden.zeros_like()?.index_add(&rows, &of_head.d_hidden, 0)?;
    let mut trunk = (hidden * d_hidden)?.sum_all()?.backward()?;
    let head_name = decoder.config().head_tensor();
    let mut gradients = BTreeMap::new();
    for (name, parameter) in decoder.parameters() {
        let of_weight = of_head.d_weight.clone().filter(|_| name == head_name);
        let gradient = match (trunk.remove(parameter.as_tensor()), of_weight) {
            (Some(trunk), Some(head)) => (trunk + head)?,
            (trunk, head) => trunk.or(head).expect("the graph reaches every parameter"),
        };
        gradients.insert(name.clone(), gradient);
    }
    Ok(Gradients::from_tensors(gradients))
}

fn block_by_block(decoder: &Decoder, objective: &impl Objective, examples: &[usize], recompute: bool) -> Result<StepGradients> {
    let plan = vec![examples.to_vec()];
    let work = |_: &mut dyn FnMut(()) -> Result<()>| gradients(decoder, objective, &plan, &Stop::default(), recompute);
    with_deep_stack(work, &mut |()| Ok(()))
}

fn check_same_bits(decoder: &Decoder, objective: &impl Objective, what: &str) {
    let examples = [0, 1, 2, 3, 4];
    let expected = whole_graph(decoder, objective, &examples).expect("finite numbers");
    let kept = block_by_block(decoder, objective, &examples, false).expect("finite numbers");
    let recomputed = block_by_block(decoder, objective, &examples, true).expect("finite numbers");
    assert_eq!(kept.metrics, recomputed.metrics, "{what}");
    for name in decoder.parameters().keys() {
        let [expected, kept, recomputed] =
            [&expected, &kept.gradients, &recomputed.gradients].map(|gradients| values(gradients.get(name).expect(name)));
        assert!(expected.iter().any(|value| *value != 0.0), "{what}: the gradient of {name} is zero");
        assert!(kept == expected, "{what}: {name} of kept graphs is not that of one graph");
        assert!(recomputed == kept, "{what}: {name} recomputed is not that of kept graphs");
    }
}

pub fn check_scores(decoder: &Decoder, what: &str) {
    let pairs = copy_pairs(5);
    let objective = PairScores::new(&pairs, &PrmOptions::default()).expect("they fit");
    check_same_bits(decoder, &objective, &format!("{what}, prm"));
}

pub fn check_methods(decoder: &Decoder, what: &str) {
    let run = RunOptions::default();
    let examples = copy_task(5);
    let sft = Sft { sequences: sft_sequences(&examples, 0.3, &run).expect("they fit"), tree_packing: true };
    check_same_bits(decoder, &sft, &format!("{what}, sft"));
    let pairs = copy_pairs(5);
    let reference: Vec<ReferenceLogps> = (0..5).map(|pair| ReferenceLogps { chosen: -9.0 - f64::from(pair), rejected: -3.0 }).collect();
    let pairs = dpo_sequences(&pairs, &run).expect("they fit");
    let dpo = Dpo { pairs, reference: &reference, preference: Preference::sigmoid(0.3), tree_packing: true };
    check_same_bits(decoder, &dpo, &format!("{what}, dpo"));
}

#[test]
fn blocks_give_the_bits_of_one_graph() {
    for name in ["policy", "reference"] {
        check_methods(&checkpoint(name), name);
    }
    for architecture in [DecoderArchitecture::Qwen3, DecoderArchitecture::Llama] {
        let decoder = decoder_of(architecture, 3);
        check_methods(&decoder, &format!("{architecture:?}"));
        let config = decoder.config().clone().with_score(ScoreConfig::default());
        check_scores(&Decoder::random(config, 11).expect("the sizes fit each other"), &format!("{architecture:?}"));
    }
    check_scores(&checkpoint("prm"), "prm");
}

#[test]
fn blocks_give_the_bits_of_one_graph_with_adapters() {
    // Below the lowest adapter nothing learns: with `down_proj` alone the first block's attention is outside of every graph.
    for targets in [&["all-linear"][..], &["q_proj", "v_proj"], &["down_proj"]] {
        for name in ["policy", "reference"] {
            let mut decoder = checkpoint(name);
            attach_trained_lora(&mut decoder, targets);
            check_methods(&decoder, &format!("{name} with adapters on {targets:?}"));
        }
        let mut decoder = checkpoint("prm");
        attach_trained_lora(&mut decoder, targets);
        check_scores(&decoder, &format!("prm with adapters on {targets:?}"));
    }
}

/// With `B = 0`, the real start, the gradient of `A` is zero and that of `B` is not.
#[test]
fn a_fresh_adapter_learns_by_b_first() {
    let mut decoder = checkpoint("policy");
    decoder.attach_lora(&LoraOptions { rank: 2, ..LoraOptions::default() }).expect("the layers exist");
    let examples = copy_task(5);
    let sequences = sft_sequences(&examples, 0.0, &RunOptions::default()).expect("they fit");
    let objective = Sft { sequences, tree_packing: true };
    let step = block_by_block(&decoder, &objective, &[0, 1, 2, 3, 4], false).expect("zero is a gradient too");
    for name in decoder.parameters().keys() {
        let is_zero = values(step.gradients.get(name).expect(name)).iter().all(|value| *value == 0.0);
        assert_eq!(is_zero, name.ends_with("lora_A.weight"), "{name}");
    }
}

#[test]
fn rows_without_a_graph_are_those_of_one_graph() {
    let decoder = checkpoint("policy");
    let examples = copy_task(5);
    let sequences = sft_sequences(&examples, 0.3, &RunOptions::default()).expect("they fit");
    let objective = Sft { sequences, tree_packing: true };
    let batch = objective.batch(&[0, 1, 2, 3, 4]);
    let found = rows(&decoder, &batch).expect("the tokens fit");
    let hidden = decoder.hidden_of_forest(&batch.tokens, &batch.layout).expect("the tokens fit");
    let positions = Tensor::from_slice(&batch.rows, batch.rows.len(), &Device::Cpu).expect("a vector");
    assert_eq!(values(&found), values(&hidden.index_select(&positions, 0).expect("positions of rows")));
    assert!(!found.track_op(), "no graph hangs on the rows");
}

#[test]
fn a_parameter_without_a_gradient_is_an_error() {
    let decoder = checkpoint("policy");
    let mut gradients = Gradients::default();
    for (name, parameter) in decoder.parameters() {
        assert!(matches!(gradients.require_all(decoder.parameters()), Err(Error::Internal(_))), "{name} is missing");
        gradients.add_one(name, parameter.as_tensor()).expect("the first of its name");
    }
    gradients.require_all(decoder.parameters()).expect("all are there");
    let name = "model.norm.weight";
    let parameter = &decoder.parameters()[name];
    gradients.add_one(name, parameter.as_tensor()).expect("the same shape");
    let twice: Vec<f64> = values(parameter).into_iter().map(|value| 2.0 * value).collect();
    assert_eq!(values(gradients.get(name).expect(name)), twice);
}

/// 4,096 tokens through 12 blocks.
#[test]
fn recomputing_takes_less_than_two_fifths_of_the_memory() {
    let decoder = decoder_of(DecoderArchitecture::Qwen2, 12);
    let tokens: Vec<u32> = (0..4096).map(|index| (index * 7) % VOCAB as u32).collect();
    let bytes = |keep| decoder.forward_blocks(&tokens, &Forest::sequences(&[256; 16]), keep).expect("the tokens fit").kept_bytes();
    let (kept, inputs) = (bytes(Keep::Graphs), bytes(Keep::Inputs));
    assert_eq!(kept, activation_bytes(decoder.config(), None, Arithmetic::Fused, tokens.len()));
    assert_eq!(bytes(Keep::Nothing), 0);
    // While the backward pass is at a block, the graph of that block is there too.
    let recomputed = inputs + kept / 12;
    assert!(5 * recomputed < 2 * kept, "{recomputed} bytes of {kept}");
}

/// Of blocks above the lowest adapter: nothing before that has a graph.
#[test]
fn a_block_with_adapters_keeps_what_is_counted() {
    let tokens: Vec<u32> = (0..256).map(|index| (index * 7) % VOCAB as u32).collect();
    for targets in [&["all-linear"][..], &["q_proj", "v_proj"], &["down_proj"]] {
        let bytes = |num_layers: usize| {
            let mut decoder = decoder_of(DecoderArchitecture::Qwen2, num_layers);
            attach_trained_lora(&mut decoder, targets);
            let kept = decoder.forward_blocks(&tokens, &Forest::sequences(&[64; 4]), Keep::Graphs).expect("the tokens fit").kept_bytes();
            (kept, activation_bytes(decoder.config(), decoder.lora(), Arithmetic::Fused, tokens.len()))
        };
        let ((kept, counted), (kept_with_one_more, counted_with_one_more)) = (bytes(2), bytes(3));
        assert_eq!(kept_with_one_more - kept, counted_with_one_more - counted, "{targets:?}");
        assert!(kept <= counted, "{targets:?}: {kept} of {counted}");
    }
}

/// Most bytes of memory that this process had at once since the last call (Linux only).
pub fn take_peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("the kernel tells it");
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    std::fs::write("/proc/self/clear_refs", "5").expect("the peak of this process can be set back");
    kilobytes << 10
}

/// Run with `--release --ignored --nocapture --test-threads 1`.
#[test]
#[ignore = "a timing, not a check"]
fn cost_of_blocks() {
    let small = DecoderConfig {
        vocab_size: 1500,
        hidden_size: 128,
        intermediate_size: 384,
        num_hidden_layers: 4,
        head_dim: 32,
        max_position_embeddings: 1024,
        ..tiny_decoder(VOCAB, 1).config().clone()
    };
    let deep = DecoderConfig { num_hidden_layers: 12, ..small.clone() };
    for (what, config, num_sequences) in [("4 blocks, 3,000 tokens", small, 15), ("12 blocks, 4,000 tokens", deep, 20)] {
        let decoder = Decoder::random(config, 1).expect("the sizes fit each other");
        let lengths = vec![200; num_sequences];
        let tokens: Vec<u32> = (0..200 * num_sequences as u32).map(|index| (index * 7919) % 1500).collect();
        let d_hidden = decoder.hidden(&tokens, &lengths).expect("the tokens fit").detach();
        let blocks = |keep| -> Result<()> {
            let forward = decoder.forward_blocks(&tokens, &Forest::sequences(&lengths), keep)?;
            decoder.backward_blocks(forward, &d_hidden, &mut |_, _| Ok(()))
        };
        let whole = || -> Result<()> {
            let hidden = decoder.hidden(&tokens, &lengths)?;
            (hidden * &d_hidden)?.sum_all()?.backward()?;
            Ok(())
        };
        // The least memory first: an allocator keeps what it had.
        type Way<'a> = (&'a str, &'a (dyn Fn() -> Result<()> + Sync));
        let ways: [Way<'_>; 3] =
            [("recomputed", &|| blocks(Keep::Inputs)), ("kept graphs", &|| blocks(Keep::Graphs)), ("whole graph", &whole)];
        for (name, way) in ways {
            let work = |_: &mut dyn FnMut(()) -> Result<()>| {
                take_peak_bytes();
                let seconds = (0..7).map(|_| {
                    let start = Instant::now();
                    way().map(|()| start.elapsed().as_secs_f64())
                });
                seconds.collect::<Result<Vec<f64>>>()
            };
            let mut seconds = with_deep_stack(work, &mut |()| Ok(())).expect("finite numbers");
            let peak = take_peak_bytes() >> 20;
            seconds.sort_by(f64::total_cmp);
            println!("{what}, {name}: median {:.1} ms, least {:.1} ms, peak {peak} MiB", 1e3 * seconds[3], 1e3 * seconds[0]);
        }
    }
}
