/* expat with one arena per document: the parser's memory and the document's tree live as long as
 * the document is in use, and are freed together.
 *
 *     cc -O2 expat.c -o expat $(pkg-config --cflags --libs allotment expat)
 */

#include "client.h"

#include <allotment.h>
#include <expat.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ---------------------------------------------------------------------------------- */

/* The arena of the document that the thread works on, or NULL for malloc. It is a thread-local,
 * because expat's memory functions get no context argument. */
static _Thread_local allot_arena *document_arena;

/* expat frees and resizes blocks without passing their size, and an arena cannot look it up. Each
 * block therefore has a header with its size. */
typedef struct sized_block {
    _Alignas(16) size_t size;
} sized_block;

static void *expat_malloc(size_t size)
{
    sized_block *block = NULL;
    if (size <= SIZE_MAX - sizeof *block) {
        block = (sized_block *)allot_arena_try_alloc(document_arena, sizeof *block + size);
    }
    if (block == NULL) {
        return NULL;
    }
    block->size = size;
    return block + 1;
}

static void *expat_realloc(void *old, size_t size)
{
    if (old == NULL) {
        return expat_malloc(size);
    }
    sized_block *block = (sized_block *)old - 1;
    if (size > SIZE_MAX - sizeof *block) {
        return NULL;
    }
    block = (sized_block *)allot_arena_try_resize(document_arena, block, sizeof *block + block->size,
                                                  sizeof *block + size, 16);
    if (block == NULL) {
        return NULL;
    }
    block->size = size;
    return block + 1;
}

static void expat_free(void *old)
{
    if (old != NULL) {
        sized_block *block = (sized_block *)old - 1;
        allot_arena_free_sized(document_arena, block, sizeof *block + block->size, 16);
    }
}

/* Memory for a part of the tree, which is freed with the document. */
static void *tree_alloc(size_t size)
{
    return document_arena != NULL ? allot_arena_try_alloc_aligned(document_arena, size, 8) : malloc(size);
}

/* ---- the tree -------------------------------------------------------------------------------- */

typedef struct attribute {
    struct attribute *next;
    char *value;
    char name[];
} attribute;

typedef struct node {
    struct node *next;
    struct node *first_child;
    struct node *last_child;
    struct node *parent;
    attribute *attributes;
    char *name; /* NULL of text */
    char *text; /* NULL of an element */
} node;

typedef struct tree {
    node *root;
    node *open; /* the innermost element that has not ended */
    uint64_t elements;
    XML_Parser parser;
    const char *error;
} tree;

static void give_up(tree *tree, const char *why)
{
    tree->error = why;
    XML_StopParser(tree->parser, XML_FALSE);
}

static char *tree_copy(const char *text, size_t length)
{
    char *copy = (char *)tree_alloc(length + 1);
    if (copy != NULL) {
        memcpy(copy, text, length);
        copy[length] = '\0';
    }
    return copy;
}

/* Appends a node to the open element. */
static node *append(tree *tree)
{
    node *added = (node *)tree_alloc(sizeof *added);
    if (added == NULL) {
        give_up(tree, "no memory for a node");
        return NULL;
    }
    memset(added, 0, sizeof *added);
    added->parent = tree->open;
    if (tree->open == NULL) {
        tree->root = added;
    } else if (tree->open->last_child == NULL) {
        tree->open->first_child = tree->open->last_child = added;
    } else {
        tree->open->last_child->next = added;
        tree->open->last_child = added;
    }
    return added;
}

static void XMLCALL element_begins(void *data, const XML_Char *name, const XML_Char **pairs)
{
    tree *tree = data;
    node *element = append(tree);
    if (element == NULL) {
        return;
    }
    tree->open = element;
    tree->elements++;
    element->name = tree_copy(name, strlen(name));
    attribute **end = &element->attributes;
    bool complete = element->name != NULL;
    for (; complete && pairs[0] != NULL; pairs += 2) {
        size_t name_size = strlen(pairs[0]) + 1;
        attribute *added = (attribute *)tree_alloc(sizeof *added + name_size);
        if (added == NULL) {
            complete = false;
            break;
        }
        memcpy(added->name, pairs[0], name_size);
        added->next = NULL;
        added->value = tree_copy(pairs[1], strlen(pairs[1]));
        complete = added->value != NULL;
        *end = added;
        end = &added->next;
    }
    if (!complete) {
        give_up(tree, "no memory for an element");
    }
}

static void XMLCALL element_ends(void *data, const XML_Char *name)
{
    tree *tree = data;
    (void)name;
    if (tree->open != NULL) {
        tree->open = tree->open->parent;
    }
}

static void XMLCALL text_comes(void *data, const XML_Char *text, int length)
{
    tree *tree = data;
    int at = 0;
    while (at < length && strchr(" \t\r\n", text[at]) != NULL) {
        at++;
    }
    /* White space between elements is not kept. */
    if (at == length) {
        return;
    }
    node *added = append(tree);
    if (added != NULL && (added->text = tree_copy(text, (size_t)length)) == NULL) {
        give_up(tree, "no memory for text");
    }
}

/* With malloc, where each node is freed separately. */
static void tree_free(node *root)
{
    node *at = root;
    while (at != NULL) {
        if (at->first_child != NULL) {
            node *child = at->first_child;
            at->first_child = NULL;
            at = child;
            continue;
        }
        node *next = at->next != NULL ? at->next : at->parent;
        for (attribute *one = at->attributes; one != NULL;) {
            attribute *following = one->next;
            free(one->value);
            free(one);
            one = following;
        }
        free(at->name);
        free(at->text);
        free(at);
        at = next;
    }
}

/* ---- using the tree --------------------------------------------------------------------------- */

static const char *attribute_of(const node *element, const char *name)
{
    for (const attribute *one = element->attributes; one != NULL; one = one->next) {
        if (strcmp(one->name, name) == 0) {
            return one->value;
        }
    }
    return "";
}

/* A checksum of the sum of each order's lines, in cents, and the length of all notes. */
static uint64_t looked_at(const node *root)
{
    uint64_t sum = 1;
    uint64_t cents = 0;
    size_t notes = 0;
    const node *at = root;
    while (at != NULL) {
        if (at->text != NULL) {
            notes += strlen(at->text);
        } else if (strcmp(at->name, "line") == 0) {
            cents += strtoul(attribute_of(at, "count"), NULL, 10) * strtoul(attribute_of(at, "cents"), NULL, 10);
        } else if (strcmp(at->name, "order") == 0) {
            sum = client_mixed(sum, cents);
            cents = 0;
        }
        if (at->first_child != NULL) {
            at = at->first_child;
            continue;
        }
        while (at != NULL && at->next == NULL) {
            at = at->parent;
        }
        at = at == NULL ? NULL : at->next;
    }
    return client_mixed(client_mixed(sum, cents), notes);
}

/* ---- documents ------------------------------------------------------------------------------- */

typedef struct text {
    char *bytes;
    size_t length;
    size_t capacity;
} text;

static bool add(text *to, const char *format, ...)
{
    for (;;) {
        va_list arguments;
        va_start(arguments, format);
        size_t room = to->capacity - to->length;
        int needed = vsnprintf(to->bytes + to->length, room, format, arguments);
        va_end(arguments);
        if (needed >= 0 && (size_t)needed < room) {
            to->length += (size_t)needed;
            return true;
        }
        size_t capacity = to->capacity * 2 + 256;
        char *grown = needed < 0 ? NULL : (char *)realloc(to->bytes, capacity);
        if (grown == NULL) {
            return false;
        }
        to->bytes = grown;
        to->capacity = capacity;
    }
}

static const char *const WORDS[] = {"please",  "leave", "the",     "parcel", "with", "neighbours", "ring",   "twice", "or",
                                    "call",    "first", "and",     "mind",   "our",  "dog",        "gift",   "no",    "invoice",
                                    "deliver", "after", "sixteen", "hundred"};
enum { WORD_COUNT = sizeof WORDS / sizeof *WORDS };

/* Orders of a shop, like those that a shop system exports. */
static void *prepare(unsigned orders)
{
    text *made = (text *)calloc(1, sizeof *made);
    if (made == NULL) {
        return NULL;
    }
    uint64_t state = 7;
    bool whole = add(made, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<orders shop=\"harbour\" currency=\"EUR\">\n");
    for (unsigned order = 0; whole && order < orders; order++) {
        whole = add(made,
                    "  <order number=\"%u\" date=\"2025-%02u-%02u\" state=\"%s\">\n"
                    "    <customer id=\"c%u\"><name>Customer %u &amp; Sons</name><city>Port %u</city></customer>\n",
                    100000 + order, client_random(&state) % 12 + 1, client_random(&state) % 28 + 1,
                    client_random(&state) % 4 == 0 ? "open" : "sent", client_random(&state) % 5000,
                    client_random(&state) % 5000, client_random(&state) % 300);
        for (unsigned lines = client_random(&state) % 5 + 1; whole && lines > 0; lines--) {
            whole = add(made, "    <line article=\"a-%05u\" count=\"%u\" cents=\"%u\"><name>Article %u</name></line>\n",
                        client_random(&state) % 90000, client_random(&state) % 9 + 1, client_random(&state) % 20000,
                        client_random(&state) % 90000);
        }
        if (whole && client_random(&state) % 3 == 0) {
            whole = add(made, "    <note>");
            for (unsigned words = client_random(&state) % 12 + 3; whole && words > 0; words--) {
                whole = add(made, "%s ", WORDS[client_random(&state) % WORD_COUNT]);
            }
            whole = whole && add(made, "</note>\n");
        }
        whole = whole && add(made, "  </order>\n");
    }
    if (!whole || !add(made, "</orders>\n")) {
        free(made->bytes);
        free(made);
        return NULL;
    }
    return made;
}

static void dispose(void *prepared)
{
    text *made = prepared;
    free(made->bytes);
    free(made);
}

/* ---- the work -------------------------------------------------------------------------------- */

/* The bytes that a reader of a file or a socket gets per call. */
enum { PIECE = 64 * 1024 };

/* Parses the document, reads its tree and frees both. */
static client_result one_document(const text *document)
{
    static const XML_Memory_Handling_Suite ARENA = {expat_malloc, expat_realloc, expat_free};
    client_result result = {0, 0, NULL};
    tree tree = {NULL, NULL, 0, NULL, NULL};
    tree.parser = XML_ParserCreate_MM(NULL, document_arena != NULL ? &ARENA : NULL, NULL);
    if (tree.parser == NULL) {
        result.error = "no memory for a parser";
        return result;
    }
    XML_SetUserData(tree.parser, &tree);
    XML_SetElementHandler(tree.parser, element_begins, element_ends);
    XML_SetCharacterDataHandler(tree.parser, text_comes);
    for (size_t at = 0; at < document->length && result.error == NULL;) {
        size_t size = document->length - at < PIECE ? document->length - at : PIECE;
        void *buffer = XML_GetBuffer(tree.parser, (int)size);
        if (buffer == NULL) {
            result.error = "no memory for a piece of the document";
            break;
        }
        memcpy(buffer, document->bytes + at, size);
        at += size;
        if (XML_ParseBuffer(tree.parser, (int)size, at == document->length) != XML_STATUS_OK) {
            result.error = tree.error != NULL ? tree.error : XML_ErrorString(XML_GetErrorCode(tree.parser));
        }
    }
    XML_ParserFree(tree.parser);
    if (result.error == NULL) {
        result.operations = tree.elements;
        result.checksum = looked_at(tree.root);
    }
    if (document_arena == NULL) {
        tree_free(tree.root);
    }
    return result;
}

static client_result work_on(client_allocator allocator, const void *prepared, unsigned times)
{
    client_result all = {0, 1, NULL};
    for (unsigned time = 0; time < times && all.error == NULL; time++) {
        if (allocator == CLIENT_ALLOTMENT) {
            document_arena = allot_arena_try_create(NULL);
            if (document_arena == NULL) {
                all.error = allot_last_error()->message;
                return all;
            }
        }
        client_result one = one_document((const text *)prepared);
        allot_arena_destroy(document_arena);
        document_arena = NULL;
        all.operations += one.operations;
        all.checksum = client_mixed(all.checksum, one.checksum);
        all.error = one.error;
    }
    return all;
}

const client_program client_expat = {
    "expat", "element", "an XML document of a shop's orders parsed into a tree, its orders added up, both freed",
    "orders in the document", 12000, 20, prepare, work_on, dispose,
};

#ifndef CLIENT_WITHOUT_MAIN
#define program client_expat
#include "client_main.h"
#endif
