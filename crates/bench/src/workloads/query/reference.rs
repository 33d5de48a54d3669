//! The reply, computed by a few lines of ordinary Rust. Every allocator's reply must equal it.

use super::json::{self, Series};
use super::points::{POINTS, Summary, add_points, aggregate};
use super::store::Store;
use super::{Answer, checksum};
use std::collections::HashMap;

/// Answers a context query without a view: group by group, in the order in which names first
/// appear.
pub fn answer(store: &Store, context: &str) -> Answer {
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut groups: Vec<(&str, u64, Summary, [f64; POINTS])> = Vec::new();
    let mut dimensions = 0;
    for dimension in store.of_context(context).flat_map(|chart| &chart.dimensions) {
        let place = *places.entry(&dimension.name).or_insert_with(|| {
            groups.push((&dimension.name, 0, Summary::EMPTY, [f64::NAN; POINTS]));
            groups.len() - 1
        });
        let mut points = [0.0; POINTS];
        let summary = aggregate(&dimension.values, &mut points);
        let (_, members, group_summary, sums) = &mut groups[place];
        *members += 1;
        group_summary.merge(summary);
        add_points(sums, &points);
        dimensions += 1;
    }
    let series = groups.iter().map(|(name, members, summary, points)| Series {
        name,
        dimensions: *members,
        summary: *summary,
        points,
    });
    let mut text = String::new();
    json::write(&mut text, context, dimensions, series).expect("a String takes any text");
    Answer { dimensions, series: groups.len() as u64, checksum: checksum(text.as_bytes()) }
}
