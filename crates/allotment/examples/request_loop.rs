//! A server's loop: one arena, reset after each request.
//!
//! Each request copies names, collects points and renders a reply in the arena. Nothing is freed
//! one by one. From the second request on, no request makes a system call.

use allotment::arena::Retain;
use allotment::{Arena, ArenaString, ArenaVec};
use std::fmt::Write;

struct Point<'a> {
    name: &'a str,
    value: u64,
}

fn handle<'a>(arena: &'a Arena, request: &str) -> Result<&'a str, std::fmt::Error> {
    let mut points = ArenaVec::new_in(arena);
    for (value, name) in (0..).zip(request.split(',')) {
        points.push(Point { name: arena.alloc_str(name.trim()), value: value * value });
    }
    let mut reply = ArenaString::new_in(arena);
    for point in &points {
        write!(reply, "{}={};", point.name, point.value)?;
    }
    Ok(reply.into_str())
}

fn main() -> Result<(), std::fmt::Error> {
    let mut arena = Arena::builder().name("requests").retain(Retain::Newest).build();
    let request = "user, system, nice, idle, iowait, irq, softirq, steal";
    let mut calls_after_second = 0;
    for round in 0..1000 {
        let reply = handle(&arena, request)?;
        assert!(reply.ends_with("steal=49;"));
        if round == 1 {
            calls_after_second = arena.statistics().source_calls;
        }
        arena.reset();
    }
    assert_eq!(arena.statistics().source_calls, calls_after_second, "a warm loop calls no source");
    print!("{}", allotment::report());
    Ok(())
}
