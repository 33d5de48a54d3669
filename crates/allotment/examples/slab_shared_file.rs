//! Counters in a file that is kept: a second process finds and reads them while the first one
//! continues counting.

use std::error::Error;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use allotment::{File, Slab};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::temp_dir().join(format!("allotment-counters-{}", std::process::id()));
    // SAFETY: the other process only reads the file, and no other process knows it.
    let file = Arc::new(unsafe { File::create_new(&path)? });
    let counters = Slab::<AtomicU64>::builder().name("counters").source(file.clone()).build();

    let mine: Vec<_> = (0..100).map(|number| counters.alloc(AtomicU64::new(number))).collect();
    for counter in &mine {
        counter.fetch_add(1000, Ordering::Relaxed);
    }
    // The second process gets the path and the offset, and reads the bytes; it could also map the
    // file.
    let offset = file.offset_of(&*mine[42]).ok_or("a counter is in the file")?;
    let mut bytes = [0; 8];
    std::fs::File::open(&path)?.read_exact_at(&mut bytes, offset)?;
    assert_eq!(u64::from_ne_bytes(bytes), 1042);
    println!("counter 42, at offset {offset} of {}, is 1042", path.display());

    // Pages that become empty leave holes in the file.
    drop(mine);
    counters.trim();
    assert_eq!(file.used_bytes(), 0);
    std::fs::remove_file(&path)?;
    Ok(())
}
