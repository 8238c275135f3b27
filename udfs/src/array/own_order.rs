//! `array_agg` and `string_agg` that keep the order they are given. DataFusion computes one of two opposite orders as the reverse of the other, and forgets to
//! turn it round when groups are put together: `array_agg(x ORDER BY x), array_agg(x ORDER BY x DESC)` were the same array.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, GroupsAccumulator, ReversedUDAF, Signature};

/// The aggregate, which is never computed as the reverse of another.
#[must_use]
pub fn in_own_order(inner: &Arc<AggregateUDF>) -> AggregateUDF {
    AggregateUDF::new_from_impl(OwnOrder { inner: Arc::clone(inner) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OwnOrder {
    inner: Arc<AggregateUDF>,
}

impl AggregateUDFImpl for OwnOrder {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arg_types)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.inner.accumulator(args)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.inner.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        self.inner.create_groups_accumulator(args)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::NotSupported
    }

    /// Both sort what they hold unless it came in their order.
    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::SoftRequirement
    }

    fn with_beneficial_ordering(self: Arc<Self>, beneficial_ordering: bool) -> Result<Option<Arc<dyn AggregateUDFImpl>>> {
        let ordered = self.inner.as_ref().clone().with_beneficial_ordering(beneficial_ordering)?;
        Ok(Some(ordered.map_or(self, |inner| Arc::new(Self { inner: Arc::new(inner) }))))
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.inner.supports_null_handling_clause()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}
