//! Bytes that gathers read, by the rank they are read from, and the time that must take.

use std::time::Duration;

use serde::Serialize;

use crate::plan::{PageSources, skew};

/// Bytes that this rank's gathers read from each rank's memory, its own included: counted as layers are queued. Every
/// rank reads the same, so what rank `r` sends is `R - 1` times as much.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Gathered {
    /// `[group_size]` bytes of prefix pages, by owner.
    pub prefix_bytes: Vec<u64>,
    /// `[group_size]` bytes of current pages, by writer.
    pub current_bytes: Vec<u64>,
}

impl Gathered {
    /// Nothing yet, of `num_ranks` ranks.
    pub fn nothing(num_ranks: usize) -> Self {
        Self { prefix_bytes: vec![0; num_ranks], current_bytes: vec![0; num_ranks] }
    }

    /// Adds gathers whose pages have `page_bytes` bytes over all buffers.
    pub fn add(&mut self, sources: &PageSources, page_bytes: u64) {
        let parts = [(&mut self.prefix_bytes, &sources.prefix), (&mut self.current_bytes, &sources.current)];
        for (bytes, pages) in parts {
            bytes.iter_mut().zip(pages).for_each(|(bytes, pages)| *bytes += pages * page_bytes);
        }
    }

    /// `[group_size]` bytes that all peers together read from each rank.
    pub fn egress_bytes(&self) -> Vec<u64> {
        let num_peers = (self.prefix_bytes.len() as u64).saturating_sub(1);
        let parts = self.prefix_bytes.iter().zip(&self.current_bytes);
        parts.map(|(prefix, current)| num_peers * (prefix + current)).collect()
    }

    /// How uneven the ranks' egress is: the busiest over the mean.
    pub fn egress_skew(&self) -> f64 {
        skew(&self.egress_bytes())
    }

    /// The least time the gathers can take over links of `link_bytes_per_s` in each direction, one a rank: that of the
    /// busiest rank, `max over r of egress_bytes[r] / link_bytes_per_s`. With balanced ranks and `B` bytes of dense
    /// buffers that is `(R - 1) / R x B / link_bytes_per_s`. `None` where the rate is no rate.
    pub fn lower_bound(&self, link_bytes_per_s: f64) -> Option<Duration> {
        let busiest = self.egress_bytes().into_iter().max().unwrap_or(0);
        if busiest == 0 {
            return (link_bytes_per_s > 0.0).then_some(Duration::ZERO);
        }
        Duration::try_from_secs_f64(busiest as f64 / link_bytes_per_s).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two layers of 1000 and 500 bytes a page over four ranks.
    fn gathered(prefix: &[u64], current: &[u64]) -> Gathered {
        let sources = PageSources { prefix: prefix.to_vec(), current: current.to_vec() };
        let mut gathered = Gathered::nothing(prefix.len());
        gathered.add(&sources, 1000);
        gathered.add(&sources, 500);
        gathered
    }

    #[test]
    fn bytes_add_up_over_layers_and_peers() {
        let gathered = gathered(&[2, 0, 1, 1], &[1, 1, 1, 1]);
        assert_eq!(gathered.prefix_bytes, [3000, 0, 1500, 1500]);
        assert_eq!(gathered.current_bytes, [1500; 4]);
        assert_eq!(gathered.egress_bytes(), [13_500, 4500, 9000, 9000]);
        assert_eq!(gathered.egress_skew(), 1.5);
    }

    #[test]
    fn the_lower_bound_is_the_busiest_ranks_bytes_over_the_rate() {
        let busiest = gathered(&[2, 0, 1, 1], &[1, 1, 1, 1]);
        assert_eq!(busiest.lower_bound(1e6), Some(Duration::from_micros(13_500)));
        // 8 balanced ranks and 64 pages of 1500 bytes: 7/8 of the dense buffer.
        let balanced = gathered(&[8; 8], &[0; 8]);
        assert_eq!(balanced.lower_bound(64.0 * 1500.0), Some(Duration::from_millis(875)));
        // All on one rank: 8 times as long.
        let one = gathered(&[0, 0, 64, 0, 0, 0, 0, 0], &[0; 8]);
        assert_eq!((one.lower_bound(64.0 * 1500.0), one.egress_skew()), (Some(Duration::from_secs(7)), 8.0));
    }

    #[test]
    fn no_rate_gives_no_bound_and_nothing_to_send_takes_no_time() {
        let some = gathered(&[1, 1], &[0, 0]);
        for rate in [0.0, -1.0, f64::NAN] {
            assert_eq!(some.lower_bound(rate), None, "{rate}");
            assert_eq!(Gathered::nothing(2).lower_bound(rate), None, "{rate}");
        }
        assert_eq!(Gathered::nothing(2).lower_bound(1.0), Some(Duration::ZERO));
        // One rank has no peer.
        assert_eq!(gathered(&[5], &[5]).lower_bound(1.0), Some(Duration::ZERO));
    }
}
