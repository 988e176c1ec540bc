//! Few values of one request, without an allocation.

use std::ops::Deref;

/// Maximum number of values.
const VALUES_MAX: usize = 8;

/// One to eight values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Few<T> {
    values: [T; VALUES_MAX],
    count: usize,
}

impl<T: Copy> Few<T> {
    /// One value.
    pub(crate) fn one(value: T) -> Self {
        Self { values: [value; VALUES_MAX], count: 1 }
    }

    /// Adds a value.
    ///
    /// # Panics
    /// If there are eight values.
    pub(crate) fn push(&mut self, value: T) {
        self.values[self.count] = value;
        self.count += 1;
    }

    /// Results of a function for each value.
    pub(crate) fn map<U: Copy>(&self, result_of: impl Fn(T) -> U) -> Few<U> {
        let mut results = Few::one(result_of(self.values[0]));
        for value in &self[1..] {
            results.push(result_of(*value));
        }
        results
    }
}

impl<T> Deref for Few<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.values[..self.count]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_in_order() {
        let mut few = Few::one(7);
        assert_eq!(few[..], [7]);
        few.push(3);
        few.push(5);
        assert_eq!(few[..], [7, 3, 5]);
        assert_eq!(few.map(|value| value > 4)[..], [true, false, true]);
        (3..VALUES_MAX).for_each(|_| few.push(0));
        assert_eq!(few.len(), VALUES_MAX);
    }
}
