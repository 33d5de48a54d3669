/* Errors: every try_ call that fails returns NULL and stores the cause, the allocator and the bytes; the other
 * calls call the handler. */
#include <allotment.h>

#include <pthread.h>
#include <stdint.h>

#include "expect.h"

static const char long_name[] = "sixty-five bytes are one too many for the name of any allocator.....";

/* The last error is of this kind, by this allocator, and its message has this text. Then there is none. */
static void expect_error(allot_error_kind kind, const char *allocator, const char *text)
{
    const allot_error *error = allot_last_error();
    if (error->kind != kind || strcmp(error->allocator, allocator) != 0 || strstr(error->message, text) == NULL) {
        fprintf(stderr, "%d %s: %s\n", (int)error->kind, error->allocator, error->message);
        exit(1);
    }
    EXPECT(strchr(error->message, '\n') == NULL);
    allot_clear_error();
    EXPECT(allot_last_error()->kind == ALLOT_NO_ERROR && allot_last_error()->message[0] == '\0');
}

static void a_new_thread_has_no_error(void)
{
    const allot_error *error = allot_last_error();
    EXPECT(error != NULL && error->kind == ALLOT_NO_ERROR && error->message[0] == '\0' && error->name[0] == '\0');
    EXPECT(strcmp(error->allocator, "") == 0);
}

static void an_error_says_what_who_and_how_much(void)
{
    allot_arena *arena = allot_arena_create(&(allot_options){.name = "query"});
    EXPECT(allot_arena_try_alloc(arena, SIZE_MAX) == NULL);
    EXPECT(allot_last_error()->requested == SIZE_MAX && strcmp(allot_last_error()->name, "query") == 0);
    expect_error(ALLOT_SIZE_OVERFLOW, "arena", "arena 'query': a size of");
    /* Another one of the name that is in the error. */
    EXPECT(allot_arena_try_alloc(arena, SIZE_MAX) == NULL);
    allot_options again = {.name = allot_last_error()->name, .hint = SIZE_MAX};
    EXPECT(allot_arena_try_create(&again) == NULL && strcmp(allot_last_error()->name, "query") == 0);
    expect_error(ALLOT_SIZE_OVERFLOW, "arena", "arena 'query': a size of");
    EXPECT(allot_arena_try_alloc_aligned(arena, 1, 24) == NULL);
    expect_error(ALLOT_BAD_ALIGNMENT, "arena", "24 is not a power of two");
    EXPECT(allot_arena_try_alloc_aligned(arena, 1, 0) == NULL);
    expect_error(ALLOT_BAD_ALIGNMENT, "arena", "0 is not a power of two");
    EXPECT(allot_arena_try_calloc(arena, SIZE_MAX / 2, 3) == NULL && allot_last_error()->requested == SIZE_MAX);
    expect_error(ALLOT_SIZE_OVERFLOW, "arena", "does not fit the address space");
    EXPECT(allot_arena_try_alloc(arena, (size_t)1 << 50) == NULL);
    EXPECT(allot_last_error()->system_error != 0);
    expect_error(ALLOT_SYSTEM, "arena", "the system refused");
    /* A call that does its work leaves the error of the one before as it is. */
    EXPECT(allot_arena_try_alloc(arena, SIZE_MAX) == NULL);
    EXPECT(allot_arena_try_alloc(arena, 8) != NULL);
    expect_error(ALLOT_SIZE_OVERFLOW, "arena", "query");
    allot_arena_destroy(arena);
}

static void a_handle_that_is_null_is_an_error(void)
{
    EXPECT(allot_arena_try_alloc(NULL, 8) == NULL);
    expect_error(ALLOT_BAD_HANDLE, "arena", "NULL");
    EXPECT(allot_arena_try_strdup(NULL, "text") == NULL);
    expect_error(ALLOT_BAD_HANDLE, "arena", "NULL");
    EXPECT(allot_free_list_try_alloc(NULL) == NULL);
    expect_error(ALLOT_BAD_HANDLE, "free list", "NULL");
    EXPECT(allot_budget_try_child(NULL, 1) == NULL);
    expect_error(ALLOT_BAD_HANDLE, "budget", "NULL");
    /* But there is nothing to destroy or to free. */
    allot_arena_destroy(NULL);
    allot_free_list_destroy(NULL);
    allot_budget_destroy(NULL);
    allot_source_destroy(NULL);
    allot_arena_free_sized(NULL, NULL, 8, 8);
    allot_free_list_free(NULL, NULL);
    EXPECT(allot_last_error()->kind == ALLOT_NO_ERROR);
}

static void options_that_can_not_be_are_refused(void)
{
    EXPECT(allot_arena_try_create(&(allot_options){.name = long_name}) == NULL);
    expect_error(ALLOT_NAME_TOO_LONG, "arena", "is too long; use at most 64 bytes");
    EXPECT(allot_arena_try_create(&(allot_options){.name = "\xff"}) == NULL);
    expect_error(ALLOT_NAME_TOO_LONG, "arena", "UTF-8");
    EXPECT(allot_arena_try_create(&(allot_options){.packing = true}) == NULL);
    expect_error(ALLOT_BAD_OPTION, "arena", "no option 'packing'");
    EXPECT(allot_arena_try_create(&(allot_options){.reserved = 1}) == NULL);
    expect_error(ALLOT_BAD_OPTION, "arena", "no option 'reserved'");
    EXPECT(allot_arena_try_create(&(allot_options){.release = {ALLOT_AT_ONCE, 7}}) == NULL);
    expect_error(ALLOT_BAD_OPTION, "arena", "takes no amount");
    EXPECT(allot_arena_try_create(&(allot_options){.release = {(allot_release_kind)9, 0}}) == NULL);
    expect_error(ALLOT_BAD_OPTION, "arena", "no such release");
    EXPECT(allot_arena_try_create(&(allot_options){.retain = {ALLOT_RETAIN_NEWEST, 7}}) == NULL);
    expect_error(ALLOT_BAD_OPTION, "arena", "ALLOT_RETAIN_UP_TO");
    EXPECT(allot_arena_try_create(&(allot_options){.hint = SIZE_MAX}) == NULL);
    expect_error(ALLOT_SIZE_OVERFLOW, "arena", "does not fit");
    EXPECT(allot_free_list_try_create(8, 8, &(allot_options){.hint = 1}) == NULL);
    expect_error(ALLOT_BAD_OPTION, "free list", "no option 'hint'");
    EXPECT(allot_free_list_try_create(8, 3, NULL) == NULL);
    expect_error(ALLOT_BAD_ALIGNMENT, "free list", "3 is not a power of two");
    EXPECT(allot_free_list_try_create(SIZE_MAX, 8, &(allot_options){.name = "nodes"}) == NULL);
    expect_error(ALLOT_SIZE_OVERFLOW, "free list", "'nodes'");
    EXPECT(allot_arena_try_create_abi(ALLOT_ABI + 1, NULL) == NULL);
    expect_error(ALLOT_WRONG_ABI, "arena", "header of ABI 2");
    EXPECT(allot_source_try_create(NULL, NULL) == NULL);
    expect_error(ALLOT_BAD_OPTION, "source", "NULL");
    EXPECT(allot_source_try_create(&(allot_source_calls){.name = "half"}, NULL) == NULL);
    expect_error(ALLOT_BAD_OPTION, "source", "acquire and release");
    EXPECT(allot_source_try_file("/nowhere at all/file") == NULL);
    EXPECT(allot_last_error()->system_error != 0);
    expect_error(ALLOT_SYSTEM, "source", "/nowhere at all/file");
    EXPECT(allot_source_try_file(NULL) == NULL);
    expect_error(ALLOT_BAD_OPTION, "source", "needs a path");
}

static void a_name_of_control_characters_stays_one_line(void)
{
    allot_arena *arena = allot_arena_create(&(allot_options){.name = "two\nlines"});
    EXPECT(allot_arena_try_alloc(arena, SIZE_MAX) == NULL);
    expect_error(ALLOT_SIZE_OVERFLOW, "arena", "'two\\nlines'");
    allot_arena_destroy(arena);
}

static void *fail_elsewhere(void *unused)
{
    (void)unused;
    a_new_thread_has_no_error();
    EXPECT(allot_free_list_try_create(8, 0, NULL) == NULL);
    expect_error(ALLOT_BAD_ALIGNMENT, "free list", "0 is not");
    return NULL;
}

static void each_thread_has_its_own_error(void)
{
    pthread_t thread;
    EXPECT(allot_arena_try_alloc(NULL, 1) == NULL);
    EXPECT(pthread_create(&thread, NULL, fail_elsewhere, NULL) == 0);
    EXPECT(pthread_join(thread, NULL) == 0);
    expect_error(ALLOT_BAD_HANDLE, "arena", "NULL");
}

static void say(const allot_error *error)
{
    fprintf(stderr, "handler was told: %d %s\n", (int)error->kind, error->message);
}

static void end_well(const allot_error *error)
{
    EXPECT(error == allot_last_error() && error->kind == ALLOT_SIZE_OVERFLOW);
    fprintf(stderr, "the handler ends the program itself\n");
    abort();
}

static void the_handler_that_was_set_is_returned(void)
{
    EXPECT(allot_set_failure_handler(say) == NULL);
    EXPECT(allot_set_failure_handler(NULL) == say);
    EXPECT(allot_set_failure_handler(NULL) == NULL);
}

static void work(void)
{
    a_new_thread_has_no_error();
    an_error_says_what_who_and_how_much();
    a_handle_that_is_null_is_an_error();
    options_that_can_not_be_are_refused();
    a_name_of_control_characters_stays_one_line();
    each_thread_has_its_own_error();
    the_handler_that_was_set_is_returned();
}

static void by_default_one_line_is_printed(void)
{
    allot_arena *arena = allot_arena_create(&(allot_options){.name = "query"});
    (void)allot_arena_alloc(arena, SIZE_MAX);
}

static void a_handler_that_returns_is_followed_by_an_abort(void)
{
    allot_set_failure_handler(say);
    (void)allot_arena_alloc_aligned(allot_arena_create(NULL), 8, 5);
}

static void a_handler_may_end_the_program(void)
{
    allot_set_failure_handler(end_well);
    (void)allot_arena_calloc(allot_arena_create(NULL), SIZE_MAX, 2);
}

static void creating_stops_too(void)
{
    (void)allot_free_list_create(8, 12, NULL);
}

static void another_abi_stops(void)
{
    (void)allot_arena_create_abi(7, NULL);
}

static void freeing_by_null_stops(void)
{
    int object;
    allot_free_list_free(NULL, &object);
}

static void resetting_null_stops(void)
{
    allot_arena_reset(NULL);
}

static void figures_of_null_stop(void)
{
    (void)allot_arena_statistics(NULL);
}

static const struct deadly cases[] = {
    {"default-handler", "allotment: arena 'query': a size of", by_default_one_line_is_printed},
    {"handler-returns", "handler was told: 2 arena: an alignment of 5", a_handler_that_returns_is_followed_by_an_abort},
    {"handler-ends", "the handler ends the program itself", a_handler_may_end_the_program},
    {"create", "allotment: free list: an alignment of 12", creating_stops_too},
    {"abi", "header of ABI 7, the library has 1", another_abi_stops},
    {"free-null", "allotment: free list: the handle is NULL", freeing_by_null_stops},
    {"reset-null", "allotment: arena: the handle is NULL", resetting_null_stops},
    {"statistics-null", "allotment: arena: the handle is NULL", figures_of_null_stop},
};

int main(int count, char **arguments)
{
    return main_of(count, arguments, cases, sizeof(cases) / sizeof(*cases), work);
}
