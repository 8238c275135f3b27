//! `array_overlap`, which is `array && array`.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, ListArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field};
use arrow::row::{RowConverter, Rows, SortField};
use datafusion::common::DFSchema;
use datafusion::common::cast::as_list_array;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::type_coercion::binary::comparison_coercion;
use datafusion::logical_expr::{Expr, ExprSchemable};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use crate::Error;
use crate::array_constants::read_beside;
use crate::function::{Function, Interface, Kind, Parameter, Returns, type_name};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "array_overlap",
        section: "Text",
        description: "Whether two arrays have an item in common; NULL is none. `array && array` does the same. NULL for NULL.",
        parameters: &[
            Parameter { name: "array", kind: Kind::Any, description: "An array." },
            Parameter { name: "other", kind: Kind::Any, description: "An array of the same type." },
        ],
        required: 2,
        example: ("SELECT array_overlap(ARRAY[1, 2], ARRAY[2, 3])", "true"),
    },
    returns: Returns::Computed(|types, _| {
        item_type(&types[0], &types[1])?;
        Ok(DataType::Boolean)
    }),
    kernel: |arguments| {
        let (left, right) = (arguments.column(0)?, arguments.column(1)?);
        let Some(item) = item_type(left.array().data_type(), right.array().data_type())? else {
            return Ok(Arc::new(BooleanArray::from(vec![None::<bool>; arguments.num_rows()])) as ArrayRef);
        };
        let converter = RowConverter::new(vec![SortField::new(item.clone())])?;
        let (lefts, rights) = (Items::of(left.array(), &item, &converter)?, Items::of(right.array(), &item, &converter)?);
        let found = (0..arguments.num_rows()).map(|row| {
            let (left, right) = (if left.is_constant() { 0 } else { row }, if right.is_constant() { 0 } else { row });
            lefts.overlaps(left, &rights, right)
        });
        Ok(Arc::new(found.collect::<BooleanArray>()) as ArrayRef)
    },
};

/// The type in which items are compared. `None`: an argument is NULL.
///
/// # Errors
/// [`Error::NoOperator`] for what are not two arrays of types that compare.
fn item_type(left: &DataType, right: &DataType) -> Result<Option<DataType>, Error> {
    let item = |data_type: &DataType| match data_type {
        DataType::List(item) | DataType::LargeList(item) if !item.data_type().is_nested() => Some(item.data_type().clone()),
        _ => None,
    };
    match (item(left), item(right)) {
        _ if left.is_null() || right.is_null() => Ok(None),
        (Some(left), Some(right)) if left == right => Ok(Some(left)),
        (Some(found), Some(other)) if comparison_coercion(&found, &other).is_some() => Ok(comparison_coercion(&found, &other)),
        _ => {
            let hint = "it is for two arrays of one type and one dimension";
            Err(Error::NoOperator { operator: "&&", left: type_name(left), right: type_name(right), hint })
        }
    }
}

/// Arrays whose items are encoded so that equal ones are equal bytes.
struct Items {
    lists: ListArray,
    rows: Rows,
}

impl Items {
    fn of(array: &ArrayRef, item: &DataType, converter: &RowConverter) -> Result<Self> {
        let wanted = DataType::List(Arc::new(Field::new_list_field(item.clone(), true)));
        let lists = as_list_array(&cast(array, &wanted)?)?.clone();
        let rows = converter.convert_columns(&[Arc::clone(lists.values())])?;
        Ok(Self { lists, rows })
    }

    fn places(&self, row: usize) -> impl Iterator<Item = usize> + '_ {
        let offsets = self.lists.value_offsets();
        (offsets[row] as usize..offsets[row + 1] as usize).filter(|place| self.lists.values().is_valid(*place))
    }

    fn overlaps(&self, row: usize, others: &Self, other: usize) -> Option<bool> {
        if self.lists.is_null(row) || others.lists.is_null(other) {
            return None;
        }
        let known: HashSet<_> = self.places(row).map(|place| self.rows.row(place)).collect();
        Some(others.places(other).any(|place| known.contains(&others.rows.row(place))))
    }
}

/// Turns `array && array` into the call.
#[derive(Debug, Default)]
pub struct ArrayOverlapPlanner;

impl ExprPlanner for ArrayOverlapPlanner {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        if expr.op != BinaryOperator::PGOverlap {
            return Ok(PlannerResult::Original(expr));
        }
        let RawBinaryExpr { left, right, .. } = read_beside(expr, schema);
        item_type(&left.get_type(schema)?, &right.get_type(schema)?)?;
        let call = ScalarFunction::new_udf(Arc::new(FUNCTION.udf()), vec![left, right]);
        Ok(PlannerResult::Planned(Expr::ScalarFunction(call)))
    }
}
