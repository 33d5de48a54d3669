//! Replays a saved corpus, and random bytes from a fixed seed after it.

use std::path::Path;

/// Runs `check` over every file of `fuzz/corpus/<target>`, then over `random` byte strings.
pub fn replay(target: &str, random: u32, max_len: usize, check: impl Fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut files: Vec<_> = std::fs::read_dir(&directory)
        .unwrap_or_else(|error| panic!("no corpus at {}: {error}", directory.display()))
        .map(|entry| entry.expect("a corpus can be listed").path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "the corpus of {target} is there");
    for file in &files {
        let bytes = std::fs::read(file).expect("a corpus can be read");
        with_bytes(&bytes, &check);
    }
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..random {
        let len = next() as usize % max_len;
        let bytes: Vec<u8> = (0..len).map(|_| (next() >> 32) as u8).collect();
        with_bytes(&bytes, &check);
    }
}

/// Says which bytes failed.
fn with_bytes(bytes: &[u8], check: &impl Fn(&[u8])) {
    struct Tell<'b>(&'b [u8]);
    impl Drop for Tell<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("these bytes failed: {:?}", self.0);
            }
        }
    }
    let tell = Tell(bytes);
    check(bytes);
    drop(tell);
}
