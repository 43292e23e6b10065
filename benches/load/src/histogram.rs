//! Latencies in bounded memory: a log-linear histogram with under 1 % error.

/// Values below this are counted exactly; each doubling above it has half as many buckets.
const EXACT: u64 = 256;

/// The buckets of one doubling.
const PER_DOUBLING: usize = 128;

/// The doublings between `EXACT` and the whole of `u64`.
const DOUBLINGS: usize = 56;

/// Counts of values, by magnitude.
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Histogram {
    pub(crate) fn new() -> Self {
        Self { counts: vec![0; EXACT as usize + DOUBLINGS * PER_DOUBLING], total: 0 }
    }

    pub(crate) fn record(&mut self, value: u64) {
        self.counts[bucket(value)] += 1;
        self.total += 1;
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// The value that `share` (0 to 1) of the recorded values do not exceed; 0 if there are none.
    pub(crate) fn quantile(&self, share: f64) -> u64 {
        let rank = ((self.total as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return middle(index);
            }
        }
        0
    }
}

/// The bucket of a value: itself when small, else its doubling and its seven leading bits.
fn bucket(value: u64) -> usize {
    if value < EXACT {
        return value as usize;
    }
    let doubling = (value.ilog2() - EXACT.ilog2()) as usize;
    let leading = (value >> (doubling + 1)) as usize - PER_DOUBLING;
    EXACT as usize + doubling * PER_DOUBLING + leading
}

/// The middle of the values that fall into a bucket.
fn middle(index: usize) -> u64 {
    if index < EXACT as usize {
        return index as u64;
    }
    let doubling = (index - EXACT as usize) / PER_DOUBLING;
    let leading = (index - EXACT as usize) % PER_DOUBLING + PER_DOUBLING;
    let width = 1u64 << (doubling + 1);
    leading as u64 * width + width / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lands_near_the_middle_of_its_bucket() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1u64 << shift) | (1u64 << shift >> 1), u64::MAX >> shift]
            {
                let near = middle(bucket(value));
                assert!(near.abs_diff(value) as f64 <= value as f64 * 0.01, "{value} -> {near}");
            }
        }
    }

    #[test]
    fn buckets_follow_the_order_of_values() {
        let mut last = 0;
        for value in 0..100_000 {
            let index = bucket(value);
            assert!(index == last || index == last + 1, "{value}");
            last = index;
        }
        assert_eq!(bucket(u64::MAX), EXACT as usize + DOUBLINGS * PER_DOUBLING - 1);
    }

    #[test]
    fn quantiles_of_a_ramp() {
        let mut histogram = Histogram::new();
        assert_eq!(histogram.quantile(0.5), 0);
        (1..=100).for_each(|value| histogram.record(value));
        assert_eq!(histogram.total(), 100);
        assert_eq!(histogram.quantile(0.5), 50);
        assert_eq!(histogram.quantile(0.99), 99);
        assert_eq!(histogram.quantile(1.0), 100);
    }
}
