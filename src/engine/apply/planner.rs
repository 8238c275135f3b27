//! Table functions in FROM: names, positional and named arguments, defaults; then an [`Apply`] node.
//!
//! DataFusion's own table functions take literals only, no named arguments, and cannot follow LATERAL (its issue #18121), hence this planner.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::common::{DFSchema, ScalarValue, TableReference};
use datafusion::datasource::provider_as_source;
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::planner::{PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning};
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlanBuilder, cast};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::sql::sqlparser::ast::{
    Expr as SqlExpr, FunctionArg, FunctionArgExpr, FunctionArgOperator, Ident, ObjectName, TableAlias, TableFactor, Value,
};
use rolloutdb_catalogs::{AskedEffort, Table};

use super::column_list::column_list;
use super::filter::plan_filter;
use super::{Apply, ApplyFunction};
use crate::engine::progress::Notices;
use crate::engine::session::{CATALOG_NAME, DEFAULT_SCHEMA};
use crate::error::{Error, Result};

/// A function of ours that stands in FROM.
pub trait TableFunction: Debug + Send + Sync {
    fn name(&self) -> &'static str;

    /// In positional order.
    fn parameters(&self) -> &'static [Parameter];

    /// Checks the constant arguments and gives what the call stands for.
    fn bind(&self, arguments: &Arguments) -> Result<Bound>;
}

/// What a call in FROM stands for.
pub enum Bound {
    /// A function to apply to each row. The [`ParameterKind::Value`] arguments become its call arguments, in order.
    Apply(Arc<dyn ApplyFunction>),
    /// A table, which is scanned as any other. All arguments are constants.
    Table(Arc<dyn TableProvider>),
}

#[derive(Debug)]
pub struct Parameter {
    pub name: &'static str,
    pub kind: ParameterKind,
    pub is_required: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ParameterKind {
    /// A table, as an identifier or a text.
    Table,
    /// An expression over the relations before a LATERAL, or a constant.
    Value(DataType),
    /// The same, as text or as a list of numbers: the call sees `Utf8` or a `List` of `Float32`.
    TextOrVector,
    /// A constant.
    Constant(DataType),
    /// A constant text of names and types, as in CREATE TABLE: `'id text, year integer'`.
    Columns,
    /// A text that is a condition over the columns of the first table argument.
    Filter,
}

impl Parameter {
    pub const fn table(name: &'static str) -> Self {
        Self { name, kind: ParameterKind::Table, is_required: true }
    }
    pub const fn value(name: &'static str, data_type: DataType) -> Self {
        Self { name, kind: ParameterKind::Value(data_type), is_required: true }
    }
    pub const fn text_or_vector(name: &'static str) -> Self {
        Self { name, kind: ParameterKind::TextOrVector, is_required: true }
    }
    pub const fn constant(name: &'static str, data_type: DataType) -> Self {
        Self { name, kind: ParameterKind::Constant(data_type), is_required: false }
    }
    pub const fn columns(name: &'static str) -> Self {
        Self { name, kind: ParameterKind::Columns, is_required: false }
    }
    pub const fn filter(name: &'static str) -> Self {
        Self { name, kind: ParameterKind::Filter, is_required: false }
    }
    pub const fn required_constant(name: &'static str, data_type: DataType) -> Self {
        Self { name, kind: ParameterKind::Constant(data_type), is_required: true }
    }
}

/// The constant and table arguments of one call.
#[derive(Debug, Default)]
pub struct Arguments {
    function: &'static str,
    constants: BTreeMap<&'static str, ScalarValue>,
    columns: BTreeMap<&'static str, SchemaRef>,
    tables: BTreeMap<&'static str, Arc<Table>>,
    notices: Notices,
    effort: AskedEffort,
    filters: BTreeMap<&'static str, Expr>,
}

impl Arguments {
    /// Where the function may tell the client something.
    pub fn notices(&self) -> &Notices {
        &self.notices
    }

    /// What the session has set for approximate searches.
    pub fn effort(&self) -> AskedEffort {
        self.effort
    }

    /// A [`ParameterKind::Columns`] argument, all nullable.
    pub fn columns(&self, name: &str) -> Option<&SchemaRef> {
        self.columns.get(name)
    }

    pub fn table(&self, name: &str) -> Result<&Arc<Table>> {
        self.tables.get(name).ok_or_else(|| Error::Internal(format!("{}() has no table argument {name}", self.function)))
    }

    /// A condition over the bare columns of the table.
    pub fn filter(&self, name: &str) -> Option<&Expr> {
        self.filters.get(name)
    }

    pub fn has(&self, name: &str) -> bool {
        self.constants.contains_key(name)
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.constants.get(name).and_then(|value| value.try_as_str().flatten())
    }

    pub fn float(&self, name: &str) -> Option<f64> {
        match self.constants.get(name)? {
            ScalarValue::Float64(value) => *value,
            _ => None,
        }
    }

    pub fn boolean(&self, name: &str) -> Option<bool> {
        match self.constants.get(name)? {
            ScalarValue::Boolean(value) => *value,
            _ => None,
        }
    }

    /// An integer constant of at least `minimum`.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] if it is smaller.
    pub fn integer(&self, name: &str, default: i64, minimum: i64) -> Result<i64> {
        self.integer_within(name, default, minimum..=i64::MAX)
    }

    /// An integer constant in a range.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] if it is outside.
    pub fn integer_within(&self, name: &str, default: i64, range: RangeInclusive<i64>) -> Result<i64> {
        let value = match self.constants.get(name) {
            Some(ScalarValue::Int64(Some(value))) => *value,
            _ => default,
        };
        if range.contains(&value) {
            return Ok(value);
        }
        let expected = match *range.end() {
            i64::MAX => format!("{} or more", range.start()),
            end => format!("{} to {end}", range.start()),
        };
        Err(Error::InvalidParameter { name: format!("{} of {}()", name, self.function), found: value.to_string(), expected })
    }

    /// Every constant given, in name order, for functions that take open-ended options.
    pub fn constants(&self) -> impl Iterator<Item = (&'static str, &ScalarValue)> {
        self.constants.iter().map(|(name, value)| (*name, value))
    }
}

/// The functions by name, with the tables that one statement's calls name, opened beforehand (planning is synchronous).
#[derive(Debug)]
pub struct TableFunctionPlanner {
    pub functions: Arc<HashMap<&'static str, Arc<dyn TableFunction>>>,
    pub tables: HashMap<String, Arc<Table>>,
    /// Tables of this statement alone, by the names that its query has for them.
    pub named: HashMap<String, Arc<dyn TableProvider>>,
    pub notices: Notices,
    pub effort: AskedEffort,
}

/// The name and arguments of a call of one of `functions`, if `relation` is one.
pub fn called_function<'a>(
    functions: &HashMap<&'static str, Arc<dyn TableFunction>>,
    relation: &'a TableFactor,
) -> Option<(Arc<dyn TableFunction>, &'a [FunctionArg])> {
    let (name, arguments) = match relation {
        TableFactor::Table { name, args: Some(arguments), .. } => (name, arguments.args.as_slice()),
        TableFactor::Function { name, args, .. } => (name, args.as_slice()),
        _ => return None,
    };
    let function = functions.get(bare_name(name)?.as_str())?;
    Some((Arc::clone(function), arguments))
}

/// The tables that a call names, as written.
pub fn table_arguments(function: &dyn TableFunction, arguments: &[FunctionArg]) -> Vec<String> {
    assign(function.name(), function.parameters(), arguments)
        .unwrap_or_default()
        .into_iter()
        .filter(|(parameter, _)| parameter.kind == ParameterKind::Table)
        .filter_map(|(_, argument)| table_name(argument))
        .collect()
}

fn bare_name(name: &ObjectName) -> Option<String> {
    match name.0.as_slice() {
        [part] => part.as_ident().map(|ident| ident.value.to_lowercase()),
        _ => None,
    }
}

pub fn table_name(argument: &SqlExpr) -> Option<String> {
    // A quoted name keeps its quotes: the reader of the whole name folds what has none.
    let normal = |ident: &Ident| match ident.quote_style {
        Some(_) => format!("\"{}\"", ident.value.replace('"', "\"\"")),
        None => ident.value.to_lowercase(),
    };
    match argument {
        SqlExpr::Identifier(ident) => Some(normal(ident)),
        SqlExpr::CompoundIdentifier(parts) => Some(parts.iter().map(normal).collect::<Vec<_>>().join(".")),
        SqlExpr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// Gives each argument its parameter: positional ones first, then `name => value`.
pub fn assign<'a>(
    function: &str,
    parameters: &'static [Parameter],
    arguments: &'a [FunctionArg],
) -> Result<Vec<(&'static Parameter, &'a SqlExpr)>> {
    let mut assigned: Vec<(&'static Parameter, &SqlExpr)> = Vec::new();
    for (position, argument) in arguments.iter().enumerate() {
        let (parameter, value) = match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => {
                let parameter = parameters.get(position).ok_or_else(|| too_many(function, parameters, arguments.len()))?;
                (parameter, value)
            }
            FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), operator: FunctionArgOperator::RightArrow } => {
                (named(function, parameters, name)?, value)
            }
            FunctionArg::ExprNamed {
                name: SqlExpr::Identifier(name),
                arg: FunctionArgExpr::Expr(value),
                operator: FunctionArgOperator::RightArrow,
            } => (named(function, parameters, name)?, value),
            other => {
                return Err(Error::InvalidParameter {
                    name: format!("argument of {}()", function),
                    found: other.to_string(),
                    expected: "a value, or name => value".to_owned(),
                });
            }
        };
        if assigned.iter().any(|(earlier, _)| earlier.name == parameter.name) {
            return Err(Error::InvalidParameter {
                name: format!("{} of {}()", parameter.name, function),
                found: "two values".to_owned(),
                expected: "one".to_owned(),
            });
        }
        assigned.push((parameter, value));
    }
    if let Some(missing) = parameters.iter().find(|p| p.is_required && !assigned.iter().any(|(given, _)| given.name == p.name)) {
        return Err(Error::InvalidParameter {
            name: format!("{} of {}()", missing.name, function),
            found: "nothing".to_owned(),
            expected: "a value".to_owned(),
        });
    }
    Ok(assigned)
}

fn named(function: &str, parameters: &'static [Parameter], name: &Ident) -> Result<&'static Parameter> {
    let name = name.value.to_lowercase();
    parameters.iter().find(|parameter| parameter.name == name).ok_or_else(|| unknown(function, parameters, &name))
}

fn too_many(function: &str, parameters: &[Parameter], count: usize) -> Error {
    Error::InvalidParameter {
        name: format!("number of arguments of {}()", function),
        found: count.to_string(),
        expected: format!("at most {}", parameters.len()),
    }
}

fn unknown(function: &str, parameters: &[Parameter], name: &str) -> Error {
    Error::UnknownOption {
        kind: "argument",
        name: name.to_owned(),
        of: format!("{}()", function),
        known: parameters.iter().map(|parameter| parameter.name.to_owned()).collect(),
    }
}

impl RelationPlanner for TableFunctionPlanner {
    fn plan_relation(&self, relation: TableFactor, context: &mut dyn RelationPlannerContext) -> DataFusionResult<RelationPlanning> {
        if let TableFactor::Table { name, alias, args: None, .. } = &relation
            && let Some(name) = bare_name(name)
            && let Some(table) = self.named.get(&name)
        {
            let plan = LogicalPlanBuilder::scan(name, provider_as_source(Arc::clone(table)), None)?.build()?;
            return Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias.clone()))));
        }
        let Some((function, arguments)) = called_function(&self.functions, &relation) else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let (bound, values) = self.bind_arguments(function.as_ref(), arguments, context)?;
        let plan = match function.bind(&bound)? {
            Bound::Table(table) => LogicalPlanBuilder::scan(function.name(), provider_as_source(table), None)?.build()?,
            Bound::Apply(applied) => {
                let column_names = applied.schema().fields().iter().map(|field| field.name().clone()).collect();
                let one_row = LogicalPlanBuilder::empty(true).build()?;
                Apply::try_new(one_row, applied, values, None, column_names, false)?.into_plan()
            }
        };
        let alias = match &relation {
            TableFactor::Table { alias, .. } | TableFactor::Function { alias, .. } => alias.clone(),
            _ => None,
        };
        let alias = alias.unwrap_or_else(|| default_alias(function.name()));
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, Some(alias)))))
    }
}

/// Without an alias, the columns go by the function's name: `answer.steps`.
fn default_alias(name: &str) -> TableAlias {
    TableAlias { explicit: false, name: Ident::new(name), columns: vec![], at: None }
}

impl TableFunctionPlanner {
    fn bind_arguments(
        &self,
        function: &dyn TableFunction,
        arguments: &[FunctionArg],
        context: &mut dyn RelationPlannerContext,
    ) -> DataFusionResult<(Arguments, Vec<Expr>)> {
        let mut bound = Arguments { function: function.name(), notices: self.notices.clone(), effort: self.effort, ..Arguments::default() };
        let mut values = HashMap::new();
        // A filter is about a table, which may be named after it.
        let mut assigned = assign(function.name(), function.parameters(), arguments)?;
        assigned.sort_by_key(|(parameter, _)| parameter.kind == ParameterKind::Filter);
        for (parameter, argument) in assigned {
            match &parameter.kind {
                ParameterKind::Table => {
                    bound.tables.insert(parameter.name, self.table(function, argument)?);
                }
                ParameterKind::Value(data_type) => {
                    let value = context.sql_to_expr(argument.clone(), &DFSchema::empty())?;
                    values.insert(parameter.name, cast(value, data_type.clone()));
                }
                ParameterKind::TextOrVector => {
                    let value = context.sql_to_expr(argument.clone(), &DFSchema::empty())?;
                    let data_type = match value.get_type(&DFSchema::empty())? {
                        DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) => {
                            DataType::new_list(DataType::Float32, true)
                        }
                        _ => DataType::Utf8,
                    };
                    values.insert(parameter.name, cast(value, data_type));
                }
                ParameterKind::Constant(data_type) => {
                    let value = context.sql_to_expr(argument.clone(), &DFSchema::empty())?;
                    bound.constants.insert(parameter.name, constant(function, parameter, value, data_type)?);
                }
                ParameterKind::Columns => {
                    let value = context.sql_to_expr(argument.clone(), &DFSchema::empty())?;
                    let text = constant(function, parameter, value, &DataType::Utf8)?;
                    let columns = column_list(text.try_as_str().flatten().unwrap_or_default(), context)?;
                    bound.columns.insert(parameter.name, columns);
                }
                ParameterKind::Filter => {
                    let value = context.sql_to_expr(argument.clone(), &DFSchema::empty())?;
                    let text = constant(function, parameter, value, &DataType::Utf8)?;
                    let table = bound.tables.values().next();
                    let table = table.ok_or_else(|| Error::Internal(format!("{}() has a filter and no table", function.name())))?;
                    let filter = plan_filter(text.try_as_str().flatten().unwrap_or_default(), table, context)?;
                    bound.filters.insert(parameter.name, filter);
                }
            }
        }
        let in_order = function.parameters().iter().filter_map(|parameter| values.remove(parameter.name)).collect();
        Ok((bound, in_order))
    }

    fn table(&self, function: &dyn TableFunction, argument: &SqlExpr) -> Result<Arc<Table>> {
        let name = table_name(argument).ok_or_else(|| Error::InvalidParameter {
            name: format!("table of {}()", function.name()),
            found: argument.to_string(),
            expected: "a table's name".to_owned(),
        })?;
        self.tables.get(&name).cloned().ok_or_else(|| Error::Internal(format!("table {name} was not opened before planning")))
    }
}

fn constant(function: &dyn TableFunction, parameter: &Parameter, value: Expr, data_type: &DataType) -> Result<ScalarValue> {
    let wrong = |found: String| Error::InvalidParameter {
        name: format!("{} of {}()", parameter.name, function.name()),
        found,
        expected: format!("a constant of type {data_type}"),
    };
    let text = value.to_string();
    let simplified = ExprSimplifier::new(SimplifyContext::default()).simplify(value).map_err(Error::from)?;
    match simplified {
        Expr::Literal(value, _) if value.is_null() => Err(wrong("NULL".to_owned())),
        Expr::Literal(value, _) => match (&value, data_type) {
            // Text is never read as a number: a quoted number is more often a mistake than a wish.
            (ScalarValue::Utf8(_), DataType::Int64 | DataType::Float64 | DataType::Boolean) => Err(wrong(format!("'{value}'"))),
            (ScalarValue::Float64(_), DataType::Int64) => Err(wrong(value.to_string())),
            _ => value.cast_to(data_type).map_err(|_| wrong(value.to_string())),
        },
        _ => Err(wrong(text)),
    }
}

/// `schema.table` as a reference; a bare name is in `public`.
pub fn split_table_name(name: &str) -> (String, String) {
    let reference = TableReference::parse_str(name);
    (reference.schema().unwrap_or("public").to_owned(), reference.table().to_owned())
}

/// Schema and name of a table as a query writes it, folded; `None` for the name of another database's.
pub fn table_reference(name: &ObjectName) -> Option<(String, String)> {
    let folded = |ident: &Ident| if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() };
    let parts: Vec<String> = name.0.iter().filter_map(|part| part.as_ident()).map(folded).collect();
    match parts.as_slice() {
        [table] => Some((DEFAULT_SCHEMA.to_owned(), table.clone())),
        [schema, table] => Some((schema.clone(), table.clone())),
        [catalog, schema, table] if catalog == CATALOG_NAME => Some((schema.clone(), table.clone())),
        _ => None,
    }
}
