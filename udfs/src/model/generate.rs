//! `generate(model, prompt [, max_tokens, temperature, top_p, seed, stop, top_k, min_p, repetition_penalty])`.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array, Int64Array, StringArray};
use arrow::datatypes::DataType;
use async_trait::async_trait;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::ScalarUDF;
use datafusion::scalar::ScalarValue;
use futures::future::try_join_all;

use crate::Error;
use crate::arguments::{Arguments, Column, TextsColumn};
use crate::function::{Interface, Kind, Parameter};

use super::call::{ModelCall, required_model, udf};
use super::distinct::Distinct;
use super::{GenerateOptions, ModelRuntime};

pub(crate) static INTERFACE: Interface = Interface {
    name: "generate",
    section: super::SECTION,
    description: "What a language model writes after a prompt. The same prompt, model and options give the same text, and \
        equal ones are generated once. For several samples of one prompt give each its own seed. NULL for a NULL prompt.",
    parameters: &[
        Parameter { name: "model", kind: Kind::Text, description: "Name of a generating model, `name` or `name@version`; a constant." },
        Parameter { name: "prompt", kind: Kind::Text, description: "The text to continue." },
        Parameter { name: "max_tokens", kind: Kind::Integer, description: "Most tokens to generate, 1 or more; 256 unless given." },
        Parameter {
            name: "temperature",
            kind: Kind::Number,
            description: "Randomness, 0 (always the most probable token) or more; 0 unless given.",
        },
        Parameter {
            name: "top_p",
            kind: Kind::Number,
            description: "Share of the probability to sample from, above 0 and at most 1; 1 unless given.",
        },
        Parameter { name: "seed", kind: Kind::Integer, description: "Seed of the sampling, 0 or more; 0 unless given." },
        Parameter {
            name: "stop",
            kind: Kind::Texts,
            description: "Text, or array of texts, that ends the generation and is not part of it.",
        },
        Parameter {
            name: "top_k",
            kind: Kind::Integer,
            description: "How many of the most probable tokens to sample from; 0, all of them, unless given.",
        },
        Parameter {
            name: "min_p",
            kind: Kind::Number,
            description: "Least probability of a token as a share of the most probable one's, 0 to 1; 0 unless given.",
        },
        Parameter {
            name: "repetition_penalty",
            kind: Kind::Number,
            description: "Makes tokens that the prompt or the text has less probable if above 1, and more probable if below; above 0, 1 unless given.",
        },
    ],
    required: 2,
    example: ("SELECT generate('policy', 'Question: who wrote Emma?\\nThought:', max_tokens => 64)", "a text"),
};

pub(crate) fn function(runtime: Arc<dyn ModelRuntime>) -> ScalarUDF {
    udf(Generate, runtime)
}

#[derive(Debug)]
struct Generate;

#[async_trait]
impl ModelCall for Generate {
    fn interface(&self) -> &'static Interface {
        &INTERFACE
    }

    fn return_type(&self, _: &dyn ModelRuntime, _: &str, _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    async fn call(&self, runtime: &dyn ModelRuntime, arguments: &Arguments<'_>) -> Result<ArrayRef> {
        let prompts = &arguments.text(1)?;
        // All at once: rows with a seed each are sets of one row, and decode together.
        let groups = rows_by_options(arguments)?.into_iter().map(|(options, rows)| async move {
            let distinct = Distinct::new(rows.iter().map(|row| prompts.get(*row)));
            if distinct.inputs.is_empty() {
                return Ok(None);
            }
            let model = required_model(arguments)?;
            let inputs = StringArray::from_iter_values(&distinct.inputs);
            let generated = runtime.generate(&model, &inputs, options).await?;
            runtime.note_repeats(distinct.num_repeats());
            Ok::<_, DataFusionError>(Some((distinct.scatter(INTERFACE.name, &generated)?, rows)))
        });
        let mut completions = vec![None; arguments.num_rows()];
        for (generated, rows) in try_join_all(groups).await?.into_iter().flatten() {
            for (row, completion) in rows.iter().zip(generated.as_string::<i32>()) {
                completions[*row] = completion.map(str::to_owned);
            }
        }
        Ok(Arc::new(StringArray::from(completions)))
    }
}

/// The rows of each set of options, in the order of their first row: usually one set, or one per seed.
fn rows_by_options(arguments: &Arguments) -> Result<Vec<(GenerateOptions, Vec<usize>)>> {
    let columns = OptionColumns::new(arguments)?;
    if columns.are_constant() {
        let rows = (0..arguments.num_rows()).collect();
        return Ok(vec![(columns.get(0)?, rows)]);
    }
    let mut indices = HashMap::new();
    let mut groups: Vec<(GenerateOptions, Vec<usize>)> = Vec::new();
    for row in 0..arguments.num_rows() {
        let options = columns.get(row)?;
        let index = *indices.entry(hashable(&options)).or_insert(groups.len());
        if index == groups.len() {
            groups.push((options, Vec::new()));
        }
        groups[index].1.push(row);
    }
    Ok(groups)
}

fn hashable(options: &GenerateOptions) -> ([usize; 2], u64, [u64; 4], Vec<String>) {
    let GenerateOptions { max_tokens, temperature, top_p, seed, stop, top_k, min_p, repetition_penalty } = options;
    ([*max_tokens, *top_k], *seed, [temperature, top_p, min_p, repetition_penalty].map(|number| number.to_bits()), stop.clone())
}

/// The optional arguments; one that is not given, or NULL, has its default.
struct OptionColumns {
    max_tokens: Option<Column<Int64Array>>,
    temperature: Option<Column<Float64Array>>,
    top_p: Option<Column<Float64Array>>,
    seed: Option<Column<Int64Array>>,
    stop: Option<TextsColumn>,
    top_k: Option<Column<Int64Array>>,
    min_p: Option<Column<Float64Array>>,
    repetition_penalty: Option<Column<Float64Array>>,
}

impl OptionColumns {
    fn new(arguments: &Arguments) -> Result<Self> {
        let given = |index: usize| arguments.has(index).then_some(index);
        Ok(Self {
            max_tokens: given(2).map(|index| arguments.integer(index)).transpose()?,
            temperature: given(3).map(|index| arguments.number(index)).transpose()?,
            top_p: given(4).map(|index| arguments.number(index)).transpose()?,
            seed: given(5).map(|index| arguments.integer(index)).transpose()?,
            stop: given(6).map(|index| arguments.texts(index)).transpose()?,
            top_k: given(7).map(|index| arguments.integer(index)).transpose()?,
            min_p: given(8).map(|index| arguments.number(index)).transpose()?,
            repetition_penalty: given(9).map(|index| arguments.number(index)).transpose()?,
        })
    }

    fn are_constant(&self) -> bool {
        let integers = [&self.max_tokens, &self.seed, &self.top_k];
        let numbers = [&self.temperature, &self.top_p, &self.min_p, &self.repetition_penalty];
        integers.into_iter().flatten().all(Column::is_constant)
            && numbers.into_iter().flatten().all(Column::is_constant)
            && self.stop.as_ref().is_none_or(TextsColumn::is_constant)
    }

    /// # Errors
    /// [`Error::Argument`] for an option out of its range.
    fn get(&self, row: usize) -> Result<GenerateOptions, Error> {
        let mut options = GenerateOptions::default();
        if let Some(found) = self.max_tokens.as_ref().and_then(|column| column.get(row)) {
            options.max_tokens = INTERFACE.positive(2, found)?;
        }
        if let Some(found) = self.temperature.as_ref().and_then(|column| column.get(row)) {
            let valid = found.is_finite() && found >= 0.0;
            options.temperature = valid.then_some(found).ok_or_else(|| refuse(3, found, "0 or more"))?;
        }
        if let Some(found) = self.top_p.as_ref().and_then(|column| column.get(row)) {
            let valid = found > 0.0 && found <= 1.0;
            options.top_p = valid.then_some(found).ok_or_else(|| refuse(4, found, "above 0 and at most 1"))?;
        }
        if let Some(found) = self.seed.as_ref().and_then(|column| column.get(row)) {
            options.seed = u64::try_from(found).map_err(|_| refuse(5, found, "0 or more"))?;
        }
        if let Some(found) = self.stop.as_ref().and_then(|column| column.get(row)) {
            if found.iter().any(|text| text.is_empty()) {
                return Err(refuse(6, "''", "texts of at least one character"));
            }
            options.stop = found.into_iter().map(str::to_owned).collect();
        }
        self.narrow(row, &mut options)?;
        Ok(options)
    }

    /// Sets what narrows the choice of tokens besides `top_p`.
    fn narrow(&self, row: usize, options: &mut GenerateOptions) -> Result<(), Error> {
        if let Some(found) = self.top_k.as_ref().and_then(|column| column.get(row)) {
            options.top_k = usize::try_from(found).map_err(|_| refuse(7, found, "0 or more"))?;
        }
        if let Some(found) = self.min_p.as_ref().and_then(|column| column.get(row)) {
            options.min_p = (0.0..=1.0).contains(&found).then_some(found).ok_or_else(|| refuse(8, found, "from 0 to 1"))?;
        }
        if let Some(found) = self.repetition_penalty.as_ref().and_then(|column| column.get(row)) {
            // Logits have single precision: beyond it a number would be 0 or infinite.
            let valid = found as f32 > 0.0 && (found as f32).is_finite();
            options.repetition_penalty = valid.then_some(found).ok_or_else(|| refuse(9, found, "above 0"))?;
        }
        Ok(())
    }
}

fn refuse(index: usize, found: impl ToString, expected: &str) -> Error {
    INTERFACE.argument_error(index, found, expected)
}
