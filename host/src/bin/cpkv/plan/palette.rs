//! A colour for each rank.

/// Up to eight ranks: told apart on light and dark, and by most colour-blind readers.
const FEW: [&str; 8] =
    ["#4477aa", "#ee7733", "#228833", "#cc3377", "#66ccee", "#ccbb44", "#aa66cc", "#997755"];
/// Hues of neighbours lie this many degrees apart: the golden angle, which comes near no earlier hue for long.
const HUE_STEP: f64 = 137.508;

/// The colour of `rank` in a group of `group_size`, as CSS has it.
pub(super) fn colour(rank: u32, group_size: u32) -> String {
    if group_size as usize <= FEW.len() {
        return FEW[rank as usize % FEW.len()].to_owned();
    }
    let hue = f64::from(rank) * HUE_STEP % 360.0;
    let lightness = [46, 64, 34][rank as usize % 3];
    format!("hsl({hue:.0},55%,{lightness}%)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_ranks_of_a_group_have_one_colour() {
        for group_size in [1, 8, 9, 64] {
            let mut colours: Vec<_> = (0..group_size).map(|rank| colour(rank, group_size)).collect();
            colours.sort();
            colours.dedup();
            assert_eq!(colours.len(), group_size as usize);
        }
    }
}
