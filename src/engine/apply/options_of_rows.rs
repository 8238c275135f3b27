//! Options of a function in FROM that are columns: `FROM sweep s, questions q, answer(q.question, agent => 'qa', k => s.k) a`.
//!
//! Rows that agree in their options are one call, bound when its first row comes and kept for the rows after it.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::{concat_batches, take};
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::common::ScalarValue;
use datafusion::error::DataFusionError;

use super::arguments::{Arguments, Names, Parameter};
use super::planner::{Bound, TableFunction};
use super::{Applied, ApplyFunction, ModelUse};
use crate::engine::row_conditions::rows_of_equal_values;
use crate::error::{Error, Result};

pub struct OptionsOfRows {
    function: Arc<dyn TableFunction>,
    /// The options that are constants.
    constants: Arguments,
    /// The others, whose values are the last arguments of a call.
    options: Vec<&'static Parameter>,
    schema: SchemaRef,
    /// Where it can be bound without them: what it tells before any row has come.
    unbound: Option<Arc<dyn ApplyFunction>>,
    bound: Mutex<HashMap<Vec<ScalarValue>, Arc<dyn ApplyFunction>>>,
    /// Rows that are done.
    num_done: Arc<AtomicU64>,
}

impl OptionsOfRows {
    /// # Errors
    /// [`Error::NotSupported`] for an option that decides what is read, so that it has to be a constant.
    pub fn new(function: Arc<dyn TableFunction>, constants: Arguments, options: Vec<&'static Parameter>) -> Result<Self> {
        let constant = |parameter: &Parameter| {
            Error::NotSupported(format!(
                "{} of {}() has to be a constant: it can be no column of another relation",
                parameter.name,
                function.name()
            ))
        };
        // What a file holds is known before the rows are.
        if function.parameters().iter().any(|parameter| parameter.names == Names::File) {
            return Err(constant(options[0]));
        }
        let required = options.iter().find(|parameter| parameter.is_required);
        let (schema, unbound) = match (required, function.schema_of_any()) {
            (Some(_), Some(schema)) => (schema, None),
            (Some(parameter), None) => return Err(constant(parameter)),
            (None, _) => match function.bind(&constants)? {
                Bound::Apply(applied) => (applied.schema(), Some(applied)),
                Bound::Table(_) => return Err(constant(options[0])),
            },
        };
        let (bound, num_done) = (Mutex::default(), Arc::default());
        Ok(Self { function, constants, options, schema, unbound, bound, num_done })
    }

    /// The call with these options.
    fn bound(&self, values: &[ScalarValue]) -> Result<Arc<dyn ApplyFunction>> {
        let mut bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = bound.get(values) {
            return Ok(Arc::clone(known));
        }
        let mut arguments = self.constants.clone();
        for (parameter, value) in self.options.iter().zip(values) {
            if value.is_null() {
                return Err(Error::InvalidParameter {
                    name: format!("{} of {}()", parameter.name, self.function.name()),
                    found: "NULL".to_owned(),
                    expected: "a value in every row".to_owned(),
                });
            }
            arguments.gate()?.access().require_named(parameter.names, value)?;
            arguments.constants.insert(parameter.name, value.clone());
        }
        let applied = match self.function.bind(&arguments)? {
            Bound::Apply(applied) if applied.schema() == self.schema => applied,
            _ => {
                let names: Vec<&str> = self.options.iter().map(|parameter| parameter.name).collect();
                return Err(Error::NotSupported(format!(
                    "{} of {}() decides which columns it gives, and has to be a constant",
                    names.join(", "),
                    self.function.name()
                )));
            }
        };
        bound.insert(values.to_vec(), Arc::clone(&applied));
        Ok(applied)
    }
}

impl fmt::Debug for OptionsOfRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.function.name(), self.details())
    }
}

#[async_trait]
impl ApplyFunction for OptionsOfRows {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn details(&self) -> String {
        let names: Vec<&str> = self.options.iter().map(|parameter| parameter.name).collect();
        format!("of each row: {}", names.join(", "))
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn is_row_preserving(&self) -> bool {
        self.unbound.as_ref().is_some_and(|unbound| unbound.is_row_preserving())
    }

    fn model_use(&self) -> ModelUse {
        match self.unbound.as_ref().map(|unbound| unbound.model_use()) {
            Some(ModelUse::Little) => ModelUse::Little,
            Some(ModelUse::EachRow) => ModelUse::EachRow,
            Some(ModelUse::Often(_)) | None => ModelUse::Often(Arc::clone(&self.num_done)),
        }
    }

    async fn call(&self, arguments: Vec<ArrayRef>, num_rows: usize) -> Result<Applied> {
        let (values, options) = arguments.split_at(arguments.len() - self.options.len());
        let (mut batches, mut input_rows) = (Vec::new(), Vec::new());
        for (options, rows) in rows_of_equal_values(options, num_rows)? {
            let function = self.bound(&options)?;
            for rows in rows.chunks(function.batch_rows().max(1)) {
                let rows = UInt32Array::from_iter_values(rows.iter().map(|row| *row as u32));
                let of_rows = values.iter().map(|value| take(value, &rows, None)).collect::<std::result::Result<Vec<_>, _>>();
                let found = function.call(of_rows.map_err(DataFusionError::from)?, rows.len()).await?;
                input_rows.extend(found.input_rows.values().iter().map(|row| rows.value(*row as usize)));
                batches.push(found.batch);
                self.num_done.fetch_add(rows.len() as u64, Ordering::Relaxed);
            }
        }
        Applied::in_input_order(concat_batches(&self.schema, &batches).map_err(DataFusionError::from)?, input_rows)
    }
}
