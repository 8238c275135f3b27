//! What calls of models cost: nothing, so much, or nobody knows how much.

use std::iter::Sum;
use std::ops::{Add, AddAssign};

use serde::{Deserialize, Serialize};

/// The price of one call or of many. Written down as a number or null.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Option<f64>", into = "Option<f64>")]
pub enum Price {
    /// No model that was asked has a price.
    #[default]
    None,
    /// What servers take for the tokens that they counted.
    Known(f64),
    /// A model that has a price was asked, and its server did not say how many tokens it took.
    Unknown,
}

impl Price {
    /// As rows show it: None where there is no price, and where it is unknown.
    pub fn known(self) -> Option<f64> {
        match self {
            Self::Known(price) => Some(price),
            Self::None | Self::Unknown => None,
        }
    }
}

impl From<Option<f64>> for Price {
    fn from(price: Option<f64>) -> Self {
        price.map_or(Self::None, Self::Known)
    }
}

impl From<Price> for Option<f64> {
    fn from(price: Price) -> Self {
        price.known()
    }
}

impl Add for Price {
    type Output = Self;

    /// A sum of which a part is unknown is unknown.
    fn add(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            (Self::None, price) | (price, Self::None) => price,
            (Self::Known(one), Self::Known(other)) => Self::Known(one + other),
        }
    }
}

impl AddAssign for Price {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for Price {
    fn sum<I: Iterator<Item = Self>>(prices: I) -> Self {
        prices.fold(Self::None, Self::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_with_an_unknown_part_is_unknown() {
        let sum = |prices: &[Price]| prices.iter().copied().sum::<Price>();
        assert_eq!(sum(&[]), Price::None);
        assert_eq!(sum(&[Price::None, Price::Known(0.5), Price::Known(0.25)]), Price::Known(0.75));
        assert_eq!(sum(&[Price::Known(0.5), Price::Unknown, Price::None]), Price::Unknown);
        assert_eq!([Price::None, Price::Unknown, Price::Known(0.0)].map(Price::known), [None, None, Some(0.0)]);
    }
}
