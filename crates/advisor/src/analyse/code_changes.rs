//! The lines of code that a verdict shows.

use super::findings::{AdvisedAllocator, BlockFigures, CodeChange};

/// The lines for an allocator, in the function that the group is named after.
pub fn change(allocator: AdvisedAllocator, function: &str, b: &BlockFigures) -> CodeChange {
    let size = b.dominant_size;
    let (rust, c) = match allocator {
        AdvisedAllocator::Arena if b.returns_to_zero == 0 => (
            "let arena = allotment::Arena::new(); // one for the whole run\n\
             let node = arena.alloc(Node::default()); // instead of Box::new"
                .to_owned(),
            "allot_arena *arena = allot_arena_create(NULL); /* one for the whole run */\n\
             node = allot_arena_alloc(arena, sizeof *node); /* instead of malloc; no free */"
                .to_owned(),
        ),
        AdvisedAllocator::Arena => (
            "let mut arena = allotment::Arena::new();\n\
             let node = arena.alloc(Node::default()); // instead of Box::new\n\
             arena.reset(); // frees all; instead of dropping them one by one"
                .to_owned(),
            "allot_arena *arena = allot_arena_create(NULL);\n\
             node = allot_arena_alloc(arena, sizeof *node); /* instead of malloc */\n\
             allot_arena_reset(arena); /* frees all; instead of freeing them one by one */"
                .to_owned(),
        ),
        AdvisedAllocator::Reap => (
            "let mut reap = allotment::Reap::new();\n\
             let block = reap.alloc_layout(layout); // instead of the global allocator\n\
             // SAFETY: `block` came from `alloc_layout` with this layout, and is not used again.\n\
             unsafe { reap.free_layout(block, layout) }; // for blocks that are freed one by one\n\
             reap.reset(); // frees the rest"
                .to_owned(),
            "allot_reap *reap = allot_reap_create(NULL);\n\
             block = allot_reap_alloc(reap, size, align); /* instead of malloc */\n\
             allot_reap_free_sized(reap, block, size, align); /* blocks that are freed one by one */\n\
             allot_reap_reset(reap); /* frees the rest */"
                .to_owned(),
        ),
        AdvisedAllocator::FreeList => (
            format!(
                "let list = allotment::FreeList::<Node>::new(); // a Node has {size} bytes\n\
                 let node = list.alloc(Node::default()); // instead of Box::new"
            ),
            format!(
                "allot_free_list *list = allot_free_list_create({size}, 16, NULL);\n\
                 node = allot_free_list_alloc(list); /* instead of malloc */\n\
                 allot_free_list_free(list, node); /* instead of free */"
            ),
        ),
        AdvisedAllocator::Pool => (
            "#[global_allocator]\n\
             static GLOBAL: allotment::PoolGlobalAlloc<std::alloc::System> = allotment::PoolGlobalAlloc::new(std::alloc::System);\n\
             let pool = allotment::LocalPool::new(); // one for each thread\n\
             pool.enter(|| work()); // Box, Vec and String in work() use the pool"
                .to_owned(),
            "allot_pool *pool = allot_pool_create(NULL); /* one for each thread */\n\
             block = allot_pool_alloc(pool, size, align); /* instead of malloc */\n\
             allot_pool_free_sized(pool, block, size, align); /* instead of free */"
                .to_owned(),
        ),
        AdvisedAllocator::Slab => (
            format!(
                "let slab = allotment::Slab::<Message>::new(); // a Message has {size} bytes\n\
                 let message = slab.alloc(Message::default()); // instead of Box::new; any thread may drop it"
            ),
            format!(
                "allot_slab *slab = allot_slab_create({size}, 16, NULL);\n\
                 message = allot_slab_alloc(slab); /* instead of malloc */\n\
                 allot_slab_free(slab, message); /* instead of free, on any thread */"
            ),
        ),
        AdvisedAllocator::Sealed => (
            "let config = allotment::Sealed::<Config>::new(|sealer| build(sealer));\n\
             let port = config.port; // no lock; memory is read-only"
                .to_owned(),
            "/* build_config allocates with allot_sealer_alloc instead of malloc */\n\
             allot_sealed *sealed = allot_sealed_create(NULL, build_config, path);\n\
             const struct config *config = allot_sealed_get(sealed); /* no lock; memory is read-only */"
                .to_owned(),
        ),
        AdvisedAllocator::None => return CodeChange::default(),
    };
    let (rust, c) = (format!("// {function}\n{rust}"), format!("/* {function} */\n{c}"));
    CodeChange { rust, c }
}

/// The change for the verdict "a better malloc".
pub fn better_malloc() -> CodeChange {
    CodeChange {
        rust: "#[global_allocator]\nstatic GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;".to_owned(),
        c: "LD_PRELOAD=libmimalloc.so program\n/* or link with -lmimalloc; the same for jemalloc */".to_owned(),
    }
}
