//! ALTER TABLE.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use datafusion::common::Column;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder};
use datafusion::sql::TableReference;
use datafusion::sql::sqlparser::ast::{Ident, SelectItem};
use rolloutdb_catalogs::{Catalog, ROW_ADDRESS, Rewrite, Table, TableDefinition};
use rolloutdb_sql::{AlterAction, AlterTable, ColumnDefinition};

use super::change::assignment::{columns_of, expression};
use super::change::{column_of, quoted, select_from_target, selected};
use super::table::{check_expression, column_field, with_constraint, with_expressions};
use super::{backfill, done, name as names, table_name};
use crate::engine::apply::planner::split_table_name;
use crate::engine::pinned_models;
use crate::engine::planning::plan_rewrite;
use crate::engine::privileges::Object;
use crate::engine::progress::Progress;
use crate::engine::session::{DEFAULT_SCHEMA, Response, Session};
use crate::engine::typing::assign;
use crate::error::{Error, Result};

/// Agents keep their corpus by its name.
fn agents_follow(session: &Session, (schema, name): (&str, &str), new_name: &str) -> Result<()> {
    let is_corpus = |corpus: &str| split_table_name(corpus) == (schema.to_owned(), name.to_owned());
    let renamed = match schema == DEFAULT_SCHEMA {
        true => TableReference::bare(new_name),
        false => TableReference::partial(schema, new_name),
    };
    let agents = session.database().shared.agents.corpus_renamed(is_corpus, &renamed.to_quoted_string())?;
    if !agents.is_empty() {
        session.notices().notice(format!("agents search it by its new name: {}", agents.join(", ")));
    }
    Ok(())
}

/// The actions are done in order, each in a commit of its own.
pub async fn execute(session: &Session, alter: &AlterTable) -> Result<Response> {
    let (schema, mut name) = table_name(&alter.name)?;
    let catalog = &session.database().shared.catalog;
    let _columns = ColumnsChange(catalog);
    if alter.if_exists && !catalog.tables(&schema).is_ok_and(|tables| tables.contains(&name)) {
        session.notices().notice(format!("table \"{name}\" does not exist, skipping"));
        return Ok(done("ALTER TABLE"));
    }
    for action in &alter.actions {
        let table = catalog.table(&schema, &name).await?;
        match action {
            AlterAction::RenameTo(new_name) => {
                let (from, to) = (Object::table(&schema, &name), Object::table(&schema, &new_name.value));
                let _names = names::to_rename(session, &from, &to).await?;
                catalog.rename_table(&schema, &name, &new_name.value).await?;
                session.database().shared.privileges.renamed(&from, to)?;
                agents_follow(session, (&schema, &name), &new_name.value)?;
                name.clone_from(&new_name.value);
            }
            AlterAction::CreateTag { name, version, replace, if_not_exists } => {
                if !table.create_tag(name, *version, *replace, *if_not_exists).await? {
                    session.notices().notice(format!("tag \"{name}\" already exists, skipping"));
                }
            }
            AlterAction::DropTag { name, if_exists } => match table.drop_tag(name).await {
                Err(rolloutdb_catalogs::Error::UnknownTag { .. }) if *if_exists => {
                    session.notices().notice(format!("tag \"{name}\" does not exist, skipping"));
                }
                ended => ended?,
            },
            // Boxed: with the futures of planning in it, it is more than the compiler lays out.
            AlterAction::AddColumn { column, if_not_exists } => Box::pin(add_column(session, &table, column, *if_not_exists)).await?,
            other => redefine(session, &table, other).await?,
        }
    }
    Ok(done("ALTER TABLE"))
}

/// Statements that are prepared look at their tables anew when it is dropped, however the change ends.
struct ColumnsChange<'a>(&'a Catalog);

impl Drop for ColumnsChange<'_> {
    fn drop(&mut self) {
        self.0.columns_changed();
    }
}

/// Changes that leave the rows as they are.
async fn redefine(session: &Session, table: &Table, action: &AlterAction) -> Result<()> {
    let rewrite = table.begin_alter().await?;
    let definition = rewrite.table().definition().clone();
    let known = |name: &Ident| known_column(rewrite.table(), &name.value);
    let names: Vec<String> = definition.schema.fields().iter().map(|field| field.name().clone()).collect();
    let (changed, order) = match action {
        AlterAction::DropColumn { column, if_exists } => {
            if *if_exists && definition.schema.field_with_name(&column.value).is_err() {
                session.notices().notice(format!("column \"{}\" does not exist, skipping", column.value));
                return Ok(());
            }
            known(column)?;
            let user = user_of(&definition, &column.value)?;
            let order = names.into_iter().filter(|name| *name != column.value).collect();
            (definition.dropping(&column.value, user.as_deref())?, order)
        }
        AlterAction::RenameColumn { from, to } => {
            known(from)?;
            let user = user_of(&definition, &from.value)?;
            (definition.renaming(&from.value, &to.value, user.as_deref())?, names)
        }
        AlterAction::Default { column, expression } => {
            known(column)?;
            if let Some(expression) = expression {
                check_expression(session, "", expression).await?;
            }
            let text = expression.as_ref().map(ToString::to_string);
            (definition.with_default_changed(&column.value, text.as_deref())?, names)
        }
        AlterAction::NotNull { column, not_null } => {
            known(column)?;
            (definition.with_nullable(&column.value, !not_null)?, names)
        }
        AlterAction::AddConstraint(constraint) => {
            constraint.columns.iter().try_for_each(known)?;
            let changed = with_constraint(definition.clone(), table.name(), constraint)?;
            let before = definition.constraint_names(table.name());
            let added = changed.constraint_names(table.name()).into_iter().find(|name| !before.contains(name));
            let added = added.ok_or_else(|| Error::Internal("a constraint that was added has no name".to_owned()))?;
            rewrite.check_constraint(&changed, &added).await?;
            (changed, names)
        }
        AlterAction::DropConstraint { name, if_exists } => match definition.without_constraint(table.name(), &name.value) {
            Err(rolloutdb_catalogs::Error::UnknownConstraint { .. }) if *if_exists => {
                let (name, table) = (&name.value, table.name());
                session.notices().notice(format!("constraint \"{name}\" of table \"{table}\" does not exist, skipping"));
                return Ok(());
            }
            changed => (changed?, names),
        },
        AlterAction::AddColumn { .. } | AlterAction::RenameTo(_) | AlterAction::CreateTag { .. } | AlterAction::DropTag { .. } => {
            return Err(Error::Internal("this change is not one of the definition alone".to_owned()));
        }
    };
    Ok(rewrite.redefine(&changed, &order).await?)
}

fn known_column(table: &Table, name: &str) -> Result<()> {
    let fields = table.definition().schema.fields();
    match fields.iter().any(|field| field.name() == name) {
        true => Ok(()),
        false => Err(Error::UnknownColumn {
            table: table.name().to_owned(),
            name: name.to_owned(),
            known: fields.iter().map(|field| field.name().clone()).collect(),
        }),
    }
}

/// A generated column that is computed from `column`.
fn user_of(definition: &TableDefinition, column: &str) -> Result<Option<String>> {
    for (generated, text) in &definition.generated {
        if generated != column && columns_of(&expression(text)?).iter().any(|used| used == column) {
            return Ok(Some(generated.clone()));
        }
    }
    Ok(None)
}

/// Rows that are there take the column's default, number or generated value, or NULL.
async fn add_column(session: &Session, table: &Table, column: &ColumnDefinition, if_not_exists: bool) -> Result<()> {
    let name = &column.name.value;
    if if_not_exists && table.definition().schema.field_with_name(name).is_ok() {
        session.notices().notice(format!("column \"{name}\" already exists, skipping"));
        return Ok(());
    }
    if let Some(generated) = &column.generated
        && pinned_models::calls_model(session, generated)?
    {
        if column.unique.is_some() {
            return Err(Error::NotSupported(format!(
                "ADD COLUMN with UNIQUE of a column that calls a model is not supported; add the column, then write ADD UNIQUE ({name})"
            )));
        }
        return Box::pin(backfill::add_column(session, table, column)).await;
    }
    let rewrite = table.begin_alter().await?;
    let (changed, stored) = with_column(session, rewrite.table().definition(), column).await?;
    let changed = match column.unique_constraint() {
        Some(constraint) => with_constraint(changed, table.name(), &constraint)?,
        None => changed,
    };
    let text = changed.generated.get(name).or_else(|| changed.defaults.get(name)).cloned();
    match text {
        None => Ok(rewrite.add_column(&changed, None).await?),
        Some(text) => fill_column(session, rewrite, &changed, &stored, &text).await,
    }
}

/// The definition with a new last column, and that column.
///
/// # Errors
/// Of a column that can not be added.
pub async fn with_column(session: &Session, definition: &TableDefinition, column: &ColumnDefinition) -> Result<(TableDefinition, Field)> {
    let name = &column.name.value;
    if definition.schema.field_with_name(name).is_ok() {
        return Err(rolloutdb_catalogs::Error::DuplicateColumn { name: name.clone() }.into());
    }
    if column.primary_key.is_some() {
        return Err(Error::NotSupported(format!(
            "ADD COLUMN with PRIMARY KEY is not supported; add the column, fill it, then write ADD PRIMARY KEY ({name})"
        )));
    }
    if column.identity.is_some() {
        return Err(Error::NotSupported(
            "ADD COLUMN with IDENTITY is not supported; say it in CREATE TABLE, and fill the new table by INSERT ... SELECT".to_owned(),
        ));
    }
    let field = column_field(session, column).await?;
    let stored = TableDefinition::new(&Schema::new(vec![field]))?.schema.field(0).clone();
    let mut changed = definition.clone();
    let fields: Vec<Field> = definition.schema.fields().iter().map(|field| field.as_ref().clone()).chain([stored.clone()]).collect();
    changed.schema = Arc::new(Schema::new(fields));
    Ok((with_expressions(session, changed, column).await?, stored))
}

async fn fill_column(session: &Session, rewrite: Rewrite<'_>, definition: &TableDefinition, field: &Field, text: &str) -> Result<()> {
    let table = rewrite.table().clone();
    let alias = Ident::new("t");
    let address = SelectItem::ExprWithAlias { expr: column_of(&alias, ROW_ADDRESS), alias: quoted(ROW_ADDRESS) };
    let query = select_from_target(&alias, vec![address, selected(expression(text)?, field)])?;
    let mut planned = plan_rewrite(session, query, &[], table.with_addresses(), None).await?;
    let schema = planned.plan.schema().clone();
    let column = |position| Expr::Column(Column::from(schema.qualified_field(position)));
    let value = assign(&planned.state, column(1), &schema, field)?.alias(field.name());
    planned.plan = LogicalPlanBuilder::new(planned.plan).project(vec![column(0).alias(ROW_ADDRESS), value])?.build()?;
    // Lance takes the values by the order of the rows, which several threads would lose.
    planned.state.config_mut().options_mut().execution.target_partitions = 1;
    let num_rows = table.row_count().await?;
    let progress =
        Progress::new(session.notices(), format!("ALTER TABLE {}: column {}", table.name(), field.name()), "rows", Some(num_rows));
    let rows = progress.watch(planned.stream().await?);
    Ok(rewrite.add_column(definition, Some(rows)).await?)
}
