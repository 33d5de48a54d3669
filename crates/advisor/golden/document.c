// Answers requests that each come with a JSON document: parses it into a tree, evaluates queries on the tree, writes the tree
// as text, and frees it.

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef ADVISED
#include <allotment.h>
#endif

enum { REQUESTS = 400, CUSTOMERS = 400, LONGEST = CUSTOMERS * 400 };

enum kind { OBJECT, ARRAY, STRING, NUMBER };

struct value {
    enum kind kind;
    char *key; // its name in an object, or NULL
    char *text;
    double number;
    struct value *first, *next;
};

static const char *at;

#ifdef ADVISED
static allot_arena *arena;
#endif

static struct value *parse_value(char *key);

static char *parse_string(void)
{
    const char *start = ++at;
    while (*at != '"')
        at++;
    size_t length = at++ - start;
#ifdef ADVISED
    char *text = allot_arena_alloc_aligned(arena, length + 1, 1);
#else
    char *text = malloc(length + 1);
#endif
    memcpy(text, start, length);
    text[length] = '\0';
    return text;
}

static void parse_children(struct value *parent)
{
    struct value **end = &parent->first;
    char last = *at++ == '{' ? '}' : ']';
    while (*at != last) {
        char *key = NULL;
        if (parent->kind == OBJECT) {
            key = parse_string();
            at++; // the colon
        }
        *end = parse_value(key);
        end = &(*end)->next;
        if (*at == ',')
            at++;
    }
    at++;
}

static struct value *parse_value(char *key)
{
#ifdef ADVISED
    struct value *value = ALLOT_ARENA_NEW(arena, struct value);
#else
    struct value *value = malloc(sizeof *value);
#endif
    *value = (struct value){ .key = key };
    switch (*at) {
    case '{':
    case '[':
        value->kind = *at == '{' ? OBJECT : ARRAY;
        parse_children(value);
        break;
    case '"':
        value->kind = STRING;
        value->text = parse_string();
        break;
    default:
        value->kind = NUMBER;
        for (value->number = 0; isdigit((unsigned char)*at); at++)
            value->number = value->number * 10 + (*at - '0');
    }
    return value;
}

#ifndef ADVISED
static void free_value(struct value *value)
{
    while (value) {
        struct value *next = value->next;
        free_value(value->first);
        free(value->key);
        free(value->text);
        free(value);
        value = next;
    }
}
#endif

static const struct value *member(const struct value *object, const char *key)
{
    const struct value *value = object->first;
    while (value && strcmp(value->key, key) != 0)
        value = value->next;
    return value;
}

// What the customers of one city ordered, with the length of their names.
static double evaluate(const struct value *document, const char *city)
{
    double sum = 0;
    for (const struct value *customer = document->first; customer; customer = customer->next) {
        if (strcmp(member(member(customer, "address"), "city")->text, city) != 0)
            continue;
        sum += strlen(member(customer, "name")->text);
        for (const struct value *order = member(customer, "orders")->first; order; order = order->next)
            sum += member(order, "count")->number * member(order, "price")->number;
    }
    return sum;
}

static char *write_string(char *to, const char *text)
{
    *to++ = '"';
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            *to++ = '\\';
        *to++ = *text;
    }
    *to++ = '"';
    return to;
}

static char *write_value(char *to, const struct value *value)
{
    if (value->key) {
        to = write_string(to, value->key);
        *to++ = ':';
    }
    if (value->kind == STRING)
        return write_string(to, value->text);
    if (value->kind == NUMBER)
        return to + sprintf(to, "%.0f", value->number);
    *to++ = value->kind == OBJECT ? '{' : '[';
    for (const struct value *child = value->first; child; child = child->next) {
        to = write_value(to, child);
        *to++ = ',';
    }
    *to++ = value->kind == OBJECT ? '}' : ']';
    return to;
}

static double answer(const char *text)
{
    static char written[LONGEST];
    static const char *const cities[] = { "Basel", "Bern", "Chur", "Genf", "Sion" };
    double sum = 0;
    at = text;
    struct value *document = parse_value(NULL);
    for (size_t i = 0; i < sizeof cities / sizeof *cities; i++)
        sum += (i + 1) * evaluate(document, cities[i]);
    sum += write_value(written, document) - written;
#ifdef ADVISED
    allot_arena_reset(arena);
#else
    free_value(document);
#endif
    return sum;
}

// The text of a document.
static char *write_document(unsigned seed)
{
    static const char *const cities[] = { "Basel", "Bern", "Chur", "Genf", "Sion", "Thun", "Zug" };
    char *text = malloc(LONGEST);
    int length = sprintf(text, "[");
    for (int i = 0; i < CUSTOMERS; i++) {
        seed = seed * 1664525 + 1013904223;
        length += sprintf(text + length,
                          "{\"id\":%d,\"name\":\"customer number %u\",\"address\":{\"street\":\"Street %u\",\"city\":\"%s\"},\"orders\":[",
                          i, seed >> 20, seed >> 24, cities[(seed >> 16) % 7]);
        for (unsigned j = 0; j < (seed >> 28) % 4 + 1; j++)
            length += sprintf(text + length, "{\"what\":\"part %u\",\"count\":%u,\"price\":%u},", seed >> 22, j + 1, seed >> 25);
        length += sprintf(text + length, "]},");
    }
    strcpy(text + length, "]");
    return text;
}

int main(int count, char **words)
{
    int requests = count > 1 ? atoi(words[1]) : REQUESTS;
    double sum = 0;
    char *documents[4];
    for (unsigned i = 0; i < 4; i++)
        documents[i] = write_document(i);
#ifdef ADVISED
    arena = allot_arena_create(NULL);
#endif
    for (int i = 0; i < requests; i++)
        sum += answer(documents[i % 4]);
    printf("%.0f\n", sum);
#ifdef ADVISED
    allot_arena_destroy(arena);
#endif
    for (unsigned i = 0; i < 4; i++)
        free(documents[i]);
    return 0;
}
