//! Catalog tables and functions in statements that DataFusion plans: those that read other tables too.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::{FunctionRegistry, SessionState};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use datafusion::sql::sqlparser::ast::{Expr, Ident, ObjectName, Statement as SqlStatement, TableAlias, TableFactor, VisitMut, VisitorMut};
use rolloutdb_udfs::postgres::PG_TYPE;

use super::functions::{self, Function};
use super::mentions::{Mentions, catalog_table, parts_of};
use super::query::Context;
use super::rows_of_batch::{array_of, batch_of, type_of, values_of};
use super::snapshot::Snapshot;
use super::tables::PG_CATALOG;
use super::types::PgType;
use super::value::Value;
use crate::engine::session::Session;
use crate::error::Result;

/// Starts the names by which a statement reads tables of the catalog.
const PREFIX: &str = "__catalog_";

/// Puts the catalog tables that a statement reads into `named`, under names of their own, and gives `state` the functions that it calls.
///
/// # Errors
/// Of reading what there is.
pub async fn open(
    session: &Session,
    state: &mut SessionState,
    statement: &mut SqlStatement,
    named: &mut HashMap<String, Arc<dyn TableProvider>>,
) -> Result<()> {
    let mentions = Mentions::of(&*statement);
    if mentions.has_qualified_call {
        let _ = statement.visit(&mut Unqualified);
    }
    if !mentions.has_catalog_table() && mentions.functions.is_empty() {
        return Ok(());
    }
    let snapshot = Arc::new(Snapshot::load(session, mentions.reads_relations()).await?);
    let mut opener = Opener { snapshot: &snapshot, named };
    if let ControlFlow::Break(error) = statement.visit(&mut opener) {
        return Err(*error);
    }
    for name in &mentions.functions {
        if let Some(function) = CatalogFunction::named(name, &snapshot) {
            state.register_udf(Arc::new(ScalarUDF::new_from_impl(function)))?;
        }
    }
    Ok(())
}

/// DataFusion's functions have no schema.
struct Unqualified;

impl VisitorMut for Unqualified {
    type Break = ();

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        if let Expr::Function(call) = expression
            && let [schema, _] = parts_of(&call.name).as_slice()
            && schema == PG_CATALOG
        {
            call.name.0.remove(0);
        }
        ControlFlow::Continue(())
    }
}

struct Opener<'a> {
    snapshot: &'a Snapshot,
    named: &'a mut HashMap<String, Arc<dyn TableProvider>>,
}

impl VisitorMut for Opener<'_> {
    type Break = Box<crate::Error>;

    fn pre_visit_table_factor(&mut self, relation: &mut TableFactor) -> ControlFlow<Self::Break> {
        let TableFactor::Table { name, alias, args: None, .. } = relation else { return ControlFlow::Continue(()) };
        match self.provider(name) {
            Ok(None) => {}
            Ok(Some((internal, shown, provider))) => {
                let own_name = || TableAlias { explicit: true, name: Ident::with_quote('"', shown), columns: vec![], at: None };
                alias.get_or_insert_with(own_name);
                *name = ObjectName::from(vec![Ident::with_quote('"', &internal)]);
                self.named.insert(internal, provider);
            }
            Err(error) => return ControlFlow::Break(Box::new(error)),
        }
        ControlFlow::Continue(())
    }
}

/// The name to read a table by, the name that it is shown under, and the table.
type NamedTable = (String, String, Arc<dyn TableProvider>);

impl Opener<'_> {
    /// `None` for a name that is none of the catalog's.
    fn provider(&self, name: &ObjectName) -> Result<Option<NamedTable>> {
        let parts = parts_of(name);
        let Some((schema, table_name)) = catalog_table(&parts) else { return Ok(None) };
        let Some(table) = self.snapshot.table(Some(schema), table_name)? else {
            // Without its schema it may be a table of the user's.
            let unknown = || rolloutdb_catalogs::Error::UnknownTable { name: table_name.to_owned(), known: vec![] };
            return if parts.len() > 1 { Err(unknown().into()) } else { Ok(None) };
        };
        let batch = batch_of(&table.columns, &table.rows)?;
        let fields: Vec<Field> = batch.schema().fields().iter().map(|field| plain(field)).collect();
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), batch.columns().to_vec()).map_err(DataFusionError::from)?;
        let provider = MemTable::try_new(batch.schema(), vec![vec![batch]])?;
        Ok(Some((format!("{PREFIX}{schema}_{table_name}"), table_name.to_owned(), Arc::new(provider))))
    }
}

/// The field without the name of a type that only the catalog's own columns have: what is made of it, a table perhaps, is of the Arrow type.
fn plain(field: &Field) -> Field {
    let mut metadata = field.metadata().clone();
    metadata.remove(PG_TYPE);
    field.clone().with_metadata(metadata)
}

/// A function of catalog queries as DataFusion calls it.
#[derive(Debug)]
struct CatalogFunction {
    name: String,
    signature: Signature,
    snapshot: Arc<Snapshot>,
}

impl CatalogFunction {
    /// `None`: it gives rows.
    fn named(name: &str, snapshot: &Arc<Snapshot>) -> Option<Self> {
        let known: Vec<&Function> = functions::all().filter(|function| function.name == name && !function.is_set).collect();
        if known.is_empty() {
            return None;
        }
        let takes_none = known.iter().any(|function| function.required == 0);
        let mut kinds = vec![TypeSignature::VariadicAny];
        kinds.extend(takes_none.then_some(TypeSignature::Nullary));
        let signature = Signature::one_of(kinds, Volatility::Stable);
        Some(Self { name: name.to_owned(), signature, snapshot: Arc::clone(snapshot) })
    }

    fn function(&self, num_arguments: usize) -> DataFusionResult<&'static Function> {
        let wrong = || DataFusionError::Plan(format!("{} does not take {num_arguments} arguments", self.name));
        functions::find(&self.name, num_arguments).ok_or_else(wrong)
    }
}

impl PartialEq for CatalogFunction {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.snapshot, &other.snapshot)
    }
}

impl Eq for CatalogFunction {}

impl Hash for CatalogFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for CatalogFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> DataFusionResult<DataType> {
        let fields: Vec<FieldRef> = types.iter().map(|data_type| Arc::new(Field::new("", data_type.clone(), true))).collect();
        Ok(self.returned(&fields)?.field("").data_type().clone())
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> DataFusionResult<FieldRef> {
        Ok(Arc::new(plain(&self.returned(arguments.arg_fields)?.field(&self.name))))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let function = self.function(arguments.args.len())?;
        let from: Vec<PgType> = arguments.arg_fields.iter().map(|field| type_of(field)).collect();
        let types: Vec<PgType> = (0..from.len()).map(|position| function.parameter(position)).collect();
        let arrays = arguments.args.iter().map(|value| value.to_array(arguments.number_rows)).collect::<DataFusionResult<Vec<_>>>()?;
        let columns = arrays.iter().map(values_of).collect::<Result<Vec<_>>>()?;
        let context = Context::new(&self.snapshot, &[]);
        let pg_type = self.returned(&arguments.arg_fields)?;
        let row = |row: usize| -> Result<Value> {
            let cells = columns.iter().zip(&from).zip(&types);
            let values = cells.map(|((column, from), to)| argument(&column[row], from, to, &context)).collect::<Result<Vec<_>>>()?;
            functions::shown(function.call(&context, &values, &from)?, &pg_type, &context)
        };
        let values = (0..arguments.number_rows).map(row).collect::<Result<Vec<_>>>()?;
        let values: Vec<&Value> = values.iter().collect();
        Ok(ColumnarValue::Array(array_of(&values, &pg_type, arguments.return_field.data_type())?))
    }
}

impl CatalogFunction {
    fn returned(&self, fields: &[FieldRef]) -> DataFusionResult<PgType> {
        let types: Vec<PgType> = fields.iter().map(|field| type_of(field)).collect();
        let unknown = || DataFusionError::Plan(format!("the type of {} does not follow from its arguments", self.name));
        self.function(types.len())?.returns(&types).ok_or_else(unknown)
    }
}

/// An argument as the function takes it: names of objects become their numbers.
fn argument(value: &Value, from: &PgType, to: &PgType, context: &Context<'_>) -> Result<Value> {
    let needs_cast = matches!((from.kind(), to.kind()), (Some(from), Some(to)) if to.names_object() && from.is_text());
    if needs_cast { functions::cast(value.clone(), from, to, context) } else { Ok(value.clone()) }
}
