//! Which threads run after each other.

use super::survey::Span;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Puts threads into lanes, so that those of a lane ran after each other, in as few lanes as there were threads at once. The
/// thread that began first is the first of lane 0.
pub fn lanes(spans: &[Option<Span>]) -> Vec<Vec<u32>> {
    let mut threads: Vec<(Span, u32)> =
        spans.iter().zip(0..).filter_map(|(span, thread)| Some(((*span)?, thread))).collect();
    threads.sort_by_key(|(span, thread)| (span.first, *thread));
    let mut lanes: Vec<Vec<u32>> = Vec::new();
    let mut free_from: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    for (span, thread) in threads {
        let lane = match free_from.peek() {
            Some(Reverse((last, lane))) if *last < span.first => {
                let lane = *lane;
                free_from.pop();
                lane
            }
            _ => {
                lanes.push(Vec::new());
                lanes.len() - 1
            }
        };
        lanes[lane].push(thread);
        free_from.push(Reverse((span.last, lane)));
    }
    lanes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_ran_after_each_other_share_a_lane() {
        let span = |first, last| Some(Span { first, last });
        let spans = [span(0, 100), span(1, 10), None, span(5, 20), span(11, 30), span(31, 40)];
        assert_eq!(lanes(&spans), [vec![0], vec![1, 4], vec![3, 5]]);
        assert!(lanes(&[]).is_empty());
    }
}
