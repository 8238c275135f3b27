//! CREATE VIEW, DROP VIEW.

use datafusion::sql::sqlparser::ast::Ident;
use rolloutdb_catalogs::{Error as CatalogError, View};
use rolloutdb_sql::{CreateView, DropView};

use super::{done, name as names, quoted, table_name};
use crate::engine::output_names;
use crate::engine::planning::plan_query;
use crate::engine::privileges::Object;
use crate::engine::session::{Response, Session};
use crate::error::{Error, Result};

/// The query is planned now, so that a view that cannot be read is refused.
pub async fn create(session: &Session, create: &CreateView) -> Result<Response> {
    let (schema, name) = table_name(&create.name)?;
    let catalog = &session.database().shared.catalog;
    if create.if_not_exists && catalog.tables(&schema)?.contains(&name) {
        session.notices().notice(format!("relation \"{name}\" already exists, skipping"));
        return Ok(done("CREATE VIEW"));
    }
    let planned = plan_query(session, &create.query, &[]).await?;
    if !planned.plan.get_parameter_names()?.is_empty() {
        return Err(Error::NotSupported("a view cannot have parameters such as $1".to_owned()));
    }
    let columns = planned.plan.schema().as_arrow().clone();
    // Within another query the columns would have DataFusion's names.
    if create.columns.is_empty() && !output_names::of(&create.query).differ() {
        output_names::check_unique(&columns)?;
        return store(session, create, &schema, &name, View::new(&create.query.to_string(), &columns)).await;
    }
    if create.columns.len() > columns.fields().len() {
        return Err(Error::ColumnCount(format!(
            "the view names {} columns, its query gives {}",
            create.columns.len(),
            columns.fields().len()
        )));
    }
    let mut names: Vec<Ident> = columns.fields().iter().map(|field| quoted(field.name())).collect();
    for (name, given) in names.iter_mut().zip(&create.columns) {
        *name = quoted(&given.value);
    }
    if let Some(repeated) = names.iter().enumerate().find_map(|(position, name)| names[..position].contains(name).then_some(name)) {
        return Err(CatalogError::DuplicateColumn { name: repeated.value.clone() }.into());
    }
    let list: Vec<String> = names.iter().map(ToString::to_string).collect();
    let text = format!("SELECT * FROM ({}) AS v ({})", create.query, list.join(", "));
    let Some(rolloutdb_sql::Statement::Query(renamed)) = rolloutdb_sql::parse(&text)?.pop() else {
        return Err(Error::Internal(format!("not a query: {text}")));
    };
    let columns = plan_query(session, &renamed, &[]).await?.plan.schema().as_arrow().clone();
    store(session, create, &schema, &name, View::new(&text, &columns)).await
}

/// A view that is replaced keeps its owner and what was granted on it.
async fn store(session: &Session, create: &CreateView, schema: &str, name: &str, view: View) -> Result<Response> {
    let shared = &session.database().shared;
    let object = Object::table(schema, name);
    // One that is replaced is the role's own.
    let _name = if create.or_replace { names::to_change(session, &object).await? } else { names::to_make(session, &object).await };
    let is_replaced = create.or_replace && shared.knows(&object);
    shared.catalog.create_view(schema, name, view, is_replaced)?;
    if !is_replaced {
        session.own(object)?;
    }
    Ok(done("CREATE VIEW"))
}

pub async fn drop(session: &Session, drop: &DropView) -> Result<Response> {
    let shared = &session.database().shared;
    for name in &drop.names {
        let (schema, view) = table_name(name)?;
        let object = Object::table(&schema, &view);
        let _name = if shared.knows(&object) { Some(names::to_drop(session, &object).await?) } else { None };
        match shared.catalog.drop_view(&schema, &view) {
            Err(CatalogError::UnknownTable { .. }) if drop.if_exists => {
                session.notices().notice(format!("view \"{view}\" does not exist, skipping"));
            }
            dropped => {
                dropped?;
                shared.privileges.forget(&object)?;
            }
        }
    }
    Ok(done("DROP VIEW"))
}
