/* The main program of an example: it does the work with each allocator in a separate process, round
 * by round, and prints the time and memory. Include it once, after defining `program` as the
 * example's client_program. */
#ifndef CLIENT_MAIN_H
#define CLIENT_MAIN_H

#include "client.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_ROUNDS = 101 };

/* The figures of one run. */
typedef struct figures {
    double user_seconds;
    double wall_seconds;
    long peak_kib; /* beyond the memory before the work */
    client_result result;
    char error[160];
} figures;

typedef struct wishes {
    bool allocators[2];
    unsigned rounds;
    unsigned times;
    unsigned size;
    bool json;
} wishes;

static const char *const ALLOCATORS[2] = {"malloc", "allotment"};

static void print_help(const client_program *client)
{
    printf("%s: %s\n\n"
           "Does the work on malloc and on Allotment in turn, each in a separate process. Prints the median of the\n"
           "rounds: user time, wall time, and peak memory beyond the memory before the work.\n\n"
           "  --allocator malloc|allotment|both   the allocators to measure (both)\n"
           "  --rounds N                          rounds for each allocator, 1 to %d (5)\n"
           "  --times N                           repetitions of the work in a round (%u)\n"
           "  --size N                            %s (%u)\n"
           "  --json                              print one JSON object per line\n"
           "  --help                              print this text\n",
           client->name, client->work, MOST_ROUNDS, client->times, client->size_is, client->size);
}

static unsigned number(const client_program *client, const char *option, const char *text, unsigned most)
{
    char *end = NULL;
    errno = 0;
    unsigned long value = text == NULL ? 0 : strtoul(text, &end, 10);
    if (text == NULL || *text < '0' || *text > '9' || *end != '\0' || errno != 0 || value < 1 || value > most) {
        fprintf(stderr, "%s: %s needs a number from 1 to %u; see --help\n", client->name, option, most);
        exit(2);
    }
    return (unsigned)value;
}

static wishes read_arguments(const client_program *client, int count, char **arguments)
{
    wishes asked = {{true, true}, 5, client->times, client->size, false};
    for (int at = 1; at < count; at++) {
        const char *option = arguments[at];
        const char *value = at + 1 < count ? arguments[at + 1] : NULL;
        if (strcmp(option, "--help") == 0) {
            print_help(client);
            exit(0);
        } else if (strcmp(option, "--json") == 0) {
            asked.json = true;
            continue;
        } else if (strcmp(option, "--allocator") == 0) {
            bool both = value != NULL && strcmp(value, "both") == 0;
            for (int which = 0; which < 2; which++) {
                asked.allocators[which] = both || (value != NULL && strcmp(value, ALLOCATORS[which]) == 0);
            }
            if (!asked.allocators[0] && !asked.allocators[1]) {
                fprintf(stderr, "%s: --allocator needs malloc, allotment or both; see --help\n", client->name);
                exit(2);
            }
        } else if (strcmp(option, "--rounds") == 0) {
            asked.rounds = number(client, option, value, MOST_ROUNDS);
        } else if (strcmp(option, "--times") == 0) {
            asked.times = number(client, option, value, 1000000);
        } else if (strcmp(option, "--size") == 0) {
            asked.size = number(client, option, value, 10000000);
        } else {
            fprintf(stderr, "%s: unknown option '%s'; see --help\n", client->name, option);
            exit(2);
        }
        at++;
    }
    return asked;
}

static double seconds(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec * 1e-6;
}

static long resident_kib(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file != NULL) {
        if (fscanf(file, "%*d %ld", &pages) != 1) {
            pages = 0;
        }
        fclose(file);
    }
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static figures measured(const client_program *client, client_allocator allocator, const void *prepared, unsigned times)
{
    figures found;
    memset(&found, 0, sizeof found);
    struct rusage before, after;
    struct timespec began, ended;
    long base = resident_kib();
    getrusage(RUSAGE_SELF, &before);
    clock_gettime(CLOCK_MONOTONIC, &began);
    found.result = client->work_on(allocator, prepared, times);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    getrusage(RUSAGE_SELF, &after);
    found.user_seconds = seconds(after.ru_utime) - seconds(before.ru_utime);
    found.wall_seconds = (double)(ended.tv_sec - began.tv_sec) + (double)(ended.tv_nsec - began.tv_nsec) * 1e-9;
    found.peak_kib = after.ru_maxrss > base ? after.ru_maxrss - base : 0;
    if (found.result.error != NULL) {
        snprintf(found.error, sizeof found.error, "%s", found.result.error);
    }
    return found;
}

/* Measures in a child process, so that its memory is only that of this run. */
static figures in_a_child(const client_program *client, client_allocator allocator, const void *prepared, unsigned times)
{
    figures found;
    int pipes[2];
    pid_t child;
    if (pipe(pipes) != 0 || (child = fork()) < 0) {
        fprintf(stderr, "%s: can't start a process for a run: %s\n", client->name, strerror(errno));
        exit(1);
    }
    if (child == 0) {
        found = measured(client, allocator, prepared, times);
        _exit(write(pipes[1], &found, sizeof found) == (ssize_t)sizeof found ? 0 : 1);
    }
    close(pipes[1]);
    ssize_t got = read(pipes[0], &found, sizeof found);
    close(pipes[0]);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (got != (ssize_t)sizeof found || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fprintf(stderr, "%s: the run on %s ended early, by %s %d\n", client->name, ALLOCATORS[allocator],
                WIFSIGNALED(status) ? "signal" : "exit code",
                WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        exit(1);
    }
    if (found.error[0] != '\0') {
        fprintf(stderr, "%s: the run on %s failed: %s\n", client->name, ALLOCATORS[allocator], found.error);
        exit(1);
    }
    return found;
}

static int by_value(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static double median(const double *values, unsigned count)
{
    double sorted[MOST_ROUNDS];
    memcpy(sorted, values, count * sizeof *values);
    qsort(sorted, count, sizeof *sorted, by_value);
    return count % 2 == 1 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

int main(int count, char **arguments)
{
    const client_program *client = &program;
    wishes asked = read_arguments(client, count, arguments);
    void *prepared = client->prepare(asked.size);
    if (prepared == NULL) {
        fprintf(stderr, "%s: no memory for the input; use a smaller --size\n", client->name);
        return 1;
    }
    static double user[2][MOST_ROUNDS], wall[2][MOST_ROUNDS], peak[2][MOST_ROUNDS], ratios[MOST_ROUNDS];
    client_result first = {0, 0, NULL};
    for (unsigned round = 0; round < asked.rounds; round++) {
        for (int which = 0; which < 2; which++) {
            if (!asked.allocators[which]) {
                continue;
            }
            if (isatty(STDERR_FILENO)) {
                fprintf(stderr, "\rround %u of %u: %s ... ", round + 1, asked.rounds, ALLOCATORS[which]);
            }
            figures found = in_a_child(client, (client_allocator)which, prepared, asked.times);
            if (first.operations == 0) {
                first = found.result;
            } else if (found.result.checksum != first.checksum || found.result.operations != first.operations) {
                fprintf(stderr, "%s: the results of the allocators differ: the run on %s corrupted memory\n", client->name,
                        ALLOCATORS[which]);
                return 1;
            }
            user[which][round] = found.user_seconds;
            wall[which][round] = found.wall_seconds;
            peak[which][round] = (double)found.peak_kib / 1024;
        }
        ratios[round] = user[0][round] > 0 ? user[1][round] / user[0][round] : 1;
    }
    if (isatty(STDERR_FILENO)) {
        fprintf(stderr, "\r%40s\r", "");
    }
    if (!asked.json) {
        printf("%s: %s\n%llu x 1 %s\n\n%-12s%14s%14s%14s\n", client->name, client->work,
               (unsigned long long)first.operations, client->operation, "allocator", "user time", "wall time",
               "peak memory");
    }
    for (int which = 0; which < 2; which++) {
        if (!asked.allocators[which]) {
            continue;
        }
        double user_time = median(user[which], asked.rounds), wall_time = median(wall[which], asked.rounds);
        double memory = median(peak[which], asked.rounds);
        if (asked.json) {
            printf("{\"client\":\"%s\",\"allocator\":\"%s\",\"rounds\":%u,\"operations\":%llu,\"operation\":\"%s\","
                   "\"user_seconds\":%.6f,\"wall_seconds\":%.6f,\"peak_bytes\":%.0f,\"checksum\":\"%016llx\"}\n",
                   client->name, ALLOCATORS[which], asked.rounds, (unsigned long long)first.operations,
                   client->operation, user_time, wall_time, memory * 1024 * 1024,
                   (unsigned long long)first.checksum);
        } else {
            printf("%-12s%12.3f s%12.3f s%10.1f MiB\n", ALLOCATORS[which], user_time, wall_time, memory);
        }
    }
    if (!asked.json && asked.allocators[0] && asked.allocators[1]) {
        printf("\nAllotment takes %.2fx the user time of malloc (median of %u).\n", median(ratios, asked.rounds),
               asked.rounds);
    }
    client->dispose(prepared);
    return fflush(stdout) == 0 ? 0 : 1;
}

#endif
