//! An arena in a file that is kept: a second process can map the file and read the bytes.

use std::error::Error;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use allotment::{Arena, File};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::temp_dir().join(format!("allotment-example-{}", std::process::id()));
    // SAFETY: no other program knows the file, and this one opens it only to read.
    let source = Arc::new(unsafe { File::create_new(&path)? });
    let arena = Arena::builder().source(source.clone()).build();
    let text = arena.alloc_str("written to memory, read from the file");
    let offset = source.offset_of(text.as_ptr()).ok_or("the arena's chunk is in the file")?;

    // Another process would do this, with the path and the offset.
    let mut read = vec![0; text.len()];
    std::fs::File::open(&path)?.read_exact_at(&mut read, offset)?;
    assert_eq!(text.as_bytes(), read);
    println!("{} bytes at offset {offset}", read.len());
    std::fs::remove_file(&path)?;
    Ok(())
}
