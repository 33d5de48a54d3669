//! Sealed values: what is built is what is read, and what it holds.

use allotment::Sealed;

#[test]
fn a_string_and_a_slice_are_read_by_many_threads() {
    let config = Sealed::<(&'static str, &'static [u16])>::new(|sealer| {
        (sealer.str("http://localhost/"), sealer.slice([80, 443]))
    });
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let (url, ports) = config.get();
                assert_eq!((*url, *ports), ("http://localhost/", &[80, 443][..]));
            });
        }
    });
}
