//! The summaries of the orders that were confirmed last.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A cache that keeps one block of each request: the last `capacity` summaries.
///
/// A summary outlives the pool in which its request allocated it, and is freed by the request that
/// drops it from the cache, on any thread.
#[derive(Debug)]
pub struct Recent {
    capacity: usize,
    orders: Mutex<Orders>,
}

#[derive(Debug, Default)]
struct Orders {
    summaries: HashMap<u64, Box<str>>,
    /// The numbers of the orders, oldest first.
    numbers: VecDeque<u64>,
}

impl Recent {
    /// Makes a cache of this many summaries.
    pub fn new(capacity: usize) -> Self {
        // The tables never grow, so they lie where the cache was made, and not in the pool of a
        // request. A map with twice as many places as entries reuses those of removed entries.
        let places = capacity + 1;
        let orders = Orders {
            summaries: HashMap::with_capacity(2 * places),
            numbers: VecDeque::with_capacity(places),
        };
        Self { capacity, orders: Mutex::new(orders) }
    }

    fn lock(&self) -> MutexGuard<'_, Orders> {
        // No call leaves the tables half changed, so a panic of another thread does no harm.
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a summary, and drops the oldest one if there are more than the capacity.
    pub fn keep(&self, number: u64, summary: Box<str>) {
        let mut orders = self.lock();
        let replaced = orders.summaries.insert(number, summary);
        if replaced.is_none() {
            orders.numbers.push_back(number);
        }
        let oldest = if orders.numbers.len() > self.capacity {
            orders.numbers.pop_front().and_then(|oldest| orders.summaries.remove(&oldest))
        } else {
            None
        };
        // Freed without the lock.
        drop(orders);
        drop((replaced, oldest));
    }

    /// Returns a copy of a summary, if it is there.
    pub fn get(&self, number: u64) -> Option<String> {
        self.lock().summaries.get(&number).map(|summary| summary.as_ref().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_summaries_are_kept_and_the_tables_do_not_grow() {
        let recent = Recent::new(10);
        let capacities = || {
            let orders = recent.lock();
            (orders.summaries.capacity(), orders.numbers.capacity())
        };
        let before = capacities();
        for number in 0..1000 {
            recent.keep(number, number.to_string().into());
        }
        assert_eq!(recent.get(989), None);
        assert!((990..1000).all(|number| recent.get(number) == Some(number.to_string())));
        assert_eq!(capacities(), before);
    }

    #[test]
    fn an_order_that_comes_again_has_one_summary() {
        let recent = Recent::new(2);
        for text in ["first", "second", "third"] {
            recent.keep(7, text.into());
        }
        recent.keep(8, "another".into());
        assert_eq!(
            (recent.get(7).as_deref(), recent.get(8).as_deref()),
            (Some("third"), Some("another"))
        );
    }

    #[test]
    fn a_cache_of_none_keeps_none() {
        let recent = Recent::new(0);
        recent.keep(7, "a summary".into());
        assert_eq!(recent.get(7), None);
    }
}
