//! An ordinary JSON handler, run in a pool without a change:
//! `cargo run --release -p allotment --example json_handler`.
//!
//! The handler knows nothing of pools. It parses, computes and serialises with serde_json,
//! `String`, `Vec` and `BTreeMap`. The worker enters its pool around each request, and
//! `PoolGlobalAlloc` sends the allocations made there to the pool.

use std::alloc::System;
use std::collections::BTreeMap;

use allotment::{LocalPool, PoolGlobalAlloc};
use serde_json::{Value, json};

#[global_allocator]
static GLOBAL: PoolGlobalAlloc<System> = PoolGlobalAlloc::new(System);

/// The handler: sums up the points of each group in the request.
fn handle(request: &str) -> Result<String, serde_json::Error> {
    let request: Value = serde_json::from_str(request)?;
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    for point in request["points"].as_array().into_iter().flatten() {
        let group = point["group"].as_str().unwrap_or("none").to_owned();
        *sums.entry(group).or_default() += point["value"].as_f64().unwrap_or_default();
    }
    let rows: Vec<Value> =
        sums.iter().map(|(group, sum)| json!({ "group": group, "sum": sum })).collect();
    Ok(json!({ "id": request["id"], "rows": rows }).to_string())
}

fn request(id: u32) -> String {
    let points: Vec<Value> = (0..100)
        .map(|point| json!({ "group": format!("g{}", point % 7), "value": f64::from(point) }))
        .collect();
    json!({ "id": id, "points": points }).to_string()
}

fn main() -> Result<(), serde_json::Error> {
    let worker = std::thread::spawn(|| {
        // One pool for the worker, with memory for a whole request reserved.
        let pool = LocalPool::builder().name("requests").reserved(256 << 10).build();
        let mut kept = Vec::new();
        for id in 0..1000 {
            let request = request(id);
            let reply = pool.enter(|| handle(&request))?;
            if id % 100 == 0 {
                kept.push(reply); // what escapes stays valid
            }
        }
        println!("{}", allotment::report());
        Ok::<_, serde_json::Error>(kept)
    });
    let kept = worker.join().expect("the worker runs")?;
    for reply in &kept {
        assert!(LocalPool::any_holds(reply.as_ptr()));
    }
    println!("{} replies outlived the pool; the last: {:.60}…", kept.len(), kept[9]);
    Ok(())
}
