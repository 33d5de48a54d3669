/* Allotment: memory allocators chosen by object lifetime and by the threads that use an object.
 *
 *   use                                                                        allocator
 *   one thread allocates many objects and frees them together                  allot_arena
 *   one thread allocates and frees objects of one size                         allot_free_list
 *   many threads allocate and free objects of one size                         allot_slab
 *   one thread allocates and frees objects of any size, for one piece of work  allot_reap
 *   the same, for all code that the thread runs                                allot_pool
 *   many threads read objects that never change after they are built           allot_sealed
 *
 * Rules for every function:
 *
 * - A function with try_ in its name returns NULL (or false) on failure, leaves the allocator as it
 *   was, and stores the reason for allot_last_error(). The function of the same name without try_
 *   never returns on failure: it calls the failure handler, which by default prints one line and
 *   aborts. It does so after every failure: if a limit refuses (a budget, a full disk, a full
 *   table), and if there is no memory. Where the program must go on, call the function with try_.
 * - A function that has no twin with try_ fails only if it is misused. The reports build a text, and
 *   abort if malloc has no memory for it.
 * - A NULL handle is an error (ALLOT_BAD_HANDLE). The exception is _destroy, which accepts NULL and
 *   does nothing. Freeing NULL does nothing. A text, an array or memory to copy that is NULL is the
 *   same error, unless its size is 0.
 * - Sizes are in bytes. A size of zero counts as one byte. An alignment is a power of two, in
 *   bytes; a function without an alignment parameter aligns to 16.
 * - The last word of a name means the same everywhere. _free takes only the object; _free_sized
 *   also takes its size and alignment. _reset frees all objects. _trim releases the memory that
 *   holds no object, and returns the number of bytes released.
 * - Arenas, free lists, reaps, pools and slab handles belong to one thread at a time. Any thread
 *   may use slabs, sealed objects, sources and budgets.
 *
 * The functions that this header defines use the first fields of an allocator, which are frozen for
 * one value of ALLOT_ABI. Under AddressSanitizer, or if ALLOT_OUT_OF_LINE is defined, they call the
 * library instead.
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

/* ---- version --------------------------------------------------------------------------------- */

/* The version of this header's structures and inline functions. Each _create call passes it to the
 * library. A library with another version refuses (ALLOT_WRONG_ABI). */
#define ALLOT_ABI 1u
#define ALLOT_VERSION "0.1.0"

uint32_t allot_abi(void);
const char *allot_version(void);

/* ---- errors ---------------------------------------------------------------------------------- */

typedef enum allot_error_kind {
    ALLOT_NO_ERROR = 0,
    ALLOT_SIZE_OVERFLOW = 1,   /* the size, with alignment or count, exceeds the address space */
    ALLOT_BAD_ALIGNMENT = 2,   /* zero, or not a power of two */
    ALLOT_BUDGET_EXCEEDED = 3, /* a budget has fewer bytes left than requested */
    ALLOT_SYSTEM = 4,          /* the operating system refused; system_error holds its errno */
    ALLOT_SOURCE_REFUSED = 5,  /* the source has no memory, without an errno */
    ALLOT_FORKED_CHILD = 6,    /* the source belongs to the parent of this forked process */
    ALLOT_SEALED_ERROR = 7,    /* sealed memory accepts no further object */
    ALLOT_NAME_TOO_LONG = 8,   /* longer than ALLOT_MAX_NAME bytes, or not UTF-8 */
    ALLOT_BAD_OPTION = 9,      /* an unsupported option, or an invalid value of one */
    ALLOT_BAD_HANDLE = 10,     /* NULL, destroyed, or not a handle of this kind; a NULL text or array */
    ALLOT_WRONG_THREAD = 11,   /* an allocator of one thread was used by another thread */
    ALLOT_WRONG_ABI = 12,      /* the header and the library have different ALLOT_ABI */
    ALLOT_IN_USE = 13,         /* destroyed or left while it is still in use */
    ALLOT_LIMIT_REACHED = 14   /* a fixed limit, such as the number of slabs, or the addresses of all pools */
} allot_error_kind;

#define ALLOT_MAX_NAME 64

typedef struct allot_error {
    allot_error_kind kind;
    int system_error;             /* errno for ALLOT_SYSTEM, otherwise 0 */
    size_t requested;             /* bytes requested; for ALLOT_BAD_ALIGNMENT, the alignment */
    const char *allocator;        /* its kind: "arena", "free list", "slab", "pool", ... */
    char name[ALLOT_MAX_NAME + 1]; /* the allocator's name, or empty */
    char message[256];            /* kind, name, cause and remedy, as one line */
} allot_error;

/* Returns the calling thread's last error, never NULL. Before the first error its kind is
 * ALLOT_NO_ERROR. The pointer stays valid until the thread ends; the thread's next failing call
 * overwrites the error. Successful calls leave it unchanged. */
const allot_error *allot_last_error(void);
void allot_clear_error(void);

/* The function that a failing call without try_ calls. If it returns, the process is aborted. It
 * must not longjmp or throw out of the call. allot_set_failure_handler() sets it for the whole
 * process; any thread may call it. NULL restores the default handler, which prints one line on
 * standard error and aborts. Returns the previous handler, or NULL for the default. */
typedef void allot_failure_handler(const allot_error *error);
allot_failure_handler *allot_set_failure_handler(allot_failure_handler *handler);

/* Turns hardened mode on or off for every allocator that is created afterwards. Setting
 * ALLOTMENT_HARDENED=1 in the environment does the same; `hardened` in allot_options hardens one
 * allocator. Hardened mode is for tests, and for services that should stop at the first sign of
 * memory corruption. No fast path is inline, and objects take some bytes more.
 *
 * - Double frees, foreign pointers, wrong sizes, overruns and writes after free are named on
 *   standard error, and the process is aborted.
 * - Use by a thread that is not the owner (ALLOT_WRONG_THREAD), use of a destroyed allocator
 *   (ALLOT_BAD_HANDLE) and destruction of an allocator in use (ALLOT_IN_USE) are ordinary errors: a
 *   call without try_ calls the failure handler. The library recognises the handles of the last
 *   4096 hardened allocators that were destroyed.
 * - If every allocator is hardened, a pointer that is not a handle, or a handle of another kind, is
 *   reported and not followed (ALLOT_BAD_HANDLE). Allocators that were created before this call are
 *   not recorded, so call it first. The inline functions follow the handle before it is checked;
 *   define ALLOT_OUT_OF_LINE if a program may pass arbitrary pointers.
 * - Hardened slabs and pools take locks. A process may fork at any time: fork() waits until no
 *   other thread holds such a lock, and the child goes on with what it inherits. If handlers of
 *   pthread_atfork() take locks of your own, and threads that hold these locks use hardened
 *   allocators, register the handlers after the first hardened allocator was created. A fork from a
 *   signal handler that interrupted a call of a hardened allocator is not supported. */
void allot_set_hardened(bool hardened);

/* ---- sources and budgets --------------------------------------------------------------------- */

/* Where an allocator gets its memory: in chunks of one page and more, never for single objects.
 * Sources are reference-counted: an allocator keeps its source, and destroying a source gives up
 * the caller's reference only. Any thread may use a source. */
typedef struct allot_source allot_source;

/* A custom source.
 *
 * `acquire` returns a block of `size` bytes aligned to `align`, a power of two, or NULL if it has
 * none (ALLOT_SOURCE_REFUSED). The block belongs to the caller until `release` is called with the
 * same size and alignment. A block that is not aligned to `align` is released and refused. Any
 * thread that uses an allocator on this source may call the functions. They must not use an
 * allocator that is on this source, must not throw and must not longjmp. */
typedef struct allot_source_calls {
    const char *name; /* a word for reports, copied; NULL means "callbacks" */
    void *(*acquire)(void *context, size_t size, size_t align);
    void (*release)(void *context, void *block, size_t size, size_t align);
    void (*end)(void *context); /* called when nothing uses the source any more; may be NULL */
    bool zeroed;                /* every acquired block is zero-filled */
    bool not_inherited;         /* a child created by fork does not inherit the memory: an access
                                 * in the child must fault. Allocators there leave the blocks
                                 * alone */
} allot_source_calls;

/* Creates a custom source. `calls` is copied; `context` is passed to each function.
 * Inline, below: allot_source_create, allot_source_try_create (calls, context). */
allot_source *allot_source_create_abi(uint32_t abi, const allot_source_calls *calls, void *context);
allot_source *allot_source_try_create_abi(uint32_t abi, const allot_source_calls *calls, void *context);
/* Anonymous mappings. The process-wide recycler keeps only their chunks warm. Huge pages are advice
 * to the kernel.
 *
 *   function                    pages
 *   allot_source_mmap           the default: ordinary pages. Beyond its first 2 MiB, an arena,
 *                               reap, free list or slab gets huge pages where their first touch is
 *                               cheap
 *   allot_source_small_pages    ordinary pages only
 *   allot_source_huge_pages     huge pages from the first chunk */
allot_source *allot_source_mmap(void);
allot_source *allot_source_try_mmap(void);
allot_source *allot_source_small_pages(void);
allot_source *allot_source_try_small_pages(void);
allot_source *allot_source_huge_pages(void);
allot_source *allot_source_try_huge_pages(void);
/* The program's malloc. */
allot_source *allot_source_malloc(void);
allot_source *allot_source_try_malloc(void);
/* A file. Its blocks are reserved before they are handed out, so a full disk is an error, not a
 * signal. allot_source_file_in() creates a file in a directory and unlinks it at once.
 * allot_source_file() creates a new file that keeps its name, for another process to read; if the
 * file exists, it fails with ALLOT_SYSTEM and EEXIST. Its bytes are the memory of the objects: as
 * long as any is in use, nothing else may write to the file or shorten it.
 *
 * A child made by fork does not have the memory of either: an access to an object faults. An
 * allocation fails with ALLOT_FORKED_CHILD, faults, or returns an address where an access faults.
 * The child may destroy, reset and trim the allocators, and ask for their statistics. */
allot_source *allot_source_file_in(const char *directory);
allot_source *allot_source_try_file_in(const char *directory);
allot_source *allot_source_file(const char *path);
allot_source *allot_source_try_file(const char *path);
/* Stores the file offset of the byte at this address. Returns false if the address is in none of
 * the file's chunks, as in a child made by fork, or the source is not a file. `offset` may be
 * NULL. */
bool allot_source_file_offset(const allot_source *source, const void *address, uint64_t *offset);
/* Gives up this reference. Memory that allocators took from the source stays valid. */
void allot_source_destroy(allot_source *source);

/* A hard limit on the bytes that allocators hold. It is exact, shared by threads and never
 * exceeded. Budgets nest: a charge to a child is also charged to its parent. Memory that the
 * recycler keeps warm is charged to no budget. Budgets are reference-counted, like sources. `limit`
 * and the result of allot_budget_used() are in bytes. */
typedef struct allot_budget allot_budget;
allot_budget *allot_budget_create(size_t limit);
allot_budget *allot_budget_try_create(size_t limit);
allot_budget *allot_budget_child(allot_budget *parent, size_t limit);
allot_budget *allot_budget_try_child(allot_budget *parent, size_t limit);
size_t allot_budget_limit(const allot_budget *budget);
size_t allot_budget_used(const allot_budget *budget);
/* Gives up this reference: allocators and children keep the budget. */
void allot_budget_destroy(allot_budget *budget);

/* ---- options --------------------------------------------------------------------------------- */

/* When empty memory is released to the system. */
typedef enum allot_release_kind {
    ALLOT_ADAPTIVE = 0, /* keep what the allocator takes again soon after a release */
    ALLOT_AT_ONCE = 1,  /* keep nothing; `amount` is 0, as with ALLOT_ADAPTIVE */
    ALLOT_KEEP = 2,  /* keep up to `amount` bytes */
    ALLOT_DECAY = 3  /* release what was not used for `amount` milliseconds */
} allot_release_kind;

typedef struct allot_release {
    allot_release_kind kind;
    uint64_t amount;
} allot_release;

/* Which chunks an arena keeps at a reset and at a rewind. At a rewind, the chunks that hold older
 * objects count first. */
typedef enum allot_retain_kind {
    ALLOT_RETAIN_NEWEST = 0,  /* one: the newest of at most 1 MiB; with a hint, of at most 2 MiB
                               * more than the larger of 1 MiB and the hinted chunk */
    ALLOT_RETAIN_NOTHING = 1, /* none; `bytes` is 0, as with ALLOT_RETAIN_NEWEST */
    ALLOT_RETAIN_UP_TO = 2 /* chunks of up to `bytes` bytes in all */
} allot_retain_kind;

typedef struct allot_retain {
    allot_retain_kind kind;
    size_t bytes;
} allot_retain;

/* Zero in a field means the default. NULL instead of a pointer to options means all defaults. An
 * option that the allocator does not support is an error (ALLOT_BAD_OPTION). The comments name the
 * allocators that support a field; `name`, `budget` and `maximum` are for all. The name is
 * copied, and the allocator keeps the budget and the source.
 *
 *     allot_arena *arena = allot_arena_create(&(allot_options){ .name = "query", .hint = 1 << 20 });
 */
typedef struct allot_options {
    const char *name;      /* for reports and errors; at most ALLOT_MAX_NAME bytes of UTF-8 */
    allot_budget *budget;  /* limits the bytes held */
    allot_source *source;  /* all but pools and sealed objects: where memory comes from */
    allot_release release; /* all but sealed objects: when empty memory is released */
    bool hardened;         /* all but sealed objects: misuse is named and the process aborted */
    bool report_live;      /* free list, slab, pool: _destroy reports live objects (stderr). The
                            * default is yes in hardened mode */
    bool packing;          /* slab: allocate from the fullest pages first */
    size_t hint;           /* arena: bytes of objects in the first chunk, which is taken at once */
    allot_retain retain;   /* arena: chunks kept at a reset */
    size_t objects_per_chunk; /* free list: objects that each chunk has room for */
    size_t max_page_bytes;   /* slab: bytes of the largest page; 0 means 64 KiB, at most 2 MiB */
    size_t max_cached_bytes; /* slab: bytes of slots that each thread caches; 0 means 256 KiB */
    size_t reserved;         /* reap, pool: bytes of blocks taken and faulted in at creation */
    size_t initial;          /* reap, pool: minimum bytes of the first chunk; 0 means 64 KiB */
    size_t increment;        /* reap, pool: minimum bytes of each further chunk */
    size_t maximum;          /* limit on the bytes held, as a budget of its own below `budget`; 0
                              * means none. A budget of 0 bytes refuses all */
} allot_options;

/* ---- statistics and report ------------------------------------------------------------------- */

/* What an allocator holds at the time of the call. */
typedef struct allot_statistics {
    uint64_t live_objects;    /* objects allocated and not freed */
    uint64_t live_bytes;      /* their bytes as requested, without padding */
    uint64_t held_bytes;      /* bytes taken from the source and not given back */
    uint64_t peak_held_bytes; /* the largest value that held_bytes has had */
    uint64_t wasted_bytes;    /* bytes that no object can use: padding, abandoned ends of chunks */
    uint64_t free_bytes;      /* bytes of slots that hold no object; 0 for an arena */
    uint64_t structure_bytes; /* bytes of the allocator's own structures outside its chunks */
    uint64_t chunks;          /* chunks held; for a slab, pages */
    uint64_t recycled_chunks; /* chunks that came warm from the recycler, from creation on */
    uint64_t source_calls;    /* calls to the system or the source, from creation on */
} allot_statistics;

/* Writes the statistics of every living allocator that has a name, as text or as one JSON object.
 * Like snprintf: writes at most `size` bytes including the NUL, and returns the length of the whole
 * text without the NUL. `buffer` may be NULL if `size` is 0. Any thread may call them. */
size_t allot_report_text(char *buffer, size_t size);
size_t allot_report_json(char *buffer, size_t size);

/* Finds the allocator that an address belongs to, and stores its kind ("arena", ...), its name and
 * its statistics. Returns false if there is none, or if it cannot be found by address. Each pointer
 * may be NULL; `name` must have room for ALLOT_MAX_NAME + 1 bytes. */
bool allot_owner_of(const void *address, const char **kind, char *name, allot_statistics *statistics);

/* The recycler: the process-wide cache of warm chunks. Its limit is 1 GiB by default. Any thread
 * may call these functions. Setters and trim also give back the chunks that the calling thread
 * keeps for itself, and those of no other thread. */
size_t allot_recycler_cached_bytes(void);               /* bytes cached */
size_t allot_recycler_limit(void);                      /* bytes that it may cache */
void allot_recycler_set_limit(size_t bytes);
void allot_recycler_set_policy(allot_release policy); /* when cached chunks are released */
size_t allot_recycler_trim(void); /* releases all to the system; returns the number of bytes */

/* ---- arena ----------------------------------------------------------------------------------- */

/* Many objects of one thread that are freed together. Allocation advances a position through a
 * chunk.
 *
 * The fast path is inline. Chunks begin with 4 KiB, double up to 1 MiB, and have 2 MiB from there
 * on. They come warm from the process-wide recycler and return to it. One thread at a time may use
 * an arena; allot_arena_adopt() transfers it. */
typedef struct allot_arena allot_arena;

/* A position in an arena, for allot_arena_rewind(). It is a plain value: it may be copied and
 * stored anywhere, and needs no call to destroy it. */
typedef struct allot_arena_position {
    uint64_t opaque[20];
} allot_arena_position;

/* Options: name, budget, maximum, source, release, hardened, hint, retain. Takes no memory for
 * objects until the first allocation, unless there is a hint. Inline, below: allot_arena_create,
 * allot_arena_try_create (options). */
allot_arena *allot_arena_create_abi(uint32_t abi, const allot_options *options);
allot_arena *allot_arena_try_create_abi(uint32_t abi, const allot_options *options);
/* Frees everything. The cost depends on the number of chunks, not of objects. */
void allot_arena_destroy(allot_arena *arena);

/* Inline, below; they return uninitialised memory:
 * - allot_arena_alloc, allot_arena_try_alloc (arena, size): aligned to 16;
 * - allot_arena_alloc_aligned, allot_arena_try_alloc_aligned (arena, size, align): aligned to any
 *   power of two; alignments of 8 and less need no padding between objects beyond multiples of 8
 *   bytes;
 * - ALLOT_ARENA_NEW, ALLOT_ARENA_TRY_NEW (arena, type): one object, aligned for its type;
 * - ALLOT_ARENA_ARRAY, ALLOT_ARENA_TRY_ARRAY (arena, type, count): an array. */
void *allot_arena_alloc_slowly(allot_arena *arena, size_t size, size_t align);
void *allot_arena_try_alloc_slowly(allot_arena *arena, size_t size, size_t align);

/* `count` times `size` zero bytes, aligned to 16. */
void *allot_arena_calloc(allot_arena *arena, size_t count, size_t size);
void *allot_arena_try_calloc(allot_arena *arena, size_t count, size_t size);
/* A copy of `size` bytes, aligned to 16. */
void *allot_arena_memdup(allot_arena *arena, const void *bytes, size_t size);
void *allot_arena_try_memdup(allot_arena *arena, const void *bytes, size_t size);
/* A copy of a string with its NUL. strndup copies at most `most` bytes and adds a NUL. The copy has
 * an alignment of 1. */
char *allot_arena_strdup(allot_arena *arena, const char *text);
char *allot_arena_try_strdup(allot_arena *arena, const char *text);
char *allot_arena_strndup(allot_arena *arena, const char *text, size_t most);
char *allot_arena_try_strndup(allot_arena *arena, const char *text, size_t most);

/* Resizes an object. The bytes up to the smaller of the two sizes are kept. The object stays in
 * place if it shrinks, or if it is the newest object and its chunk has room. Otherwise it moves,
 * and the old object is freed. `old_size` and `align` must be the object's own. If `object` is
 * NULL, a new object is allocated. On failure the object is unchanged. */
void *allot_arena_resize(allot_arena *arena, void *object, size_t old_size, size_t new_size, size_t align);
void *allot_arena_try_resize(allot_arena *arena, void *object, size_t old_size, size_t new_size, size_t align);
/* Frees an object. The arena reuses the bytes of the newest object. An older object is only
 * subtracted from the statistics. `size` and `align` must be the object's own. */
void allot_arena_free_sized(allot_arena *arena, void *object, size_t size, size_t align);
/* Frees every object and keeps the chunks that the option `retain` selects. */
void allot_arena_reset(allot_arena *arena);

/* allot_arena_mark() returns the arena's position; allot_arena_rewind() frees everything that was
 * allocated after it. Marks nest.
 *
 * - A position may be rewound to several times. It becomes invalid at a reset and at a rewind to an
 *   older position. Rewinding to an invalid position is ALLOT_BAD_HANDLE; after a rewind to an
 *   older position, only a hardened arena detects this.
 * - Between a mark and the rewind to it, an object that is older than the mark keeps its bytes:
 *   freeing or shrinking it changes only the statistics, and the rewind sets them back. If such an
 *   object grows, it moves, and the rewind frees it.
 * - Between two rewinds to the same position, do not free or resize objects that are older than
 *   it. */
allot_arena_position allot_arena_mark(allot_arena *arena);
void allot_arena_rewind(allot_arena *arena, const allot_arena_position *position);

/* Makes the calling thread the owner. A hardened arena refuses calls of any other thread. The
 * previous owner must have finished its last call; the caller synchronises the two threads. */
void allot_arena_adopt(allot_arena *arena);
/* Exact. Only the owning thread may call it. */
allot_statistics allot_arena_statistics(const allot_arena *arena);

/* ---- free list ------------------------------------------------------------------------------- */

/* Objects of one size for one thread. The object that was freed last is allocated first.
 *
 * Objects lie in chunks, which double up to 1 MiB and have 2 MiB from there on. A chunk without
 * live objects is released as the option `release` says. A free object holds the address of the
 * next free object, so a free overwrites the first 8 bytes of the object. The fast paths of
 * allocating and freeing are inline. */
typedef struct allot_free_list allot_free_list;

/* Objects of `size` bytes, aligned to `align`. Smaller sizes than 8 bytes take 8 bytes. Options:
 * name, budget, maximum, source, release, hardened, report_live, objects_per_chunk. Takes no memory
 * for objects until the first allocation. Inline, below: allot_free_list_create,
 * allot_free_list_try_create (size, align, options). */
allot_free_list *allot_free_list_create_abi(uint32_t abi, size_t size, size_t align, const allot_options *options);
allot_free_list *allot_free_list_try_create_abi(uint32_t abi, size_t size, size_t align, const allot_options *options);
/* Frees everything, live objects included. */
void allot_free_list_destroy(allot_free_list *list);

/* Inline, below:
 * - allot_free_list_alloc, allot_free_list_try_alloc (list): return an uninitialised object;
 * - allot_free_list_free (list, object): frees an object of this list. */
void *allot_free_list_alloc_slowly(allot_free_list *list);
void *allot_free_list_try_alloc_slowly(allot_free_list *list);
void allot_free_list_free_slowly(allot_free_list *list, void *object);

/* Allocates `objects` adjacent objects, allot_free_list_stride() bytes apart. Each is freed
 * separately. For 0 objects, returns an address that must neither be used nor freed. */
void *allot_free_list_alloc_run(allot_free_list *list, size_t objects);
void *allot_free_list_try_alloc_run(allot_free_list *list, size_t objects);
/* The size of an object with its padding, in bytes. */
size_t allot_free_list_stride(const allot_free_list *list);
/* The number of objects allocated and not freed. */
size_t allot_free_list_live(const allot_free_list *list);
/* Releases the empty chunks, including those that the option `release` keeps. Visits each free
 * object. Returns the number of bytes released. */
size_t allot_free_list_trim(allot_free_list *list);
/* Same as allot_arena_adopt(). */
void allot_free_list_adopt(allot_free_list *list);
allot_statistics allot_free_list_statistics(const allot_free_list *list);

/* ---- slab ------------------------------------------------------------------------------------ */

/* Slots of one size that any thread allocates and any thread frees.
 *
 * Each thread has a cache of slots for each slab that it uses. A cache holds at most 256 KiB by
 * default (see max_cached_bytes), and at most 4096 slots. Allocating from the cache and freeing
 * into it take no locked instruction. A refill from a page and a flush to a page take one locked
 * instruction for up to 64 neighbouring slots. When a thread ends, it flushes its caches. Pages
 * begin with one hardware page, grow to 64 KiB and are released when they are empty, as the option
 * `release` says. A slot has no header. */
typedef struct allot_slab allot_slab;

typedef enum allot_lifetime {
    ALLOT_SHORT_LIVED = 0,
    ALLOT_LONG_LIVED = 1 /* on separate pages; freed by the slow path */
} allot_lifetime;

/* Slots of `size` bytes, aligned to `align`. Options: name, budget, maximum, source, release,
 * hardened, report_live, packing, max_page_bytes, max_cached_bytes. Takes no page until the first
 * allocation. Inline, below: allot_slab_create, allot_slab_try_create (size, align, options). */
allot_slab *allot_slab_create_abi(uint32_t abi, size_t size, size_t align, const allot_options *options);
allot_slab *allot_slab_try_create_abi(uint32_t abi, size_t size, size_t align, const allot_options *options);
/* Returns a handle to the slab that the whole process shares for about this size. Sizes up to 1 KiB
 * are rounded up to multiples of 16, larger sizes to eight steps per doubling. Alignments are
 * rounded up to at least 16. The call takes a lock and looks the size up, so keep the handle.
 * Destroy each handle with allot_slab_destroy(); the slab is closed when its last handle is
 * destroyed. */
allot_slab *allot_slab_by_size(size_t size, size_t align);
allot_slab *allot_slab_try_by_size(size_t size, size_t align);
/* Closes the slab. Live slots stay valid; free them with allot_slab_free_anywhere(). A page is
 * released when its last slot is freed. No other thread may be inside a call on this slab. Its slab
 * handles must have been destroyed (otherwise ALLOT_IN_USE). */
void allot_slab_destroy(allot_slab *slab);

/* Allocates an uninitialised slot. Fails if no slot is free and neither the budget nor the source
 * grants a page. The slab then recalls the slots that other threads only cache: each thread returns
 * them the next time that it frees one, so a later call may succeed. */
void *allot_slab_alloc(allot_slab *slab);
void *allot_slab_try_alloc(allot_slab *slab);
/* Allocates for an expected lifetime. allot_slab_alloc() allocates for ALLOT_SHORT_LIVED. */
void *allot_slab_alloc_for(allot_slab *slab, allot_lifetime lifetime);
void *allot_slab_try_alloc_for(allot_slab *slab, allot_lifetime lifetime);
/* Frees a slot of this slab, on any thread. A slot of another slab is named on standard error and
 * the process is aborted, in every mode. A pointer that is no slab's slot is undefined behaviour
 * unless the slab is hardened. */
void allot_slab_free(allot_slab *slab, void *slot);
/* Frees a slot of any slab, destroyed or not, on any thread. For a pointer that is no slab's slot,
 * the failure handler is called (ALLOT_BAD_HANDLE). */
void allot_slab_free_anywhere(void *slot);

/* Allocates or frees `count` slots in one call, which is cheaper than `count` calls. An allocation
 * provides all slots or none. The slots that are freed must be distinct; NULLs are skipped. */
void allot_slab_alloc_many(allot_slab *slab, void **slots, size_t count);
bool allot_slab_try_alloc_many(allot_slab *slab, void **slots, size_t count);
void allot_slab_free_many(allot_slab *slab, void *const *slots, size_t count);

/* Takes pages from the source until `slots` slots are free in empty pages, and faults these pages
 * in. On an error it takes none: also if the system would refuse that many bytes at once. */
void allot_slab_reserve(allot_slab *slab, size_t slots);
bool allot_slab_try_reserve(allot_slab *slab, size_t slots);
/* Flushes the calling thread's cache and releases all empty pages, including those that the option
 * `release` keeps. Returns the number of bytes released. The caches of other threads keep their
 * pages. */
size_t allot_slab_trim(allot_slab *slab);
/* Flushes the calling thread's cache. For a thread that is about to sleep. */
void allot_slab_flush(allot_slab *slab);
/* Turns packing on or off: the slab allocates from the fullest pages first, so that the others
 * become empty. Each refill then searches for the fullest page. Any thread may call it at any
 * time. */
void allot_slab_set_packing(allot_slab *slab, bool packing);
/* The size of a slot in bytes, as requested. For a slab by size, the rounded-up size. */
size_t allot_slab_slot_size(const allot_slab *slab);
/* Exact if no thread is inside a call on the slab. Visits every page. */
allot_statistics allot_slab_statistics(const allot_slab *slab);
/* The same for the pages alone, in constant time, on any thread: live_objects and live_bytes are 0,
 * and free_bytes counts every slot, used or not. */
allot_statistics allot_slab_page_statistics(const allot_slab *slab);

/* A handle to one thread's cache of a slab. Its calls are inline and skip the lookup in the
 * thread's table of slabs.
 *
 * Only the thread that created the handle may use or destroy it (otherwise ALLOT_WRONG_THREAD; use
 * is checked only if the slab is hardened). Destroy it before the slab. Several handles of one
 * thread to one slab share the same cache. The slots belong to the slab: any of the slab's
 * functions frees them, on any thread. */
typedef struct allot_slab_handle allot_slab_handle;

/* Inline, below: allot_slab_handle_create, allot_slab_handle_try_create (slab). */
allot_slab_handle *allot_slab_handle_create_abi(uint32_t abi, allot_slab *slab);
allot_slab_handle *allot_slab_handle_try_create_abi(uint32_t abi, allot_slab *slab);
void allot_slab_handle_destroy(allot_slab_handle *handle);

/* Inline, below: allot_slab_handle_alloc, allot_slab_handle_try_alloc (handle);
 * allot_slab_handle_free (handle, slot). In hardened mode, freeing an address that no process can
 * have (2^48 and above) may fault instead of being reported. */
void *allot_slab_handle_alloc_slowly(allot_slab_handle *handle);
void *allot_slab_handle_try_alloc_slowly(allot_slab_handle *handle);
void allot_slab_handle_free_slowly(allot_slab_handle *handle, void *slot);

/* ---- reap ------------------------------------------------------------------------------------ */

/* Blocks of any size for one thread, freed one by one or all at once: an arena whose objects may
 * also be freed early.
 *
 *   blocks                                    size classes          unused at most
 *   up to 256 bytes                           multiples of 16       15 bytes
 *   up to 32 KiB                              eight per doubling    an eighth
 *   aligned to more than 16, up to 32 KiB     powers of two         half
 *   larger                                    a chunk each          what the chunk is rounded up to
 *
 * Chunks begin with 64 KiB, double up to 1 MiB and come warm from the recycler. One thread at a
 * time may use a reap; allot_reap_adopt() transfers it. */
typedef struct allot_reap allot_reap;

/* Options: name, budget, maximum, source, release, hardened, reserved, initial, increment. Takes no
 * memory for blocks until the first allocation, unless `reserved` is set.
 * Inline, below: allot_reap_create, allot_reap_try_create (options). */
allot_reap *allot_reap_create_abi(uint32_t abi, const allot_options *options);
allot_reap *allot_reap_try_create_abi(uint32_t abi, const allot_options *options);
/* Frees everything. The cost depends on the number of chunks, not of blocks. */
void allot_reap_destroy(allot_reap *reap);

/* Allocates an uninitialised block. */
void *allot_reap_alloc(allot_reap *reap, size_t size, size_t align);
void *allot_reap_try_alloc(allot_reap *reap, size_t size, size_t align);
/* Frees a block of this reap. `size` and `align` must be the block's own. */
void allot_reap_free_sized(allot_reap *reap, void *block, size_t size, size_t align);
/* Resizes a block. The bytes up to the smaller of the two sizes are kept. The block stays in place
 * if both sizes are of the same class, if it is the newest block of its chunk and there is room
 * behind it, or if it is large and its chunk has room. Otherwise it moves. `old_size` and `align`
 * must be the block's own. If `block` is NULL, a new block is allocated. On failure the block is
 * unchanged. */
void *allot_reap_resize(allot_reap *reap, void *block, size_t old_size, size_t new_size, size_t align);
void *allot_reap_try_resize(allot_reap *reap, void *block, size_t old_size, size_t new_size, size_t align);
/* Frees every block, at a cost that depends on the number of chunks. Keeps the reserved chunk, and
 * as much of the others as the option `release` says: up to 1 MiB by default. */
void allot_reap_reset(allot_reap *reap);
/* Releases the chunks that hold no live block; a reserved chunk stays. Visits each free block.
 * Returns the number of bytes released. */
size_t allot_reap_trim(allot_reap *reap);
/* Same as allot_arena_adopt(). */
void allot_reap_adopt(allot_reap *reap);
/* Exact. `live_bytes` counts a block with the size of its class, a larger one with its own size. */
allot_statistics allot_reap_statistics(const allot_reap *reap);

/* Blocks that store their size, for callers that free without it. Each block has a header of 16
 * bytes and is aligned to 16. allot_reap_realloc() of NULL allocates a block.
 *
 * In every mode, freeing or resizing one of the following is an error (ALLOT_BAD_HANDLE): a block
 * that was already freed, that is older than the last reset, that belongs to another reap, or whose
 * header was overwritten. If its memory was returned to the system, the program faults instead.
 *
 * Do not pass these blocks to the functions above, nor blocks from above to these functions. */
void *allot_reap_malloc(allot_reap *reap, size_t size);
void *allot_reap_try_malloc(allot_reap *reap, size_t size);
void *allot_reap_realloc(allot_reap *reap, void *block, size_t size);
void *allot_reap_try_realloc(allot_reap *reap, void *block, size_t size);
void allot_reap_free(allot_reap *reap, void *block);

/* ---- pool ------------------------------------------------------------------------------------ */

/* The memory of one thread, for all code that the thread runs while it is in the pool.
 *
 * The thread that creates a pool enters, leaves, uses and destroys it. Any thread may free its
 * blocks, and blocks may outlive the pool. The size classes are those of a reap. All pools share
 * one range of addresses: 64 GiB, or less if the process cannot reserve that much. It is reserved
 * when the first pool needs memory. */
typedef struct allot_pool allot_pool;

/* Options: name, budget, maximum, release, hardened, report_live, reserved, initial, increment.
 * Takes no memory for blocks until the first allocation, unless `reserved` is set.
 * Inline, below: allot_pool_create, allot_pool_try_create (options). */
allot_pool *allot_pool_create_abi(uint32_t abi, const allot_options *options);
allot_pool *allot_pool_try_create_abi(uint32_t abi, const allot_options *options);
/* Destroys the pool. The memory of live blocks stays until the last of them is freed. Fails if
 * another thread calls it (ALLOT_WRONG_THREAD), or if the thread has entered the pool and not left
 * it (ALLOT_IN_USE). */
void allot_pool_destroy(allot_pool *pool);

/* Allocates an uninitialised block. */
void *allot_pool_alloc(allot_pool *pool, size_t size, size_t align);
void *allot_pool_try_alloc(allot_pool *pool, size_t size, size_t align);
/* Frees a block of this pool, on the pool's thread. allot_free_sized() frees a block of any pool on
 * any thread. `size` and `align` must be the block's own. */
void allot_pool_free_sized(allot_pool *pool, void *block, size_t size, size_t align);
/* Same as allot_reap_resize(), for a block of this pool. */
void *allot_pool_resize(allot_pool *pool, void *block, size_t old_size, size_t new_size, size_t align);
void *allot_pool_try_resize(allot_pool *pool, void *block, size_t old_size, size_t new_size, size_t align);
/* Releases the memory that holds no live block, including what the option `release` keeps. Visits
 * each free block. Returns the number of bytes released. */
size_t allot_pool_trim(allot_pool *pool);
/* Exact, except that blocks which other threads freed but have not sent back yet count as live: at
 * most 32 for each thread that is inside a pool of its own. */
allot_statistics allot_pool_statistics(const allot_pool *pool);
/* Whether an address lies in the memory of any pool. Any address is allowed, on any thread. */
bool allot_pool_any_holds(const void *address);

/* Between allot_pool_enter() and allot_pool_leave(), the pool is the thread's current pool. Pools
 * nest, and a pool may be entered again inside itself. They are left in the opposite order
 * (otherwise ALLOT_IN_USE). When the thread leaves its outermost pool, that pool releases the
 * memory that the option `release` does not keep. If a longjmp or an exception skips
 * allot_pool_leave(), the thread stays in the pool. Only the pool's thread may call them (otherwise
 * ALLOT_WRONG_THREAD). */
typedef struct allot_entered {
    allot_pool *pool;
    void *before;
} allot_entered;
allot_entered allot_pool_enter(allot_pool *pool);
/* Stores what allot_pool_enter() returns. Fails if malloc has no memory to record the entry. */
bool allot_pool_try_enter(allot_pool *pool, allot_entered *entered);
void allot_pool_leave(allot_entered entered);

/* A reference to a pool, for objects to store: a number that stays valid on any thread and after
 * the pool is destroyed. Allocation takes from the pool on the pool's own thread while the pool
 * exists, and otherwise from the program's malloc. Free and resize find the owner by the block's
 * address, on any thread; the reference plays no part in that. */
typedef uint64_t allot_pool_ref;
allot_pool_ref allot_pool_reference(const allot_pool *pool);
allot_pool_ref allot_current(void);           /* the thread's current pool, or allot_global() */
allot_pool_ref allot_global(void);            /* the program's malloc: always 0 */
bool allot_ref_is_usable(allot_pool_ref ref); /* whether allocation takes from a pool */

void *allot_ref_alloc(allot_pool_ref ref, size_t size, size_t align);
void *allot_ref_try_alloc(allot_pool_ref ref, size_t size, size_t align);
/* Resizes a block. It stays with its owner if that is malloc or a pool of the calling thread.
 * Otherwise its bytes are copied to a block that `ref` allocates, and the old block is freed.
 * `old_size` and `align` must be the block's own. If `block` is NULL, a new block is allocated. On
 * failure the block is unchanged. */
void *allot_ref_resize(allot_pool_ref ref, void *block, size_t old_size, size_t new_size, size_t align);
void *allot_ref_try_resize(allot_pool_ref ref, void *block, size_t old_size, size_t new_size, size_t align);
/* Frees a block of allot_pool_alloc(), allot_ref_alloc() or their try_ and resize variants, of any
 * pool, on any thread. `size` and `align` must be the block's own. */
void allot_free_sized(void *block, size_t size, size_t align);

/* Blocks that store their size. Each has a header of 16 bytes, or of its alignment if that is
 * larger. They come from the thread's current pool, from the pool that the call names, or, outside
 * of pools, from malloc. allot_free() frees and allot_realloc() resizes all of them, on any thread.
 *
 * In every mode, freeing or resizing one of the following is an error (ALLOT_BAD_HANDLE): a block
 * that was already freed, a block of another origin, or a block whose header was overwritten. The
 * check reads the 16 bytes before the block. If these were returned to the system (a large block),
 * or are not mapped, the program faults instead.
 *
 * Do not pass these blocks to free() or to the functions above. */
void *allot_malloc(size_t size);
void *allot_try_malloc(size_t size);
void *allot_calloc(size_t count, size_t size); /* `count` times `size` zero bytes */
void *allot_try_calloc(size_t count, size_t size);
void *allot_aligned_alloc(size_t align, size_t size);
void *allot_try_aligned_alloc(size_t align, size_t size);
void *allot_ref_malloc(allot_pool_ref ref, size_t size);
void *allot_ref_try_malloc(allot_pool_ref ref, size_t size);
void *allot_pool_malloc(allot_pool *pool, size_t size);
void *allot_pool_try_malloc(allot_pool *pool, size_t size);
/* Resizes a block and keeps its alignment. If `block` is NULL, a new block is allocated. On failure
 * the block is unchanged. */
void *allot_realloc(void *block, size_t size);
void *allot_try_realloc(void *block, size_t size);
void allot_free(void *block);
/* The size in bytes that was requested last, by an allocation or a resize; 0 for NULL. */
size_t allot_usable_size(const void *block);

/* ---- sealed ---------------------------------------------------------------------------------- */

/* Objects that an initialiser builds once and that are read-only afterwards. Any thread reads them
 * without a lock; a stray write faults. They lie on separate pages, at least one. Sealing takes one
 * system call for each chunk (64 KiB at first, doubling up to 1 MiB). Reading has no overhead. A
 * child created by fork shares the pages. */
typedef struct allot_sealed allot_sealed;
typedef struct allot_sealer allot_sealer;

/* Builds an object in the sealer's memory and returns it, for allot_sealed_get() to return later;
 * NULL gives up. After the initialiser has returned, nothing that it built may be written to. It
 * must not longjmp or throw. */
typedef const void *allot_sealed_init(allot_sealer *sealer, void *context);

/* Runs `init` at once, on the calling thread, and seals what it built. Options: name, budget,
 * maximum. The try_ function also returns NULL if `init` gave up: the last error is then
 * ALLOT_NO_ERROR, unless a call inside `init` failed. All memory is released in that case.
 * Inline, below: allot_sealed_create, allot_sealed_try_create (options, init, context). */
allot_sealed *allot_sealed_create_abi(uint32_t abi, const allot_options *options, allot_sealed_init *init, void *context);
allot_sealed *allot_sealed_try_create_abi(uint32_t abi, const allot_options *options, allot_sealed_init *init, void *context);
/* The object that the initialiser returned. */
const void *allot_sealed_get(const allot_sealed *sealed);
/* Keeps the object for the life of the process, destroys the handle, and returns the object. If the
 * kernel supports it (Linux 6.10 and later), the write protection becomes permanent. */
const void *allot_sealed_leak(allot_sealed *sealed);
/* Releases the memory. No thread may read the object any more. */
void allot_sealed_destroy(allot_sealed *sealed);
allot_statistics allot_sealed_statistics(const allot_sealed *sealed);

/* Allocate in the memory that will be sealed. Allowed only while the initialiser runs (otherwise
 * ALLOT_BAD_HANDLE), on its thread (otherwise ALLOT_WRONG_THREAD); both are checked in every mode.
 * alloc returns uninitialised memory. memdup aligns its copy to 16. strdup copies the NUL too, with
 * an alignment of 1. */
void *allot_sealer_alloc(allot_sealer *sealer, size_t size, size_t align);
void *allot_sealer_try_alloc(allot_sealer *sealer, size_t size, size_t align);
void *allot_sealer_memdup(allot_sealer *sealer, const void *bytes, size_t size);
void *allot_sealer_try_memdup(allot_sealer *sealer, const void *bytes, size_t size);
char *allot_sealer_strdup(allot_sealer *sealer, const char *text);
char *allot_sealer_try_strdup(allot_sealer *sealer, const char *text);

/* ---- inline functions ------------------------------------------------------------------------ */

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

/* The frozen first fields. Only these headers may use them. */

struct allot_arena {
    char *allot_base;
    uint64_t allot_limit;
    uint64_t *allot_word; /* offset << 40 | objects << 20 | bytes; other threads may read it */
};

struct allot_free_list {
    void *allot_head;
    intptr_t allot_count;
};

/* Other threads read `allot_top`. A volatile access reads and writes it as one word, like a
 * relaxed atomic, but lets the compiler keep the other values that it has loaded. Slots are stored
 * as integers: a store of a pointer could alias the handle's own fields, and the compiler would
 * load the cache's address again for each call. */
struct allot_slab_cache {
    size_t allot_top;
    size_t allot_capacity;
    uint32_t allot_tag;
};

struct allot_slab_handle {
    struct allot_slab_cache *allot_cache;
    const uint32_t *const *allot_tags; /* a tag for each 64 KiB, in leaves of 4 GiB */
};

#define ALLOT_MAX_STEP ((size_t)1 << 22)
#define ALLOT_CACHE_HEADER_BYTES 384 /* the cached slots follow these bytes */

static inline void *allot_arena_alloc_inline(allot_arena *arena, size_t size, size_t align)
{
#ifdef ALLOT_OUT_OF_LINE
    (void)arena;
    (void)size;
    (void)align;
#else
    /* A size of zero wraps around and takes the slow path, which counts it as one byte. */
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
                __builtin_unreachable(); /* so the caller's NULL check is optimised away */
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

/* The bytes of an array. SIZE_MAX if the product overflows, so that the allocation fails. */
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

/* A free object begins with the address of the next free object. may_alias: the memory may have
 * held any type before. */
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
        /* Stored before it is tested, so that one instruction does both. */
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
        struct allot_slab_cache *cache = handle->allot_cache;
        size_t top = *(volatile size_t *)&cache->allot_top;
        /* A NULL follows the last cached slot. */
        void *slot = (void *)((uintptr_t *)(void *)((char *)cache + ALLOT_CACHE_HEADER_BYTES))[top];
        if (!ALLOT_UNLIKELY(slot == NULL)) {
            *(volatile size_t *)&cache->allot_top = top + 1;
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

/* Returns false if the slow path must free the slot. */
static inline bool allot_slab_handle_free_inline(allot_slab_handle *handle, void *slot)
{
#ifdef ALLOT_OUT_OF_LINE
    (void)handle;
    (void)slot;
#else
    if (handle != NULL) {
        struct allot_slab_cache *cache = handle->allot_cache;
        size_t top = *(volatile size_t *)&cache->allot_top;
        uintptr_t address = (uintptr_t)slot;
        const uint32_t *tags = handle->allot_tags[address >> 32];
        uint32_t tag = __atomic_load_n(&tags[(uint32_t)address >> 16], __ATOMIC_RELAXED);
        /* Two different tags differ by more than any value of `top`. NULL has the tag 0, which no
         * slab has. */
        if (!ALLOT_UNLIKELY(top <= (tag ^ cache->allot_tag))) {
            ((uintptr_t *)(void *)((char *)cache + ALLOT_CACHE_HEADER_BYTES))[top - 1] = address;
            /* The store to `top` stays the last one: from then on the slot counts as free. */
            __atomic_signal_fence(__ATOMIC_RELEASE);
            *(volatile size_t *)&cache->allot_top = top - 1;
            return true;
        }
    }
#endif
    return false;
}

static inline void allot_slab_handle_free(allot_slab_handle *handle, void *slot)
{
    if (ALLOT_UNLIKELY(!allot_slab_handle_free_inline(handle, slot))) {
        allot_slab_handle_free_slowly(handle, slot);
    }
}

#if defined(__cplusplus) && defined(__clang__)
#pragma clang diagnostic pop
#endif

#ifdef __cplusplus
}
#endif

#endif
