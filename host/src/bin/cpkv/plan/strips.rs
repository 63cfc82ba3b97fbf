//! Pages as strips of text: one character a page, the rank's digit.

use super::view::{PlanView, RequestView};

/// Ranks as single characters: 64 of them.
const DIGITS: &[u8; 64] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+/";
/// Pages between two spaces.
const GROUP: usize = 8;
/// Pages of a line.
const LINE: usize = 64;
/// Dense slots of a batch that is shown whole; of a larger one, each request's first [`LINE`].
const MAX_SLOTS: u32 = 1024;

/// The lines of every request: owners of its prefix pages, writers and owners of its current pages.
pub(super) fn strips(view: &PlanView) -> Vec<String> {
    let whole = view.dense_slots <= MAX_SLOTS;
    let requests = view.requests.iter().enumerate();
    requests.flat_map(|(idx, request)| of_request(idx, request, whole)).collect()
}

fn of_request(idx: usize, request: &RequestView, whole: bool) -> Vec<String> {
    let (prefix, current) = request.pages.split_at(request.prefix_pages as usize);
    let owners = |pages: &[super::view::PageView]| pages.iter().map(|page| page.owner).collect::<Vec<_>>();
    let writers: Vec<u32> = current.iter().filter_map(|page| page.writer).collect();
    let rows = [
        ("prefix   owner ", owners(prefix)),
        ("current  writer", writers),
        ("         owner ", owners(current)),
    ];
    let mut lines = Vec::new();
    for (what, ranks) in rows.iter().filter(|(_, ranks)| !ranks.is_empty()) {
        for (nth, chunk) in ranks.chunks(LINE).enumerate() {
            if nth > 0 && !whole {
                lines.push(format!("{:21} ... {} more", "", ranks.len() - LINE));
                break;
            }
            let number = if lines.is_empty() { format!("#{idx}") } else { String::new() };
            let what = if nth == 0 { what } else { "" };
            lines.push(format!("{number:>4} {what:15}  {}", strip(chunk)));
        }
    }
    lines
}

fn strip(ranks: &[u32]) -> String {
    let groups = ranks.chunks(GROUP).map(|group| group.iter().map(|&rank| digit(rank)).collect::<String>());
    groups.collect::<Vec<_>>().join(" ")
}

/// The character of a rank.
fn digit(rank: u32) -> char {
    DIGITS.get(rank as usize).map_or('?', |&digit| char::from(digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_has_a_character_of_its_own() {
        let mut digits: Vec<_> = (0..64).map(digit).collect();
        digits.sort_unstable();
        digits.dedup();
        assert_eq!(digits.len(), 64);
        assert!(!digits.contains(&'?'));
    }

    #[test]
    fn strips_are_grouped_by_eight() {
        assert_eq!(strip(&[0, 1, 2, 3, 4, 5, 6, 7, 10, 63]), "01234567 a/");
        assert_eq!(strip(&[]), "");
    }
}
