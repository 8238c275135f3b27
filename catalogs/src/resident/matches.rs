//! The rows that met the last filters: a prepared search has the same filter each time.

use std::sync::{Mutex, PoisonError};

use datafusion::logical_expr::Expr;

use super::Bits;

/// Filters that are known at once.
const FILTERS_MAX: usize = 8;

/// Of one version of a table.
#[derive(Debug, Default)]
pub(super) struct Matches(Mutex<Vec<(Expr, Bits)>>);

impl Matches {
    /// The rows that meet `filter`, as they are known or as `find` finds them.
    ///
    /// # Errors
    /// Of `find`.
    pub(super) fn rows<E>(&self, filter: &Expr, find: impl FnOnce() -> Result<Bits, E>) -> Result<Bits, E> {
        if filter.is_volatile() {
            return find();
        }
        if let Some(rows) = self.known(filter) {
            return Ok(rows);
        }
        let rows = find()?;
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.truncate(FILTERS_MAX - 1);
        known.insert(0, (filter.clone(), rows.clone()));
        Ok(rows)
    }

    /// The filter used last comes first.
    fn known(&self, filter: &Expr) -> Option<Bits> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = known.iter().position(|(other, _)| other == filter)?;
        known[..=place].rotate_right(1);
        Some(known[0].1.clone())
    }
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{col, lit};

    use super::*;

    #[test]
    fn filters_are_known_until_others_have_come() {
        let matches = Matches::default();
        let filter = |number: i64| col("n").lt(lit(number));
        let found = |number: i64, num_rows: usize| {
            matches.rows(&filter(number), || Ok::<_, ()>(Bits::all(num_rows))).expect("nothing fails").count()
        };
        assert_eq!((found(0, 5), found(0, 6)), (5, 5), "it is known");
        for number in 1..FILTERS_MAX as i64 {
            assert_eq!((found(number, 7), found(0, 6)), (7, 5));
        }
        assert_eq!(found(-1, 8), 8, "the one that was used longest ago goes");
        assert_eq!((found(0, 6), found(1, 9)), (5, 9));
        assert_eq!(matches.rows(&filter(77), || Err("it failed")), Err("it failed"));
        assert_eq!(found(77, 3), 3, "what failed is not known");
    }
}
