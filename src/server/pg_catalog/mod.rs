//! Postgres' system catalog over our tables, so that psql's `\d`, drivers and BI tools find their way.
//!
//! `datafusion-pg-catalog` has the tables, functions and rewrites. What it gets wrong for us is amended here: the types of array
//! and vector columns, the `vector` type itself, which tables are visible without their schema, and the settings.

mod activity;
mod amend;
mod functions;
mod rewrite;
mod roles;
mod tables;

use std::sync::{Arc, LazyLock};

use datafusion::arrow::datatypes::FieldRef;
use datafusion::error::DataFusionError;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast;
use datafusion_pg_catalog::pg_catalog::PgCatalogStaticTables;
use datafusion_pg_catalog::pg_catalog::generate_series_arg_coercion::CoerceIntArgsToBigInt;
use datafusion_pg_catalog::pg_catalog::oid_type_planner::PgOidTypePlanner;

use crate::engine::SessionSettings;
use crate::error::{Error, Result};

pub use rewrite::rewrite_catalog_query;
pub use roles::RoleTables;

/// The schema that clients look in.
const SCHEMA: &str = "pg_catalog";

/// The type `vector` in `pg_type`; outside the range that tables get their object ids from, which starts at 16384.
const VECTOR_OID: i32 = 16_380;

/// The contents that are the same in every database, read once.
static STATIC_TABLES: LazyLock<std::result::Result<Arc<PgCatalogStaticTables>, String>> =
    LazyLock::new(|| PgCatalogStaticTables::try_new().map(Arc::new).map_err(|error| error.to_string()));

/// Gives a session the schema `pg_catalog` in its catalog `catalog_name`, Postgres' catalog functions, and the types of catalog
/// queries beside those that it knows already.
///
/// Object ids are the session's own: they hold from one of its statements to the next, and mean nothing elsewhere.
///
/// # Errors
/// [`Error::UnknownObject`] if there is no such catalog; errors of the catalog when it takes the schema.
pub fn install_catalog(context: &SessionContext, catalog_name: &str, settings: SessionSettings, roles: RoleTables) -> Result<()> {
    let catalog = context.catalog(catalog_name).ok_or_else(|| Error::UnknownObject {
        kind: "catalog",
        name: catalog_name.to_string(),
        known: context.catalog_names(),
    })?;
    let statics = STATIC_TABLES.as_ref().map_err(|reason| Error::Internal(reason.clone()))?;
    let schema = tables::CatalogSchema::try_new(context.state().catalog_list(), catalog_name, statics.clone(), settings, roles)?;
    for function in functions::scalar_functions(catalog_name, schema.visibility()) {
        context.register_udf(function);
    }
    catalog.register_schema(SCHEMA, Arc::new(schema))?;
    context.register_udtf("pg_get_keywords", statics.pg_get_keywords.clone());
    CoerceIntArgsToBigInt::widen(context);
    add_type_planner(context);
    Ok(())
}

/// A session has one planner of types: its own goes first, Postgres' object types come after.
fn add_type_planner(context: &SessionContext) {
    let state = context.state_ref();
    let mut state = state.write();
    let mut builder = SessionStateBuilder::new_from_existing(state.clone());
    let own = builder.type_planner().take();
    *state = builder.with_type_planner(Arc::new(CatalogTypes { own })).build();
}

#[derive(Debug)]
struct CatalogTypes {
    own: Option<Arc<dyn TypePlanner>>,
}

impl TypePlanner for CatalogTypes {
    fn plan_type_field(&self, sql_type: &ast::DataType) -> datafusion::error::Result<Option<FieldRef>> {
        if let Some(own) = &self.own
            && let Some(field) = own.plan_type_field(sql_type)?
        {
            return Ok(Some(field));
        }
        PgOidTypePlanner.plan_type_field(sql_type)
    }
}

fn internal(reason: impl std::fmt::Display) -> DataFusionError {
    DataFusionError::Internal(reason.to_string())
}
