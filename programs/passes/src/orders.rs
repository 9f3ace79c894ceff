//! The orders for the organisers: passes for one meeting or two, in random order.

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

/// The meetings that get a pass in one transaction.
pub(crate) type Order = Vec<i64>;

/// Creates orders for `passes` passes of each meeting. `pairs` percent of the transactions are for two meetings.
pub(crate) fn orders(meetings: &[i64], passes: usize, pairs: u32, seed: u64) -> Vec<Order> {
    let mut chance = StdRng::seed_from_u64(seed);
    let mut wanted: Vec<i64> = meetings
        .iter()
        .flat_map(|&meeting| std::iter::repeat_n(meeting, passes))
        .collect();
    wanted.shuffle(&mut chance);
    let mut orders: Vec<Order> = Vec::new();
    let mut wanted = wanted.into_iter().peekable();
    while let Some(meeting) = wanted.next() {
        let mut order = vec![meeting];
        if chance.random_range(0..100) < pairs {
            order.extend(wanted.next_if(|&other| other != meeting));
        }
        orders.push(order);
    }
    orders
}

#[cfg(test)]
mod tests {
    use super::orders;

    #[test]
    fn every_meeting_gets_its_passes() {
        for pairs in [0, 50, 100] {
            let orders = orders(&[7, 8, 9], 40, pairs, 1);
            for meeting in [7, 8, 9] {
                let passes = orders.iter().flatten().filter(|&&other| other == meeting);
                assert_eq!(passes.count(), 40);
            }
            let double = orders.iter().filter(|order| order.len() == 2);
            assert_eq!(double.count() > 0, pairs > 0);
        }
    }
}
