//! The orders that the driver sends, and the confirmations that they must get.
//!
//! Both are written from the same numbers, without `serde_json` and `regex`: the service's code has
//! no part in what is expected of it.

use std::io::Write;

/// Words of the messages, in alphabetical order. Those of a mail address are among them.
const WORDS: [&str; 12] = [
    "alpha", "beta", "com", "delta", "example", "gamma", "iota", "kappa", "lambda", "omega",
    "theta", "zeta",
];
/// The positions of the words `com` and `example`.
const MAIL_WORDS: [usize; 2] = [2, 4];
/// A mail address follows each word whose position in the message is a multiple of this.
const MAIL_EVERY: usize = 9;

/// An order. Its number determines all of it.
#[derive(Debug, Clone, Copy)]
pub struct SampleOrder {
    id: u64,
    words: usize,
    items: usize,
    note: usize,
}

/// How a part of the message is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Sent,
    Confirmed,
}

/// Writes to memory, which can't fail.
macro_rules! put {
    ($out:expr, $($text:tt)*) => {
        drop(write!($out, $($text)*))
    };
}

impl SampleOrder {
    /// Returns an order of the usual size: about 1,000 to 3,000 bytes.
    pub fn usual(id: u64) -> Self {
        Self {
            id,
            words: 10 + (id % 60) as usize,
            items: 3 + (id % 10) as usize,
            note: (id % 50) as usize,
        }
    }

    /// Returns a small order, which costs the service little. Its message is long enough for a
    /// summary of full length.
    pub fn small(id: u64) -> Self {
        Self { id, words: 10, items: 0, note: 0 }
    }

    /// Returns an order with a message of this many words.
    pub fn with_words(id: u64, words: usize) -> Self {
        Self { words, ..Self::usual(id) }
    }

    /// Returns its number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the position in [`WORDS`] of a word of the message.
    fn word(&self, position: usize) -> usize {
        (self.id as usize).wrapping_mul(7).wrapping_add(position * 5) % WORDS.len()
    }

    fn put_message(&self, form: Form, out: &mut Vec<u8>) {
        for position in 0..self.words {
            let word = WORDS[self.word(position)];
            // Some words begin with a capital letter: the service counts them as the same.
            if position % 4 == 1 {
                out.push(word.as_bytes()[0].to_ascii_uppercase());
                out.extend_from_slice(&word.as_bytes()[1..]);
            } else {
                out.extend_from_slice(word.as_bytes());
            }
            if position % MAIL_EVERY == 0 {
                match form {
                    Form::Sent => put!(out, " User{position}@Example.com"),
                    Form::Confirmed => out.extend_from_slice(b" <mail>"),
                }
            }
            // A line break in JSON, which the service has to convert, both ways.
            out.extend_from_slice(if position % 8 == 7 { b"\\n" } else { b" " });
        }
    }

    fn cents(&self, item: usize) -> u64 {
        self.id % 1000 + 10 * item as u64
    }

    fn put_note(&self, out: &mut Vec<u8>) {
        out.resize(out.len() + self.note, b'z');
    }

    /// Appends the order as JSON.
    pub fn put_order(&self, out: &mut Vec<u8>) {
        put!(out, "{{\"id\":{},\"message\":\"", self.id);
        self.put_message(Form::Sent, out);
        out.extend_from_slice(b"\",\"items\":[");
        for item in 0..self.items {
            if item > 0 {
                out.push(b',');
            }
            let cents = self.cents(item);
            put!(
                out,
                "{{\"name\":\"item {item}\",\"cents\":{cents},\"tags\":[\"a\",\"b{item}\"],\"note\":\""
            );
            self.put_note(out);
            out.extend_from_slice(b"\"}");
        }
        out.extend_from_slice(b"]}");
    }

    /// Appends the confirmation that the service must reply with.
    pub fn put_confirmation(&self, out: &mut Vec<u8>) {
        let mut used = [false; WORDS.len()];
        (0..self.words).for_each(|position| used[self.word(position)] = true);
        if self.words > 0 {
            MAIL_WORDS.iter().for_each(|word| used[*word] = true);
        }
        match used.iter().position(|used| *used) {
            Some(first) => put!(out, "{{\"first\":\"{}\"", WORDS[first]),
            None => put!(out, "{{\"first\":null"),
        }
        put!(out, ",\"id\":{},\"items\":[", self.id);
        for item in 0..self.items {
            if item > 0 {
                out.push(b',');
            }
            let cents = self.cents(item);
            put!(
                out,
                "{{\"cents\":{cents},\"gross\":{},\"label\":\"item {item} of {}\",\"name\":\"item {item}\",\"note\":\"",
                cents * 120 / 100,
                self.id
            );
            self.put_note(out);
            put!(out, "\",\"tags\":[\"a\",\"b{item}\"]}}");
        }
        out.extend_from_slice(b"],\"message\":\"");
        self.put_message(Form::Confirmed, out);
        put!(out, "\",\"words\":{}}}", used.iter().filter(|used| **used).count());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::shop::Shop;

    #[test]
    fn the_service_confirms_what_is_expected() {
        let shop = Shop::new(10).unwrap();
        let orders = (0..300).map(SampleOrder::usual).chain((0..30).map(SampleOrder::small));
        for order in
            orders.chain([SampleOrder::with_words(7, 0), SampleOrder::with_words(8, 10_000)])
        {
            let (mut sent, mut expected) = (Vec::new(), Vec::new());
            order.put_order(&mut sent);
            order.put_confirmation(&mut expected);
            let confirmed = shop.confirm(&sent).unwrap();
            assert_eq!(String::from_utf8(confirmed).unwrap(), String::from_utf8(expected).unwrap());
        }
    }

    #[test]
    fn the_summaries_of_all_sizes_of_orders_have_one_length() {
        let shop = Shop::new(1000).unwrap();
        let first = 3_000_000_000_000;
        let usual = (first..first + 300).map(SampleOrder::usual);
        let small = (first + 300..first + 600).map(SampleOrder::small);
        for order in usual.chain(small) {
            let mut sent = Vec::new();
            order.put_order(&mut sent);
            shop.confirm(&sent).unwrap();
            let summary = shop.recent.get(order.id()).unwrap();
            assert_eq!(summary.len(), 13 + 2 + 40, "{summary}");
        }
    }
}
