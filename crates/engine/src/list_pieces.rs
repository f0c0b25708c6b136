//! Lists in pieces: who makes one lets go of the instance between two pieces.
//!
//! Not here: the rows (`towline_node`). Invariant: each row that was there all the time is in the
//! list once, in order.

use towline_types::limits;

/// Makes a list: `some` yields rows behind the last one, so many at most.
pub(crate) fn in_pieces<R>(
    mut some: impl FnMut(Option<&R>, usize) -> Vec<R>,
    mut each: impl FnMut(&R),
) {
    let most = limits::ADMIN_ROWS_AT_ONCE_MAX;
    let mut last = None;
    loop {
        let mut rows = some(last.as_ref(), most);
        rows.iter().for_each(&mut each);
        if rows.len() < most {
            return;
        }
        last = rows.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = limits::ADMIN_ROWS_AT_ONCE_MAX;

    /// How many rows each look yields of a list of so many.
    fn looks(rows: usize) -> Vec<usize> {
        let (mut looks, mut made) = (Vec::new(), Vec::new());
        let some = |last: Option<&usize>, most: usize| {
            let from = last.map_or(0, |last| last + 1);
            let some: Vec<usize> = (from..rows).take(most).collect();
            looks.push(some.len());
            some
        };
        in_pieces(some, |row| made.push(*row));
        assert!(made.into_iter().eq(0..rows), "each row once, in order");
        looks
    }

    #[test]
    fn a_list_is_made_in_pieces_of_so_many_rows_and_no_row_is_missing() {
        assert_eq!(looks(0), [0]);
        assert_eq!(looks(MOST - 1), [MOST - 1]);
        assert_eq!(looks(MOST), [MOST, 0]);
        assert_eq!(looks(2 * MOST + 1), [MOST, MOST, 1]);
    }
}
