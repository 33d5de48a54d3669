/* SQLite on a pool, and its page cache on a slab. SQLite allocates from the pool that its thread
 * has entered. The pages of its databases are slots of a slab, which any thread may allocate and
 * free.
 *
 *     cc -O2 sqlite.c -o sqlite $(pkg-config --cflags --libs allotment sqlite3)
 */

#include "client.h"

#include <allotment.h>
#include <sqlite3.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ---------------------------------------------------------------------------------- */

/* Blocks of the pool that the thread has entered, or of malloc outside of pools. Any thread may
 * free them. */
static void *pool_malloc(int size)
{
    return allot_try_malloc((size_t)size);
}

static void *pool_realloc(void *block, int size)
{
    return allot_try_realloc(block, (size_t)size);
}

static int pool_size(void *block)
{
    return block == NULL ? 0 : (int)allot_usable_size(block);
}

static int pool_roundup(int size)
{
    return (size + 7) & ~7;
}

static int pool_init(void *context)
{
    (void)context;
    return SQLITE_OK;
}

static void pool_shutdown(void *context)
{
    (void)context;
}

static const sqlite3_mem_methods POOL = {
    pool_malloc, allot_free, pool_realloc, pool_size, pool_roundup, pool_init, pool_shutdown, NULL,
};

/* ---- pages ----------------------------------------------------------------------------------- */

/* The slot of a page: this structure, then SQLite's extra data for the page, then the page. */
typedef struct page {
    sqlite3_pcache_page public; /* first, because SQLite uses this address */
    struct page *same_hash;
    struct page *older; /* list of the unpinned pages */
    struct page *newer;
    unsigned number;
    bool pinned;
} page;

/* The pages of one database, on disk or in memory. SQLite uses one cache from one thread at a
 * time. */
typedef struct cache {
    allot_slab *slab; /* shared by all caches with this page size */
    page **buckets;   /* by page number; their number is a power of two */
    unsigned bucket_count;
    unsigned pages;
    unsigned pinned;
    unsigned most; /* limit on the pages, which SQLite sets */
    page *oldest;  /* of the unpinned pages */
    page *newest;
    size_t page_size;
    size_t extra_size;
    bool purgeable; /* false: the cache is the only copy of the database */
} cache;

enum { FIRST_BUCKETS = 256 };

static size_t rounded(size_t size)
{
    return (size + 15) & ~(size_t)15;
}

static page **bucket(const cache *cache, unsigned number)
{
    return &cache->buckets[number & (cache->bucket_count - 1)];
}

static int pages_init(void *context)
{
    (void)context;
    return SQLITE_OK;
}

static void pages_shutdown(void *context)
{
    (void)context;
}

static sqlite3_pcache *pages_create(int page_size, int extra_size, int purgeable)
{
    cache *made = (cache *)allot_try_malloc(sizeof *made);
    if (made == NULL) {
        return NULL;
    }
    memset(made, 0, sizeof *made);
    made->page_size = rounded((size_t)page_size);
    made->extra_size = rounded((size_t)extra_size);
    made->purgeable = purgeable != 0;
    made->bucket_count = FIRST_BUCKETS;
    made->buckets = (page **)allot_try_calloc(FIRST_BUCKETS, sizeof *made->buckets);
    made->slab = allot_slab_try_by_size(rounded(sizeof(page)) + made->extra_size + made->page_size, 16);
    if (made->buckets == NULL || made->slab == NULL) {
        allot_free(made->buckets);
        allot_slab_destroy(made->slab);
        allot_free(made);
        return NULL;
    }
    return (sqlite3_pcache *)made;
}

static void pages_set_size(sqlite3_pcache *which, int most)
{
    ((cache *)which)->most = most > 0 ? (unsigned)most : 0;
}

static int pages_count(sqlite3_pcache *which)
{
    return (int)((cache *)which)->pages;
}

static void take_from_unheld(cache *cache, page *page)
{
    *(page->older != NULL ? &page->older->newer : &cache->oldest) = page->newer;
    *(page->newer != NULL ? &page->newer->older : &cache->newest) = page->older;
    page->older = page->newer = NULL;
}

static void take_from_bucket(cache *cache, page *page)
{
    struct page **at = bucket(cache, page->number);
    while (*at != page) {
        at = &(*at)->same_hash;
    }
    *at = page->same_hash;
}

static void put_into_bucket(cache *cache, page *page)
{
    struct page **first = bucket(cache, page->number);
    page->same_hash = *first;
    *first = page;
}

static void let_go(cache *cache, page *page)
{
    if (page->pinned) {
        cache->pinned--;
    } else {
        take_from_unheld(cache, page);
    }
    take_from_bucket(cache, page);
    cache->pages--;
    allot_slab_free(cache->slab, page);
}

/* Doubles the buckets. Without memory for them, pages are still found, but more slowly. */
static void more_buckets(cache *cache)
{
    struct page **more = (struct page **)allot_try_calloc((size_t)cache->bucket_count * 2, sizeof *more);
    if (more == NULL) {
        return;
    }
    struct page **old = cache->buckets;
    unsigned count = cache->bucket_count;
    cache->buckets = more;
    cache->bucket_count = count * 2;
    for (unsigned index = 0; index < count; index++) {
        for (page *page = old[index]; page != NULL;) {
            struct page *next = page->same_hash;
            put_into_bucket(cache, page);
            page = next;
        }
    }
    allot_free(old);
}

static sqlite3_pcache_page *pages_fetch(sqlite3_pcache *which, unsigned number, int create)
{
    cache *cache = (struct cache *)which;
    page *found = *bucket(cache, number);
    while (found != NULL && found->number != number) {
        found = found->same_hash;
    }
    if (found != NULL) {
        if (!found->pinned) {
            take_from_unheld(cache, found);
            found->pinned = true;
            cache->pinned++;
        }
        return &found->public;
    }
    if (create == 0) {
        return NULL;
    }
    if (cache->purgeable && cache->most > 0) {
        /* With 1, only if it is cheap: SQLite then writes pages out, and calls again with 2. */
        if (create == 1 && cache->pinned >= cache->most - cache->most / 10) {
            return NULL;
        }
        while (cache->pages >= cache->most && cache->oldest != NULL) {
            let_go(cache, cache->oldest);
        }
    }
    if (cache->pages >= cache->bucket_count) {
        more_buckets(cache);
    }
    page *made = (page *)allot_slab_try_alloc(cache->slab);
    if (made == NULL) {
        return NULL;
    }
    char *behind = (char *)made + rounded(sizeof *made);
    *made = (page){.public = {.pBuf = behind + cache->extra_size, .pExtra = behind}, .number = number, .pinned = true};
    /* The first word tells SQLite that the page is new. */
    memset(behind, 0, cache->extra_size);
    put_into_bucket(cache, made);
    cache->pages++;
    cache->pinned++;
    return &made->public;
}

static void pages_unpin(sqlite3_pcache *which, sqlite3_pcache_page *public, int discard)
{
    cache *cache = (struct cache *)which;
    page *page = (struct page *)public;
    if (discard != 0 || (cache->purgeable && cache->pages > cache->most)) {
        let_go(cache, page);
        return;
    }
    page->pinned = false;
    cache->pinned--;
    page->older = cache->newest;
    page->newer = NULL;
    *(cache->newest != NULL ? &cache->newest->newer : &cache->oldest) = page;
    cache->newest = page;
}

static void pages_rekey(sqlite3_pcache *which, sqlite3_pcache_page *public, unsigned old_number, unsigned number)
{
    cache *cache = (struct cache *)which;
    page *page = (struct page *)public;
    (void)old_number;
    struct page *other = *bucket(cache, number);
    while (other != NULL && other->number != number) {
        other = other->same_hash;
    }
    if (other != NULL && other != page) {
        let_go(cache, other);
    }
    take_from_bucket(cache, page);
    page->number = number;
    put_into_bucket(cache, page);
}

static void pages_truncate(sqlite3_pcache *which, unsigned first)
{
    cache *cache = (struct cache *)which;
    for (unsigned index = 0; index < cache->bucket_count; index++) {
        for (page *page = cache->buckets[index]; page != NULL;) {
            struct page *next = page->same_hash;
            if (page->number >= first) {
                let_go(cache, page);
            }
            page = next;
        }
    }
}

static void pages_destroy(sqlite3_pcache *which)
{
    cache *cache = (struct cache *)which;
    pages_truncate(which, 0);
    allot_free(cache->buckets);
    allot_slab_destroy(cache->slab);
    allot_free(cache);
}

static void pages_shrink(sqlite3_pcache *which)
{
    cache *cache = (struct cache *)which;
    while (cache->purgeable && cache->oldest != NULL) {
        let_go(cache, cache->oldest);
    }
    allot_slab_trim(cache->slab);
}

static const sqlite3_pcache_methods2 SLAB = {
    1,           NULL,        pages_init,     pages_shutdown, pages_create,  pages_set_size, pages_count,
    pages_fetch, pages_unpin, pages_rekey,    pages_truncate, pages_destroy, pages_shrink,
};

/* ---- the work -------------------------------------------------------------------------------- */

typedef struct shop {
    sqlite3 *database;
    unsigned orders;
    uint64_t random;
    uint64_t checksum;
    uint64_t statements;
} shop;

static int run(shop *shop, const char *text)
{
    shop->statements++;
    return sqlite3_exec(shop->database, text, NULL, NULL, NULL);
}

static const char SCHEMA[] =
    "CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT NOT NULL, city TEXT NOT NULL, notes TEXT);"
    "CREATE TABLE article (id INTEGER PRIMARY KEY, label TEXT NOT NULL, cents INTEGER NOT NULL);"
    "CREATE TABLE sale (id INTEGER PRIMARY KEY, customer INTEGER NOT NULL, article INTEGER NOT NULL,"
    " count INTEGER NOT NULL, day TEXT NOT NULL, remark TEXT);";

static const char *const CITIES[] = {"Kiel", "Porto", "Gdansk", "Cork", "Bergen", "Vigo", "Turku", "Malmo"};

static unsigned drawn(shop *shop, unsigned below)
{
    return client_random(&shop->random) % below;
}

static unsigned customers(const shop *shop)
{
    return shop->orders / 10 + 1;
}

static unsigned articles(const shop *shop)
{
    return shop->orders / 40 + 1;
}

static int step(shop *shop, sqlite3_stmt *statement)
{
    shop->statements++;
    int code = sqlite3_step(statement);
    int after = sqlite3_reset(statement);
    return code == SQLITE_DONE ? after : code;
}

static int fill(shop *shop)
{
    char text[96];
    sqlite3_stmt *statement = NULL;
    int code = run(shop, SCHEMA);
    code = code != SQLITE_OK ? code : run(shop, "BEGIN");

    if (code == SQLITE_OK) {
        code = sqlite3_prepare_v2(shop->database, "INSERT INTO customer VALUES (?, ?, ?, ?)", -1, &statement, NULL);
    }
    for (unsigned id = 1; code == SQLITE_OK && id <= customers(shop); id++) {
        snprintf(text, sizeof text, "Customer %u of %u", drawn(shop, 90000), id);
        sqlite3_bind_int(statement, 1, (int)id);
        sqlite3_bind_text(statement, 2, text, -1, SQLITE_TRANSIENT);
        sqlite3_bind_text(statement, 3, CITIES[drawn(shop, 8)], -1, SQLITE_STATIC);
        sqlite3_bind_zeroblob(statement, 4, (int)drawn(shop, 400));
        code = step(shop, statement);
    }
    sqlite3_finalize(statement);
    statement = NULL;

    if (code == SQLITE_OK) {
        code = sqlite3_prepare_v2(shop->database, "INSERT INTO article VALUES (?, ?, ?)", -1, &statement, NULL);
    }
    for (unsigned id = 1; code == SQLITE_OK && id <= articles(shop); id++) {
        snprintf(text, sizeof text, "article-%06u", drawn(shop, 1000000));
        sqlite3_bind_int(statement, 1, (int)id);
        sqlite3_bind_text(statement, 2, text, -1, SQLITE_TRANSIENT);
        sqlite3_bind_int(statement, 3, (int)drawn(shop, 20000));
        code = step(shop, statement);
    }
    sqlite3_finalize(statement);
    statement = NULL;

    if (code == SQLITE_OK) {
        code = sqlite3_prepare_v2(shop->database,
                                  "INSERT INTO sale (customer, article, count, day, remark) VALUES (?, ?, ?, ?, ?)", -1,
                                  &statement, NULL);
    }
    for (unsigned order = 0; code == SQLITE_OK && order < shop->orders; order++) {
        snprintf(text, sizeof text, "2025-%02u-%02u", drawn(shop, 12) + 1, drawn(shop, 28) + 1);
        sqlite3_bind_int(statement, 1, (int)drawn(shop, customers(shop)) + 1);
        sqlite3_bind_int(statement, 2, (int)drawn(shop, articles(shop)) + 1);
        sqlite3_bind_int(statement, 3, (int)drawn(shop, 9) + 1);
        sqlite3_bind_text(statement, 4, text, -1, SQLITE_TRANSIENT);
        if (order % 3 == 0) {
            snprintf(text, sizeof text, "leave parcel %u with the neighbours of number %u", order, drawn(shop, 300));
            sqlite3_bind_text(statement, 5, text, -1, SQLITE_TRANSIENT);
        } else {
            sqlite3_bind_null(statement, 5);
        }
        code = step(shop, statement);
    }
    sqlite3_finalize(statement);

    code = code != SQLITE_OK ? code : run(shop, "COMMIT");
    code = code != SQLITE_OK ? code : run(shop, "CREATE INDEX sale_by_customer ON sale (customer, day)");
    return code != SQLITE_OK ? code : run(shop, "CREATE INDEX customer_by_city ON customer (city, name)");
}

static void mix_text(shop *shop, const unsigned char *text)
{
    for (; text != NULL && *text != '\0'; text++) {
        shop->checksum = client_mixed(shop->checksum, *text);
    }
}

/* Reads all rows of a query with one number in it. Compiles the query each time, as most programs
 * do. */
static int ask(shop *shop, const char *query, int number)
{
    sqlite3_stmt *statement = NULL;
    int code = sqlite3_prepare_v2(shop->database, query, -1, &statement, NULL);
    if (code != SQLITE_OK) {
        return code;
    }
    shop->statements++;
    sqlite3_bind_int(statement, 1, number);
    while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
        for (int column = 0; column < sqlite3_column_count(statement); column++) {
            mix_text(shop, sqlite3_column_text(statement, column));
        }
    }
    int after = sqlite3_finalize(statement);
    return code == SQLITE_DONE ? after : code;
}

static int look_and_change(shop *shop)
{
    int code = SQLITE_OK;
    for (unsigned turn = 0; code == SQLITE_OK && turn < shop->orders / 8; turn++) {
        int customer = (int)drawn(shop, customers(shop)) + 1;
        code = ask(shop,
                   "SELECT s.day, a.label, s.count * a.cents, coalesce(s.remark, '-') FROM sale s JOIN article a"
                   " ON a.id = s.article WHERE s.customer = ? ORDER BY s.day DESC LIMIT 10",
                   customer);
        if (code == SQLITE_OK && turn % 4 == 0) {
            code = ask(shop,
                       "UPDATE sale SET remark = 'moved; ' || coalesce(remark, 'no remark'), count = count + 1"
                       " WHERE customer = ? AND day > '2025-06'",
                       customer);
        }
        if (code == SQLITE_OK && turn % 16 == 0) {
            code = ask(shop, "DELETE FROM sale WHERE customer = ? AND day < '2025-02'", customer);
        }
        if (code == SQLITE_OK && turn % 512 == 0) {
            code = ask(shop,
                       "SELECT c.city, substr(s.day, 1, 7) AS month, sum(s.count * a.cents), count(DISTINCT c.id),"
                       " group_concat(DISTINCT a.label) FROM sale s JOIN customer c ON c.id = s.customer"
                       " JOIN article a ON a.id = s.article WHERE a.id % 50 = ? GROUP BY 1, 2 ORDER BY 3 DESC",
                       (int)drawn(shop, 50));
        }
    }
    return code;
}

/* Old rows go to a separate database in a temporary file. Its cache is small, so that pages are
 * replaced, and deleting rows discards pages. */
static int archive(shop *shop)
{
    int code = run(shop, "ATTACH '' AS archive; PRAGMA archive.auto_vacuum = FULL; PRAGMA archive.cache_size = 100");
    code = code != SQLITE_OK ? code : run(shop, "CREATE TABLE archive.old AS SELECT * FROM sale WHERE day < '2025-07'");
    code = code != SQLITE_OK ? code : run(shop, "CREATE INDEX archive.old_by_article ON old (article, count)");
    code = code != SQLITE_OK ? code : run(shop, "DELETE FROM archive.old WHERE day > '2025-02'");
    code = code != SQLITE_OK
               ? code
               : ask(shop, "SELECT article, sum(count), max(day) FROM archive.old WHERE count > ? GROUP BY 1 ORDER BY 2, 1", 2);
    code = code != SQLITE_OK ? code : run(shop, "PRAGMA shrink_memory");
    return code != SQLITE_OK ? code : run(shop, "DETACH archive");
}

/* Creates, uses and closes a database in memory. */
static client_result one_database(unsigned orders)
{
    client_result result = {0, 0, NULL};
    shop shop = {NULL, orders, 13, 1, 0};
    int code = sqlite3_open_v2(":memory:", &shop.database, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL);
    code = code != SQLITE_OK ? code : fill(&shop);
    code = code != SQLITE_OK ? code : look_and_change(&shop);
    code = code != SQLITE_OK ? code : archive(&shop);
    int closed = sqlite3_close(shop.database);
    code = code != SQLITE_OK ? code : closed;
    result.operations = shop.statements;
    result.checksum = shop.checksum;
    result.error = code != SQLITE_OK ? sqlite3_errstr(code) : NULL;
    return result;
}

/* SQLite's own methods, saved before they are replaced. */
static sqlite3_mem_methods own_memory;
static sqlite3_pcache_methods2 own_pages;

static int configure(client_allocator allocator)
{
    int code = sqlite3_shutdown();
    if (code == SQLITE_OK && own_memory.xMalloc == NULL) {
        /* Turns SQLite's memory statistics off, as its authors recommend for speed; for both
         * allocators. */
        code = sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
        code = code != SQLITE_OK ? code : sqlite3_config(SQLITE_CONFIG_GETMALLOC, &own_memory);
        code = code != SQLITE_OK ? code : sqlite3_config(SQLITE_CONFIG_GETPCACHE2, &own_pages);
    }
    bool ours = allocator == CLIENT_ALLOTMENT;
    code = code != SQLITE_OK ? code : sqlite3_config(SQLITE_CONFIG_MALLOC, ours ? &POOL : &own_memory);
    code = code != SQLITE_OK ? code : sqlite3_config(SQLITE_CONFIG_PCACHE2, ours ? &SLAB : &own_pages);
    return code != SQLITE_OK ? code : sqlite3_initialize();
}

static client_result work_on(client_allocator allocator, const void *prepared, unsigned times)
{
    client_result all = {0, 1, NULL};
    allot_pool *pool = NULL;
    allot_entered entered = {NULL, NULL};
    if (allocator == CLIENT_ALLOTMENT) {
        pool = allot_pool_try_create(NULL);
        if (pool == NULL) {
            all.error = allot_last_error()->message;
            return all;
        }
        entered = allot_pool_enter(pool);
    }
    int code = configure(allocator);
    if (code != SQLITE_OK) {
        all.error = sqlite3_errstr(code);
    }
    for (unsigned time = 0; time < times && all.error == NULL; time++) {
        client_result one = one_database(*(const unsigned *)prepared);
        all.operations += one.operations;
        all.checksum = client_mixed(all.checksum, one.checksum);
        all.error = one.error;
    }
    sqlite3_shutdown();
    if (pool != NULL) {
        allot_pool_leave(entered);
        allot_pool_destroy(pool);
    }
    return all;
}

static void *prepare(unsigned orders)
{
    unsigned *made = (unsigned *)malloc(sizeof *made);
    if (made != NULL) {
        *made = orders;
    }
    return made;
}

const client_program client_sqlite = {
    "sqlite", "statement", "a shop's database in memory: filled, indexed, asked, changed, archived, closed", "orders in the database",
    20000, 4, prepare, work_on, free,
};

#ifndef CLIENT_WITHOUT_MAIN
#define program client_sqlite
#include "client_main.h"
#endif
