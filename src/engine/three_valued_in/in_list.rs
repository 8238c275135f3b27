//! Whether a value is among the rows of a subquery, which runs once and whose rows are kept as a list.

use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{Array, ArrayRef, BooleanArray, ListArray};
use arrow::datatypes::DataType;
use arrow::row::{RowConverter, SortField};
use datafusion::common::{Column, DFSchema, ScalarValue, exec_err, plan_datafusion_err};
use datafusion::error::Result;
use datafusion::functions_aggregate::expr_fn::array_agg;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::type_coercion::binary::comparison_coercion;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Subquery, Volatility,
};

use super::aggregated;

/// `in_list((SELECT array_agg(y) FROM (subquery)), x)`, with SQL's three values. The subquery must name no column of the outer query.
///
/// # Errors
/// Where values of the two types can not be compared.
pub(super) fn in_list(value: Expr, subquery: &Subquery, schema: &DFSchema) -> Result<Expr> {
    let rows = subquery.subquery.schema();
    let (relation, field) = rows.qualified_field(0);
    let (of_value, of_item) = (value.get_type(schema)?, field.data_type());
    let common = comparison_coercion(&of_value, of_item).ok_or_else(|| {
        plan_datafusion_err!("{of_value} can not be compared with {of_item}, the type of the subquery of IN; cast one of them")
    })?;
    let item = Expr::Column(Column::from((relation, field))).cast_to(&common, rows)?;
    let items = Expr::Column(Column::from_name("items"));
    let list = aggregated(subquery, [array_agg(item).alias("items")], items)?;
    let function = ScalarUDF::new_from_impl(InList::new());
    Ok(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(function), vec![list, value.cast_to(&common, schema)?])))
}

#[derive(Debug)]
struct InList {
    signature: Signature,
    /// The items of the list that was asked for last: a subquery gives all batches of its query the same one.
    known: Mutex<Option<(Arc<ListArray>, Arc<Items>)>>,
}

impl InList {
    fn new() -> Self {
        Self { signature: Signature::any(2, Volatility::Immutable), known: Mutex::new(None) }
    }

    fn items(&self, list: &Arc<ListArray>) -> Result<Arc<Items>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, items)) = known.as_ref()
            && Arc::ptr_eq(of, list)
        {
            return Ok(Arc::clone(items));
        }
        let items = Arc::new(Items::of(list)?);
        *known = Some((Arc::clone(list), Arc::clone(&items)));
        Ok(items)
    }
}

// What is kept of a list is no part of what the function is.
impl PartialEq for InList {
    fn eq(&self, other: &Self) -> bool {
        self.signature == other.signature
    }
}

impl Eq for InList {}

impl Hash for InList {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.signature.hash(state);
    }
}

impl ScalarUDFImpl for InList {
    fn name(&self) -> &str {
        "in_list"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [list, values] = args.args.as_slice() else { return exec_err!("in_list takes a list and a value") };
        // The subquery has one value for all rows, whether it comes as one or as a column.
        let list = match list {
            ColumnarValue::Scalar(list) => list.clone(),
            ColumnarValue::Array(lists) if lists.is_empty() => {
                return Ok(ColumnarValue::Array(Arc::new(BooleanArray::from(Vec::<bool>::new()))));
            }
            ColumnarValue::Array(lists) => ScalarValue::try_from_array(lists, 0)?,
        };
        let ScalarValue::List(list) = list else { return exec_err!("in_list takes a list") };
        let values = values.to_array(args.number_rows)?;
        Ok(ColumnarValue::Array(Arc::new(self.items(&list)?.have(&values)?)))
    }
}

/// The rows of a subquery.
#[derive(Debug)]
struct Items {
    converter: RowConverter,
    data_type: DataType,
    present: HashSet<Box<[u8]>>,
    has_nulls: bool,
}

impl Items {
    /// Of a list of one row, which is NULL where the subquery has no rows.
    fn of(list: &ListArray) -> Result<Self> {
        let items = if list.is_null(0) { list.values().slice(0, 0) } else { list.value(0) };
        let data_type = items.data_type().clone();
        let converter = RowConverter::new(vec![SortField::new(data_type.clone())])?;
        let rows = converter.convert_columns(&[Arc::clone(&items)])?;
        let present = (0..items.len()).filter(|row| items.is_valid(*row)).map(|row| Box::from(rows.row(row).data())).collect();
        let has_nulls = items.null_count() > 0;
        Ok(Self { converter, data_type, present, has_nulls })
    }

    fn have(&self, values: &ArrayRef) -> Result<BooleanArray> {
        let values =
            if *values.data_type() == self.data_type { Arc::clone(values) } else { arrow::compute::cast(values, &self.data_type)? };
        let rows = self.converter.convert_columns(&[Arc::clone(&values)])?;
        let has = |row: usize| match self.present.is_empty() && !self.has_nulls {
            true => Some(false),
            false if values.is_null(row) => None,
            false if self.present.contains(rows.row(row).data()) => Some(true),
            false if self.has_nulls => None,
            false => Some(false),
        };
        Ok((0..values.len()).map(has).collect())
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int32Array;
    use arrow::datatypes::Int32Type;

    use super::*;

    #[test]
    fn a_list_tells_true_false_and_null_apart() {
        let values: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), Some(5), None]));
        let of = |items: Option<Vec<Option<i32>>>| {
            let list = ListArray::from_iter_primitive::<Int32Type, _, _>([items]);
            let found = Items::of(&list).and_then(|items| items.have(&values)).expect("integers can be compared");
            found.iter().collect::<Vec<_>>()
        };
        assert_eq!(of(None), [Some(false); 3]);
        assert_eq!(of(Some(vec![])), [Some(false); 3]);
        assert_eq!(of(Some(vec![Some(1), Some(2)])), [Some(true), Some(false), None]);
        assert_eq!(of(Some(vec![Some(1), None])), [Some(true), None, None]);
        assert_eq!(of(Some(vec![None])), [None; 3]);
    }
}
