//! One SELECT: what stands in FROM, its conditions, groups and outputs.

use std::cell::RefCell;
use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, FunctionArg, GroupByExpr, Ident, Join as AstJoin, JoinConstraint, JoinOperator, ObjectName, OrderByExpr,
    Select as AstSelect, SelectItem, SelectItemQualifiedWildcardKind, TableAlias, TableFactor, TableWithJoins,
};

use super::bind::{Binder, With, direction, ordinal};
use super::bind_expression::{Place, Typed};
use super::scope::{Scope, ScopeRelation, WithQuery};
use super::{Binary, BindError, BindResult, Body, Expression, Extra, JoinKind, Plan, Select, SortKey, Source, SourceKind};
use crate::engine::output_names::{folded, name_of};
use crate::engine::pg_catalog::tables::PG_CATALOG;
use crate::engine::pg_catalog::types::{Kind, PgType};
use crate::error::{Error, Unresolved};

/// The name of an output that has none.
const NO_NAME: &str = "?column?";

impl Binder<'_> {
    pub(super) fn select(&self, select: &AstSelect, order: &[OrderByExpr], parent: Option<&Scope<'_>>, with: &With) -> BindResult<Plan> {
        let is_distinct = matches!(select.distinct, Some(Distinct::Distinct));
        if select.qualify.is_some() || select.top.is_some() || !select.lateral_views.is_empty() || !select.named_window.is_empty() {
            return Err(BindError::NotHere);
        }
        let scope = Scope::within(parent);
        let from = self.from(&select.from, &scope, with)?;
        let plain = Place::plain(&scope, with);
        let conditions = match &select.selection {
            Some(condition) => conjuncts(self.condition(condition, &plain)?),
            None => vec![],
        };
        let extras = RefCell::default();
        let place = Place { extras: Some(&extras), width: scope.width(), ..plain };
        let mut outputs = Vec::new();
        let mut columns = Vec::new();
        // The trees of the outputs, where ORDER BY and GROUP BY look for what is computed already.
        let mut trees = Vec::new();
        for item in &select.projection {
            self.output(item, &place, &mut |name: String, (value, pg_type): Typed, tree: Option<Expr>| {
                columns.push((name, pg_type));
                outputs.push(value);
                trees.push(tree);
            })?;
        }
        let group = self.group_keys(&select.group_by, &place, &columns, &trees, &outputs)?;
        let having = select.having.as_ref().map(|having| self.condition(having, &place)).transpose()?;
        let mut sort = Vec::with_capacity(order.len());
        for key in order {
            let (descending, nulls_first) = direction(key);
            let position = self.sort_position(&key.expr, &place, &columns, &trees, &mut outputs)?;
            sort.push(SortKey { position, descending, nulls_first });
        }
        let distinct_on = match &select.distinct {
            Some(Distinct::On(keys)) => {
                let key = |key: &Expr| self.sort_position(key, &place, &columns, &trees, &mut outputs);
                Some(keys.iter().map(key).collect::<BindResult<Vec<_>>>()?)
            }
            _ => None,
        };
        if is_distinct && outputs.len() > columns.len() {
            return Err(BindError::NotHere);
        }
        let extras: Vec<Extra> = extras.into_inner();
        let has_aggregates = extras.iter().any(|extra| matches!(extra, Extra::Aggregate(_)));
        // Rows are grouped by what is computed of them, but for the items of lists, which make the rows.
        let computed: Vec<usize> =
            group.iter().flat_map(Expression::columns).filter_map(|column| column.checked_sub(scope.width())).collect();
        if !computed.iter().all(|number| matches!(extras.get(*number), Some(Extra::Unnest(_)))) {
            return Err(BindError::NotHere);
        }
        let group = if group.is_empty() && !has_aggregates { None } else { Some(group) };
        let bound = Select {
            from,
            conditions,
            group,
            having,
            width: scope.width(),
            extras,
            outputs,
            distinct: is_distinct,
            distinct_on,
            groups_items: !computed.is_empty(),
        };
        let is_correlated = scope.reads_outer.get();
        Ok(Plan { columns, body: Body::Select(Box::new(bound)), order: sort, limit: None, offset: None, is_correlated })
    }

    fn output(&self, item: &SelectItem, place: &Place<'_>, add: &mut impl FnMut(String, Typed, Option<Expr>)) -> BindResult<()> {
        match item {
            SelectItem::UnnamedExpr(tree) => {
                let name = name_of(tree).unwrap_or_else(|| NO_NAME.to_owned());
                add(name, self.expression(tree, place)?, Some(tree.clone()));
            }
            SelectItem::ExprWithAlias { expr, alias } => add(folded(alias), self.expression(expr, place)?, Some(expr.clone())),
            SelectItem::Wildcard(_) => {
                let relations = place.scope.relations.borrow();
                for index in place.scope.all_columns() {
                    let is_of = |relation: &&ScopeRelation| (relation.offset..relation.offset + relation.columns.len()).contains(&index);
                    if let Some(relation) = relations.iter().find(is_of) {
                        one_column(relation, index - relation.offset, add);
                    }
                }
            }
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                let name = last(name)?;
                let relations = place.scope.relations.borrow();
                let relation = relations.iter().find(|relation| relation.alias == name).ok_or_else(|| unknown_relation(&name))?;
                for position in 0..relation.columns.len() {
                    one_column(relation, position, add);
                }
            }
            // `(row).*`
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::Expr(row), _) => {
                let (value, pg_type) = self.expression(row, place)?;
                let PgType::Record(fields) = pg_type else { return Err(BindError::NotHere) };
                for (position, (name, pg_type)) in fields.iter().enumerate() {
                    add(name.clone(), (Expression::Field(Box::new(value.clone()), position), pg_type.clone()), None);
                }
            }
            SelectItem::ExprWithAliases { .. } => return Err(BindError::NotHere),
        }
        Ok(())
    }

    fn group_keys(
        &self,
        group_by: &GroupByExpr,
        place: &Place<'_>,
        columns: &[(String, PgType)],
        trees: &[Option<Expr>],
        outputs: &[Expression],
    ) -> BindResult<Vec<Expression>> {
        let GroupByExpr::Expressions(keys, modifiers) = group_by else { return Err(BindError::NotHere) };
        if !modifiers.is_empty() {
            return Err(BindError::NotHere);
        }
        let plain = Place::plain(place.scope, place.with);
        let output = |position: usize| -> BindResult<Expression> {
            let tree = trees[position].as_ref().ok_or(BindError::NotHere)?;
            match self.expression(tree, &plain) {
                // A list, of which the SELECT makes rows.
                Err(BindError::NotHere) => Ok(outputs[position].clone()),
                bound => Ok(bound?.0),
            }
        };
        let key = |key: &Expr| -> BindResult<Expression> {
            if let Some(position) = ordinal(key, columns.len())? {
                return output(position);
            }
            let Expr::Identifier(name) = key else { return Ok(self.expression(key, &plain)?.0) };
            let name = folded(name);
            match place.scope.resolve(None, &name) {
                // A column goes before an output of the name, as in PostgreSQL.
                Err(BindError::Wrong(Error::Unresolved { .. })) => match columns.iter().position(|(known, _)| *known == name) {
                    Some(position) => output(position),
                    // A table, or nothing.
                    None => Ok(self.expression(key, &plain)?.0),
                },
                bound => Ok(bound?.0),
            }
        };
        keys.iter().map(key).collect()
    }

    /// Where the value that ORDER BY names is among the outputs; it is added if it is none of them.
    fn sort_position(
        &self,
        key: &Expr,
        place: &Place<'_>,
        columns: &[(String, PgType)],
        trees: &[Option<Expr>],
        outputs: &mut Vec<Expression>,
    ) -> BindResult<usize> {
        if let Some(position) = ordinal(key, columns.len())? {
            return Ok(position);
        }
        if let Expr::Identifier(name) = key {
            let name = folded(name);
            if let Some(position) = columns.iter().position(|(known, _)| *known == name) {
                return Ok(position);
            }
        }
        if let Some(position) = trees.iter().position(|tree| tree.as_ref() == Some(key)) {
            return Ok(position);
        }
        let bound = self.expression(key, place)?.0;
        if let Expression::Column { depth, index } = bound {
            let is_it = |output: &Expression| matches!(output, Expression::Column { depth: of, index: at } if *of == depth && *at == index);
            if let Some(position) = outputs.iter().position(is_it) {
                return Ok(position);
            }
        }
        outputs.push(bound);
        Ok(outputs.len() - 1)
    }

    /// Tables with commas between them are joined without a condition.
    fn from(&self, from: &[TableWithJoins], scope: &Scope<'_>, with: &With) -> BindResult<Option<Source>> {
        let mut joined: Option<Source> = None;
        for item in from {
            let next = self.joined(item, scope, with)?;
            joined = Some(match joined {
                None => next,
                Some(before) => join(JoinKind::Inner, before, next, vec![]),
            });
        }
        Ok(joined)
    }

    fn joined(&self, item: &TableWithJoins, scope: &Scope<'_>, with: &With) -> BindResult<Source> {
        let mut source = self.source(&item.relation, scope, with)?;
        for next in &item.joins {
            source = self.join(source, next, scope, with)?;
        }
        Ok(source)
    }

    fn join(&self, left: Source, next: &AstJoin, scope: &Scope<'_>, with: &With) -> BindResult<Source> {
        let (kind, constraint) = match &next.join_operator {
            JoinOperator::Join(constraint) | JoinOperator::Inner(constraint) | JoinOperator::CrossJoin(constraint) => {
                (JoinKind::Inner, constraint)
            }
            JoinOperator::Left(constraint) | JoinOperator::LeftOuter(constraint) => (JoinKind::Left, constraint),
            JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => (JoinKind::Right, constraint),
            JoinOperator::FullOuter(constraint) => (JoinKind::Full, constraint),
            _ => return Err(BindError::NotHere),
        };
        let right = self.source(&next.relation, scope, with)?;
        let columns = match constraint {
            JoinConstraint::On(_) | JoinConstraint::None => vec![],
            JoinConstraint::Using(names) if matches!(kind, JoinKind::Inner | JoinKind::Left) => {
                names.iter().map(|name| using(&last(name)?, &left, &right, scope)).collect::<BindResult<Vec<_>>>()?
            }
            JoinConstraint::Natural if matches!(kind, JoinKind::Inner | JoinKind::Left) => {
                let names = common_columns(&left, &right, scope);
                names.iter().map(|name| using(name, &left, &right, scope)).collect::<BindResult<Vec<_>>>()?
            }
            JoinConstraint::Using(_) | JoinConstraint::Natural => return Err(BindError::NotHere),
        };
        if !columns.is_empty() {
            let joined = columns.iter().map(|(of_left, _)| *of_left).collect();
            scope.using.borrow_mut().push((left.offset..right.offset + right.width, joined));
        }
        let conditions = match constraint {
            JoinConstraint::On(condition) => conjuncts(self.condition(condition, &Place::plain(scope, with))?),
            _ => columns.into_iter().map(equal_columns).collect(),
        };
        for relation in scope.relations.borrow_mut().iter_mut() {
            let offset = relation.offset;
            let is_in = |source: &Source| (source.offset..source.offset + source.width).contains(&offset);
            relation.is_optional |= matches!(kind, JoinKind::Left | JoinKind::Full) && is_in(&right);
            relation.is_optional |= matches!(kind, JoinKind::Right | JoinKind::Full) && is_in(&left);
        }
        Ok(join(kind, left, right, conditions))
    }

    /// One table, query or function of FROM; its names are in the scope then.
    fn source(&self, factor: &TableFactor, scope: &Scope<'_>, with: &With) -> BindResult<Source> {
        match factor {
            TableFactor::Table { name, alias, args: None, sample: None, .. } => self.table(name, alias.as_ref(), scope, with),
            TableFactor::Table { name, alias, args: Some(args), with_ordinality, .. } => {
                self.function(name, &args.args, *with_ordinality, alias.as_ref(), scope, with)
            }
            TableFactor::Function { name, args, with_ordinality, alias, .. } => {
                self.function(name, args, *with_ordinality, alias.as_ref(), scope, with)
            }
            TableFactor::UNNEST { alias, array_exprs, with_offset: false, with_ordinality, .. } => {
                let lists = array_exprs.iter().map(|list| self.expression(list, &Place::plain(scope, with))).collect::<BindResult<_>>()?;
                let (list, item) = self.unnest_call(lists)?;
                Ok(add_function("unnest", list, item, *with_ordinality, alias.as_ref(), scope))
            }
            TableFactor::Derived { lateral, subquery, alias, sample: None } => {
                let num_reads = scope.read_within.borrow().len();
                let plan = if *lateral {
                    self.query(subquery, Some(scope), with)?
                } else {
                    // It sees what is round the SELECT, and nothing of what is beside it.
                    let blank = Scope::within(scope.parent);
                    let plan = self.query(subquery, Some(&blank), with)?;
                    if blank.reads_outer.get() {
                        scope.reads_outer.set(true);
                    }
                    plan
                };
                let name = alias.as_ref().map(|alias| folded(&alias.name)).unwrap_or_default();
                let columns = plan.columns.clone();
                let reads = scope.read_within.borrow()[num_reads..].to_vec();
                Ok(add(
                    SourceKind::Query { plan: Arc::new(plan), is_lateral: *lateral, reads, num_outward: 0 },
                    name,
                    columns,
                    alias.as_ref(),
                    scope,
                ))
            }
            TableFactor::NestedJoin { table_with_joins, alias: None } => self.joined(table_with_joins, scope, with),
            _ => Err(BindError::NotHere),
        }
    }

    fn table(&self, name: &ObjectName, alias: Option<&TableAlias>, scope: &Scope<'_>, with: &With) -> BindResult<Source> {
        let parts = parts_of(name)?;
        let shown = alias.map_or_else(|| parts.last().cloned().unwrap_or_default(), |alias| folded(&alias.name));
        if let [only] = parts.as_slice()
            && let Some((_, query)) = with.iter().rev().find(|(known, _)| known == only)
        {
            return Ok(match query {
                WithQuery::Plan { plan, level } => {
                    if plan.is_correlated {
                        scope.note_outer(usize::MAX);
                    }
                    let num_outward = scope.level().saturating_sub(*level);
                    let kind = SourceKind::Query { plan: Arc::clone(plan), is_lateral: false, reads: vec![], num_outward };
                    add(kind, shown, plan.columns.clone(), alias, scope)
                }
                WithQuery::Working(number, columns) => {
                    // Its rows differ from one step to the next.
                    scope.note_outer(usize::MAX);
                    add(SourceKind::Working(*number), shown, columns.clone(), alias, scope)
                }
            });
        }
        let (schema, table) = match parts.as_slice() {
            [table] => (None, table),
            [schema, table] => (Some(schema.as_str()), table),
            [_, schema, table] => (Some(schema.as_str()), table),
            _ => return Err(BindError::NotHere),
        };
        let number = self.snapshot.class_named(Some(schema.unwrap_or(PG_CATALOG)), table);
        let table = self.snapshot.table(schema, table)?.ok_or(BindError::NotHere)?;
        let source = add(SourceKind::Rows(table.rows), shown, table.columns, alias, scope);
        if let Some(relation) = scope.relations.borrow_mut().last_mut() {
            relation.table_oid = number;
        }
        Ok(source)
    }

    fn function(
        &self,
        name: &ObjectName,
        arguments: &[FunctionArg],
        ordinality: bool,
        alias: Option<&TableAlias>,
        scope: &Scope<'_>,
        with: &With,
    ) -> BindResult<Source> {
        let function = last(name)?;
        let (list, item) = self.set_call(&function, arguments, &Place::plain(scope, with))?;
        Ok(add_function(&function, list, item, ordinality, alias, scope))
    }

    /// An expression that is true or not.
    fn condition(&self, condition: &Expr, place: &Place<'_>) -> BindResult<Expression> {
        let (bound, pg_type) = self.expression(condition, place)?;
        self.cast_if_unknown(bound, &pg_type, &PgType::One(Kind::Bool))
    }
}

fn conjuncts(condition: Expression) -> Vec<Expression> {
    match condition {
        Expression::And(operands) => operands.into_iter().flat_map(conjuncts).collect(),
        other => vec![other],
    }
}

fn join(kind: JoinKind, left: Source, right: Source, conditions: Vec<Expression>) -> Source {
    let (offset, width) = (left.offset, left.width + right.width);
    Source { offset, width, kind: SourceKind::Join { kind, left: Box::new(left), right: Box::new(right), conditions } }
}

/// Puts the columns of a source into the scope, behind those that are there.
fn add(kind: SourceKind, name: String, columns: Vec<(String, PgType)>, alias: Option<&TableAlias>, scope: &Scope<'_>) -> Source {
    let mut columns = columns;
    let given = alias.map(|alias| alias.columns.as_slice()).unwrap_or_default();
    columns.iter_mut().zip(given).for_each(|((name, _), given)| *name = folded(&given.name));
    let (offset, width) = (scope.width(), columns.len());
    scope.relations.borrow_mut().push(ScopeRelation { alias: name, columns, offset, table_oid: None, merged: vec![], is_optional: false });
    Source { offset, width, kind }
}

fn add_function(function: &str, list: Expression, item: PgType, ordinality: bool, alias: Option<&TableAlias>, scope: &Scope<'_>) -> Source {
    let name = alias.map_or_else(|| function.to_owned(), |alias| folded(&alias.name));
    let (mut columns, spread) = match item {
        PgType::Record(fields) => (fields.to_vec(), true),
        // The only column of a function goes by the name that the function has in FROM.
        item => (vec![(name.clone(), item)], false),
    };
    if ordinality {
        columns.push(("ordinality".to_owned(), PgType::One(Kind::Int8)));
    }
    add(SourceKind::Function { list, spread, ordinality }, name, columns, alias, scope)
}

fn one_column(relation: &ScopeRelation, position: usize, add: &mut impl FnMut(String, Typed, Option<Expr>)) {
    let (name, pg_type) = &relation.columns[position];
    let tree = Expr::CompoundIdentifier(vec![Ident::with_quote('"', relation.alias.clone()), Ident::with_quote('"', name.clone())]);
    add(name.clone(), (Expression::Column { depth: 0, index: relation.offset + position }, pg_type.clone()), Some(tree));
}

/// Names of columns that both sides of a NATURAL JOIN have.
fn common_columns(left: &Source, right: &Source, scope: &Scope<'_>) -> Vec<String> {
    let relations = scope.relations.borrow();
    let of_right = names_of(&relations, right);
    names_of(&relations, left).into_iter().filter(|name| of_right.contains(name)).map(str::to_owned).collect()
}

/// Of the columns that a source has by their names alone.
fn names_of<'r>(relations: &'r [ScopeRelation], source: &Source) -> Vec<&'r str> {
    let of_source = source.offset..source.offset + source.width;
    let mut names = Vec::new();
    for relation in relations.iter().filter(|relation| of_source.contains(&relation.offset)) {
        names.extend(relation.columns.iter().filter(|(name, _)| !relation.merged.contains(name)).map(|(name, _)| name.as_str()));
    }
    names
}

/// The columns of the name on both sides; without its table the name means the left one from now on.
fn using(name: &str, left: &Source, right: &Source, scope: &Scope<'_>) -> BindResult<(usize, usize)> {
    let mut relations = scope.relations.borrow_mut();
    let find = |relations: &[ScopeRelation], source: &Source| {
        let of_source = source.offset..source.offset + source.width;
        relations.iter().enumerate().find_map(|(number, relation)| {
            let is_here = of_source.contains(&relation.offset) && !relation.merged.iter().any(|merged| merged == name);
            let position = relation.columns.iter().position(|(known, _)| known == name).filter(|_| is_here)?;
            Some((number, relation.offset + position))
        })
    };
    let first = find(&relations, left).ok_or_else(|| unknown_column(name))?;
    let second = find(&relations, right).ok_or_else(|| unknown_column(name))?;
    relations[second.0].merged.push(name.to_owned());
    Ok((first.1, second.1))
}

fn equal_columns((left, right): (usize, usize)) -> Expression {
    let column = |index| Box::new(Expression::Column { depth: 0, index });
    Expression::Binary { operator: Binary::Equal, left: column(left), right: column(right) }
}

pub(super) fn parts_of(name: &ObjectName) -> BindResult<Vec<String>> {
    name.0.iter().map(|part| part.as_ident().map(folded).ok_or(BindError::NotHere)).collect()
}

/// The name without what is before its last dot.
pub(super) fn last(name: &ObjectName) -> BindResult<String> {
    parts_of(name)?.pop().ok_or(BindError::NotHere)
}

fn unknown_column(name: &str) -> BindError {
    BindError::Wrong(Error::Unresolved { kind: Unresolved::Column, message: format!("column {name} does not exist") })
}

fn unknown_relation(name: &str) -> BindError {
    BindError::Wrong(Error::Unresolved { kind: Unresolved::Table, message: format!("there is no table {name} in FROM") })
}
