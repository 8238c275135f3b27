//! Table functions in FROM: names, positional and named arguments, defaults; then an [`Apply`] node.
//!
//! DataFusion's own table functions take literals only, no named arguments, and cannot follow LATERAL (its issue #18121), hence this planner.

mod unnest;

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, ScalarValue, TableReference, not_impl_err, plan_err};
use datafusion::datasource::provider_as_source;
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::planner::{PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning};
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlanBuilder, cast};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::sql::sqlparser::ast::{
    Expr as SqlExpr, FunctionArg, Ident, ObjectName, TableAlias, TableAliasColumnDef, TableFactor, Value,
};
use rolloutdb_catalogs::{AskedEffort, Table};

use super::arguments::{Arguments, Names, Parameter, ParameterKind, assign};
use super::array_calls::with_array_calls;
use super::column_list::column_list;
use super::filter::plan_filter;
use super::open_call::OpenCall;
use super::options_of_rows::OptionsOfRows;
use super::ordinality::WithOrdinality;
use super::{Apply, ApplyFunction};
use crate::engine::gate::Gate;
use crate::engine::parameter_values::ParameterValues;
use crate::engine::progress::Notices;
use crate::engine::row_conditions::outer_references;
use crate::engine::session::{CATALOG_NAME, DEFAULT_SCHEMA};
use crate::engine::typing::{is_text, sql_type_name, sql_type_of};
use crate::engine::views::TablesOfViews;
use crate::error::{Error, Result, Unresolved};

/// A function of ours that stands in FROM.
pub trait TableFunction: Debug + Send + Sync {
    fn name(&self) -> &'static str;

    /// In positional order.
    fn parameters(&self) -> &'static [Parameter];

    /// The columns of a call whatever its constants are; `None`: those that have to be given decide.
    fn schema_of_any(&self) -> Option<SchemaRef> {
        None
    }

    /// Checks the constant arguments and gives what the call stands for.
    fn bind(&self, arguments: &Arguments) -> Result<Bound>;
}

/// What a call in FROM stands for.
pub enum Bound {
    /// A function to apply to each row. The [`ParameterKind::Value`] arguments become its call arguments, in order; after them come the columns that a
    /// filter refers to ([`outer_references`]).
    Apply(Arc<dyn ApplyFunction>),
    /// A table, which is scanned as any other. All arguments are constants.
    Table(Arc<dyn TableProvider>),
}

/// The functions by name, with the tables that one statement's calls name, opened beforehand (planning is synchronous).
#[derive(Debug)]
pub struct TableFunctionPlanner {
    pub functions: Arc<HashMap<&'static str, Arc<dyn TableFunction>>>,
    pub tables: HashMap<String, Arc<Table>>,
    /// Tables of this statement alone, by the names that its query has for them.
    pub named: HashMap<String, Arc<dyn TableProvider>>,
    /// Tables that its views read, by the names that stand for them.
    pub of_views: Arc<TablesOfViews>,
    pub notices: Notices,
    /// What the session's role may do, and which files it may reach.
    pub gate: Gate,
    pub effort: AskedEffort,
    pub parameters: ParameterValues,
}

/// Arguments that were planned.
struct BoundArguments {
    constants: Arguments,
    /// Of the call, in the order of its parameters; then the columns of the relations before LATERAL that its filter refers to.
    values: Vec<Expr>,
    /// Constants that are parameters without values, as if they were left out.
    open: Vec<Expr>,
    /// Options whose values are columns of the relations before: the last of `values`, in this order.
    of_rows: Vec<&'static Parameter>,
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
        [part] => part.as_ident().map(|ident| ident.value.to_ascii_lowercase()),
        _ => None,
    }
}

pub fn table_name(argument: &SqlExpr) -> Option<String> {
    // A quoted name keeps its quotes: the reader of the whole name folds what has none.
    let normal = |ident: &Ident| match ident.quote_style {
        Some(_) => format!("\"{}\"", ident.value.replace('"', "\"\"")),
        None => ident.value.to_ascii_lowercase(),
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

impl RelationPlanner for TableFunctionPlanner {
    fn plan_relation(&self, relation: TableFactor, context: &mut dyn RelationPlannerContext) -> DataFusionResult<RelationPlanning> {
        if let TableFactor::Table { name, alias, args: None, .. } = &relation
            && let Some(name) = bare_name(name)
        {
            if let Some(table) = self.of_views.get(&name) {
                let plan = LogicalPlanBuilder::scan(table.shown(), provider_as_source(Arc::clone(&table.provider)), None)?.build()?;
                let alias = alias.clone().filter(|_| table.has_alias());
                return Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias))));
            }
            if let Some(table) = self.named.get(&name) {
                let plan = LogicalPlanBuilder::scan(name, provider_as_source(Arc::clone(table)), None)?.build()?;
                return Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias.clone()))));
            }
        }
        if let TableFactor::UNNEST { alias, array_exprs, with_ordinality, .. } = &relation
            && let Some(planned) = unnest::planned(alias.as_ref(), array_exprs, *with_ordinality, context)?
        {
            return Ok(planned);
        }
        let Some((function, arguments)) = called_function(&self.functions, &relation) else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let BoundArguments { constants, mut values, open, of_rows } = self.bind_arguments(function.as_ref(), arguments, context)?;
        let bound = match of_rows.is_empty() {
            true => function.bind(&constants)?,
            false => Bound::Apply(Arc::new(OptionsOfRows::new(Arc::clone(&function), constants, of_rows)?)),
        };
        let with_ordinality = has_ordinality(&relation);
        let alias = match &relation {
            TableFactor::Table { alias, .. } | TableFactor::Function { alias, .. } => alias.clone(),
            _ => None,
        };
        let mut alias = alias.unwrap_or_else(|| default_alias(function.name()));
        let plan = match bound {
            Bound::Table(_) if with_ordinality => {
                return not_impl_err!("WITH ORDINALITY after {}(): number its rows by row_number() OVER ()", function.name());
            }
            // A table is read with its constants; nothing stands for one without a value.
            Bound::Table(_) if !open.is_empty() => return Err(constant_without_value(function.as_ref(), &open[0]).into()),
            Bound::Table(table) => LogicalPlanBuilder::scan(function.name(), provider_as_source(table), None)?.build()?,
            Bound::Apply(mut applied) => {
                if !open.is_empty() {
                    // Among the arguments, for their types are asked for there.
                    values.extend(open.iter().cloned());
                    applied = Arc::new(OpenCall { function: applied, constants: open });
                }
                if with_ordinality {
                    applied = Arc::new(WithOrdinality { function: applied });
                }
                let column_names = column_names(&mut alias, applied.as_ref(), context)?;
                let one_row = LogicalPlanBuilder::empty(true).build()?;
                Apply::try_new(one_row, applied, values, None, column_names, false)?.into_plan()
            }
        };
        let alias = with_all_columns(alias, plan.schema());
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, Some(alias)))))
    }
}

/// Without an alias, the columns go by the function's name: `answer.steps`.
fn default_alias(name: &str) -> TableAlias {
    TableAlias { explicit: false, name: Ident::new(name), columns: vec![], at: None }
}

fn has_ordinality(relation: &TableFactor) -> bool {
    matches!(relation, TableFactor::Table { with_ordinality: true, .. } | TableFactor::Function { with_ordinality: true, .. })
}

/// The names of a function's columns: those of the alias, which then has none to give, and for the rest its own.
fn column_names(
    alias: &mut TableAlias,
    function: &dyn ApplyFunction,
    context: &dyn RelationPlannerContext,
) -> DataFusionResult<Vec<String>> {
    let mut names: Vec<String> = function.schema().fields().iter().map(|field| field.name().clone()).collect();
    let given = std::mem::take(&mut alias.columns);
    if given.len() > names.len() {
        return plan_err!("table \"{}\" has {} columns available but {} columns specified", alias.name.value, names.len(), given.len());
    }
    for (name, column) in names.iter_mut().zip(given) {
        *name = context.normalize_ident(column.name);
    }
    // Two columns of one name are told apart by their relation alone, and here they have one: the later ones are numbered.
    for position in 1..names.len() {
        if names[..position].contains(&names[position]) {
            names[position] = format!("{}_{}", names[position], position + 1);
        }
    }
    Ok(names)
}

/// An alias may name the first columns alone: the others keep their names.
fn with_all_columns(mut alias: TableAlias, schema: &DFSchema) -> TableAlias {
    if !alias.columns.is_empty() {
        let others = schema.fields().iter().skip(alias.columns.len());
        let others = others.map(|field| TableAliasColumnDef { name: Ident::with_quote('"', field.name()), data_type: None });
        alias.columns.extend(others);
    }
    alias
}

impl TableFunctionPlanner {
    fn bind_arguments(
        &self,
        function: &dyn TableFunction,
        arguments: &[FunctionArg],
        context: &mut dyn RelationPlannerContext,
    ) -> DataFusionResult<BoundArguments> {
        let (mut open, mut of_rows, mut columns) = (Vec::new(), Vec::new(), Vec::new());
        let mut bound = Arguments {
            function: function.name(),
            notices: self.notices.clone(),
            gate: Some(self.gate.clone()),
            effort: self.effort,
            ..Arguments::default()
        };
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
                    let value = context.sql_to_expr(with_array_calls(argument)?, &DFSchema::empty())?;
                    if is_text(data_type)
                        && let Ok((_, field)) = value.to_field(&DFSchema::empty())
                        && field.data_type().is_nested()
                    {
                        return Err(list_for_text(function, parameter, &field).into());
                    }
                    values.insert(parameter.name, cast(value, data_type.clone()));
                }
                ParameterKind::TextOrVector => {
                    let value = context.sql_to_expr(with_array_calls(argument)?, &DFSchema::empty())?;
                    let given = value.get_type(&DFSchema::empty())?;
                    let wrong = || Error::WrongType {
                        what: format!("{} of {}()", parameter.name, function.name()),
                        found: given.to_string(),
                        expected: "a text, a vector, or an array of them".to_owned(),
                    };
                    let data_type = text_or_vector(&given).ok_or_else(wrong)?;
                    bound.has_array = is_array(&data_type);
                    values.insert(parameter.name, cast(value, data_type));
                }
                ParameterKind::Constant(data_type) => {
                    let value = self.parameters.bind(context.sql_to_expr(argument.clone(), &DFSchema::empty())?)?;
                    if value.contains_outer() {
                        columns.push(option_of_rows(function, parameter, value, data_type)?);
                        of_rows.push(parameter);
                        continue;
                    }
                    match opened(parameter, &value, data_type)? {
                        Some(value) => open.push(value),
                        None => {
                            let value = constant(function, parameter, value, data_type)?;
                            self.gate.access().require_named(parameter.names, &value)?;
                            bound.constants.insert(parameter.name, value);
                        }
                    }
                }
                ParameterKind::Columns => {
                    let value = context.sql_to_expr(argument.clone(), &DFSchema::empty())?;
                    let text = constant(function, parameter, value, &DataType::Utf8)?;
                    let columns = column_list(text.try_as_str().flatten().unwrap_or_default(), context)?;
                    bound.columns.insert(parameter.name, columns);
                }
                ParameterKind::Filter => {
                    let value = self.parameters.bind(context.sql_to_expr(argument.clone(), &DFSchema::empty())?)?;
                    if let Some(value) = opened(parameter, &value, &DataType::Utf8)? {
                        open.push(value);
                        continue;
                    }
                    if value.contains_outer() {
                        return Err(filter_of_a_row(function, &value).into());
                    }
                    let text = constant(function, parameter, value, &DataType::Utf8)?;
                    let table = bound.tables.values().next();
                    let table = table.ok_or_else(|| Error::Internal(format!("{}() has a filter and no table", function.name())))?;
                    let filter = plan_filter(text.try_as_str().flatten().unwrap_or_default(), table, &self.parameters, context)?;
                    match placeholders_in(&filter)? {
                        none if none.is_empty() => {
                            bound.filters.insert(parameter.name, filter);
                        }
                        without_value => open.extend(without_value),
                    }
                }
            }
        }
        let mut in_order: Vec<Expr> = function.parameters().iter().filter_map(|parameter| values.remove(parameter.name)).collect();
        for filter in bound.filters.values() {
            in_order.extend(outer_references(filter)?);
        }
        in_order.extend(columns);
        Ok(BoundArguments { constants: bound, values: in_order, open, of_rows })
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

/// A cast would print it in Arrow's notation.
fn list_for_text(function: &dyn TableFunction, parameter: &Parameter, found: &Field) -> Error {
    let (name, parameter, found) = (function.name(), parameter.name, sql_type_of(found));
    let message = format!("function {name}({found}) does not exist: {parameter} is a text, and {found} is given");
    Error::Unresolved { kind: Unresolved::Function, message }
}

/// An option that is a column, in the type of the option.
fn option_of_rows(function: &dyn TableFunction, parameter: &Parameter, value: Expr, data_type: &DataType) -> DataFusionResult<Expr> {
    let given = value.get_type(&DFSchema::empty())?;
    let is_right = match data_type {
        DataType::Int64 => given.is_integer(),
        DataType::Float64 => given.is_numeric(),
        other => given == *other,
    };
    if is_right || given.is_null() {
        return Ok(cast(value, data_type.clone()));
    }
    let (what, found) = (format!("{} of {}()", parameter.name, function.name()), sql_type_name(&given));
    Err(Error::WrongType { what, found, expected: sql_type_name(data_type) }.into())
}

/// A text that is another for each row is planned for none.
fn filter_of_a_row(function: &dyn TableFunction, value: &Expr) -> Error {
    let expected = "a constant text, in which columns of the relations before LATERAL may stand: filter => 'tenant = q.tenant'".to_owned();
    Error::InvalidParameter { name: format!("filter of {}()", function.name()), found: value.to_string(), expected }
}

fn constant_without_value(function: &dyn TableFunction, value: &Expr) -> Error {
    let (name, expected) = (format!("an argument of {}()", function.name()), "a constant".to_owned());
    Error::InvalidParameter { name, found: value.to_string(), expected }
}

/// A constant that is or holds a parameter without a value, typed; `None` for any other. Texts decide which columns a call gives, but for a filter.
fn opened(parameter: &Parameter, value: &Expr, data_type: &DataType) -> DataFusionResult<Option<Expr>> {
    let may_be_open = !parameter.is_required
        && (parameter.kind == ParameterKind::Filter || *data_type != DataType::Utf8 || parameter.names == Names::Version);
    if !may_be_open || placeholders_in(value)?.is_empty() {
        return Ok(None);
    }
    let typed = value.clone().transform_up(|inner| match inner {
        Expr::Placeholder(Placeholder { id, field: None }) => {
            let field = Arc::new(Field::new("", data_type.clone(), true));
            Ok(Transformed::yes(Expr::Placeholder(Placeholder::new_with_field(id, Some(field)))))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(Some(typed.data))
}

fn placeholders_in(expression: &Expr) -> DataFusionResult<Vec<Expr>> {
    let mut found = Vec::new();
    expression.apply(|inner| {
        if matches!(inner, Expr::Placeholder(_)) {
            found.push(inner.clone());
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// The type that a call sees of a text, a vector, or an array of them; `None` for anything deeper.
fn text_or_vector(given: &DataType) -> Option<DataType> {
    let vector = DataType::new_list(DataType::Float32, true);
    match element(given) {
        None => Some(DataType::Utf8),
        Some(item) if item.is_numeric() || item.is_null() => Some(vector),
        Some(item) => match element(item) {
            None => Some(DataType::new_list(DataType::Utf8, true)),
            Some(inner) if inner.is_numeric() || inner.is_null() => Some(DataType::new_list(vector, true)),
            Some(_) => None,
        },
    }
}

fn element(list: &DataType) -> Option<&DataType> {
    match list {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => Some(item.data_type()),
        _ => None,
    }
}

fn is_array(data_type: &DataType) -> bool {
    matches!(data_type, DataType::List(item) if !item.data_type().is_numeric())
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
    let folded = |ident: &Ident| if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_ascii_lowercase() };
    let parts: Vec<String> = name.0.iter().filter_map(|part| part.as_ident()).map(folded).collect();
    match parts.as_slice() {
        [table] => Some((DEFAULT_SCHEMA.to_owned(), table.clone())),
        [schema, table] => Some((schema.clone(), table.clone())),
        [catalog, schema, table] if catalog == CATALOG_NAME => Some((schema.clone(), table.clone())),
        _ => None,
    }
}
