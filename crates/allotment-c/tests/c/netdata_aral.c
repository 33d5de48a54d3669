/* The functions of netdata's Array Allocator do what its description says. */
#include <allotment_netdata.h>

#include "watched.h"

#undef NDEBUG
#include <assert.h>
#include <dirent.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ARAL *simple(const char *name, size_t size, struct aral_statistics *stats)
{
    return aral_create(name, size, 0, 65536, stats, NULL, NULL, true, false, false);
}

static void elements_have_their_size_and_alignment_and_nothing_behind_them(void)
{
    for (size_t size = 0; size <= 200; size++) {
        ARAL *ar = simple("sizes", size, NULL);
        assert(aral_requested_element_size(ar) == size);
        size_t actual = aral_actual_element_size(ar);
        assert(actual >= size && actual <= size + 8 && actual % 8 == 0);
        size_t align = size > 0 && size % 16 == 0 ? 16 : 8;
        unsigned char *elements[64];
        for (size_t at = 0; at < 64; at++) {
            elements[at] = aral_mallocz(ar);
            assert((uintptr_t)elements[at] % align == 0);
            memset(elements[at], (int)at, size);
        }
        for (size_t at = 0; at < 64; at++) {
            for (size_t byte = 0; byte < size; byte++) {
                assert(elements[at][byte] == at);
            }
            aral_freez(ar, elements[at]);
        }
        aral_destroy(ar);
    }
    aral_destroy(NULL);
}

static void zeros_are_zeros_where_other_bytes_were(void)
{
    ARAL *ar = simple("zeros", 56, NULL);
    for (int round = 0; round < 100; round++) {
        unsigned char *plain = aral_callocz(ar);
        unsigned char *marked = aral_callocz_marked(ar);
        for (size_t byte = 0; byte < 56; byte++) {
            assert(plain[byte] == 0 && marked[byte] == 0);
        }
        memset(plain, 0xff, 56);
        memset(marked, 0xff, 56);
        aral_freez(ar, plain);
        aral_freez(ar, marked);
        aral_freez(ar, NULL);
    }
    aral_destroy(ar);
}

static void marked_elements_have_pages_of_their_own(void)
{
    ARAL *ar = simple("marked", 64, NULL);
    enum { ELEMENTS = 4000 };
    static void *plain[ELEMENTS], *marked[ELEMENTS];
    for (size_t at = 0; at < ELEMENTS; at++) {
        plain[at] = aral_mallocz(ar);
        marked[at] = aral_mallocz_marked(ar);
    }
    /* The smallest page is a hardware page: no two kinds share one. */
    for (size_t at = 0; at < ELEMENTS && !is_watched(); at += 97) {
        for (size_t other = 0; other < ELEMENTS; other++) {
            assert((uintptr_t)plain[at] / 4096 != (uintptr_t)marked[other] / 4096);
        }
    }
    for (size_t at = 0; at < ELEMENTS; at++) {
        aral_unmark_allocation(ar, marked[at]);
        aral_freez(ar, marked[at]);
        aral_freez(ar, plain[at]);
    }
    assert(aral_used_bytes(ar) == 0);
    aral_destroy(ar);
}

static void names_are_kept_as_far_as_there_is_room(void)
{
    ARAL *ar = simple("a name of more than 23 bytes", 8, NULL);
    assert(strcmp(aral_name(ar), "a name of more than 23 ") == 0 && strlen(aral_name(ar)) == ARAL_MAX_NAME);
    aral_destroy(ar);
    ar = simple("caf\xe9", 8, NULL); /* Latin-1 */
    assert(strcmp(aral_name(ar), "caf\xe9") == 0);
    void *element = aral_mallocz(ar);
    char name[ALLOT_MAX_NAME + 1];
    const char *kind;
    assert(allot_owner_of(element, &kind, name, NULL) && strcmp(kind, "slab") == 0 && strcmp(name, "caf?") == 0);
    aral_freez(ar, element);
    aral_destroy(ar);
    ar = simple(NULL, 8, NULL);
    assert(strcmp(aral_name(ar), "") == 0);
    aral_destroy(ar);
}

static void the_bytes_add_up(void)
{
    struct aral_statistics shared = {0};
    ARAL *mapped = simple("mapped", 40, &shared);
    ARAL *with_malloc = aral_create("malloc", 72, 0, 0, &shared, NULL, NULL, false, false, false);
    ARAL *other = simple("other", 100, NULL);
    assert(aral_get_statistics(mapped) == &shared && aral_get_statistics(other) != &shared);
    assert(shared.structures.allocations == 2); /* no pages yet */
    assert(shared.mmap.used_bytes == 0 && shared.malloc.used_bytes == 0);
    enum { ELEMENTS = 3000 };
    static void *one[ELEMENTS], *two[ELEMENTS];
    for (size_t at = 0; at < ELEMENTS; at++) {
        one[at] = aral_mallocz(mapped);
        two[at] = aral_mallocz_marked(with_malloc);
    }
    assert(aral_used_bytes(mapped) == 40 * ELEMENTS && aral_used_bytes(with_malloc) == 72 * ELEMENTS);
    /* The fields, without a call: at most 63 elements are not added yet. */
    assert(shared.mmap.used_bytes <= 40 * ELEMENTS && shared.mmap.used_bytes >= 40 * (ELEMENTS - 63));
    assert(shared.malloc.used_bytes <= 72 * ELEMENTS && shared.malloc.used_bytes >= 72 * (ELEMENTS - 63));
    assert(aral_used_bytes_from_stats(&shared) == 112 * ELEMENTS);
    assert(shared.mmap.used_bytes == 40 * ELEMENTS && shared.malloc.used_bytes == 72 * ELEMENTS);
    assert(shared.mmap.allocations > 0 && shared.malloc.allocations > 0);

    allot_statistics slab = allot_slab_statistics(allot_netdata_slab(mapped));
    size_t total = aral_structures_bytes(mapped) + aral_used_bytes(mapped) + aral_free_bytes(mapped)
                   + aral_padding_bytes(mapped);
    size_t own = aral_structures_bytes(other) - allot_slab_statistics(allot_netdata_slab(other)).structure_bytes;
    assert(total == slab.held_bytes + own && own >= sizeof(struct aral_statistics));
    assert(aral_structures_bytes_from_stats(&shared)
           == aral_structures_bytes(mapped) + aral_structures_bytes(with_malloc));
    assert(aral_free_bytes_from_stats(&shared) == aral_free_bytes(mapped) + aral_free_bytes(with_malloc));
    assert(aral_padding_bytes_from_stats(&shared) == aral_padding_bytes(mapped) + aral_padding_bytes(with_malloc));

    struct aral_statistics copy = shared;
    for (size_t at = 0; at < ELEMENTS; at++) {
        aral_freez(mapped, one[at]);
        aral_freez(with_malloc, two[at]);
    }
    assert(aral_used_bytes_from_stats(&copy) == 112 * ELEMENTS && aral_used_bytes_from_stats(&shared) == 0);
    assert(aral_used_bytes_from_stats(NULL) == 0);
    aral_destroy(mapped);
    assert(shared.structures.allocations == 1 + shared.malloc.allocations && shared.mmap.allocated_bytes == 0);
    aral_destroy(other);
    aral_destroy(with_malloc);
    assert(shared.structures.allocations == 0 && shared.structures.allocated_bytes == 0);
}

static void one_size_has_one_allocator_as_long_as_somebody_uses_it(void)
{
    ARAL *ar = aral_by_size_acquire(48);
    assert(aral_by_size_acquire(48) == ar && strcmp(aral_name(ar), "size-48") == 0);
    ARAL *other = aral_by_size_acquire(64);
    assert(other != ar);
    void *element = aral_mallocz(ar);
    void *larger = aral_mallocz(other);
    size_t pages = aral_by_size_statistics()->mmap.allocations;
    assert(aral_by_size_used_bytes() == 48 + 64);
    assert(aral_by_size_statistics()->structures.allocations == 2 + pages && (is_watched() || pages == 2));
    assert(aral_by_size_structures_bytes() > 0 && aral_by_size_free_bytes() > 0);
    (void)aral_by_size_padding_bytes();
    aral_freez(ar, element);
    aral_freez(other, larger);
    aral_by_size_release(ar);
    assert(aral_by_size_statistics()->structures.allocations >= 2);
    aral_by_size_release(ar);
    aral_by_size_release(other);
    aral_by_size_release(NULL);
    assert(aral_by_size_statistics()->structures.allocations == 0 && aral_by_size_structures_bytes() == 0);
}

static void large_sizes_are_shared_too_and_many_sizes_are_told_apart(void)
{
    enum { SIZES = 300 };
    static ARAL *arals[SIZES];
    for (size_t at = 0; at < SIZES; at++) {
        arals[at] = aral_by_size_acquire(at * 100 + 1);
    }
    for (size_t at = 0; at < SIZES; at++) {
        assert(aral_by_size_acquire(at * 100 + 1) == arals[at]);
        assert(aral_requested_element_size(arals[at]) == at * 100 + 1);
        aral_by_size_release(arals[at]);
    }
    for (size_t at = 0; at < SIZES; at++) {
        aral_by_size_release(arals[at]);
    }
    assert(aral_by_size_statistics()->structures.allocations == 0);
}

static void *acquires_and_releases(void *unused)
{
    for (int round = 0; round < 300; round++) {
        ARAL *ar = aral_by_size_acquire(24);
        uint64_t *element = aral_mallocz(ar);
        *element = 7;
        aral_freez(ar, element);
        aral_by_size_release(ar);
    }
    return unused;
}

static void threads_share_sizes(void)
{
    pthread_t threads[4];
    for (size_t at = 0; at < 4; at++) {
        assert(pthread_create(&threads[at], NULL, acquires_and_releases, NULL) == 0);
    }
    for (size_t at = 0; at < 4; at++) {
        assert(pthread_join(threads[at], NULL) == 0);
    }
    assert(aral_by_size_statistics()->structures.allocations == 0);
}

static void the_largest_page_is_what_was_set(void)
{
    assert(aral_optimal_malloc_page_size() == 65536);
    aral_optimal_malloc_page_size_set(16384);
    assert(aral_optimal_malloc_page_size() == 16384);
    ARAL *ar = aral_create("pages", 64, 0, 0, NULL, NULL, NULL, true, false, false);
    static void *elements[16384];
    for (size_t at = 0; at < 16384; at++) {
        elements[at] = aral_mallocz(ar);
    }
    assert(aral_get_statistics(ar)->mmap.allocations >= 64); /* a MiB */
    for (size_t at = 0; at < 16384; at++) {
        aral_freez(ar, elements[at]);
    }
    aral_destroy(ar);
    aral_optimal_malloc_page_size_set(1);
    assert(aral_optimal_malloc_page_size() == 4096);
    aral_optimal_malloc_page_size_set(SIZE_MAX);
    assert(aral_optimal_malloc_page_size() == 2 << 20);
    aral_optimal_malloc_page_size_set(0);
    assert(aral_optimal_malloc_page_size() == 65536);
    /* Sizes that no page can have. */
    for (size_t max_page_size = 1; max_page_size != 0; max_page_size = max_page_size == 1 ? SIZE_MAX : 0) {
        ARAL *clamped = aral_create("clamped", 64, 0, max_page_size, NULL, NULL, NULL, true, false, false);
        void *element = aral_mallocz(clamped);
        aral_freez(clamped, element);
        aral_destroy(clamped);
    }
}

/* The files of a directory whose names begin so. */
static size_t files(const char *directory, const char *begin)
{
    DIR *stream = opendir(directory);
    assert(stream != NULL);
    size_t found = 0;
    for (const struct dirent *entry; (entry = readdir(stream)) != NULL;) {
        found += strncmp(entry->d_name, begin, strlen(begin)) == 0;
    }
    closedir(stream);
    return found;
}

static void pages_can_lie_in_files_which_go_with_them(void)
{
    char directory[] = "/tmp/allotment-netdata-XXXXXX";
    assert(mkdtemp(directory) != NULL);
    const char *cache_dir = directory;
    ARAL *one = aral_create("one", 512, 0, 0, NULL, "metrics", &cache_dir, true, false, true);
    ARAL *two = aral_create("two", 512, 0, 0, NULL, "metrics", &cache_dir, true, false, false);
    assert(files(directory, "metrics.") == 2);
    uint64_t *element = aral_mallocz(one);
    *element = 7;
    uint64_t *other = aral_mallocz(two);
    *other = 8;
    assert(*element == 7);
    aral_freez(one, element);
    aral_freez(two, other);
    aral_destroy(one);
    assert(files(directory, "metrics.") == 1);
    aral_destroy(two);
    assert(files(directory, "metrics.") == 0);
    /* Without a mapping, or without a directory, there is no file. */
    ARAL *none = aral_create("none", 512, 0, 0, NULL, "metrics", &cache_dir, false, false, false);
    const char *nowhere = NULL;
    ARAL *lost = aral_create("lost", 512, 0, 0, NULL, "metrics", &nowhere, true, false, false);
    assert(files(directory, "metrics.") == 0);
    aral_destroy(none);
    aral_destroy(lost);
    assert(rmdir(directory) == 0);
}

/* Whether the mapping of this address has this flag; true where the kernel tells no flags. */
static bool mapping_has(const void *address, const char *flag)
{
    FILE *maps = fopen("/proc/self/smaps", "r");
    if (maps == NULL) {
        return true;
    }
    char line[512];
    bool inside = false, answer = true;
    while (fgets(line, sizeof line, maps) != NULL) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2) {
            inside = (uintptr_t)address >= from && (uintptr_t)address < to;
        } else if (inside && strncmp(line, "VmFlags:", 8) == 0) {
            answer = strstr(line, flag) != NULL;
            break;
        }
    }
    fclose(maps);
    return answer;
}

static void core_dumps_can_leave_pages_out(void)
{
    for (int mapped = 0; mapped <= 1; mapped++) {
        ARAL *ar = aral_create("undumped", 64, 0, 0, NULL, NULL, NULL, mapped == 1, false, true);
        enum { ELEMENTS = 20000 };
        static void *elements[ELEMENTS];
        for (size_t at = 0; at < ELEMENTS; at++) {
            elements[at] = aral_callocz(ar);
        }
        for (size_t at = 0; at < ELEMENTS; at += 1999) {
            assert(mapping_has(elements[at], " dd"));
        }
        for (size_t at = 0; at < ELEMENTS; at++) {
            aral_freez(ar, elements[at]);
        }
        aral_destroy(ar);
    }
}

/* The misuse of this name, which has to end the process. */
static void misuse(const char *name)
{
    ARAL *ar = simple("nodes", 64, NULL);
    if (strcmp(name, "foreign") == 0) {
        ARAL *other = simple("others", 64, NULL);
        aral_freez(ar, aral_mallocz(other));
    } else if (strcmp(name, "no-directory") == 0) {
        const char *nowhere = "/no/such/directory";
        (void)aral_create("lost", 64, 0, 0, NULL, "metrics", &nowhere, true, false, false);
    } else if (strcmp(name, "destroyed-by-size") == 0) {
        aral_destroy(aral_by_size_acquire(64));
    } else if (strcmp(name, "released-created") == 0) {
        aral_by_size_release(ar);
    } else if (strcmp(name, "no-allocator") == 0) {
        (void)aral_mallocz(NULL);
    } else if (strcmp(name, "survivor") == 0) {
        /* It is no misuse to free it afterwards; the line is what is looked for. */
        uint64_t *element = aral_mallocz(ar);
        aral_destroy(ar);
        *element = 7;
        allot_slab_free_anywhere(element);
        abort();
    }
}

int main(int count, char **arguments)
{
    if (count > 1 && strcmp(arguments[1], "--cases") == 0) {
        puts("foreign\t'others'");
        puts("no-directory\tNo such file or directory");
        puts("destroyed-by-size\tuse aral_by_size_release()");
        puts("released-created\tuse aral_destroy()");
        puts("no-allocator\tallotment: ");
        puts("survivor\tARAL 'nodes' destroyed with 1 elements");
        return 0;
    }
    if (count > 1) {
        misuse(arguments[1]);
        return 0;
    }
    elements_have_their_size_and_alignment_and_nothing_behind_them();
    zeros_are_zeros_where_other_bytes_were();
    marked_elements_have_pages_of_their_own();
    names_are_kept_as_far_as_there_is_room();
    the_bytes_add_up();
    one_size_has_one_allocator_as_long_as_somebody_uses_it();
    large_sizes_are_shared_too_and_many_sizes_are_told_apart();
    threads_share_sizes();
    the_largest_page_is_what_was_set();
    pages_can_lie_in_files_which_go_with_them();
    core_dumps_can_leave_pages_out();
    return 0;
}
