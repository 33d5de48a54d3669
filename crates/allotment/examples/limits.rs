//! Hard limits: a budget for the server, a child budget for each request, and a typed error when
//! one is exceeded.

use allotment::{Arena, Budget, ErrorKind};

fn main() {
    let server = Budget::new(1 << 20);
    let request = server.child(64 << 10);
    let arena = Arena::builder().name("one request").budget(&request).build();

    let mut stored = 0;
    let refused = loop {
        match arena.try_alloc_slice_copy(&[0u8; 1000]) {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    println!("{stored} pieces of 1000 bytes, then: {refused}");
    assert_eq!(refused.kind(), ErrorKind::BudgetExceeded);
    assert_eq!(request.used(), server.used());
    assert!(request.used() <= request.limit());

    // The arena is as it was: what fits still fits. Dropping it frees the server's budget.
    arena.alloc(7u8);
    drop(arena);
    assert_eq!(server.used(), 0);
}
