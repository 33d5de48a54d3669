/* Allotment: memory allocators chosen by how long an object lives and who may touch it.
 *
 *   what the program knows                                               allocator
 *   one thread makes many objects, all die together                      allot_arena
 *   one thread makes and frees objects of one size                       allot_free_list
 *   many threads make and free objects of one size                       allot_slab
 *   one thread makes and frees objects of any size, for a piece of work  allot_reap
 *   the same, for whatever code the thread runs                          allot_pool
 *   many threads read objects that never change once they are built      allot_sealed
 *
 * Rules that hold for every call:
 *
 * - A call named try_ returns NULL (or false) when it can't do its work, leaves the allocator as it was, and says why in
 *   allot_last_error(). Its twin without try_ never fails to its caller: it calls the failure handler, which by
 *   default prints one line and aborts.
 * - A handle that is NULL is an error like any other (ALLOT_BAD_HANDLE), except for _destroy, where it is none.
 *   Freeing NULL does nothing.
 * - A size of zero counts as one byte. An alignment is a power of two; where none is said it is 16.
 * - Arenas, free lists, reaps, pools and slab handles belong to one thread at a time; slabs, sealed objects, sources and
 *   budgets to all.
 *
 * The functions defined here work on the first fields of an allocator, which are frozen for one ALLOT_ABI. Under
 * AddressSanitizer, or if ALLOT_OUT_OF_LINE is defined, they call the library instead.
 *
 * C11 or C++17, GCC or Clang, Linux on x86-64 or aarch64.
 */
#ifndef ALLOTMENT_H
#define ALLOTMENT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- version ------------------------------------------------------------------------------------------------------ */

/* The version of this header's structures and inline functions. Each _create call passes it on; a library of another
 * one refuses (ALLOT_WRONG_ABI). */
#define ALLOT_ABI 1u
#define ALLOT_VERSION "0.1.0"

uint32_t allot_abi(void);
const char *allot_version(void);

/* ---- errors ------------------------------------------------------------------------------------------------------- */

typedef enum allot_error_kind {
    ALLOT_NO_ERROR = 0,
    ALLOT_SIZE_OVERFLOW = 1,   /* the size, with alignment or count, is more than an address can express */
    ALLOT_BAD_ALIGNMENT = 2,   /* zero or no power of two */
    ALLOT_BUDGET_EXCEEDED = 3, /* a budget has less left than was asked */
    ALLOT_SYSTEM = 4,          /* the operating system refused; system_error is its errno */
    ALLOT_SOURCE_REFUSED = 5,  /* the source refused without an errno */
    ALLOT_FORKED_CHILD = 6,    /* the source belongs to the process that this one was forked from */
    ALLOT_SEALED_ERROR = 7,    /* sealed memory takes nothing more */
    ALLOT_NAME_TOO_LONG = 8,   /* more than ALLOT_MAX_NAME bytes, or no UTF-8 */
    ALLOT_BAD_OPTION = 9,      /* an option that this allocator does not have, or a value that it can't take */
    ALLOT_BAD_HANDLE = 10,     /* NULL, destroyed, or no such allocator */
    ALLOT_WRONG_THREAD = 11,   /* an allocator of one thread, used by another one */
    ALLOT_WRONG_ABI = 12,      /* the header and the library are of different versions */
    ALLOT_IN_USE = 13          /* destroyed or left while something still uses it */
} allot_error_kind;

#define ALLOT_MAX_NAME 64

typedef struct allot_error {
    allot_error_kind kind;
    int system_error;             /* errno for ALLOT_SYSTEM, else 0 */
    size_t requested;             /* the bytes that could not be had, or the alignment that is none */
    const char *allocator;        /* "arena", "free list", "slab", "reap", "pool", "sealed", "source", "budget", ... */
    char name[ALLOT_MAX_NAME + 1]; /* the allocator's name, or empty */
    char message[256];            /* all of it as one line: cause and remedy */
} allot_error;

/* The calling thread's last error, ALLOT_NO_ERROR at first; never NULL; valid until the thread's next failing call, and
 * no longer than the thread. Successful calls leave it as it is. */
const allot_error *allot_last_error(void);
void allot_clear_error(void);

/* What the calls without try_ do when they can't do their work. If it returns, the process is aborted. It must not jump
 * or throw out of the call. NULL sets the default again: one line on standard error and an abort. Returns the one that was
 * set before, NULL for the default. Of the whole process; any thread may call it. */
typedef void allot_failure_handler(const allot_error *error);
allot_failure_handler *allot_set_failure_handler(allot_failure_handler *handler);

/* The hardened mode, of one allocator (allot_options) or, by this call or ALLOTMENT_HARDENED=1 in the environment, of every
 * one that is created from now on. It is for tests and for services that would rather stop than go on wrongly: no call is
 * inline, objects take some bytes more.
 *
 * - Double frees, foreign pointers, wrong sizes, overruns and writes after free are caught, named on standard error and
 *   stopped by an abort.
 * - Use by a thread that is not the owner (ALLOT_WRONG_THREAD), of a destroyed allocator (ALLOT_BAD_HANDLE), destroying one
 *   that is in use (ALLOT_IN_USE): errors like any other, so a call without try_ ends in the failure handler. The handles
 *   of the 4096 allocators that were destroyed last are known.
 * - Where every allocator is hardened, pointers that lead to none, or to one of another kind, are reported and not followed
 *   (ALLOT_BAD_HANDLE). Those that were created before can't be known: call it first. The inline functions follow what
 *   they get; define ALLOT_OUT_OF_LINE if that may be anything.
 * - Hardened slabs, and those by size then, take locks. A child that is made by fork while another thread is in one finds it locked:
 *   fork before there are threads. */
void allot_set_hardened(bool hardened);

/* ---- sources and budgets ------------------------------------------------------------------------------------------ */

/* Where an allocator gets its memory from, in pieces of a page and more, never for single objects. Counted: an allocator
 * keeps its source, so destroying one only gives up the caller's reference. Any thread may use one. */
typedef struct allot_source allot_source;

/* A user's own.
 *
 * acquire returns a block of `size` bytes at `align`, a power of two, which is nobody else's until it is released with the
 * same size and alignment; NULL if it has none (ALLOT_SOURCE_REFUSED). Both are called from whichever threads use the
 * allocators on it, and use no allocator that is on it; they don't throw and don't jump out. */
typedef struct allot_source_calls {
    const char *name; /* a word for reports, copied; NULL: "callbacks" */
    void *(*acquire)(void *context, size_t size, size_t align);
    void (*release)(void *context, void *block, size_t size, size_t align);
    void (*end)(void *context); /* when nothing uses the source any more; may be NULL */
    bool zeroed;                /* every acquired block reads zeros */
    bool not_inherited;         /* a child made by fork does not have the memory */
} allot_source_calls;

/* Inline, below: allot_source_create, allot_source_try_create (calls, context). */
allot_source *allot_source_create_abi(uint32_t abi, const allot_source_calls *calls, void *context);
allot_source *allot_source_try_create_abi(uint32_t abi, const allot_source_calls *calls, void *context);
/* Anonymous mappings, the only ones that the process-wide recycler keeps warm. The default: ordinary pages, and huge ones for
 * what an allocator takes beyond its first 2 MiB. Then ordinary pages alone, and huge ones (advice) from the first. */
allot_source *allot_source_mmap(void);
allot_source *allot_source_small_pages(void);
allot_source *allot_source_huge_pages(void);
/* The program's malloc. */
allot_source *allot_source_malloc(void);
/* A file, whose blocks are reserved before they are handed out, so that a full disk is an error and no signal. One that is
 * unlinked at once, in a directory; a new one that keeps its name (ALLOT_SYSTEM with EEXIST if there is one), for another
 * process to read. */
allot_source *allot_source_file_in(const char *directory);
allot_source *allot_source_try_file_in(const char *directory);
allot_source *allot_source_file(const char *path);
allot_source *allot_source_try_file(const char *path);
/* Where in the file the byte at this address is. False if it is in none of its chunks, or the source is no file; `offset` may
 * be NULL. */
bool allot_source_file_offset(const allot_source *source, const void *address, uint64_t *offset);
/* Gives up this reference. Memory that allocators have of it stays. */
void allot_source_destroy(allot_source *source);

/* A hard limit of the bytes that allocators hold, exact and shared by threads; never passed, not for a moment. Budgets nest: what
 * is charged to a child is charged to its parent too. Memory that the recycler keeps warm belongs to none. Counted, as
 * sources. */
typedef struct allot_budget allot_budget;
allot_budget *allot_budget_create(size_t cap);
allot_budget *allot_budget_try_create(size_t cap);
allot_budget *allot_budget_child(allot_budget *parent, size_t cap);
allot_budget *allot_budget_try_child(allot_budget *parent, size_t cap);
size_t allot_budget_cap(const allot_budget *budget);
size_t allot_budget_used(const allot_budget *budget);
/* Gives up this reference: allocators and children keep the budget. */
void allot_budget_destroy(allot_budget *budget);

/* ---- options ------------------------------------------------------------------------------------------------------ */

/* When empty memory goes back to the system. */
typedef enum allot_release_kind {
    ALLOT_ADAPTIVE = 0, /* what is soon taken again is kept */
    ALLOT_AT_ONCE = 1,
    ALLOT_KEEP = 2,  /* `amount` bytes */
    ALLOT_DECAY = 3  /* what nobody used for `amount` milliseconds goes back */
} allot_release_kind;

typedef struct allot_release {
    allot_release_kind kind;
    uint64_t amount;
} allot_release;

/* What an arena's reset keeps. */
typedef enum allot_retain_kind {
    ALLOT_RETAIN_NEWEST = 0,
    ALLOT_RETAIN_NOTHING = 1,
    ALLOT_RETAIN_UP_TO = 2 /* `bytes` */
} allot_retain_kind;

typedef struct allot_retain {
    allot_retain_kind kind;
    size_t bytes;
} allot_retain;

/* Zero means the default everywhere; NULL instead of options: all defaults. An option that the allocator doesn't have is
 * an error (ALLOT_BAD_OPTION).
 *
 *     allot_arena *arena = allot_arena_create(&(allot_options){ .name = "query", .hint = 1 << 20 });
 */
typedef struct allot_options {
    const char *name;      /* for statistics and reports; at most ALLOT_MAX_NAME bytes of UTF-8; copied */
    allot_budget *budget;  /* all */
    allot_source *source;  /* all but pools and sealed objects */
    allot_release release; /* all but sealed objects */
    bool hardened;         /* all but sealed objects: misuse is named and stopped */
    bool report_live;      /* free list, slab, pool: destroying says how many objects live on */
    bool packing;          /* slab: fullest pages first */
    size_t hint;           /* arena: bytes of the first chunk, taken at once */
    allot_retain retain;   /* arena */
    size_t objects_per_slab; /* free list: of the first slab */
    size_t max_page_bytes;   /* slab */
    size_t max_cached_bytes; /* slab: for each thread */
    size_t reserved;         /* reap, pool: taken and faulted in at once */
    size_t initial;          /* reap, pool: bytes of the first chunk */
    size_t increment;        /* reap, pool: bytes of further ones */
    size_t maximum;          /* reap, pool: a budget of its own */
} allot_options;

/* ---- statistics and report ---------------------------------------------------------------------------------------- */

/* What an allocator holds at this moment, in bytes and counts. */
typedef struct allot_statistics {
    uint64_t live_objects;    /* allocated and not freed */
    uint64_t live_bytes;      /* their bytes as they were asked for, without padding */
    uint64_t held_bytes;      /* taken from the source and not given back: what a budget is charged */
    uint64_t peak_held_bytes; /* the most that this ever was */
    uint64_t wasted_bytes;    /* that no object can have: padding, ends of chunks that were left */
    uint64_t free_bytes;      /* of slots that hold no object; 0 for an arena */
    uint64_t structure_bytes; /* of the allocator's own, beside its chunks */
    uint64_t chunks;          /* held; of a slab its pages */
    uint64_t recycled_chunks; /* that came warm from the recycler, since it was made */
    uint64_t source_calls;    /* to the system or the source on its account, since it was made */
} allot_statistics;

/* Every named living allocator, as text or one JSON object. As snprintf: writes at most `size` bytes with a NUL behind
 * them, returns the length that the whole has. */
size_t allot_report_text(char *buffer, size_t size);
size_t allot_report_json(char *buffer, size_t size);

/* Which allocator an address belongs to: its kind ("arena", ...), its name and its statistics. False for none, or one that
 * can't be told by address. Either pointer may be NULL; `name` has room for ALLOT_MAX_NAME + 1 bytes. */
bool allot_owner_of(const void *address, const char **kind, char *name, allot_statistics *statistics);

/* The process-wide cache of warm chunks: what it keeps, the most that it may (1 GiB at first), how long, and giving all of it
 * back to the system. Any thread may call them. */
size_t allot_recycler_cached_bytes(void);
size_t allot_recycler_limit(void);
void allot_recycler_set_limit(size_t bytes);
void allot_recycler_set_release(allot_release release);
size_t allot_recycler_trim(void); /* the chunks given back */

/* ---- arena -------------------------------------------------------------------------------------------------------- */

/* Many objects of one thread that die together: a position that moves up through chunks.
 *
 * Costs some instructions an object, inline, and a chunk every so often: 4 KiB at first, doubling up to 1 MiB, then of
 * 2 MiB. Chunks come warm from the process-wide recycler and go back there. One thread at a time uses an arena; it may
 * be another one later (allot_arena_adopt). */
typedef struct allot_arena allot_arena;

/* A place in an arena to go back to. A value: copied, kept anywhere, given up without a call. */
typedef struct allot_arena_position {
    uint64_t opaque[20];
} allot_arena_position;

/* Options: name, budget, source, release, hardened, hint, retain. Takes no memory for objects yet, unless there is a hint.
 * Inline, below: allot_arena_create, allot_arena_try_create (options). */
allot_arena *allot_arena_create_abi(uint32_t abi, const allot_options *options);
allot_arena *allot_arena_try_create_abi(uint32_t abi, const allot_options *options);
/* Frees everything: a step for each chunk, none for an object. */
void allot_arena_destroy(allot_arena *arena);

/* Inline, below, uninitialised memory:
 * allot_arena_alloc, allot_arena_try_alloc (arena, size): aligned to 16;
 * allot_arena_alloc_aligned, allot_arena_try_alloc_aligned (arena, size, align): to any power of two; objects of an
 * alignment of 8 or less lie closest;
 * ALLOT_ARENA_NEW, ALLOT_ARENA_TRY_NEW (arena, type), ALLOT_ARENA_ARRAY, ALLOT_ARENA_TRY_ARRAY (arena, type, count). */
void *allot_arena_alloc_slowly(allot_arena *arena, size_t size, size_t align);
void *allot_arena_try_alloc_slowly(allot_arena *arena, size_t size, size_t align);

/* `count` times `size` bytes of zeros, aligned to 16. */
void *allot_arena_calloc(allot_arena *arena, size_t count, size_t size);
void *allot_arena_try_calloc(allot_arena *arena, size_t count, size_t size);
/* A copy of `size` bytes, aligned to 16. */
void *allot_arena_memdup(allot_arena *arena, const void *bytes, size_t size);
void *allot_arena_try_memdup(allot_arena *arena, const void *bytes, size_t size);
/* A copy of a text with its NUL; of at most `most` bytes of it, and a NUL. Not aligned. */
char *allot_arena_strdup(allot_arena *arena, const char *text);
char *allot_arena_try_strdup(allot_arena *arena, const char *text);
char *allot_arena_strndup(allot_arena *arena, const char *text, size_t most);
char *allot_arena_try_strndup(allot_arena *arena, const char *text, size_t most);

/* Another size for an object: in place where it is the last one and its chunk has room, or where it shrinks; else it moves, and
 * the old one is freed. `old_size` and `align` are those that it has. An object that is NULL is allocated. If it fails, the
 * object is as it was. */
void *allot_arena_resize(allot_arena *arena, void *object, size_t old_size, size_t new_size, size_t align);
void *allot_arena_try_resize(allot_arena *arena, void *object, size_t old_size, size_t new_size, size_t align);
/* The last object gives its bytes back, an earlier one only counts as gone. Size and alignment are those that it has. */
void allot_arena_free(allot_arena *arena, void *object, size_t size, size_t align);
/* Frees everything, and keeps the chunks that `retain` says. */
void allot_arena_reset(allot_arena *arena);

/* Marks where the arena stands, and frees everything that was allocated since. Marks nest. A mark is over when there was a
 * reset, or a rewind to an older one, which is reported as ALLOT_BAD_HANDLE (after a rewind: by a hardened arena); else
 * it may be rewound to again. Until the rewind, freeing an object from before the mark does nothing, and one that grows moves:
 * so it is gone with the rewind. Between one rewind to a mark and the next to the same, don't resize older objects. */
allot_arena_position allot_arena_mark(allot_arena *arena);
void allot_arena_rewind(allot_arena *arena, const allot_arena_position *position);

/* Makes the calling thread its owner: a hardened arena refuses any other. The one that owned it must be done with it. */
void allot_arena_adopt(allot_arena *arena);
/* Exact; of the thread that uses it. */
allot_statistics allot_arena_statistics(const allot_arena *arena);

/* ---- free list ---------------------------------------------------------------------------------------------------- */

/* Objects of one size for one thread, handed out last freed first.
 *
 * They lie in slabs, chunks that double up to 1 MiB and are of 2 MiB from there on; a slab all of whose objects were freed
 * goes back, as `release` says. A free object holds the address of the next: the first 8 bytes of an object don't
 * outlive its free. Costs some instructions an object, inline, for both ways. */
typedef struct allot_free_list allot_free_list;

/* Objects of `size` bytes, 8 at least, aligned to `align`. Options: name, budget, source, release, hardened, report_live,
 * objects_per_slab. Takes no memory for objects yet.
 * Inline, below: allot_free_list_create, allot_free_list_try_create (size, align, options). */
allot_free_list *allot_free_list_create_abi(uint32_t abi, size_t size, size_t align, const allot_options *options);
allot_free_list *allot_free_list_try_create_abi(uint32_t abi, size_t size, size_t align, const allot_options *options);
/* Frees everything, whatever lives. */
void allot_free_list_destroy(allot_free_list *list);

/* Inline, below: allot_free_list_alloc, allot_free_list_try_alloc (list): an object, uninitialised;
 * allot_free_list_free (list, object): an object of this list. */
void *allot_free_list_alloc_slowly(allot_free_list *list);
void *allot_free_list_try_alloc_slowly(allot_free_list *list);
void allot_free_list_free_slowly(allot_free_list *list, void *object);

/* So many objects behind each other, allot_free_list_stride() bytes apart, each of them freed by itself. For none: an address
 * that must not be used, and is not freed. */
void *allot_free_list_alloc_run(allot_free_list *list, size_t objects);
void *allot_free_list_try_alloc_run(allot_free_list *list, size_t objects);
/* The size with its padding. */
size_t allot_free_list_stride(const allot_free_list *list);
/* The objects that were allocated and not freed. */
size_t allot_free_list_live(const allot_free_list *list);
/* Gives the empty slabs back, whatever `release` keeps. Costs a look at each free object. Returns the bytes given back. */
size_t allot_free_list_trim(allot_free_list *list);
/* As allot_arena_adopt. */
void allot_free_list_adopt(allot_free_list *list);
allot_statistics allot_free_list_statistics(const allot_free_list *list);

/* ---- slab --------------------------------------------------------------------------------------------------------- */

/* Slots of one size that any thread allocates and any thread frees.
 *
 * Each thread has a cache of slots for each slab that it uses (256 KiB at most, or as max_cached_bytes says), and costs some
 * twenty instructions a call there, none of them locked; what goes to or comes from a page costs a locked instruction for up to
 * 64 neighbouring slots. Pages begin with 4 KiB, grow to 64 KiB and go back when they are empty. Nothing is
 * appended to a slot. A thread's end empties its caches. */
typedef struct allot_slab allot_slab;

typedef enum allot_lifetime {
    ALLOT_SHORT_LIVED = 0,
    ALLOT_LONG_LIVED = 1 /* on pages of their own, so that they don't keep the others'; freed by the slow path */
} allot_lifetime;

/* Slots of `size` bytes, aligned to `align`. Options: name, budget, source, release, hardened, report_live, packing,
 * max_page_bytes, max_cached_bytes. Takes no page yet.
 * Inline, below: allot_slab_create, allot_slab_try_create (size, align, options). */
allot_slab *allot_slab_create_abi(uint32_t abi, size_t size, size_t align, const allot_options *options);
allot_slab *allot_slab_try_create_abi(uint32_t abi, size_t size, size_t align, const allot_options *options);
/* The process's own slab for about this size, shared with everybody who asks for it: sizes are rounded up to multiples of 16 up
 * to 1 KiB, then to eight steps a doubling, alignments to 16. Costs a lock and a look-up. Each handle is destroyed as any
 * other; the slab goes with the last. */
allot_slab *allot_slab_by_size(size_t size, size_t align);
allot_slab *allot_slab_try_by_size(size_t size, size_t align);
/* Closes it. Slots in use stay valid, and are freed by allot_slab_free_anywhere(); their pages go with the last of them. No
 * other thread is inside any more; its slab handles were destroyed (else ALLOT_IN_USE). */
void allot_slab_destroy(allot_slab *slab);

/* A slot, uninitialised. It fails when none is free and no page is to be had from budget or source; slots that
 * other threads only cache are asked back then. */
void *allot_slab_alloc(allot_slab *slab);
void *allot_slab_try_alloc(allot_slab *slab);
/* The same for an expected lifetime; allot_slab_alloc() is for ALLOT_SHORT_LIVED. */
void *allot_slab_alloc_for(allot_slab *slab, allot_lifetime lifetime);
void *allot_slab_try_alloc_for(allot_slab *slab, allot_lifetime lifetime);
/* Frees a slot of this slab, on any thread. One of another slab is named and stopped, also where it is not hardened; what is no
 * slab's at all must not be passed, unless it is. */
void allot_slab_free(allot_slab *slab, void *slot);
/* The same for a slot of whichever slab, destroyed or not. What is no slab's is named and stopped. */
void allot_slab_free_anywhere(void *slot);

/* Several in one go, cheaper than one by one: all or none. Of those that are freed none is there twice; NULLs are passed over. */
void allot_slab_alloc_many(allot_slab *slab, void **slots, size_t count);
bool allot_slab_try_alloc_many(allot_slab *slab, void **slots, size_t count);
void allot_slab_free_many(allot_slab *slab, void *const *slots, size_t count);

/* Takes pages ahead until so many slots are free in empty pages, and faults them in. */
void allot_slab_reserve(allot_slab *slab, size_t slots);
bool allot_slab_try_reserve(allot_slab *slab, size_t slots);
/* Empties the calling thread's caches, and gives all empty pages back, whatever `release` keeps. Returns the bytes given back. */
size_t allot_slab_trim(allot_slab *slab);
/* Empties the calling thread's caches alone: for a thread that will sleep. */
void allot_slab_flush(allot_slab *slab);
/* Fullest pages first, so that the others become empty; costs a search at each refill. Any time, any thread. */
void allot_slab_set_packing(allot_slab *slab, bool packing);
/* A slot's size, as it was asked for; of a slab by size, as it was rounded up. */
size_t allot_slab_slot_size(const allot_slab *slab);
/* Exact when no thread is inside. Looks at every page. */
allot_statistics allot_slab_statistics(const allot_slab *slab);

/* One thread's way to a slab without a look at its table of slabs: inline, some ten instructions to allocate and sixteen to free.
 * Used and destroyed by the thread that made it (else ALLOT_WRONG_THREAD, for the use if the slab is hardened), before the slab.
 * Several of one thread and slab are the same way. Slots are the slab's: any of its calls frees them, on any thread. */
typedef struct allot_slab_handle allot_slab_handle;

/* Inline, below: allot_slab_handle_create, allot_slab_handle_try_create (slab). */
allot_slab_handle *allot_slab_handle_create_abi(uint32_t abi, allot_slab *slab);
allot_slab_handle *allot_slab_handle_try_create_abi(uint32_t abi, allot_slab *slab);
void allot_slab_handle_destroy(allot_slab_handle *handle);

/* Inline, below: allot_slab_handle_alloc, allot_slab_handle_try_alloc (handle); allot_slab_handle_free (handle, slot). A
 * hardened one's may fault at addresses that no process can have (2^48 and more) instead of naming them. */
void *allot_slab_handle_alloc_slowly(allot_slab_handle *handle);
void *allot_slab_handle_try_alloc_slowly(allot_slab_handle *handle);
void allot_slab_handle_free_slowly(allot_slab_handle *handle, void *slot);

/* ---- reap --------------------------------------------------------------------------------------------------------- */

/* Blocks of any size of one thread, freed one by one or all at once: an arena whose objects may also be freed before its end.
 *
 *   blocks of                                      size classes               unused at most
 *   up to 256 bytes                                multiples of 16            15 bytes
 *   up to 32 KiB                                   eight a doubling           an eighth
 *   an alignment of more than 16, up to 32 KiB     powers of two              half
 *   more                                           memory of its own          what that is rounded up to
 *
 * Costs some thirty instructions a call. Chunks begin with 64 KiB, double up to 1 MiB and come warm from the recycler. One thread
 * at a time uses a reap; it may be another one later (allot_reap_adopt). */
typedef struct allot_reap allot_reap;

/* Options: name, budget, source, release, hardened, reserved, initial, increment, maximum. Takes no memory for blocks yet,
 * unless some is reserved.
 * Inline, below: allot_reap_create, allot_reap_try_create (options). */
allot_reap *allot_reap_create_abi(uint32_t abi, const allot_options *options);
allot_reap *allot_reap_try_create_abi(uint32_t abi, const allot_options *options);
/* Frees everything: a step for each chunk, none for a block. */
void allot_reap_destroy(allot_reap *reap);

/* A block, uninitialised. */
void *allot_reap_alloc(allot_reap *reap, size_t size, size_t align);
void *allot_reap_try_alloc(allot_reap *reap, size_t size, size_t align);
/* Size and alignment are those that it has. */
void allot_reap_free(allot_reap *reap, void *block, size_t size, size_t align);
/* Another size for a block; its first bytes stay. In place within its size class, where it is the newest of its chunk, and where
 * a large one has room; else it moves. `old_size` and `align` are those that it has; a block that is NULL is allocated. If it
 * fails, the block is as it was. */
void *allot_reap_resize(allot_reap *reap, void *block, size_t old_size, size_t new_size, size_t align);
void *allot_reap_try_resize(allot_reap *reap, void *block, size_t old_size, size_t new_size, size_t align);
/* Frees everything at the cost of the chunks; keeps what was reserved and what `release` says, 1 MiB by default. */
void allot_reap_reset(allot_reap *reap);
/* Gives chunks back that hold nothing, while others do. Costs a look at each free block. Returns the bytes given back. */
size_t allot_reap_trim(allot_reap *reap);
/* As allot_arena_adopt. */
void allot_reap_adopt(allot_reap *reap);
/* Live bytes are those of the blocks' classes. */
allot_statistics allot_reap_statistics(const allot_reap *reap);

/* Blocks that know their size, for whoever frees without it: 16 bytes more each, aligned to 16. A block that was freed before, was
 * there before the last reset, is of another reap or was overwritten from below is told from a live one: it is named and
 * stopped, hardened or not, unless its memory went back to the system: then the program faults. Not to be mixed with the calls above. A block to be resized that is NULL is allocated. */
void *allot_reap_malloc(allot_reap *reap, size_t size);
void *allot_reap_try_malloc(allot_reap *reap, size_t size);
void *allot_reap_realloc(allot_reap *reap, void *block, size_t size);
void *allot_reap_try_realloc(allot_reap *reap, void *block, size_t size);
void allot_reap_free_known(allot_reap *reap, void *block);

/* ---- pool --------------------------------------------------------------------------------------------------------- */

/* The memory of a thread for whatever code it runs while it is in the pool. Made, entered, left, used and destroyed by one
 * thread; its blocks are freed by any, and may outlive it. Size classes and cost are a reap's. All pools lie in one range
 * of addresses, 64 GiB, which is reserved when the first one wants memory. */
typedef struct allot_pool allot_pool;

/* Options: name, budget, release, hardened, report_live, reserved, initial, increment, maximum. Takes no memory for blocks
 * yet, unless some is reserved.
 * Inline, below: allot_pool_create, allot_pool_try_create (options). */
allot_pool *allot_pool_create_abi(uint32_t abi, const allot_options *options);
allot_pool *allot_pool_try_create_abi(uint32_t abi, const allot_options *options);
/* What live blocks lie in stays until the last of them is freed. Another thread is refused (ALLOT_WRONG_THREAD), and so is
 * one that is in the pool (ALLOT_IN_USE). */
void allot_pool_destroy(allot_pool *pool);

/* A block, uninitialised. */
void *allot_pool_alloc(allot_pool *pool, size_t size, size_t align);
void *allot_pool_try_alloc(allot_pool *pool, size_t size, size_t align);
/* A block of this pool, on its thread; allot_free_sized() frees one of any pool on any thread. Size and alignment are those that
 * it has. */
void allot_pool_free(allot_pool *pool, void *block, size_t size, size_t align);
/* As allot_reap_resize, of a block of this pool. */
void *allot_pool_resize(allot_pool *pool, void *block, size_t old_size, size_t new_size, size_t align);
void *allot_pool_try_resize(allot_pool *pool, void *block, size_t old_size, size_t new_size, size_t align);
/* Gives memory back that holds nothing, whatever `release` keeps. Costs a look at each free block. Returns the bytes given back. */
size_t allot_pool_trim(allot_pool *pool);
/* Exact, but for blocks that other threads have freed and not sent yet: at most 32 for each that is in a pool of its own. */
allot_statistics allot_pool_statistics(const allot_pool *pool);
/* Whether it lies in memory of any pool. Any address, any thread; three instructions and a branch. */
bool allot_pool_any_holds(const void *address);

/* Between enter and leave the pool is the thread's current one. They nest, of one pool too, and are left in the opposite
 * order (else ALLOT_IN_USE). When the thread is out of the last, the pool gives back what `release` doesn't keep. A jump or an
 * exception over leave leaves the thread in it. */
typedef struct allot_entered {
    allot_pool *pool;
    void *before;
} allot_entered;
allot_entered allot_pool_enter(allot_pool *pool);
void allot_pool_leave(allot_entered entered);

/* What an object keeps of its pool: a number, good on any thread and after the pool's end. Allocating uses the pool on its own
 * thread while it lives, else the program's malloc; freeing and resizing find the owner by the block's address, whatever the
 * reference says, on any thread. */
typedef uint64_t allot_pool_ref;
allot_pool_ref allot_pool_reference(const allot_pool *pool);
allot_pool_ref allot_current(void);           /* the pool that the thread is in, or allot_global() */
allot_pool_ref allot_global(void);            /* the program's malloc: 0 */
bool allot_ref_is_usable(allot_pool_ref ref); /* whether allocating takes from a pool */

void *allot_ref_alloc(allot_pool_ref ref, size_t size, size_t align);
void *allot_ref_try_alloc(allot_pool_ref ref, size_t size, size_t align);
/* With the owner where that is malloc or a pool of the calling thread; else the block is copied to where `ref` allocates, and
 * freed. `old_size` and `align` are those that it has; a block that is NULL is allocated. If it fails, the block is as it was. */
void *allot_ref_resize(allot_pool_ref ref, void *block, size_t old_size, size_t new_size, size_t align);
void *allot_ref_try_resize(allot_pool_ref ref, void *block, size_t old_size, size_t new_size, size_t align);
/* A block of allot_pool_alloc, allot_ref_alloc or their kin, of whatever pool, on any thread. */
void allot_free_sized(void *block, size_t size, size_t align);

/* Blocks that know their size: 16 bytes more each, or as much as an alignment of more than 16; of the pool that the thread is in, of
 * a named one, or, outside of pools, of malloc. All are freed by allot_free() and resized by allot_realloc(), on any thread. A
 * block that was freed before, has another origin or was overwritten from below is told from a live one: it is named and
 * stopped. For that the 16 bytes before it are read: where they went back to the system (of a large block), or never were, the
 * program faults instead. Not to be mixed with free() or the calls above. */
void *allot_malloc(size_t size);
void *allot_try_malloc(size_t size);
void *allot_calloc(size_t count, size_t size); /* zeros */
void *allot_try_calloc(size_t count, size_t size);
void *allot_aligned_alloc(size_t align, size_t size);
void *allot_try_aligned_alloc(size_t align, size_t size);
void *allot_ref_malloc(allot_pool_ref ref, size_t size);
void *allot_ref_try_malloc(allot_pool_ref ref, size_t size);
void *allot_pool_malloc(allot_pool *pool, size_t size);
void *allot_pool_try_malloc(allot_pool *pool, size_t size);
/* The alignment stays. A block that is NULL is allocated. If it fails, the block is as it was. */
void *allot_realloc(void *block, size_t size);
void *allot_try_realloc(void *block, size_t size);
void allot_free(void *block);
/* The size that was asked for last; 0 of NULL. */
size_t allot_usable_size(const void *block);

/* ---- sealed ------------------------------------------------------------------------------------------------------- */

/* Objects that are built once by an initialiser and are read-only from then on: any thread reads them without a lock, and a
 * stray write faults. They lie on pages of their own, at least one; making them costs a system call for each chunk (64 KiB
 * at first, doubling up to 1 MiB), reading them nothing. Children made by fork share the pages. */
typedef struct allot_sealed allot_sealed;
typedef struct allot_sealer allot_sealer;

/* Builds in the sealer's memory and returns the object that allot_sealed_get() returns later, or NULL to give up. Nothing that it
 * built may be written to once it has returned. It must not jump or throw out. */
typedef const void *allot_sealed_init(allot_sealer *sealer, void *context);

/* Runs init at once, on this thread. Options: name, budget. The try_ twin returns NULL also if init gave up: with ALLOT_NO_ERROR
 * then, unless one of its calls failed; all memory is given back.
 * Inline, below: allot_sealed_create, allot_sealed_try_create (options, init, context). */
allot_sealed *allot_sealed_create_abi(uint32_t abi, const allot_options *options, allot_sealed_init *init, void *context);
allot_sealed *allot_sealed_try_create_abi(uint32_t abi, const allot_options *options, allot_sealed_init *init, void *context);
/* What init returned. */
const void *allot_sealed_get(const allot_sealed *sealed);
/* Makes it last as long as the process, its protection final where the kernel can do that (Linux 6.10). The handle is gone then. */
const void *allot_sealed_leak(allot_sealed *sealed);
/* Gives the memory back; nobody reads any more. */
void allot_sealed_destroy(allot_sealed *sealed);
allot_statistics allot_sealed_statistics(const allot_sealed *sealed);

/* Only while init runs (else ALLOT_BAD_HANDLE), on its thread (else ALLOT_WRONG_THREAD), hardened or not. Uninitialised memory;
 * copies aligned to 16; a text's copy with its NUL, not aligned. */
void *allot_sealer_alloc(allot_sealer *sealer, size_t size, size_t align);
void *allot_sealer_try_alloc(allot_sealer *sealer, size_t size, size_t align);
void *allot_sealer_memdup(allot_sealer *sealer, const void *bytes, size_t size);
void *allot_sealer_try_memdup(allot_sealer *sealer, const void *bytes, size_t size);
char *allot_sealer_strdup(allot_sealer *sealer, const char *text);
char *allot_sealer_try_strdup(allot_sealer *sealer, const char *text);

/* ---- inline functions --------------------------------------------------------------------------------------------- */

#if defined(__cplusplus) && defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wold-style-cast"
#endif

#define ALLOT_UNLIKELY(condition) __builtin_expect(!!(condition), 0)

#if defined(__SANITIZE_ADDRESS__) && !defined(ALLOT_OUT_OF_LINE)
#define ALLOT_OUT_OF_LINE 1
#elif defined(__has_feature) && !defined(ALLOT_OUT_OF_LINE)
#if __has_feature(address_sanitizer)
#define ALLOT_OUT_OF_LINE 1
#endif
#endif

static inline allot_source *allot_source_create(const allot_source_calls *calls, void *context)
{
    return allot_source_create_abi(ALLOT_ABI, calls, context);
}

static inline allot_source *allot_source_try_create(const allot_source_calls *calls, void *context)
{
    return allot_source_try_create_abi(ALLOT_ABI, calls, context);
}

static inline allot_arena *allot_arena_create(const allot_options *options)
{
    return allot_arena_create_abi(ALLOT_ABI, options);
}

static inline allot_arena *allot_arena_try_create(const allot_options *options)
{
    return allot_arena_try_create_abi(ALLOT_ABI, options);
}

static inline allot_free_list *allot_free_list_create(size_t size, size_t align, const allot_options *options)
{
    return allot_free_list_create_abi(ALLOT_ABI, size, align, options);
}

static inline allot_free_list *allot_free_list_try_create(size_t size, size_t align, const allot_options *options)
{
    return allot_free_list_try_create_abi(ALLOT_ABI, size, align, options);
}

static inline allot_slab *allot_slab_create(size_t size, size_t align, const allot_options *options)
{
    return allot_slab_create_abi(ALLOT_ABI, size, align, options);
}

static inline allot_slab *allot_slab_try_create(size_t size, size_t align, const allot_options *options)
{
    return allot_slab_try_create_abi(ALLOT_ABI, size, align, options);
}

static inline allot_slab_handle *allot_slab_handle_create(allot_slab *slab)
{
    return allot_slab_handle_create_abi(ALLOT_ABI, slab);
}

static inline allot_slab_handle *allot_slab_handle_try_create(allot_slab *slab)
{
    return allot_slab_handle_try_create_abi(ALLOT_ABI, slab);
}

static inline allot_reap *allot_reap_create(const allot_options *options)
{
    return allot_reap_create_abi(ALLOT_ABI, options);
}

static inline allot_reap *allot_reap_try_create(const allot_options *options)
{
    return allot_reap_try_create_abi(ALLOT_ABI, options);
}

static inline allot_pool *allot_pool_create(const allot_options *options)
{
    return allot_pool_create_abi(ALLOT_ABI, options);
}

static inline allot_pool *allot_pool_try_create(const allot_options *options)
{
    return allot_pool_try_create_abi(ALLOT_ABI, options);
}

static inline allot_sealed *allot_sealed_create(const allot_options *options, allot_sealed_init *init, void *context)
{
    return allot_sealed_create_abi(ALLOT_ABI, options, init, context);
}

static inline allot_sealed *allot_sealed_try_create(const allot_options *options, allot_sealed_init *init, void *context)
{
    return allot_sealed_try_create_abi(ALLOT_ABI, options, init, context);
}

/* The frozen first fields. Nothing outside of these headers may use them. */

struct allot_arena {
    char *allot_base;
    uint64_t allot_limit;
    uint64_t *allot_word; /* offset << 40 | objects << 20 | bytes; other threads read it */
};

struct allot_free_list {
    void *allot_head;
    intptr_t allot_count;
};

/* Other threads read `allot_room`: as a volatile word it is read and written in one piece, like a relaxed atomic, but the compiler
 * need not forget what else it has loaded. Slots are written as numbers, since as pointers they could be the handle's own:
 * with the front's address loaded anew for each call, a pair took 1.4 ns instead of 1.2. */
struct allot_slab_front {
    size_t allot_room;
    size_t allot_full;
    uint32_t allot_tag;
};

struct allot_slab_handle {
    struct allot_slab_front *allot_front;
    const uint32_t *const *allot_tags; /* by address: of each 64 KiB, in leaves of 4 GiB */
};

#define ALLOT_MAX_STEP ((size_t)1 << 22)
#define ALLOT_FRONT_BYTES 384 /* the slots at hand lie behind the front */

static inline void *allot_arena_alloc_inline(allot_arena *arena, size_t size, size_t align)
{
#ifdef ALLOT_OUT_OF_LINE
    (void)arena;
    (void)size;
    (void)align;
#else
    /* A size of zero is beyond the range too: the slow path counts it as one. */
    if (arena != NULL && size - 1 < ALLOT_MAX_STEP && align <= 16 && align > 0 && (align & (align - 1)) == 0) {
        uint64_t before = __atomic_load_n(arena->allot_word, __ATOMIC_RELAXED);
        size_t start = (size_t)(before >> 40);
        uint64_t after = before + ((uint64_t)((size + 7) & ~(size_t)7) << 40) + ((uint64_t)1 << 20) + size;
        if (align > 8) {
            size_t padding = (size_t)(0 - start) & (align - 1);
            start += padding;
            after += (uint64_t)padding << 40;
        }
        if (!ALLOT_UNLIKELY(after >= arena->allot_limit)) {
            __atomic_store_n(arena->allot_word, after, __ATOMIC_RELAXED);
            char *object = arena->allot_base + start;
            if (object == NULL)
                __builtin_unreachable(); /* spares the caller the question */
            return object;
        }
    }
#endif
    return NULL;
}

static inline void *allot_arena_alloc_aligned(allot_arena *arena, size_t size, size_t align)
{
    void *object = allot_arena_alloc_inline(arena, size, align);
    return ALLOT_UNLIKELY(object == NULL) ? allot_arena_alloc_slowly(arena, size, align) : object;
}

static inline void *allot_arena_try_alloc_aligned(allot_arena *arena, size_t size, size_t align)
{
    void *object = allot_arena_alloc_inline(arena, size, align);
    return ALLOT_UNLIKELY(object == NULL) ? allot_arena_try_alloc_slowly(arena, size, align) : object;
}

static inline void *allot_arena_alloc(allot_arena *arena, size_t size)
{
    return allot_arena_alloc_aligned(arena, size, 16);
}

static inline void *allot_arena_try_alloc(allot_arena *arena, size_t size)
{
    return allot_arena_try_alloc_aligned(arena, size, 16);
}

/* The bytes of an array; more than there can be if their number overflows, so that the allocation fails. */
static inline size_t allot_array_bytes(size_t count, size_t size)
{
    size_t bytes;
    return ALLOT_UNLIKELY(__builtin_mul_overflow(count, size, &bytes)) ? SIZE_MAX : bytes;
}

#ifdef __cplusplus
#define ALLOT_ALIGNOF(type) alignof(type)
#else
#define ALLOT_ALIGNOF(type) _Alignof(type)
#endif

#define ALLOT_ARENA_NEW(arena, type) ((type *)allot_arena_alloc_aligned((arena), sizeof(type), ALLOT_ALIGNOF(type)))
#define ALLOT_ARENA_TRY_NEW(arena, type) \
    ((type *)allot_arena_try_alloc_aligned((arena), sizeof(type), ALLOT_ALIGNOF(type)))
#define ALLOT_ARENA_ARRAY(arena, type, count) \
    ((type *)allot_arena_alloc_aligned((arena), allot_array_bytes((count), sizeof(type)), ALLOT_ALIGNOF(type)))
#define ALLOT_ARENA_TRY_ARRAY(arena, type, count) \
    ((type *)allot_arena_try_alloc_aligned((arena), allot_array_bytes((count), sizeof(type)), ALLOT_ALIGNOF(type)))

/* A free object begins with the address of the next one, whatever it held before. */
typedef void *allot_link __attribute__((may_alias));

static inline void *allot_free_list_alloc_inline(allot_free_list *list)
{
#ifdef ALLOT_OUT_OF_LINE
    (void)list;
#else
    if (list != NULL) {
        void *object = list->allot_head;
        if (!ALLOT_UNLIKELY(object == NULL)) {
            list->allot_head = *(allot_link *)object;
            list->allot_count += 1;
            return object;
        }
    }
#endif
    return NULL;
}

static inline void *allot_free_list_alloc(allot_free_list *list)
{
    void *object = allot_free_list_alloc_inline(list);
    return ALLOT_UNLIKELY(object == NULL) ? allot_free_list_alloc_slowly(list) : object;
}

static inline void *allot_free_list_try_alloc(allot_free_list *list)
{
    void *object = allot_free_list_alloc_inline(list);
    return ALLOT_UNLIKELY(object == NULL) ? allot_free_list_try_alloc_slowly(list) : object;
}

/* Freeing NULL does nothing. */
static inline void allot_free_list_free(allot_free_list *list, void *object)
{
#ifndef ALLOT_OUT_OF_LINE
    if (list != NULL && object != NULL) {
        /* Stored before it is tested: one instruction does both, unless the compiler remembers the old value. */
        list->allot_count -= 1;
        if (!ALLOT_UNLIKELY(list->allot_count < 0)) {
            *(allot_link *)object = list->allot_head;
            list->allot_head = object;
            return;
        }
        __asm__ volatile("" : : : "memory");
        list->allot_count += 1;
    }
#endif
    allot_free_list_free_slowly(list, object);
}

static inline void *allot_slab_handle_alloc_inline(allot_slab_handle *handle)
{
#ifdef ALLOT_OUT_OF_LINE
    (void)handle;
#else
    if (handle != NULL) {
        struct allot_slab_front *front = handle->allot_front;
        size_t room = *(volatile size_t *)&front->allot_room;
        /* Behind the last slot at hand stands a NULL. */
        void *slot = (void *)((uintptr_t *)((char *)front + ALLOT_FRONT_BYTES))[room];
        if (!ALLOT_UNLIKELY(slot == NULL)) {
            *(volatile size_t *)&front->allot_room = room + 1;
            return slot;
        }
    }
#endif
    return NULL;
}

static inline void *allot_slab_handle_alloc(allot_slab_handle *handle)
{
    void *slot = allot_slab_handle_alloc_inline(handle);
    return ALLOT_UNLIKELY(slot == NULL) ? allot_slab_handle_alloc_slowly(handle) : slot;
}

static inline void *allot_slab_handle_try_alloc(allot_slab_handle *handle)
{
    void *slot = allot_slab_handle_alloc_inline(handle);
    return ALLOT_UNLIKELY(slot == NULL) ? allot_slab_handle_try_alloc_slowly(handle) : slot;
}

static inline void allot_slab_handle_free(allot_slab_handle *handle, void *slot)
{
#ifndef ALLOT_OUT_OF_LINE
    if (handle != NULL) {
        struct allot_slab_front *front = handle->allot_front;
        size_t room = *(volatile size_t *)&front->allot_room;
        uintptr_t address = (uintptr_t)slot;
        const uint32_t *tags = handle->allot_tags[address >> 32];
        uint32_t tag = __atomic_load_n(&tags[(uint32_t)address >> 16], __ATOMIC_RELAXED);
        /* Tags that differ do so by more than any room; NULL has the tag 0, which is no slab's. */
        if (!ALLOT_UNLIKELY(room <= (tag ^ front->allot_tag))) {
            ((uintptr_t *)((char *)front + ALLOT_FRONT_BYTES))[room - 1] = address;
            *(volatile size_t *)&front->allot_room = room - 1;
            return;
        }
    }
#endif
    allot_slab_handle_free_slowly(handle, slot);
}

#if defined(__cplusplus) && defined(__clang__)
#pragma clang diagnostic pop
#endif

#ifdef __cplusplus
}
#endif

#endif
