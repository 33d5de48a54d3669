//! The work of a request: ordinary code, without a type of Allotment.

use super::recent::Recent;
use regex::Regex;
use serde_json::{Value, json};
use std::collections::HashMap;

/// What the requests share.
#[derive(Debug)]
pub struct Shop {
    word: Regex,
    mail_address: Regex,
    /// Summaries of the orders that were confirmed last.
    pub recent: Recent,
}

/// The order lacks a member, or a member has the wrong type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidOrder(pub String);

/// The characters of the message that a summary holds.
const SUMMARY: usize = 40;
/// The characters of the message that a line of the log holds.
const LOGGED: usize = 60;

impl Shop {
    /// Makes a shop that keeps the summaries of this many orders.
    ///
    /// # Errors
    /// When a regular expression is invalid.
    pub fn new(cache: usize) -> Result<Self, regex::Error> {
        Ok(Self {
            word: Regex::new(r"(?i)\b[a-z]{3,}\b")?,
            mail_address: Regex::new(r"(?i)[a-z0-9._%+-]+@[a-z0-9.-]+\.[a-z]{2,}")?,
            recent: Recent::new(cache),
        })
    }

    /// Confirms an order, and returns the confirmation as JSON.
    ///
    /// # Errors
    /// When the order is not valid.
    pub fn confirm(&self, order: &[u8]) -> Result<Vec<u8>, InvalidOrder> {
        let mut order: Value =
            serde_json::from_slice(order).map_err(|error| InvalidOrder(error.to_string()))?;
        let id = order["id"].as_u64().ok_or_else(|| missing("id", "a number"))?;
        let message = order["message"].as_str().ok_or_else(|| missing("message", "a text"))?;
        let mut counts: HashMap<String, u32> = HashMap::new();
        for word in self.word.find_iter(message) {
            *counts.entry(word.as_str().to_lowercase()).or_default() += 1;
        }
        let mut words: Vec<_> = counts.iter().collect();
        words.sort();
        let message = self.mail_address.replace_all(message, "<mail>").into_owned();

        let items = order["items"].as_array_mut().ok_or_else(|| missing("items", "an array"))?;
        let items: Result<Vec<Value>, InvalidOrder> = items
            .iter_mut()
            .map(|item| {
                let cents = item["cents"].as_u64().ok_or_else(|| missing("cents", "a number"))?;
                let name = item["name"].as_str().ok_or_else(|| missing("name", "a text"))?;
                let label = format!("{name} of {id}");
                item["gross"] = json!(u128::from(cents) * 120 / 100);
                item["label"] = Value::String(label);
                Ok(item.take())
            })
            .collect();

        tracing::info!(id, words = words.len(), "confirmed: {}", beginning(&message, LOGGED));
        let summary = format!("{id}: {}", beginning(&message, SUMMARY));
        self.recent.keep(id, summary.into_boxed_str());
        let confirmation = json!({
            "first": words.first().map(|(word, _)| word),
            "id": id,
            "items": items?,
            "message": message,
            "words": words.len(),
        });
        Ok(confirmation.to_string().into_bytes())
    }
}

fn missing(member: &str, kind: &str) -> InvalidOrder {
    InvalidOrder(format!("the member {member} is missing or not {kind}"))
}

/// Returns the first characters of a text.
fn beginning(text: &str, characters: usize) -> &str {
    text.char_indices().nth(characters).map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_confirmed_and_its_summary_is_kept() {
        let shop = Shop::new(10).unwrap();
        let order = br#"{"id": 7, "message": "Beta, alpha and ALPHA: to me@example.com",
            "items": [{"name": "tea", "cents": 250}]}"#;
        let confirmation = shop.confirm(order).unwrap();
        assert_eq!(
            String::from_utf8(confirmation).unwrap(),
            r#"{"first":"alpha","id":7,"items":[{"cents":250,"gross":300,"label":"tea of 7","name":"tea"}],"message":"Beta, alpha and ALPHA: to <mail>","words":5}"#
        );
        assert_eq!(shop.recent.get(7).as_deref(), Some("7: Beta, alpha and ALPHA: to <mail>"));
    }

    #[test]
    fn an_invalid_order_is_refused_with_its_cause() {
        let shop = Shop::new(10).unwrap();
        let refused = |order: &str| shop.confirm(order.as_bytes()).unwrap_err().0;
        assert!(refused("{").contains("EOF"));
        assert!(refused("[]").contains("id"));
        assert!(refused(r#"{"id": 7, "message": 8}"#).contains("message"));
        assert!(refused(r#"{"id": 7, "message": "", "items": [7]}"#).contains("cents"));
    }
}
