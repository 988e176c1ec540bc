//! Decimal digits of fixed width, for dates on the hot path.

/// Writes `number` right-aligned into `into`, with leading zeros. Digits that don't fit are left out.
pub(crate) fn put(into: &mut [u8], number: impl Into<u32>) {
    let mut rest = number.into();
    for digit in into.iter_mut().rev() {
        *digit = b'0' + u8::try_from(rest % 10).unwrap_or_default();
        rest /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_leading_zeros_and_keep_their_last_digits() {
        for (width, number, expected) in
            [(2, 7_u32, "07"), (4, 1994, "1994"), (4, 33, "0033"), (2, 123, "23"), (0, 1, "")]
        {
            let mut digits = vec![b'x'; width];
            put(&mut digits, number);
            assert_eq!(str::from_utf8(&digits), Ok(expected));
        }
    }
}
