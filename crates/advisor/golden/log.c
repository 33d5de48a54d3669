// Formats a program's log: cuts each line into fields, formats each field anew, joins them, and counts the words that are
// looked for. One line in a hundred is kept, until a hundred others were kept.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef ADVISED
#include <allotment.h>
#endif

enum { LINES = 700000, KEPT = 100, FIELDS = 12 };

#ifdef ADVISED
static allot_pool *pool;
#define allocate(size) allot_pool_alloc(pool, size, 1)

static void release(char *text)
{
    if (text)
        allot_pool_free_sized(pool, text, strlen(text) + 1, 1);
}
#else
#define allocate(size) malloc(size)
#define release(block) free(block)
#endif

static char *copy(const char *text, size_t length)
{
    char *bytes = allocate(length + 1);
    memcpy(bytes, text, length);
    bytes[length] = '\0';
    return bytes;
}

static int split(const char *line, char **fields)
{
    int count = 0;
    while (count < FIELDS) {
        size_t length = strcspn(line, " ");
        fields[count++] = copy(line, length);
        if (!line[length])
            break;
        line += length + 1;
    }
    return count;
}

// The field in capitals if it is a level, in quotes if it has a colon; else unchanged.
static char *format_field(const char *field, int number)
{
    size_t length = strlen(field);
    if (number == 1) {
        char *text = copy(field, length);
        for (char *letter = text; *letter; letter++)
            *letter &= ~0x20;
        return text;
    }
    if (memchr(field, ':', length)) {
        char *text = allocate(length + 3);
        text[0] = '"';
        memcpy(text + 1, field, length);
        memcpy(text + 1 + length, "\"", 2);
        return text;
    }
    return copy(field, length);
}

static char *join(char **fields, int count)
{
    size_t length = 0;
    for (int i = 0; i < count; i++)
        length += strlen(fields[i]) + 1;
    char *line = allocate(length), *to = line;
    for (int i = 0; i < count; i++) {
        size_t size = strlen(fields[i]);
        to = (char *)memcpy(to, fields[i], size) + size;
        *to++ = '\t';
    }
    to[-1] = '\0';
    return line;
}

static char *format_line(const char *line)
{
    char *fields[FIELDS], *formatted[FIELDS];
    int count = split(line, fields);
    for (int i = 0; i < count; i++)
        formatted[i] = format_field(fields[i], i);
    char *whole = join(formatted, count);
    for (int i = 0; i < count; i++) {
        release(fields[i]);
        release(formatted[i]);
    }
    return whole;
}

static unsigned long hash(const char *text)
{
    unsigned long sum = 5381;
    for (; *text; text++)
        sum = sum * 33 ^ (unsigned char)*text;
    return sum;
}

static unsigned long count_words(const char *line)
{
    static const char *const words[] = { "denied", "disk", "cache", "timeout" };
    unsigned long count = 0;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        count += strstr(line, words[i]) != NULL;
    return count;
}

static const char *const messages[] = {
    "connection from host:%u took %u ms and sent %u bytes", "cache miss for key:%u after %u lookups in table %u",
    "wrote %u pages of file:%u to disk in %u ms", "the user id:%u was denied access %u times to /var/lib/data/%u",
};

int main(int count, char **words)
{
    int line_count = count > 1 ? atoi(words[1]) : LINES;
    char *kept[KEPT] = { 0 }, (*lines)[160] = malloc(1000 * sizeof *lines);
    unsigned long sum = 0;
    unsigned seed = 1;
    for (int i = 0; i < 1000; i++) {
        seed = seed * 1664525 + 1013904223;
        int length = sprintf(lines[i], "12:%02u:%02u %s ", (seed >> 8) % 60, (seed >> 16) % 60, seed >> 28 ? "info" : "warning");
        sprintf(lines[i] + length, messages[seed >> 30], seed >> 12, (seed >> 20) % 100, seed >> 18);
    }
#ifdef ADVISED
    pool = allot_pool_create(NULL);
#endif
    for (int i = 0; i < line_count; i++) {
        char *line = format_line(lines[i % 1000]);
        sum += hash(line) + count_words(line);
        if (i % 100 == 0) {
            release(kept[i / 100 % KEPT]);
            kept[i / 100 % KEPT] = line;
        } else {
            release(line);
        }
    }
    for (int i = 0; i < KEPT; i++) {
        sum += hash(kept[i]);
        release(kept[i]);
    }
    printf("%lx\n", sum);
    free(lines);
#ifdef ADVISED
    allot_pool_destroy(pool);
#endif
    return 0;
}
