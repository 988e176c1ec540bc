//! Decimal digits, for dates and log lines on the hot path.

/// Writes `number` right-aligned into `into`, with leading zeros. Digits that don't fit are left out.
pub(crate) fn put(into: &mut [u8], number: impl Into<u32>) {
    let mut rest = number.into();
    for digit in into.iter_mut().rev() {
        *digit = b'0' + u8::try_from(rest % 10).unwrap_or_default();
        rest /= 10;
    }
}

/// Appends a number without leading zeros.
pub(crate) fn append(text: &mut String, number: u64) {
    let mut digits = [b'0'; 20];
    let (mut at, mut rest) = (digits.len(), number);
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(rest % 10).unwrap_or_default();
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    text.push_str(std::str::from_utf8(&digits[at..]).expect("digits are ASCII"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appended_numbers_are_as_std_writes_them() {
        for number in [0, 7, 10, 200, 4096, u64::from(u32::MAX), u64::MAX] {
            let mut text = "x".to_owned();
            append(&mut text, number);
            assert_eq!(text, format!("x{number}"));
        }
    }

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
