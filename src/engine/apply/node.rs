//! The logical node.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::common::{DFSchema, DFSchemaRef, TableReference};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, Extension, LogicalPlan, UserDefinedLogicalNodeCore};

use super::ApplyFunction;

/// `input` joined row by row with what `function(arguments)` gives for the row. Output: the input's columns, then the function's.
#[derive(Clone)]
pub struct Apply {
    pub input: LogicalPlan,
    pub function: Arc<dyn ApplyFunction>,
    /// Expressions over the input's columns; constants allowed.
    pub arguments: Vec<Expr>,
    /// The relation name of the function's columns.
    qualifier: Option<TableReference>,
    /// Names of the function's columns, when an alias or a hoisted expression renames them.
    column_names: Vec<String>,
    /// Keep input rows for which the function gives no row (LEFT JOIN LATERAL).
    pub is_outer: bool,
    schema: DFSchemaRef,
}

impl Apply {
    pub fn try_new(
        input: LogicalPlan,
        function: Arc<dyn ApplyFunction>,
        arguments: Vec<Expr>,
        qualifier: Option<TableReference>,
        column_names: Vec<String>,
        is_outer: bool,
    ) -> Result<Self> {
        let mut fields: Vec<_> = input.schema().iter().map(|(qualifier, field)| (qualifier.cloned(), Arc::clone(field))).collect();
        for (field, name) in function.schema().fields().iter().zip(&column_names) {
            let field = field.as_ref().clone().with_name(name).with_nullable(field.is_nullable() || is_outer);
            fields.push((qualifier.clone(), Arc::new(field)));
        }
        let schema = Arc::new(DFSchema::new_with_metadata(fields, input.schema().metadata().clone())?);
        Ok(Self { input, function, arguments, qualifier, column_names, is_outer, schema })
    }

    pub fn into_plan(self) -> LogicalPlan {
        LogicalPlan::Extension(Extension { node: Arc::new(self) })
    }

    pub fn qualifier(&self) -> Option<&TableReference> {
        self.qualifier.as_ref()
    }

    pub fn column_names(&self) -> &[String] {
        &self.column_names
    }

    /// What EXPLAIN shows after the node's name.
    pub fn call_text(&self) -> String {
        let mut parts: Vec<String> = self.arguments.iter().map(ToString::to_string).collect();
        let details = self.function.details();
        if !details.is_empty() {
            parts.push(details);
        }
        format!("{}({})", self.function.name(), parts.join(", "))
    }

    fn identity(&self) -> (&str, &[Expr], &[String], bool) {
        (self.function.name(), &self.arguments, &self.column_names, self.is_outer)
    }
}

/// DataFusion prints each node of every plan that it makes, whether or not anyone reads it.
impl fmt::Debug for Apply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Apply({})", self.call_text())
    }
}

/// Copies of a plan share its functions. Two calls in a text are never the same one, so that the optimiser cannot take one for the other
/// whatever their options are.
impl PartialEq for Apply {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.function, &other.function)
            && self.identity() == other.identity()
            && self.input == other.input
            && self.schema == other.schema
    }
}

impl Eq for Apply {}

impl PartialOrd for Apply {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self == other).then_some(Ordering::Equal)
    }
}

impl Hash for Apply {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
        self.input.hash(state);
    }
}

impl UserDefinedLogicalNodeCore for Apply {
    fn name(&self) -> &str {
        "Apply"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        self.arguments.clone()
    }

    /// Only the function's own columns hold predicates back: those on the input's columns go below, before any model runs.
    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        if self.is_outer {
            return self.schema.fields().iter().map(|field| field.name().clone()).collect();
        }
        self.column_names.iter().cloned().collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Apply: {}", self.call_text())
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        Self::try_new(
            inputs.swap_remove(0),
            Arc::clone(&self.function),
            exprs,
            self.qualifier.clone(),
            self.column_names.clone(),
            self.is_outer,
        )
    }

    /// The input columns among the wanted output, and those that the arguments read.
    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let input_schema = self.input.schema();
        let num_input = input_schema.fields().len();
        let mut needed: HashSet<usize> = output_columns.iter().copied().filter(|index| *index < num_input).collect();
        for argument in &self.arguments {
            for column in argument.column_refs() {
                needed.insert(input_schema.index_of_column(column).ok()?);
            }
        }
        let mut needed: Vec<usize> = needed.into_iter().collect();
        needed.sort_unstable();
        Some(vec![needed])
    }

    fn supports_limit_pushdown(&self) -> bool {
        self.function.is_row_preserving()
    }
}
