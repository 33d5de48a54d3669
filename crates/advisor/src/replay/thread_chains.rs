//! Which threads ran one after another.

use super::thread_scan::ThreadSpan;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Puts threads into chains: the threads of a chain ran one after another. There are as few chains
/// as threads ran at once. The thread that began first is the first one of chain 0.
pub fn chains(spans: &[Option<ThreadSpan>]) -> Vec<Vec<u32>> {
    let mut threads: Vec<(ThreadSpan, u32)> =
        spans.iter().zip(0..).filter_map(|(span, thread)| Some(((*span)?, thread))).collect();
    threads.sort_by_key(|(span, thread)| (span.first, *thread));
    let mut chains: Vec<Vec<u32>> = Vec::new();
    let mut free_from: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    for (span, thread) in threads {
        let chain = match free_from.peek() {
            Some(Reverse((last, chain))) if *last < span.first => {
                let chain = *chain;
                free_from.pop();
                chain
            }
            _ => {
                chains.push(Vec::new());
                chains.len() - 1
            }
        };
        chains[chain].push(thread);
        free_from.push(Reverse((span.last, chain)));
    }
    chains
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_ran_one_after_another_share_a_chain() {
        let span = |first, last| Some(ThreadSpan { first, last });
        let spans = [span(0, 100), span(1, 10), None, span(5, 20), span(11, 30), span(31, 40)];
        assert_eq!(chains(&spans), [vec![0], vec![1, 4], vec![3, 5]]);
        assert!(chains(&[]).is_empty());
    }
}
