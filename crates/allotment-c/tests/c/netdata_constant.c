/* The cost of the functions of an ARAL does not grow with the number of ARALs that share its statistics. A parent
 * counts the instructions of a child, one step at a time.
 * skip: valgrind: a traced process runs none of Valgrind's code
 * skip: hardened: thousands of hardened slabs take minutes
 * skip: address-sanitizer: its allocator's steps vary
 */
#include <allotment_netdata.h>

#undef NDEBUG
#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FEW = 40, MANY = 4000, TIMES = 5 };

static struct aral_statistics shared;
static ARAL *arals[MANY], *by_size[MANY / 10];
static ARAL *made;

static ARAL *create(void)
{
    return aral_create("many", 64, 0, 0, &shared, NULL, NULL, true, false, false);
}

static void creates(void)
{
    made = create();
}

static void destroys(void)
{
    aral_destroy(made);
}

static void reads_all_figures(void)
{
    (void)(aral_structures_bytes_from_stats(&shared) + aral_used_bytes_from_stats(&shared)
           + aral_free_bytes_from_stats(&shared) + aral_padding_bytes_from_stats(&shared));
    (void)aral_get_statistics(arals[0]);
}

static void acquires_and_releases_a_size_in_use(void)
{
    aral_by_size_release(aral_by_size_acquire(3 * 8));
}

static void acquires_a_new_size(void)
{
    made = aral_by_size_acquire(88888);
}

static void releases_it(void)
{
    aral_by_size_release(made);
}

/* In pairs, each of which leaves everything as it was. */
static void (*const measured[])(void) = {
    creates, destroys, reads_all_figures, acquires_and_releases_a_size_in_use, acquires_a_new_size, releases_it,
};

static const char *const names[] = {
    "create", "destroy", "statistics", "by-size in use", "by-size acquire", "by-size release",
};

enum { MEASURED = sizeof measured / sizeof measured[0] };

/* The child: stops itself before and after each call. */
static void child(size_t count)
{
    assert(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
    for (size_t at = 0; at < count; at++) {
        arals[at] = create();
        (void)aral_mallocz(arals[at]);
    }
    for (size_t at = 0; at < count / 10; at++) {
        by_size[at] = aral_by_size_acquire(8 * at);
    }
    for (int time = 0; time < TIMES; time++) {
        for (size_t which = 0; which < MEASURED; which++) {
            (void)raise(SIGSTOP);
            measured[which]();
            (void)raise(SIGSTOP);
        }
    }
    _exit(0);
}

/* Waits until the child stops itself. */
static void wait_for_stop(pid_t pid)
{
    int status;
    assert(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
}

/* Single-steps the child until it stops itself. */
static size_t steps_to_stop(pid_t pid)
{
    for (size_t steps = 0;; steps++) {
        int status;
        assert(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) == 0);
        assert(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status));
        if (WSTOPSIG(status) == SIGSTOP) {
            return steps;
        }
        assert(WSTOPSIG(status) == SIGTRAP);
    }
}

/* The fewest steps of each call with this number of ARALs. */
static void count_steps(size_t count, size_t *steps)
{
    pid_t pid = fork();
    assert(pid >= 0);
    if (pid == 0) {
        child(count);
    }
    for (int time = 0; time < TIMES; time++) {
        for (size_t which = 0; which < MEASURED; which++) {
            wait_for_stop(pid);
            size_t now = steps_to_stop(pid);
            steps[which] = time == 0 || now < steps[which] ? now : steps[which];
            assert(ptrace(PTRACE_CONT, pid, NULL, NULL) == 0);
        }
    }
    int status;
    assert(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int count, char **arguments)
{
    if (count > 1 && strcmp(arguments[1], "--cases") == 0) {
        return 0;
    }
    pid_t pid = fork();
    if (pid == 0) {
        _exit(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0 ? 0 : 1);
    }
    int status;
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fprintf(stderr, "SKIPPED: this process may not trace its children\n");
        return 0;
    }
    size_t few[MEASURED], many[MEASURED];
    count_steps(FEW, few);
    count_steps(MANY, many);
    int errors = 0;
    for (size_t which = 0; which < MEASURED; which++) {
        printf("%-16s %6zu steps with %d ARALs, %6zu with %d\n", names[which], few[which], FEW, many[which], MANY);
        errors += many[which] > few[which] + few[which] / 2 + 300 ? 1 : 0;
    }
    return errors;
}
