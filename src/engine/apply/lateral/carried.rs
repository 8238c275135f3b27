//! A part of a subquery after LATERAL, with the rows before LATERAL beside it.

use std::collections::HashSet;
use std::fmt::Display;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Column, TableReference};
use datafusion::error::Result;
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::{Expr, ExprFunctionExt, LogicalPlan, LogicalPlanBuilder, SortExpr, lit, when};

/// The names of what is carried: columns of one relation, which bear its name in their own too, for columns of the subquery may have no relation.
#[derive(Debug, Clone)]
pub struct Hidden {
    relation: String,
}

impl Hidden {
    /// Names that are not in `plan`, which may hold what was carried in a subquery within it.
    pub fn not_in(plan: &LogicalPlan) -> Result<Self> {
        let mut taken = HashSet::new();
        plan.apply_with_subqueries(|node| {
            taken.extend(node.schema().iter().filter_map(|(relation, _)| relation.map(|relation| relation.table().to_owned())));
            Ok(TreeNodeRecursion::Continue)
        })?;
        let mut names = std::iter::once("__before".to_owned()).chain((1..).map(|number| format!("__before_{number}")));
        Ok(Self { relation: names.find(|name| !taken.contains(name)).unwrap_or_default() })
    }

    pub fn column(&self, name: impl Display) -> Column {
        Column::new(Some(self.relation.as_str()), format!("{}_{name}", self.relation))
    }

    /// The number of the row before LATERAL.
    pub fn row(&self) -> Column {
        self.column("row")
    }

    /// In an outer join, whether it is a row of the subquery; every row before has one that is not.
    pub fn found(&self) -> Column {
        self.column("found")
    }
}

/// A plan whose columns are those of the subquery, and hidden ones.
#[derive(Debug, Clone)]
pub struct Carried {
    pub plan: LogicalPlan,
    pub names: Hidden,
    /// Those of `hidden` that are columns of the rows before.
    pub before: Vec<Column>,
    /// What every node hands on.
    pub hidden: Vec<Column>,
    /// The order of the last ORDER BY, over hidden columns.
    pub order: Vec<SortExpr>,
    /// In which order functions gave their rows: hidden columns.
    pub places: Vec<Column>,
}

/// The name of a column in `relation`.
pub fn named(expression: Expr, relation: Option<&TableReference>, name: &str) -> Expr {
    match &expression {
        Expr::Column(column) if column.relation.as_ref() == relation && column.name == name => expression,
        _ => expression.alias_qualified(relation.cloned(), name),
    }
}

/// A hidden column with that value.
pub fn hide(expression: Expr, column: &Column) -> Expr {
    expression.alias_qualified(column.relation.clone(), column.name.clone())
}

impl Carried {
    /// Columns as they are.
    fn columns(&self) -> Vec<Expr> {
        self.plan.schema().columns().into_iter().map(Expr::Column).collect()
    }

    /// The subquery's columns are now these; hidden ones stay.
    pub fn select<'a>(self, selected: impl IntoIterator<Item = (Expr, (Option<&'a TableReference>, &'a FieldRef))>) -> Result<Self> {
        let selected = selected.into_iter().map(|(expression, (relation, field))| named(expression, relation, field.name()));
        let all: Vec<Expr> = self.hidden.iter().cloned().map(Expr::Column).chain(selected).collect();
        let plan = LogicalPlanBuilder::from(self.plan).project(all)?.build()?;
        Ok(Self { plan, ..self })
    }

    pub fn filter(self, condition: Expr) -> Result<Self> {
        let plan = LogicalPlanBuilder::from(self.plan).filter(condition)?.build()?;
        Ok(Self { plan, ..self })
    }

    /// In an outer join: only rows that meet the condition are still rows of the subquery.
    pub fn found_if(self, condition: Expr) -> Result<Self> {
        let found = self.names.found();
        let is_found = when(Expr::Column(found.clone()), condition.is_true()).otherwise(lit(false))?;
        let others = self.columns().into_iter().filter(|column| *column != Expr::Column(found.clone()));
        let all: Vec<Expr> = others.chain([hide(is_found, &found)]).collect();
        let plan = LogicalPlanBuilder::from(self.plan).project(all)?.build()?;
        Ok(Self { plan, ..self })
    }

    /// Remembers an order for [`Self::rank`].
    pub fn sort(mut self, keys: Vec<SortExpr>) -> Result<Self> {
        let mut all = self.columns();
        self.order.clear();
        for key in keys {
            let column = self.names.column(format!("key_{}", self.hidden.len()));
            all.push(hide(key.expr, &column));
            self.order.push(SortExpr { expr: Expr::Column(column.clone()), asc: key.asc, nulls_first: key.nulls_first });
            self.hidden.push(column);
        }
        self.plan = LogicalPlanBuilder::from(self.plan).project(all)?.build()?;
        Ok(self)
    }

    /// Keeps what `choose` says of the place, from 1, that a row has among those of its row before, in the order that was last asked for; equal ones, and
    /// all without an order, as the functions gave them.
    pub fn rank(self, first: Option<Expr>, choose: impl FnOnce(Self, Expr) -> Result<Self>) -> Result<Self> {
        let all = self.columns();
        let places = self.places.iter().cloned().map(|place| Expr::Column(place).sort(true, false));
        let order = first.map(|first| first.sort(false, false)).into_iter().chain(self.order.clone()).chain(places);
        let rank = row_number().partition_by(self.partition()).order_by(order.collect()).build()?;
        let plan = LogicalPlanBuilder::from(self.plan).window([rank])?.build()?;
        let rank = Column::from(plan.schema().qualified_field(plan.schema().fields().len() - 1));
        let chosen = choose(Self { plan, ..self }, Expr::Column(rank))?;
        let plan = LogicalPlanBuilder::from(chosen.plan).project(all)?.build()?;
        Ok(Self { plan, ..chosen })
    }

    /// The row before; and columns of it that say no more, but let conditions on them pass below, and so before the search.
    fn partition(&self) -> Vec<Expr> {
        let schema = self.plan.schema();
        let data_type = |column: &Column| schema.maybe_index_of_column(column).map(|position| schema.field(position).data_type());
        let is_plain = |column: &Column| {
            data_type(column).is_some_and(|found| {
                found.is_integer() || matches!(found, DataType::Utf8 | DataType::Boolean | DataType::Date32 | DataType::Timestamp(..))
            })
        };
        let before = self.before.iter().filter(|column| is_plain(column)).cloned();
        std::iter::once(self.names.row()).chain(before).map(Expr::Column).collect()
    }
}
