//! Numbers in the width that their field has.
//!
//! Not here: numbers that come from outside; what does not fit there is an error.

use std::fmt;

/// A number in the width of its field, where a limit keeps it far below what the field holds.
///
/// # Panics
/// When it does not fit: another number in its stead would be believed.
pub fn fitting<F: Copy + fmt::Display, T: TryFrom<F>>(number: F) -> T {
    match T::try_from(number) {
        Ok(fits) => fits,
        Err(_) => unreachable!("{number} does not fit into its field"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_number_of_a_field_fits() {
        assert_eq!(fitting::<u64, u8>(255), u8::MAX);
    }

    #[test]
    #[should_panic(expected = "256 does not fit")]
    fn a_number_beyond_its_field_stops_the_instance() {
        let _: u8 = fitting(256_u64);
    }
}
