//! The decoder: differentiable forward over padding-free batches, random initialisation, load and save.
//!
//! This is the form that training changes and that scores sequences. Generation runs on a packed copy of the weights
//! (`packed.rs`), which decodes with a key-value cache.
//!
//! A forward of the whole decoder with one graph keeps every intermediate tensor of every block ([`Decoder::hidden`]). Training
//! takes it apart ([`Decoder::forward_blocks`], [`Decoder::backward_blocks`]): the embedding, each block and the last norm have
//! graphs of their own, joined by hand. Such a graph is kept, or made again from the block's input when the backward pass comes to
//! it; then memory holds one `[N, H]` tensor per block and the graph of one block (Chen et al. 2016, arXiv:1604.06174). The same
//! operations run in the same order in all three ways, so all give the same bits.
//!
//! The weights may be frozen under low-rank adapters, see `lora.rs`. A copy on another device ([`Decoder::on`]) computes by candle's operations.

mod network;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;

use candle_core::{DType, Device, Tensor, Var};

use self::network::{Layer, NORM, Network, Source, layer_prefix};
use super::config::{DecoderConfig, OutputHead, SCORE, ScoreConfig};
pub(super) use super::config::{EMBEDDING, HEAD};
use super::lora::{self, LoraOptions};
use super::ops::{Arithmetic, AttentionShape, Forest, Pass, Rope};
use super::random::CounterRng;
use super::weights::{self, Weights};
use crate::error::{Error, Result};

/// Standard deviation of random weights, as in the Qwen2 and GPT-2 families.
const INITIAL_STD: f64 = 0.02;

/// A decoder: embedding, pre-norm blocks of grouped-query attention and SwiGLU, final norm, output head.
#[derive(Debug)]
pub struct Decoder {
    config: DecoderConfig,
    network: Network,
    /// The same numbers as `network`, in the same memory, of which no operation is recorded.
    values: Network,
    rope: Rope,
    /// Every tensor of the checkpoint, in Hugging Face's names; a tied head is not in it.
    tensors: BTreeMap<String, Tensor>,
    parameters: BTreeMap<String, Var>,
    /// Of the adapters, if there are any.
    lora: Option<LoraOptions>,
    device: Device,
    arithmetic: Arithmetic,
}

/// What a forward pass leaves for the backward pass, beside its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Nothing: no backward pass will follow.
    Nothing,
    /// The input of each block. The backward pass computes the block a second time.
    Inputs,
    /// Each block's graph.
    Graphs,
}

/// A forward pass and what its backward pass needs.
#[derive(Debug)]
pub struct Forward {
    /// `[N, H]`, after the last norm, detached.
    pub hidden: Tensor,
    pass: Pass,
    /// From the lowest part that learns to the last norm.
    kept: Vec<Kept>,
}

/// What a forward pass keeps of one part.
#[derive(Debug)]
enum Kept {
    Input(Part),
    Graph(Graph),
}

/// A part of the decoder that has a graph of its own, with the `[N, H]` that it reads; the embedding reads the tokens of the batch.
#[derive(Debug)]
enum Part {
    Embedding,
    Block(usize, Tensor),
    Norm(Tensor),
}

/// The graph of one part: its input is a variable, unless nothing below it learns.
#[derive(Debug)]
struct Graph {
    part: Part,
    /// `[N, H]`
    output: Tensor,
}

impl Decoder {
    /// Loads `config.json` and the safetensors of a directory as f32. Only a `trainable` decoder has [`Self::parameters`] and
    /// records what a backward pass needs.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Damaged`] (broken files, missing tensors, wrong shapes), [`Error::NotSupported`] (another
    /// architecture).
    pub fn load(directory: &Path, device: &Device, trainable: bool) -> Result<Self> {
        let config = DecoderConfig::load(directory)?;
        let mut weights = Weights::open(directory)?;
        let mut tensors = BTreeMap::new();
        for (name, shape) in config.tensor_shapes() {
            let tensor = weights.take(&name, &shape, device)?;
            tensors.insert(name, tensor);
        }
        Self::new(config, tensors, trainable)
    }

    /// Loads a trainable decoder onto the CPU, see [`Self::load`].
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_trainable(directory: &Path) -> Result<Self> {
        Self::load(directory, &Device::Cpu, true)
    }

    /// Loads a trainable decoder with a score onto the CPU. A directory that has a score gives it. Over the blocks of a policy, whose vocabulary head is left out,
    /// a new score has weights from N(0, 0.02²), keyed by `seed`: that is how transformers begins one, while zeros would give the blocks no gradient in the
    /// first step.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_with_score(directory: &Path, score: ScoreConfig, seed: u64) -> Result<Self> {
        let base = DecoderConfig::load(directory)?;
        let is_new = base.head == OutputHead::Vocabulary;
        let config = base.with_score(score);
        let mut weights = Weights::open(directory)?;
        let mut tensors = BTreeMap::new();
        for (name, shape) in config.tensor_shapes() {
            let tensor = match is_new && name == SCORE {
                true => initial(&name, &shape, CounterRng::new(seed))?,
                false => weights.take(&name, &shape, &Device::Cpu)?,
            };
            tensors.insert(name, tensor);
        }
        Self::new(config, tensors, true)
    }

    /// A trainable decoder with weights from N(0, 0.02²), norms 1 and biases 0; the same seed gives the same weights.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the sizes of `config` do not fit each other.
    pub fn random(config: DecoderConfig, seed: u64) -> Result<Self> {
        config.check(Path::new("the configuration"))?;
        let rng = CounterRng::new(seed);
        let mut tensors = BTreeMap::new();
        for (index, (name, shape)) in config.tensor_shapes().into_iter().enumerate() {
            let tensor = initial(&name, &shape, rng.stream(index as u64))?;
            tensors.insert(name, tensor);
        }
        Self::new(config, tensors, true)
    }

    fn new(config: DecoderConfig, mut tensors: BTreeMap<String, Tensor>, trainable: bool) -> Result<Self> {
        let mut parameters = BTreeMap::new();
        if trainable {
            for (name, tensor) in &mut tensors {
                let parameter = Var::from_tensor(tensor)?;
                *tensor = parameter.as_tensor().clone();
                parameters.insert(name.clone(), parameter);
            }
        }
        Self::of(config, tensors, parameters, None, Arithmetic::Fused)
    }

    /// `parameters`: those of the tensors that are trained, and adapters.
    fn of(
        config: DecoderConfig,
        tensors: BTreeMap<String, Tensor>,
        parameters: BTreeMap<String, Var>,
        lora: Option<LoraOptions>,
        arithmetic: Arithmetic,
    ) -> Result<Self> {
        let scale = lora.as_ref().map_or(1.0, LoraOptions::scale);
        let network = Network::new(&config, &Source { tensors: &tensors, parameters: &parameters, scale })?;
        let device = network.embedding.device().clone();
        let rope = Rope::new(config.rope.frequencies(config.head_dim), config.rope.magnitude());
        Ok(Self { values: network.detached(), network, rope, config, tensors, parameters, lora, device, arithmetic })
    }

    /// A copy on a device that computes by candle's operations, with products in `dtype`. What is trained is f32 there, and so are vectors; frozen matrices have
    /// the type of the products.
    ///
    /// # Errors
    /// [`Error::Tensor`] if the device has no room.
    pub fn on(&self, device: &Device, dtype: DType) -> Result<Self> {
        // Detached first: where the device is the same, a variable would stay the same one.
        let mut parameters = BTreeMap::new();
        for (name, parameter) in &self.parameters {
            parameters.insert(name.clone(), Var::from_tensor(&parameter.as_detached_tensor().to_device(device)?)?);
        }
        let mut tensors = BTreeMap::new();
        for (name, tensor) in &self.tensors {
            let placed = match parameters.get(name) {
                Some(parameter) => parameter.as_tensor().clone(),
                // Cast before it is moved, so that the device never holds more than it keeps.
                None if tensor.rank() >= 2 => tensor.detach().to_dtype(dtype)?.to_device(device)?,
                None => tensor.detach().to_device(device)?,
            };
            tensors.insert(name.clone(), placed);
        }
        Self::of(self.config.clone(), tensors, parameters, self.lora.clone(), Arithmetic::Plain(dtype))
    }

    /// Takes the values of all that is trained from a copy that [`Self::on`] made.
    ///
    /// # Errors
    /// [`Error::Internal`] if it was not made so; [`Error::Tensor`].
    pub fn take_parameters(&self, other: &Self) -> Result<()> {
        for (name, parameter) in &self.parameters {
            let trained = other.parameters.get(name).ok_or_else(|| Error::Internal(format!("the copy has no parameter {name}")))?;
            parameter.set(&trained.as_detached_tensor().to_device(&self.device)?)?;
        }
        Ok(())
    }

    /// The shape of the model.
    pub fn config(&self) -> &DecoderConfig {
        &self.config
    }

    /// The output head: `[V, H]`, the embedding when tied, or a score `[1, H]`.
    pub fn head_weight(&self) -> &Tensor {
        &self.network.head
    }

    /// What training changes, in Hugging Face's names. Of a decoder that was loaded as trainable: every weight, a tied head once, as
    /// the embedding. Of one with adapters: these, as `<layer>.lora_A.weight` `[r, I]` and `<layer>.lora_B.weight` `[O, r]`, and a
    /// score. Otherwise empty.
    pub fn parameters(&self) -> &BTreeMap<String, Var> {
        &self.parameters
    }

    /// The one of [`Self::parameters`] that is the output head; none if that is frozen.
    pub fn head_parameter(&self) -> Option<&'static str> {
        Some(self.config.head_tensor()).filter(|name| self.parameters.contains_key(*name))
    }

    /// Every weight in Hugging Face's names; a tied head appears once, as the embedding. Adapters are not among them before
    /// [`Self::merge_lora`].
    pub fn tensors(&self) -> &BTreeMap<String, Tensor> {
        &self.tensors
    }

    /// The options of the adapters, if it has any.
    pub fn lora(&self) -> Option<&LoraOptions> {
        self.lora.as_ref()
    }

    /// Final-norm hidden states `[N, H]` of sequences laid end to end, without padding; see [`Self::hidden_of_forest`].
    ///
    /// `lengths`: tokens of each sequence, summing to `N`.
    ///
    /// # Errors
    /// As [`Self::hidden_of_forest`].
    pub fn hidden(&self, tokens: &[u32], lengths: &[usize]) -> Result<Tensor> {
        self.hidden_of_forest(tokens, &Forest::sequences(lengths))
    }

    /// Final-norm hidden states `[N, H]` of trees of tokens, without padding. A token's are those that it has in its sequence alone, but
    /// for rounding.
    ///
    /// `tokens`: `N` ids below the vocabulary size. `layout`: of these `N`; no way from a root longer than `max_position_embeddings`.
    /// Differentiable in every one of [`Self::parameters`], with one graph. For logits multiply by [`Self::head_weight`].
    ///
    /// # Errors
    /// [`Error::Tensor`] if a token id or the layout does not fit.
    pub fn hidden_of_forest(&self, tokens: &[u32], layout: &Forest) -> Result<Tensor> {
        let pass = self.pass(tokens, layout)?;
        let mut x = self.network.run(&Part::Embedding, &pass)?;
        for index in 0..self.network.layers.len() {
            x = self.network.run(&Part::Block(index, x), &pass)?;
        }
        Ok(self.network.run(&Part::Norm(x), &pass)?)
    }

    /// As [`Self::hidden_of_forest`], part by part: the result has no graph, and what [`Self::backward_blocks`] needs is in what is kept.
    ///
    /// # Errors
    /// As [`Self::hidden_of_forest`].
    pub fn forward_blocks(&self, tokens: &[u32], layout: &Forest, keep: Keep) -> Result<Forward> {
        let pass = self.pass(tokens, layout)?;
        let mut run = Run { decoder: self, pass, keep, lowest: self.lowest_trainable(), kept: Vec::new() };
        let mut x = run.part(Part::Embedding)?;
        for index in 0..self.network.layers.len() {
            x = run.part(Part::Block(index, x))?;
        }
        let hidden = run.part(Part::Norm(x))?;
        Ok(Forward { hidden, pass: run.pass, kept: run.kept })
    }

    /// Hands the gradient of every one of [`Self::parameters`] to `add`, once, by name, from the last part to the lowest that learns.
    /// A head of its own has none here, and the gradient of a tied one is that of the embedding alone: the head is outside of the
    /// forward pass.
    ///
    /// `d_hidden`: `[N, H]`, the derivative of the loss by [`Forward::hidden`]. The decoder must be as it was in the forward pass,
    /// which gives nothing here if it was run with [`Keep::Nothing`].
    ///
    /// # Errors
    /// [`Error::Internal`] if a parameter received no gradient: candle cuts graphs without a word, and a silently frozen parameter
    /// would look like a policy that learns badly. The error of `add`.
    pub fn backward_blocks(&self, forward: Forward, d_hidden: &Tensor, add: &mut dyn FnMut(&str, &Tensor) -> Result<()>) -> Result<()> {
        let Forward { pass, mut kept, .. } = forward;
        let lowest = self.lowest_trainable();
        let mut d_output = d_hidden.detach();
        while let Some(part) = kept.pop() {
            let graph = match part {
                Kept::Graph(graph) => graph,
                Kept::Input(part) => self.graph(part, &pass, lowest)?,
            };
            let mut gradients = (&graph.output * &d_output)?.sum_all()?.backward()?;
            for (name, parameter) in self.parameters_of(&graph.part) {
                let gradient = gradients.remove(parameter.as_tensor()).ok_or_else(|| no_gradient(name))?;
                add(name, &gradient.detach())?;
            }
            if kept.is_empty() {
                break;
            }
            let d_input = graph.part.input().and_then(|input| gradients.remove(input));
            d_output = d_input.ok_or_else(|| no_gradient("of the block below"))?.detach();
        }
        Ok(())
    }

    /// Freezes every weight and gives the linear layers that `options` names adapters, which are all that trains from here on, but for
    /// a score: that goes on learning whole, as PEFT's `modules_to_save` do. The decoder computes what it did until they change.
    /// Adapters that are there are dropped.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] for a rank or an alpha out of range, or a target that no layer is named after.
    pub fn attach_lora(&mut self, options: &LoraOptions) -> Result<()> {
        let adapters = lora::initial(&self.config, options, &self.device)?;
        self.set_adapters(options.clone(), adapters)
    }

    /// Adds the adapters to the weights, as new f32 tensors: `W + s B A`. Nothing is trainable afterwards. Does nothing without
    /// adapters.
    ///
    /// # Errors
    /// [`Error::Tensor`]; blocks may then be merged or not, and the decoder computes the same.
    pub fn merge_lora(&mut self) -> Result<()> {
        let Some(scale) = self.lora.as_ref().map(LoraOptions::scale) else { return Ok(()) };
        // Block by block, so that the matrices of one only are there twice.
        for index in 0..self.network.layers.len() {
            lora::merge(&layer_prefix(index), scale, &mut self.tensors, &mut self.parameters)?;
            let source = Source { tensors: &self.tensors, parameters: &self.parameters, scale };
            let layer = Layer::new(self.config.architecture, &source, index)?;
            self.values.layers[index] = layer.detached();
            self.network.layers[index] = layer;
        }
        // A score that has learned beside them is in its place already.
        self.parameters.clear();
        self.lora = None;
        Ok(())
    }

    /// The weight called `name` as the decoder computes with it, in f32: the sum that [`Self::merge_lora`] would leave, where adapters stand beside it.
    ///
    /// # Errors
    /// [`Error::Internal`] for a name that the decoder does not have, [`Error::Tensor`].
    pub(super) fn merged_tensor(&self, name: &str) -> Result<Tensor> {
        let adapted = match (&self.lora, name.strip_suffix(".weight")) {
            (Some(lora), Some(module)) => lora::merged(module, lora.scale(), &self.tensors, &self.parameters)?,
            _ => None,
        };
        let known = || self.tensors.get(name).cloned().ok_or_else(|| Error::Internal(format!("the decoder has no tensor {name}")));
        Ok(adapted.map_or_else(known, Ok)?.to_dtype(DType::F32)?)
    }

    /// A frozen decoder of the weights that stand beside the adapters, in the same memory: what the policy was before it learned.
    ///
    /// # Errors
    /// [`Error::Internal`] without adapters: training changes the weights themselves then.
    pub fn without_adapters(&self) -> Result<Self> {
        if self.lora.is_none() {
            return Err(Error::Internal("a decoder without adapters has no weights but those that it trains".into()));
        }
        let tensors = self.tensors.iter().map(|(name, tensor)| (name.clone(), tensor.detach())).collect();
        Self::of(self.config.clone(), tensors, BTreeMap::new(), None, self.arithmetic)
    }

    /// Writes the adapters as `adapter_config.json` and `adapter_model.safetensors`, which PEFT loads. `base`: the name of the model that they belong to.
    ///
    /// # Errors
    /// [`Error::NotReady`] without adapters, [`Error::Io`].
    pub fn save_adapter(&self, directory: &Path, base: Option<&str>) -> Result<()> {
        match &self.lora {
            Some(options) => lora::save(directory, options, base, &self.parameters),
            None => Err(Error::NotReady("the policy has no adapters to save".into())),
        }
    }

    /// Freezes every weight and attaches the adapters of a directory, see [`Self::attach_lora`].
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Damaged`] if the files are broken or do not fit each other or the decoder; [`Error::NotSupported`] for
    /// adapters of another kind; [`Error::InvalidParameter`] for a target that no layer is named after.
    pub fn load_adapter(&mut self, directory: &Path) -> Result<()> {
        let (options, adapters) = lora::load(directory, &self.config, &self.device)?;
        self.set_adapters(options, adapters)
    }

    /// Writes `config.json` and `model.safetensors`, which transformers loads with the same numbers.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn save(&self, directory: &Path) -> Result<()> {
        self.config.save(directory)?;
        weights::save(directory, self.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)))
    }

    fn set_adapters(&mut self, options: LoraOptions, adapters: BTreeMap<String, Tensor>) -> Result<()> {
        let mut parameters =
            adapters.into_iter().map(|(name, adapter)| Ok((name, Var::from_tensor(&adapter)?))).collect::<Result<BTreeMap<_, _>>>()?;
        // Detached in the same memory: nothing is copied, and no gradient reaches them.
        let mut tensors: BTreeMap<_, _> = self.tensors.iter().map(|(name, tensor)| (name.clone(), tensor.detach())).collect();
        if let Some(score) = tensors.get_mut(SCORE) {
            let parameter = Var::from_tensor(score)?;
            *score = parameter.as_tensor().clone();
            parameters.insert(SCORE.to_owned(), parameter);
        }
        *self = Self::of(self.config.clone(), tensors, parameters, Some(options), self.arithmetic)?;
        Ok(())
    }

    /// The position of the lowest part with a parameter, below which no gradient has to go; none if nothing learns, or a head alone.
    fn lowest_trainable(&self) -> Option<usize> {
        let learns = |prefix: &str| self.parameters_below(prefix.to_owned()).next().is_some();
        let embedding = std::iter::once((0, EMBEDDING.to_owned()));
        let blocks = (0..self.network.layers.len()).map(|index| (index + 1, layer_prefix(index)));
        let norm = std::iter::once((usize::MAX, NORM.to_owned()));
        embedding.chain(blocks).chain(norm).find(|(_, prefix)| learns(prefix)).map(|(position, _)| position)
    }

    fn parameters_of(&self, part: &Part) -> impl Iterator<Item = (&String, &Var)> {
        self.parameters_below(match part {
            Part::Embedding => EMBEDDING.to_owned(),
            Part::Block(index, _) => layer_prefix(*index),
            Part::Norm(_) => NORM.to_owned(),
        })
    }

    fn parameters_below(&self, prefix: String) -> impl Iterator<Item = (&String, &Var)> {
        let from = self.parameters.range::<str, _>((Bound::Included(prefix.as_str()), Bound::Unbounded));
        from.take_while(move |(name, _)| name.starts_with(&prefix))
    }

    /// Runs a part with its graph. The input is a variable of its own, unless the part is the `lowest` that learns.
    fn graph(&self, part: Part, pass: &Pass, lowest: Option<usize>) -> Result<Graph> {
        let part = if Some(part.position()) == lowest { part } else { part.with_variable()? };
        let output = self.network.run(&part, pass)?;
        Ok(Graph { part, output })
    }

    fn pass(&self, tokens: &[u32], layout: &Forest) -> Result<Pass> {
        let (num_tokens, longest) = (layout.num_tokens(), layout.longest());
        let limit = self.config.max_position_embeddings;
        if num_tokens != tokens.len() || longest > limit {
            let found = format!("{} tokens in a layout of {num_tokens}, its longest sequence of {longest}", tokens.len());
            return Err(candle_core::Error::Msg(format!("{found}: expected one of all tokens, and at most {limit} in a sequence")).into());
        }
        let attention = AttentionShape {
            forest: layout.clone(),
            num_heads: self.config.num_attention_heads,
            num_key_value_heads: self.config.num_key_value_heads,
            head_dim: self.config.head_dim,
        };
        Ok(Pass::new(self.arithmetic, tokens.into(), attention, &self.rope, self.config.rms_norm_eps, &self.device)?)
    }

    /// By which operations it computes.
    pub fn arithmetic(&self) -> Arithmetic {
        self.arithmetic
    }

    /// The device of the weights.
    pub fn device(&self) -> &Device {
        &self.device
    }
}

/// A forward pass at work.
struct Run<'a> {
    decoder: &'a Decoder,
    pass: Pass,
    keep: Keep,
    lowest: Option<usize>,
    kept: Vec<Kept>,
}

impl Run<'_> {
    /// Runs a part, keeps what is asked for and gives the output `[N, H]`, detached.
    fn part(&mut self, part: Part) -> Result<Tensor> {
        let is_needed = self.lowest.is_some_and(|lowest| lowest <= part.position());
        if is_needed && self.keep == Keep::Graphs {
            let graph = self.decoder.graph(part, &self.pass, self.lowest)?;
            let output = graph.output.detach();
            self.kept.push(Kept::Graph(graph));
            return Ok(output);
        }
        let output = self.decoder.values.run(&part, &self.pass)?;
        if is_needed && self.keep == Keep::Inputs {
            self.kept.push(Kept::Input(part));
        }
        Ok(output)
    }
}

impl Part {
    /// Its place in the order of the parts; see [`Decoder::lowest_trainable`].
    fn position(&self) -> usize {
        match self {
            Self::Embedding => 0,
            Self::Block(index, _) => index + 1,
            Self::Norm(_) => usize::MAX,
        }
    }

    fn input(&self) -> Option<&Tensor> {
        match self {
            Self::Embedding => None,
            Self::Block(_, input) | Self::Norm(input) => Some(input),
        }
    }

    /// The part with a copy of its input to which gradients flow.
    fn with_variable(self) -> Result<Self> {
        let variable = |input: &Tensor| Ok::<_, Error>(Var::from_tensor(input)?.into_inner());
        Ok(match self {
            Self::Embedding => Self::Embedding,
            Self::Block(index, input) => Self::Block(index, variable(&input)?),
            Self::Norm(input) => Self::Norm(variable(&input)?),
        })
    }
}

#[cfg(test)]
impl Forward {
    /// Bytes of the activations that it keeps.
    pub(crate) fn kept_bytes(&self) -> usize {
        let bytes = |tensor: &Tensor| tensor.elem_count() * tensor.dtype().size_in_bytes();
        let of_graph = |graph: &Graph| {
            let computed = graph.output.sorted_nodes().into_iter().filter(|node| !node.is_variable());
            computed.map(bytes).sum::<usize>() + graph.part.input().map_or(0, bytes)
        };
        let of_part = |kept: &Kept| match kept {
            Kept::Input(part) => part.input().map_or(0, bytes),
            Kept::Graph(graph) => of_graph(graph),
        };
        self.kept.iter().map(of_part).sum()
    }
}

fn no_gradient(name: &str) -> Error {
    Error::Internal(format!("no gradient reached the parameter {name}"))
}

/// The initial value of the weight called `name`.
fn initial(name: &str, shape: &[usize], rng: CounterRng) -> Result<Tensor> {
    let device = Device::Cpu;
    let count: usize = shape.iter().product();
    let values = if name.ends_with(".bias") {
        vec![0.0; count]
    } else if name.ends_with("norm.weight") {
        vec![1.0; count]
    } else {
        (0..count as u64).map(|index| (rng.normal(index) * INITIAL_STD) as f32).collect()
    };
    Ok(Tensor::from_vec(values, shape, &device)?)
}
