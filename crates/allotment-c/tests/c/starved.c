/* Without memory, each call with try_ returns an error, and the process goes on: if malloc refuses one call, if it
 * refuses all from one on, and if neither malloc nor the system has any memory.
 * skip: valgrind: it replaces malloc itself
 * skip: address-sanitizer: it replaces malloc itself
 * skip: hardened: the ledger of a hardened allocator is a map of the standard library
 */
#include <allotment_netdata.h>

#undef NDEBUG
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __GLIBC__

/* ---- malloc of this program, which refuses on demand --------------------------------------------------------- */

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);
void *__libc_memalign(size_t align, size_t size);

static size_t calls, refused_from, refused_to; /* calls with these numbers are refused */

static bool is_refused(void)
{
    calls += 1;
    bool refused = calls >= refused_from && calls < refused_to;
    if (refused) {
        errno = ENOMEM;
    }
    return refused;
}

void *malloc(size_t size)
{
    return is_refused() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return is_refused() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *block, size_t size)
{
    return is_refused() ? NULL : __libc_realloc(block, size);
}

void *aligned_alloc(size_t align, size_t size)
{
    return is_refused() ? NULL : __libc_memalign(align, size);
}

int posix_memalign(void **block, size_t align, size_t size)
{
    *block = is_refused() ? NULL : __libc_memalign(align, size);
    return *block == NULL ? ENOMEM : 0;
}

/* ---- the calls ----------------------------------------------------------------------------------------------- */

static allot_arena *arena;
static allot_slab *slab;
static allot_free_list *list;
static allot_reap *reap;
static allot_pool *pool;
static allot_budget *budget;

static const allot_options named = {.name = "starved"};

static void *no_block(void *context, size_t size, size_t align)
{
    (void)context;
    (void)size;
    (void)align;
    return NULL;
}

static void no_release(void *context, void *block, size_t size, size_t align)
{
    (void)context;
    (void)block;
    (void)size;
    (void)align;
}

static const allot_source_calls no_source = {.name = "none", .acquire = no_block, .release = no_release};

static const void *initialise(allot_sealer *sealer, void *context)
{
    (void)context;
    return allot_sealer_try_alloc(sealer, 8, 8);
}

static bool many(void)
{
    void *slots[100];
    return allot_slab_try_alloc_many(slab, slots, 100);
}

static bool pool_block(void)
{
    allot_entered entered;
    if (!allot_pool_try_enter(pool, &entered)) {
        return false;
    }
    void *block = allot_try_malloc(100);
    allot_pool_leave(entered);
    return block != NULL;
}

static bool slab_with_options(void)
{
    return allot_slab_try_create(64, 16, &(allot_options){.name = "starved", .budget = budget}) != NULL;
}

static bool arena_with_budget(void)
{
    return allot_arena_try_create(&(allot_options){.budget = budget, .hint = 4096}) != NULL;
}

static bool on_own_source(void)
{
    allot_source *source = allot_source_try_create(&no_source, NULL);
    if (source == NULL) {
        return false;
    }
    allot_arena *made = allot_arena_try_create(&(allot_options){.source = source});
    allot_source_destroy(source);
    allot_arena_destroy(made);
    return made != NULL;
}

#define CALL(name, expression) \
    static bool name(void) \
    { \
        return expression; \
    }

CALL(arena_create, allot_arena_try_create(NULL) != NULL)
CALL(arena_named, allot_arena_try_create(&named) != NULL)
CALL(arena_alloc, allot_arena_try_alloc(arena, 8) != NULL)
CALL(arena_large, allot_arena_try_alloc(arena, 3 << 20) != NULL)
CALL(arena_bad_option, allot_arena_try_create(&(allot_options){.packing = true}) != NULL)
CALL(slab_create, allot_slab_try_create(64, 16, NULL) != NULL)
CALL(slab_alloc, allot_slab_try_alloc(slab) != NULL)
CALL(slab_alloc_for, allot_slab_try_alloc_for(slab, ALLOT_LONG_LIVED) != NULL)
CALL(slab_reserve, allot_slab_try_reserve(slab, 10000))
CALL(slab_reserve_too_much, allot_slab_try_reserve(slab, (size_t)1 << 48))
CALL(handle_create, allot_slab_handle_try_create(slab) != NULL)
CALL(list_create_named, allot_free_list_try_create(64, 16, &named) != NULL)
CALL(list_alloc, allot_free_list_try_alloc(list) != NULL)
CALL(reap_create, allot_reap_try_create(&named) != NULL)
CALL(reap_alloc, allot_reap_try_alloc(reap, 8, 8) != NULL)
CALL(reap_malloc, allot_reap_try_malloc(reap, 8) != NULL)
CALL(pool_create, allot_pool_try_create(&named) != NULL)
CALL(pool_alloc, allot_pool_try_alloc(pool, 8, 8) != NULL)
CALL(try_malloc, allot_try_malloc(8) != NULL)
CALL(try_calloc, allot_try_calloc(8, 8) != NULL)
CALL(budget_create, allot_budget_try_create(5) != NULL)
CALL(budget_child, allot_budget_try_child(budget, 5) != NULL)
CALL(source_mmap, allot_source_try_mmap() != NULL)
CALL(source_malloc, allot_source_try_malloc() != NULL)
CALL(source_file_in, allot_source_try_file_in("/tmp") != NULL)
CALL(source_no_file, allot_source_try_file_in("/no/such/directory") != NULL)
CALL(sealed_create, allot_sealed_try_create(&named, initialise, NULL) != NULL)

static const struct {
    const char *name;
    bool (*call)(void); /* returns whether it succeeded */
} cases[] = {
    {"arena_create", arena_create},
    {"arena_named", arena_named},
    {"arena_alloc", arena_alloc},
    {"arena_large", arena_large},
    {"arena_bad_option", arena_bad_option},
    {"arena_with_budget", arena_with_budget},
    {"slab_create", slab_create},
    {"slab_with_options", slab_with_options},
    {"slab_alloc", slab_alloc},
    {"slab_alloc_for", slab_alloc_for},
    {"slab_alloc_many", many},
    {"slab_reserve", slab_reserve},
    {"slab_reserve_too_much", slab_reserve_too_much},
    {"handle_create", handle_create},
    {"list_create", list_create_named},
    {"list_alloc", list_alloc},
    {"reap_create", reap_create},
    {"reap_alloc", reap_alloc},
    {"reap_malloc", reap_malloc},
    {"pool_create", pool_create},
    {"pool_alloc", pool_alloc},
    {"pool_block", pool_block},
    {"malloc", try_malloc},
    {"calloc", try_calloc},
    {"budget_create", budget_create},
    {"budget_child", budget_child},
    {"source_create", on_own_source},
    {"source_mmap", source_mmap},
    {"source_malloc", source_malloc},
    {"source_file_in", source_file_in},
    {"source_no_file", source_no_file},
    {"sealed_create", sealed_create},
};

static void create_all(void)
{
    arena = allot_arena_create(NULL);
    slab = allot_slab_create(64, 16, NULL);
    list = allot_free_list_create(64, 16, NULL);
    reap = allot_reap_create(NULL);
    pool = allot_pool_create(NULL);
    budget = allot_budget_create((size_t)1 << 30);
}

/* Takes all memory that malloc and the system have. */
static void exhaust(void)
{
    struct rlimit limit = {300u << 20, 300u << 20};
    assert(setrlimit(RLIMIT_AS, &limit) == 0);
    for (size_t size = (size_t)64 << 20; size >= 4096; size /= 2) {
        while (mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) {
        }
    }
    /* Volatile: a compiler may take a call of malloc whose result is not used for one that succeeds. */
    void *volatile taken;
    for (size_t size = (size_t)64 << 20; size >= 8; size = size > 4096 ? size / 2 : size - 8) {
        do {
            taken = malloc(size);
        } while (taken != NULL);
    }
}

enum how { ONE, ALL_FROM, EXHAUSTED };

/* In a child. Makes the call, with malloc refusing from the call of this number on. Exits with 2 if it did not call
 * malloc so often, 1 on an error, 0 otherwise. */
static void starve(size_t which, enum how how, size_t number)
{
    create_all();
    allot_clear_error();
    if (how == EXHAUSTED) {
        exhaust();
    }
    calls = 0;
    refused_from = how == EXHAUSTED ? 0 : number;
    refused_to = how == ONE ? number + 1 : how == ALL_FROM ? SIZE_MAX : 0;
    bool succeeded = cases[which].call();
    size_t made = calls;
    refused_from = refused_to = 0;
    const allot_error *error = allot_last_error();
    if (!succeeded && (error->kind == ALLOT_NO_ERROR || error->message[0] == 0)) {
        _exit(1);
    }
    if (how != EXHAUSTED) {
        /* The allocators are as they were. */
        if (allot_arena_try_alloc(arena, 100) == NULL || allot_slab_try_alloc(slab) == NULL
            || allot_free_list_try_alloc(list) == NULL || allot_reap_try_alloc(reap, 100, 8) == NULL
            || allot_pool_try_alloc(pool, 100, 8) == NULL) {
            _exit(1);
        }
    }
    _exit(how != EXHAUSTED && made < number ? 2 : 0);
}

static int errors;

/* Returns whether the call made as many calls of malloc. */
static bool run(size_t which, enum how how, size_t number)
{
    fflush(NULL);
    pid_t pid = fork();
    assert(pid >= 0);
    if (pid == 0) {
        alarm(60);
        starve(which, how, number);
    }
    int status;
    assert(waitpid(pid, &status, 0) == pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) == 1) {
        static const char *const names[] = {"refused once", "refused from there on", "exhausted"};
        printf("%s: %s at call %zu: %s %d\n", cases[which].name, names[how], number,
               WIFSIGNALED(status) ? "signal" : "status", WIFSIGNALED(status) ? WTERMSIG(status) : 1);
        errors += 1;
    }
    return WIFEXITED(status) && WEXITSTATUS(status) != 2;
}

int main(int count, char **arguments)
{
    if (count > 1 && strcmp(arguments[1], "--cases") == 0) {
        return 0;
    }
    for (size_t which = 0; which < sizeof cases / sizeof cases[0]; which++) {
        for (enum how how = ONE; how <= ALL_FROM; how++) {
            for (size_t number = 1; number < 100 && run(which, how, number); number++) {
            }
        }
        (void)run(which, EXHAUSTED, 0);
    }
    return errors == 0 ? 0 : 1;
}

#else

int main(void)
{
    puts("SKIPPED: only glibc's malloc can be replaced and called");
    return 0;
}

#endif
