//! DISTINCT, UNION and VALUES of each value.

use std::sync::Arc;

use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::logical_expr::{Distinct, DistinctOn, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Union, Values};

use super::{Carried, Carrier, named};

impl Carrier<'_> {
    pub(super) fn distinct(&self, distinct: &Distinct) -> Result<Carried> {
        let plan = match distinct {
            Distinct::All(input) => LogicalPlanBuilder::from(self.narrow(input, input.schema())?).distinct()?.build()?,
            Distinct::On(DistinctOn { on_expr, select_expr, sort_expr, input, .. }) => {
                let carried = self.carried(input)?;
                let on = self.domain.columns().into_iter().chain(self.binds(on_expr)?).collect();
                let select = self.domain.columns().into_iter().chain(self.binds(select_expr)?).collect();
                let first = self.domain.columns().into_iter().map(|column| column.sort(true, false));
                let sort = sort_expr
                    .as_ref()
                    .map(|keys| Ok::<_, datafusion::error::DataFusionError>(first.chain(self.bind_keys(keys)?).collect()));
                let on = DistinctOn::try_new(on, select, sort.transpose()?, Arc::new(carried.plan))?;
                LogicalPlan::Distinct(Distinct::On(on))
            }
        };
        Ok(Carried { plan, order: Vec::new(), keys: Vec::new() })
    }

    pub(super) fn union(&self, union: &Union) -> Result<Carried> {
        let inputs = union.inputs.iter().map(|input| self.narrow(input, &union.schema).map(Arc::new)).collect::<Result<Vec<_>>>()?;
        self.united(inputs, &union.schema)
    }

    /// A union loses the relations of its columns.
    fn united(&self, inputs: Vec<Arc<LogicalPlan>>, schema: &DFSchema) -> Result<Carried> {
        let union = LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?);
        let given = union.schema().columns().into_iter().map(Expr::Column);
        let names = self.domain.hidden.iter().map(|column| (column.relation.as_ref(), column.name.as_str()));
        let names = names.chain(schema.iter().map(|(relation, field)| (relation, field.name().as_str())));
        let all: Vec<Expr> = given.zip(names).map(|(column, (relation, name))| named(column, relation, name)).collect();
        let plan = LogicalPlanBuilder::from(union).project(all)?.build()?;
        Ok(Carried { plan, order: Vec::new(), keys: Vec::new() })
    }

    /// The carried columns, and those of the plan under the names of `schema`, by their places.
    fn narrow(&self, plan: &LogicalPlan, schema: &DFSchema) -> Result<LogicalPlan> {
        let columns = plan.schema().columns().into_iter().map(Expr::Column).zip(schema.iter());
        let columns = columns.map(|(column, (relation, field))| named(column, relation, field.name()));
        let all: Vec<Expr> = self.domain.columns().into_iter().chain(columns).collect();
        LogicalPlanBuilder::from(self.carried(plan)?.plan).project(all)?.build()
    }

    /// A row of VALUES is a projection of the domain.
    pub(super) fn values(&self, values: &Values) -> Result<Carried> {
        let rows = values.values.iter().map(|row| {
            let columns = row.iter().zip(values.schema.iter()).map(|(value, (relation, field))| {
                let value = self.bind(value.clone())?.cast_to(field.data_type(), self.domain.plan.schema())?;
                Ok(named(value, relation, field.name()))
            });
            let columns = columns.collect::<Result<Vec<_>>>()?;
            let all: Vec<Expr> = self.domain.columns().into_iter().chain(columns).collect();
            LogicalPlanBuilder::from(self.domain.plan.clone()).project(all)?.build().map(Arc::new)
        });
        let mut rows = rows.collect::<Result<Vec<_>>>()?;
        if rows.len() > 1 {
            return self.united(rows, &values.schema);
        }
        Ok(Carried { plan: Arc::unwrap_or_clone(rows.swap_remove(0)), order: Vec::new(), keys: Vec::new() })
    }
}
