//! "Did you mean": the nearest of the words that would have been right.

/// Longer words are not compared: a mistyped word is short.
const CHARACTERS_MAX: usize = 24;

/// `; did you mean X?` when some word is near enough, else nothing.
pub(super) fn suggestion<'w>(typed: &str, words: impl IntoIterator<Item = &'w str>) -> String {
    let typed: Vec<char> = typed.chars().take(CHARACTERS_MAX + 1).collect();
    if typed.len() > CHARACTERS_MAX {
        return String::new();
    }
    let near = typed.len().div_ceil(3).min(3);
    let best = words
        .into_iter()
        .map(|word| (distance(&typed, &word.chars().collect::<Vec<char>>()), word))
        .filter(|(distance, _)| *distance <= near)
        .min();
    best.map_or_else(String::new, |(_, word)| format!("; did you mean {word}?"))
}

/// Insertions, deletions, substitutions and swaps of neighbours that lead from one word to another
/// (optimal string alignment).
fn distance(left: &[char], right: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=right.len()).collect();
    for (row, from) in left.iter().enumerate() {
        let mut next = vec![row + 1];
        for (column, to) in right.iter().enumerate() {
            let change = last[column] + usize::from(from != to);
            let mut least = change.min(last[column + 1] + 1).min(next[column] + 1);
            let swapped =
                row > 0 && column > 0 && left[row - 1] == *to && right[column - 1] == *from;
            if swapped {
                least = least.min(before[column - 1] + 1);
            }
            next.push(least);
        }
        before = std::mem::replace(&mut last, next);
    }
    last[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_a_strange_word_is_not() {
        let words = ["MAXDEPTH", "MAXMSGL", "PUT", "GET"];
        assert_eq!(suggestion("MAXDEPHT", words), "; did you mean MAXDEPTH?");
        assert_eq!(suggestion("MAXDEPT", words), "; did you mean MAXDEPTH?");
        assert_eq!(suggestion("PTU", words), "; did you mean PUT?");
        assert_eq!(suggestion("FROBNICATE", words), "");
        assert_eq!(suggestion(&"X".repeat(10_000), words), "");
    }
}
