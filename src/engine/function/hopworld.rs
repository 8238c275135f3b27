//! `hopworld_passages`, `hopworld_questions`, `hopworld_demonstrations`: the generator of `rolloutdb_udfs::hopworld` in FROM.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::datatypes::{DataType, SchemaRef};
use async_trait::async_trait;
use rolloutdb_udfs::hopworld::{self, DemonstrationsOptions, QuestionMix, QuestionsOptions, WorldOptions};

use crate::engine::apply::arguments::{Arguments, Parameter};
use crate::engine::apply::planner::{Bound, TableFunction};
use crate::engine::apply::{Applied, ApplyFunction};
use crate::error::{Error, Result};

pub fn functions() -> Vec<Arc<dyn TableFunction>> {
    vec![Arc::new(Passages), Arc::new(Questions), Arc::new(Demonstrations)]
}

/// The world's own arguments come first in all three functions, then those in the brackets.
macro_rules! parameters {
    ($name:ident, $($own:expr),* $(,)?) => {
        const $name: &[Parameter] = &[
            Parameter::constant("seed", DataType::Int64),
            Parameter::constant("split", DataType::Utf8),
            Parameter::constant("num_people", DataType::Int64),
            Parameter::constant("num_films", DataType::Int64),
            Parameter::constant("num_books", DataType::Int64),
            Parameter::constant("num_companies", DataType::Int64),
            Parameter::constant("num_cities", DataType::Int64),
            Parameter::constant("num_countries", DataType::Int64),
            $($own),*
        ];
    };
}

parameters!(PASSAGES_PARAMETERS,);
parameters!(QUESTIONS_PARAMETERS, Parameter::constant("count", DataType::Int64), Parameter::constant("question_seed", DataType::Int64));
parameters!(
    DEMONSTRATIONS_PARAMETERS,
    Parameter::constant("worlds", DataType::Int64),
    Parameter::constant("questions_per_world", DataType::Int64),
    Parameter::constant("one_hop", DataType::Float64),
    Parameter::constant("two_hop", DataType::Float64),
    Parameter::constant("three_hop", DataType::Float64),
    Parameter::constant("comparison", DataType::Float64),
    Parameter::constant("distractors_min", DataType::Int64),
    Parameter::constant("distractors_max", DataType::Int64),
    Parameter::constant("evidence_repeat", DataType::Int64),
    Parameter::constant("wasted", DataType::Float64),
    Parameter::constant("wrong_bridge", DataType::Float64),
    Parameter::constant("early_answer", DataType::Float64),
    Parameter::constant("missing_gold", DataType::Float64),
    Parameter::constant("forced_answer", DataType::Float64),
    Parameter::constant("fault_weight", DataType::Float64),
);

fn world(arguments: &Arguments) -> Result<WorldOptions> {
    let default = WorldOptions::default();
    let count = |name, default: usize| arguments.integer(name, default as i64, 1).map(|value| value as usize);
    let world = WorldOptions {
        seed: arguments.integer("seed", default.seed as i64, 0)? as u64,
        split: match arguments.text("split") {
            None => default.split,
            Some(text) => text.parse().map_err(invalid)?,
        },
        num_people: count("num_people", default.num_people)?,
        num_films: count("num_films", default.num_films)?,
        num_books: count("num_books", default.num_books)?,
        num_companies: count("num_companies", default.num_companies)?,
        num_cities: count("num_cities", default.num_cities)?,
        num_countries: count("num_countries", default.num_countries)?,
    };
    Ok(world)
}

fn invalid(error: hopworld::Error) -> Error {
    match error {
        hopworld::Error::InvalidOption { name, found, expected } => Error::InvalidParameter { name: name.to_owned(), found, expected },
        other @ hopworld::Error::TooManyQuestions { .. } => {
            Error::InvalidParameter { name: "count".to_owned(), found: other.to_string(), expected: "fewer questions".to_owned() }
        }
        hopworld::Error::Batch(reason) => Error::OutOfMemory(reason),
    }
}

#[derive(Debug)]
struct Passages;

impl TableFunction for Passages {
    fn name(&self) -> &'static str {
        "hopworld_passages"
    }

    fn parameters(&self) -> &'static [Parameter] {
        PASSAGES_PARAMETERS
    }

    fn bind(&self, arguments: &Arguments) -> Result<Bound> {
        let options = world(arguments)?;
        options.validate().map_err(invalid)?;
        generator(self.name(), hopworld::passages_schema(), options, hopworld::passages)
    }
}

#[derive(Debug)]
struct Questions;

impl TableFunction for Questions {
    fn name(&self) -> &'static str {
        "hopworld_questions"
    }

    fn parameters(&self) -> &'static [Parameter] {
        QUESTIONS_PARAMETERS
    }

    fn bind(&self, arguments: &Arguments) -> Result<Bound> {
        let default = QuestionsOptions::default();
        let options = QuestionsOptions {
            world: world(arguments)?,
            count: arguments.integer("count", default.count as i64, 1)? as usize,
            seed: arguments.integer("question_seed", default.seed as i64, 0)? as u64,
            mix: default.mix,
        };
        options.validate().map_err(invalid)?;
        generator(self.name(), hopworld::questions_schema(), options, hopworld::questions)
    }
}

#[derive(Debug)]
struct Demonstrations;

impl TableFunction for Demonstrations {
    fn name(&self) -> &'static str {
        "hopworld_demonstrations"
    }

    fn parameters(&self) -> &'static [Parameter] {
        DEMONSTRATIONS_PARAMETERS
    }

    fn bind(&self, arguments: &Arguments) -> Result<Bound> {
        let default = DemonstrationsOptions::default();
        let count = |name, default: usize| arguments.integer(name, default as i64, 0).map(|value| value as usize);
        let rate = |name, default: f64| arguments.float(name).unwrap_or(default);
        let options = DemonstrationsOptions {
            world: world(arguments)?,
            worlds: count("worlds", default.worlds)?,
            questions_per_world: count("questions_per_world", default.questions_per_world)?,
            mix: QuestionMix {
                one_hop: rate("one_hop", default.mix.one_hop),
                two_hop: rate("two_hop", default.mix.two_hop),
                three_hop: rate("three_hop", default.mix.three_hop),
                comparison: rate("comparison", default.mix.comparison),
            },
            distractors_min: count("distractors_min", default.distractors_min)?,
            distractors_max: count("distractors_max", default.distractors_max)?,
            evidence_repeat: count("evidence_repeat", default.evidence_repeat)?,
            wasted: rate("wasted", default.wasted),
            wrong_bridge: rate("wrong_bridge", default.wrong_bridge),
            early_answer: rate("early_answer", default.early_answer),
            missing_gold: rate("missing_gold", default.missing_gold),
            forced_answer: rate("forced_answer", default.forced_answer),
            fault_weight: rate("fault_weight", default.fault_weight),
        };
        options.validate().map_err(invalid)?;
        generator(self.name(), hopworld::demonstrations_schema(), options, hopworld::demonstrations)
    }
}

type Generate<Options> = fn(&Options) -> hopworld::Result<RecordBatch>;

fn generator<Options>(name: &'static str, schema: SchemaRef, options: Options, generate: Generate<Options>) -> Result<Bound>
where
    Options: Clone + std::fmt::Debug + Send + Sync + 'static,
{
    Ok(Bound::Apply(Arc::new(Generator { name, schema, options, generate })))
}

#[derive(Debug)]
struct Generator<Options> {
    name: &'static str,
    schema: SchemaRef,
    options: Options,
    generate: Generate<Options>,
}

#[async_trait]
impl<Options: Clone + std::fmt::Debug + Send + Sync + 'static> ApplyFunction for Generator<Options> {
    fn name(&self) -> &str {
        self.name
    }

    fn details(&self) -> String {
        format!("{:?}", self.options)
    }

    fn is_source(&self) -> bool {
        true
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    async fn call(&self, _: Vec<ArrayRef>, num_rows: usize) -> Result<Applied> {
        let (options, generate) = (self.options.clone(), self.generate);
        let batch = tokio::task::spawn_blocking(move || generate(&options))
            .await
            .map_err(|error| Error::Internal(error.to_string()))?
            .map_err(invalid)?;
        // The same world for each input row of a LATERAL.
        let batches: Vec<&RecordBatch> = std::iter::repeat_n(&batch, num_rows).collect();
        let input_rows = UInt32Array::from_iter_values((0..num_rows as u32).flat_map(|row| std::iter::repeat_n(row, batch.num_rows())));
        let batch = arrow::compute::concat_batches(&self.schema, batches).map_err(datafusion::error::DataFusionError::from)?;
        Ok(Applied { batch, input_rows })
    }
}
