//! A small web service in ordinary code: it takes a JSON body, looks up and computes, and returns a
//! JSON body. It knows nothing of allocators.

use crate::workloads::random::Random;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::HashMap;
use std::fmt;

/// The products for sale.
#[derive(Debug)]
pub struct Shop {
    products: HashMap<String, Product>,
}

#[derive(Debug)]
struct Product {
    name: String,
    category: String,
    price: u64,
}

#[derive(Debug, Deserialize)]
struct Order {
    number: u64,
    customer: Customer,
    items: Vec<Item>,
    #[serde(default)]
    vouchers: Vec<String>,
    options: HashMap<String, String>,
    note: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Customer {
    name: String,
    email: String,
    street: String,
    town: String,
}

#[derive(Debug, Deserialize)]
struct Item {
    product: String,
    quantity: u32,
    colour: Option<String>,
}

#[derive(Debug, Serialize)]
struct Invoice {
    order: u64,
    address: String,
    lines: Vec<Line>,
    categories: Vec<Category>,
    total: u64,
    remarks: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Line {
    description: String,
    quantity: u32,
    price: u64,
}

#[derive(Debug, Serialize)]
struct Category {
    name: String,
    items: u64,
    price: u64,
}

/// The answer if the service can't deliver.
#[derive(Debug, Serialize)]
struct Rejection {
    error: String,
}

#[derive(Debug)]
enum OrderError {
    Unreadable(serde_json::Error),
    Unknown(String),
}

impl fmt::Display for OrderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(error) => write!(f, "not an order: {error}"),
            Self::Unknown(product) => write!(f, "there is no product '{product}'"),
        }
    }
}

impl From<serde_json::Error> for OrderError {
    fn from(error: serde_json::Error) -> Self {
        Self::Unreadable(error)
    }
}

/// Answers one request.
pub fn handle(shop: &Shop, body: &str) -> String {
    invoice(shop, body).and_then(|invoice| Ok(serde_json::to_string(&invoice)?)).unwrap_or_else(
        |problem| {
            let rejection = Rejection { error: problem.to_string() };
            serde_json::to_string(&rejection).unwrap_or_default()
        },
    )
}

fn invoice(shop: &Shop, body: &str) -> Result<Invoice, OrderError> {
    let order: Order = serde_json::from_str(body)?;
    let mut categories: HashMap<String, Category> = HashMap::new();
    let mut lines = Vec::new();
    for item in order.items {
        let Some(product) = shop.products.get(&item.product) else {
            return Err(OrderError::Unknown(item.product));
        };
        let price = product.price * u64::from(item.quantity);
        let category = categories
            .entry(product.category.clone())
            .or_insert_with_key(|name| Category { name: name.to_uppercase(), items: 0, price: 0 });
        category.items += u64::from(item.quantity);
        category.price += price;
        let description = match item.colour {
            Some(colour) => format!("{} ({colour})", product.name),
            None => product.name.clone(),
        };
        lines.push(Line { description, quantity: item.quantity, price });
    }
    let mut categories: Vec<Category> = categories.into_values().collect();
    categories.sort_by(|one, other| one.name.cmp(&other.name));
    let total: u64 = lines.iter().map(|line| line.price).sum();
    let discount = total / 20 * order.vouchers.len().min(4) as u64;
    let mut remarks: Vec<String> =
        order.vouchers.iter().map(|voucher| format!("voucher {voucher}: 5 %")).collect();
    let mut options: Vec<_> = order.options.into_iter().collect();
    options.sort();
    remarks.extend(options.into_iter().map(|(option, value)| format!("{option}: {value}")));
    remarks.extend(order.note);
    let Customer { name, email, street, town } = order.customer;
    Ok(Invoice {
        order: order.number,
        address: [name, street, town, email].join("\n"),
        lines,
        categories,
        total: total - discount,
        remarks,
    })
}

/// The number of products.
const PRODUCTS: u32 = 1_000;

const ADJECTIVES: [&str; 6] = ["small", "sturdy", "folding", "green", "stainless", "second-hand"];
const THINGS: [&str; 7] =
    ["spade", "watering can", "wheelbarrow", "trellis", "cold frame", "bean pole", "rain gauge"];
const CATEGORIES: [&str; 5] = ["tools", "irrigation", "transport", "structures", "instruments"];

fn one<'a>(of: &[&'a str], random: &mut Random) -> &'a str {
    of[random.below(of.len() as u32) as usize]
}

fn identifier(product: u32) -> String {
    format!("GRD-{product:05}")
}

impl Shop {
    /// A shop with the same products each time.
    pub fn stocked() -> Self {
        let random = &mut Random::stream(0);
        let products = (0..PRODUCTS).map(|product| {
            let name =
                format!("{} {} no. {product}", one(&ADJECTIVES, random), one(&THINGS, random));
            let category = one(&CATEGORIES, random).to_owned();
            let price = u64::from(100 + random.below(20_000));
            (identifier(product), Product { name, category, price })
        });
        Self { products: products.collect() }
    }
}

/// The bodies of `count` requests, with 4 to 20 items each. Every thirtieth orders a product that
/// does not exist.
pub fn bodies(count: usize) -> Vec<String> {
    let random = &mut Random::stream(1);
    let mut body = |number: usize| {
        let mut items: Vec<_> = (0..4 + random.below(17))
            .map(|_| {
                json!({
                    "product": identifier(random.below(PRODUCTS)),
                    "quantity": 1 + random.below(9),
                    "colour": (random.below(3) == 0).then(|| one(&ADJECTIVES, random)),
                })
            })
            .collect();
        if number % 30 == 29 {
            items[3]["product"] = identifier(PRODUCTS).into();
        }
        let vouchers: Vec<_> = (0..random.below(3)).map(|n| format!("SPRING-{n}")).collect();
        json!({
            "number": 10_000 + number,
            "customer": {
                "name": format!("Customer {}", random.below(10_000)),
                "email": format!("customer.{}@allotments.example", random.below(10_000)),
                "street": format!("{} Plot Lane", 1 + random.below(200)),
                "town": "Little \"Digging\" on the Wold",
            },
            "items": items,
            "vouchers": vouchers,
            "options": { "delivery": "by bicycle", "packaging": "none", "payment": "invoice" },
            "note": (random.below(2) == 0)
                .then_some("Please leave it behind the shed,\nnot in the compost."),
        })
        .to_string()
    };
    (0..count).map(&mut body).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shop() -> Shop {
        let product = |name: &str, category: &str, price| Product {
            name: name.to_owned(),
            category: category.to_owned(),
            price,
        };
        let products = [
            ("a".to_owned(), product("spade", "tools", 1000)),
            ("b".to_owned(), product("hose", "water", 2500)),
            ("c".to_owned(), product("rake", "tools", 700)),
        ];
        Shop { products: products.into_iter().collect() }
    }

    #[test]
    fn an_order_is_invoiced() {
        let body = r#"{"number": 7, "customer": {"name": "N", "email": "e", "street": "S", "town": "T"},
            "items": [{"product": "a", "quantity": 2, "colour": "red"}, {"product": "b", "quantity": 1,
            "colour": null}, {"product": "c", "quantity": 3}], "vouchers": ["V"],
            "options": {"z": "1", "y": "2"}, "note": "n"}"#;
        let expected = r#"{"order":7,"address":"N\nS\nT\ne","lines":[
            {"description":"spade (red)","quantity":2,"price":2000},
            {"description":"hose","quantity":1,"price":2500},
            {"description":"rake","quantity":3,"price":2100}],"categories":[
            {"name":"TOOLS","items":5,"price":4100},{"name":"WATER","items":1,"price":2500}],
            "total":6270,"remarks":["voucher V: 5 %","y: 2","z: 1","n"]}"#;
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(&handle(&shop(), body)), value(expected));
    }

    #[test]
    fn what_can_not_be_delivered_is_rejected() {
        let reply = handle(&shop(), r#"{"number": 7}"#);
        assert!(reply.starts_with(r#"{"error":"not an order: missing field"#), "{reply}");
        let bodies = bodies(60);
        let rejected =
            bodies.iter().filter(|body| handle(&Shop::stocked(), body).contains("error"));
        assert_eq!(rejected.count(), 2);
    }

    #[test]
    fn requests_and_replies_differ_from_each_other_and_are_the_same_each_time() {
        let replies = || -> Vec<String> {
            let shop = Shop::stocked();
            bodies(40).iter().map(|body| handle(&shop, body)).collect()
        };
        assert_eq!(bodies(40), bodies(40));
        assert_eq!(replies(), replies());
        assert!(bodies(2)[0] != bodies(2)[1] && replies()[0] != replies()[1]);
    }
}
