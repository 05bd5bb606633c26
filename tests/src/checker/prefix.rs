//! "The largest value among what came before a moment", answered by binary search.

use crate::history::Time;

/// Values at moments.
pub(super) struct MaxBefore(Vec<(Time, u64)>);

impl MaxBefore {
    pub(super) fn new(mut points: Vec<(Time, u64)>) -> Self {
        points.sort_unstable();
        let mut max = 0;
        for (_, value) in &mut points {
            max = max.max(*value);
            *value = max;
        }
        Self(points)
    }

    /// The largest value strictly before `moment`.
    pub(super) fn at(&self, moment: Time) -> Option<u64> {
        let n = self.0.partition_point(|&(t, _)| t < moment);
        n.checked_sub(1).map(|last| self.0[last].1)
    }
}
