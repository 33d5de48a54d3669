/* Sealed objects: any thread can read them and none can change them; initialisers that give up or fail. */
#include <allotment.h>

#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stamped.h"

struct node {
    const struct node *next;
    const char *name;
    const int *squares;
    int count;
};

static const void *build(allot_sealer *sealer, void *context)
{
    int count = *(int *)context;
    struct node *newest = NULL;
    for (int i = 0; i < count; i++) {
        struct node *node = (struct node *)allot_sealer_alloc(sealer, sizeof *node, _Alignof(struct node));
        char name[30];
        int squares[20];
        snprintf(name, sizeof name, "node %d", i);
        for (int j = 0; j < 20; j++)
            squares[j] = i * j * j;
        node->next = newest;
        node->name = i % 2 ? allot_sealer_strdup(sealer, name) : allot_sealer_try_strdup(sealer, name);
        node->squares = (const int *)(i % 2 ? allot_sealer_memdup(sealer, squares, sizeof squares)
                                            : allot_sealer_try_memdup(sealer, squares, sizeof squares));
        node->count = i;
        EXPECT(node->name != NULL && node->squares != NULL && (uintptr_t)node->squares % 16 == 0);
        newest = node;
    }
    EXPECT((uintptr_t)allot_sealer_try_alloc(sealer, 0, 4096) % 4096 == 0);
    return newest;
}

static void expect_list(const allot_sealed *sealed, int count)
{
    const struct node *node = (const struct node *)allot_sealed_get(sealed);
    for (int i = count; i-- > 0; node = node->next) {
        char name[30];
        snprintf(name, sizeof name, "node %d", i);
        EXPECT(node->count == i && strcmp(node->name, name) == 0 && node->squares[19] == i * 361);
    }
    EXPECT(node == NULL);
}

static void *read_it(void *sealed)
{
    for (int i = 0; i < 10; i++)
        expect_list((const allot_sealed *)sealed, 1000);
    return NULL;
}

/* Whether the child dies of it. */
static int signal_of_write_to(char *place)
{
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        /* A tool would report what is expected here. */
        fclose(stderr);
        *(volatile char *)place = 'x';
        _exit(0);
    }
    int status;
    EXPECT(waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

static void what_is_built_is_read_by_threads_and_written_by_nobody(void)
{
    pthread_t threads[4];
    int count = 1000;
    allot_sealed *sealed = allot_sealed_create(&(allot_options){.name = "list"}, build, &count);
    for (int i = 0; i < 4; i++)
        EXPECT(pthread_create(&threads[i], NULL, read_it, sealed) == 0);
    for (int i = 0; i < 4; i++)
        EXPECT(pthread_join(threads[i], NULL) == 0);
    allot_statistics statistics = allot_sealed_statistics(sealed);
    EXPECT(statistics.live_objects >= 3000 && statistics.held_bytes >= statistics.live_bytes);
    const struct node *node = (const struct node *)allot_sealed_get(sealed);
    char owner[ALLOT_MAX_NAME + 1] = "";
    EXPECT(allot_owner_of(node, NULL, owner, NULL) && strcmp(owner, "list") == 0);
    EXPECT(signal_of_write_to((char *)(uintptr_t)node->name) != 0);
    expect_list(sealed, 1000);
    allot_sealed_destroy(sealed);
    allot_sealed_destroy(NULL);
}

static void what_is_leaked_stays(void)
{
    int count = 3;
    allot_sealed *sealed = allot_sealed_try_create(NULL, build, &count);
    const struct node *before = (const struct node *)allot_sealed_get(sealed);
    const struct node *node = (const struct node *)allot_sealed_leak(sealed);
    EXPECT(node == before && strcmp(node->name, "node 2") == 0);
    EXPECT(signal_of_write_to((char *)(uintptr_t)node->name) != 0);
}

static const void *give_up(allot_sealer *sealer, void *context)
{
    EXPECT(allot_sealer_alloc(sealer, 100, 8) != NULL);
    if (context != NULL)
        EXPECT(allot_sealer_try_alloc(sealer, *(size_t *)context, 8) == NULL);
    return NULL;
}

static const void *cope(allot_sealer *sealer, void *context)
{
    EXPECT(allot_sealer_try_alloc(sealer, *(size_t *)context, 8) == NULL);
    return allot_sealer_memdup(sealer, "coped", 6);
}

static void an_initialiser_may_give_up(void)
{
    size_t huge = SIZE_MAX / 2 + 1;
    EXPECT(allot_slab_try_alloc(NULL) == NULL); /* an error from before */
    EXPECT(allot_sealed_try_create(NULL, give_up, NULL) == NULL);
    EXPECT(allot_last_error()->kind == ALLOT_NO_ERROR);
    EXPECT(allot_sealed_try_create(&(allot_options){.name = "huge"}, give_up, &huge) == NULL);
    EXPECT(allot_last_error()->kind == ALLOT_SIZE_OVERFLOW && strcmp(allot_last_error()->name, "huge") == 0);
    EXPECT(strcmp(allot_last_error()->allocator, "sealer") == 0);
    allot_sealed *sealed = allot_sealed_try_create(NULL, cope, &huge);
    EXPECT(strcmp((const char *)allot_sealed_get(sealed), "coped") == 0);
    allot_sealed_destroy(sealed);
    int count = 3;
    EXPECT(allot_slab_try_alloc(NULL) == NULL);
    allot_sealed_destroy(allot_sealed_create(NULL, build, &count));
    EXPECT(allot_last_error()->kind == ALLOT_BAD_HANDLE); /* success leaves it as it was */
}

static const void *build_as_may_be(allot_sealer *sealer, void *context)
{
    (void)context;
    for (int i = 0; i < 100; i++)
        if (allot_sealer_try_alloc(sealer, 1000, 8) == NULL)
            return NULL;
    return allot_sealer_try_strdup(sealer, "all");
}

static void what_can_not_be_had_is_refused_with_a_reason(void)
{
    allot_budget *budget = allot_budget_create(50000);
    EXPECT(allot_sealed_try_create(&(allot_options){.budget = budget}, build_as_may_be, NULL) == NULL);
    EXPECT(allot_last_error()->kind == ALLOT_BUDGET_EXCEEDED && allot_budget_used(budget) == 0);
    allot_budget_destroy(budget);
    budget = allot_budget_create(1 << 20);
    allot_sealed *sealed = allot_sealed_try_create(&(allot_options){.budget = budget}, build_as_may_be, NULL);
    EXPECT(sealed != NULL && allot_budget_used(budget) >= 100000);
    EXPECT(allot_sealed_statistics(sealed).held_bytes == allot_budget_used(budget));
    allot_sealed_destroy(sealed);
    EXPECT(allot_budget_used(budget) == 0);
    allot_budget_destroy(budget);
    EXPECT(allot_sealed_try_create(NULL, NULL, NULL) == NULL && allot_last_error()->kind == ALLOT_BAD_OPTION);
    EXPECT(allot_sealed_try_create(&(allot_options){.hardened = true}, build_as_may_be, NULL) == NULL);
    EXPECT(allot_last_error()->kind == ALLOT_BAD_OPTION);
    EXPECT(allot_sealed_try_create_abi(0, NULL, build_as_may_be, NULL) == NULL);
    EXPECT(allot_last_error()->kind == ALLOT_WRONG_ABI);
    EXPECT(allot_sealer_try_alloc(NULL, 8, 8) == NULL && allot_last_error()->kind == ALLOT_BAD_HANDLE);
}

static void *use(void *sealer)
{
    EXPECT(allot_sealer_try_alloc((allot_sealer *)sealer, 8, 8) == NULL);
    EXPECT(allot_last_error()->kind == ALLOT_SEALED_ERROR || allot_last_error()->kind == ALLOT_WRONG_THREAD);
    return NULL;
}

static const void *lend(allot_sealer *sealer, void *context)
{
    pthread_t thread;
    (void)context;
    EXPECT(pthread_create(&thread, NULL, use, sealer) == 0 && pthread_join(thread, NULL) == 0);
    return allot_sealer_memdup(sealer, "", 0);
}

static void a_sealer_serves_no_other_thread(void)
{
    allot_sealed_destroy(allot_sealed_create(NULL, lend, NULL));
}

int main(void)
{
    what_is_built_is_read_by_threads_and_written_by_nobody();
    what_is_leaked_stays();
    an_initialiser_may_give_up();
    what_can_not_be_had_is_refused_with_a_reason();
    a_sealer_serves_no_other_thread();
    return 0;
}
