// Answers requests for pages: each handler reads parameters, fills in a template with values of many sizes, and joins the
// pieces to a page. Most objects last as long as the request; values that are escaped don't.

#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef ADVISED
#include <allotment.h>
#endif

enum { REQUESTS = 10000, ROWS = 40, COLUMNS = 5 };

struct parameter {
    char *name, *value;
    struct parameter *next;
};

struct piece {
    char *text;
    size_t length;
    struct piece *next;
};

struct request {
    struct parameter *parameters;
    struct piece *first, **end;
};

#ifdef ADVISED
static allot_arena *arena;
static allot_pool *pool;
#define allocate(size) allot_arena_alloc(arena, size)
#define temporary(size) allot_pool_alloc(pool, size, 1)
#define release(block, size) allot_pool_free_sized(pool, block, size, 1)
#else
#define allocate(size) malloc(size)
#define temporary(size) malloc(size)
#define release(block, size) free(block)
#endif

static char *copy(const char *text, size_t length)
{
    char *bytes = allocate(length + 1);
    memcpy(bytes, text, length);
    bytes[length] = '\0';
    return bytes;
}

// Reads "a=1&b=2".
static struct parameter *read_parameters(const char *query)
{
    struct parameter *first = NULL, **end = &first;
    while (*query) {
        struct parameter *parameter = allocate(sizeof *parameter);
        size_t name = strcspn(query, "="), value = strcspn(query + name + 1, "&");
        parameter->name = copy(query, name);
        parameter->value = copy(query + name + 1, value);
        parameter->next = NULL;
        *end = parameter;
        end = &parameter->next;
        query += name + 1 + value;
        query += *query == '&';
    }
    return first;
}

static const char *find(const struct request *request, const char *name)
{
    for (const struct parameter *parameter = request->parameters; parameter; parameter = parameter->next)
        if (strcmp(parameter->name, name) == 0)
            return parameter->value;
    return "";
}

static void add_piece(struct request *request, char *text, size_t length)
{
    struct piece *piece = allocate(sizeof *piece);
    *piece = (struct piece){ text, length, NULL };
    *request->end = piece;
    request->end = &piece->next;
}

static const char *entity(char letter)
{
    return letter == '<' ? "&lt;" : letter == '>' ? "&gt;" : letter == '&' ? "&amp;" : NULL;
}

// A copy with <, > and & replaced.
static char *escape(const char *text, size_t *length)
{
    *length = 0;
    for (const char *letter = text; *letter; letter++)
        *length += entity(*letter) ? strlen(entity(*letter)) : 1;
    char *bytes = temporary(*length + 1), *to = bytes;
    for (; *text; text++) {
        if (entity(*text))
            to = stpcpy(to, entity(*text));
        else
            *to++ = *text;
    }
    *to = '\0';
    return bytes;
}

static char *make_value(const char *user, unsigned row, unsigned column)
{
    static const char words[] = "a <b>value</b> & its unit, read from the table of all values & units that there are in this <i>shop</i> today";
    size_t length = (row * 7 + column * 29) % 90, named = strlen(user);
    char *value = temporary(named + length + 2);
    memcpy(value, user, named);
    value[named] = ' ';
    memcpy(value + named + 1, words, length);
    value[named + 1 + length] = '\0';
    return value;
}

static void add_row(struct request *request, const char *user, unsigned row)
{
    add_piece(request, copy("<tr>", 4), 4);
    for (unsigned column = 0; column < COLUMNS; column++) {
        size_t length;
        char *value = make_value(user, row, column), *escaped = escape(value, &length);
        release(value, strlen(value) + 1);
        char *cell = allocate(length + 10);
        memcpy(cell, "<td>", 4);
        memcpy(cell + 4, escaped, length);
        memcpy(cell + 4 + length, "</td>", 6);
        release(escaped, length + 1);
        add_piece(request, cell, length + 9);
    }
    add_piece(request, copy("</tr>", 5), 5);
}

static char *join(const struct request *request, size_t *length)
{
    *length = 0;
    for (const struct piece *piece = request->first; piece; piece = piece->next)
        *length += piece->length;
    char *page = temporary(*length + 1), *to = page;
    for (const struct piece *piece = request->first; piece; piece = piece->next)
        to = (char *)memcpy(to, piece->text, piece->length) + piece->length;
    *to = '\0';
    return page;
}

#ifndef ADVISED
static void free_request(struct request *request)
{
    while (request->parameters) {
        struct parameter *parameter = request->parameters;
        request->parameters = parameter->next;
        free(parameter->name);
        free(parameter->value);
        free(parameter);
    }
    while (request->first) {
        struct piece *piece = request->first;
        request->first = piece->next;
        free(piece->text);
        free(piece);
    }
}
#endif

static unsigned long handle(const char *query)
{
    struct request request = { .end = &request.first };
    request.parameters = read_parameters(query);
    unsigned first = atoi(find(&request, "first"));
    for (unsigned row = first; row < first + ROWS; row++)
        add_row(&request, find(&request, "user"), row);
    size_t length;
    char *page = join(&request, &length);
    unsigned long sum = length;
    for (size_t i = 0; i < length; i += 16)
        sum = sum * 31 + page[i];
    release(page, length + 1);
#ifdef ADVISED
    allot_arena_reset(arena);
#else
    free_request(&request);
#endif
    return sum;
}

int main(int count, char **words)
{
    int requests = count > 1 ? atoi(words[1]) : REQUESTS;
    unsigned long sum = 0;
#ifdef ADVISED
    arena = allot_arena_create(NULL);
    pool = allot_pool_create(NULL);
#endif
    for (int i = 0; i < requests; i++) {
        char query[128];
        snprintf(query, sizeof query, "user=user-%d&first=%d&language=en&session=%08x", i % 100, i % 64, i * 2654435761u);
        sum ^= handle(query);
    }
    printf("%lx\n", sum);
#ifdef ADVISED
    allot_arena_destroy(arena);
    allot_pool_destroy(pool);
#endif
    return 0;
}
