// Compiles small modules: parses each to a tree, folds constants, generates code, and enters the functions into a table of
// symbols that lasts to the end.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#ifdef ADVISED
#include <allotment.h>
#endif

namespace {

constexpr int MODULES = 1500, FUNCTIONS = 60;
constexpr unsigned BUCKETS = 1 << 16;

struct Node {
    char operation; // '#' a number, 'v' a variable, or an operator
    std::uint32_t number;
    Node *left, *right;
};

struct Symbol {
    std::uint32_t hash, code;
    char *name;
    Symbol *next;
};

Symbol *table[BUCKETS];

#ifdef ADVISED
allot_arena *trees;
#endif

Node *new_node(char operation, std::uint32_t number, Node *left, Node *right)
{
#ifdef ADVISED
    return new (ALLOT_ARENA_NEW(trees, Node)) Node{operation, number, left, right};
#else
    return new Node{operation, number, left, right};
#endif
}

#ifndef ADVISED
void delete_tree(Node *node)
{
    if (node) {
        delete_tree(node->left);
        delete_tree(node->right);
        delete node;
    }
}
#endif

class Parser {
public:
    explicit Parser(const char *source) : at(source) {}

    Node *sum()
    {
        Node *left = product();
        while (*at == '+' || *at == '-') {
            char operation = *at++;
            left = new_node(operation, 0, left, product());
        }
        return left;
    }

    const char *position() const { return at; }

private:
    Node *product()
    {
        Node *left = factor();
        while (*at == '*' || *at == '/') {
            char operation = *at++;
            left = new_node(operation, 0, left, factor());
        }
        return left;
    }

    Node *factor()
    {
        if (*at == '(') {
            at++;
            Node *inner = sum();
            at++;
            return inner;
        }
        if (*at >= 'a' && *at <= 'z')
            return new_node('v', static_cast<std::uint32_t>(*at++ - 'a'), nullptr, nullptr);
        std::uint32_t number = 0;
        while (*at >= '0' && *at <= '9')
            number = number * 10 + static_cast<std::uint32_t>(*at++ - '0');
        return new_node('#', number, nullptr, nullptr);
    }

    const char *at;
};

std::uint32_t calculate(char operation, std::uint32_t left, std::uint32_t right)
{
    switch (operation) {
    case '+': return left + right;
    case '-': return left - right;
    case '*': return left * right;
    default: return right ? left / right : 0;
    }
}

// Replaces operations on numbers with their results, in place. The operands are deleted with the tree.
void fold(Node *node)
{
    if (!node->left)
        return;
    fold(node->left);
    fold(node->right);
    if (node->left->operation == '#' && node->right->operation == '#') {
        node->number = calculate(node->operation, node->left->number, node->right->number);
        node->operation = '#';
    }
}

// Stands for code: a hash of the instructions.
std::uint32_t generate(const Node *node, std::uint32_t code)
{
    if (node->operation == '#' || node->operation == 'v')
        return (code ^ node->number ^ static_cast<std::uint32_t>(node->operation)) * 16777619u;
    code = generate(node->right, generate(node->left, code));
    return (code ^ static_cast<std::uint32_t>(node->operation)) * 16777619u;
}

void add_symbol(const char *name, std::uint32_t code)
{
    std::uint32_t hash = 2166136261u;
    for (const char *letter = name; *letter; letter++)
        hash = (hash ^ static_cast<unsigned char>(*letter)) * 16777619u;
    table[hash % BUCKETS] = new Symbol{hash, code, strdup(name), table[hash % BUCKETS]};
}

void compile_module(int module, const std::string &source)
{
    Node *functions[FUNCTIONS];
    Parser parser(source.c_str());
    for (int i = 0; i < FUNCTIONS; i++) {
        functions[i] = parser.sum();
        parser = Parser(parser.position() + 1); // past the semicolon
    }
    for (Node *function : functions)
        fold(function);
    for (int i = 0; i < FUNCTIONS; i++) {
        char name[64];
        std::snprintf(name, sizeof name, "module_%d::function_%d", module, i);
        add_symbol(name, generate(functions[i], 0));
    }
#ifdef ADVISED
    allot_arena_reset(trees);
#else
    for (Node *function : functions)
        delete_tree(function);
#endif
}

std::uint32_t seed = 1;

std::uint32_t dice(std::uint32_t sides)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 12) % sides;
}

void write_sum(std::string &source, int depth)
{
    for (std::uint32_t i = 0, terms = 2 + dice(4); i < terms; i++) {
        if (i)
            source += "+-*/"[dice(4)];
        if (depth > 0 && dice(3) != 0) {
            source += '(';
            write_sum(source, depth - 1);
            source += ')';
        } else if (dice(3) == 0) {
            source += static_cast<char>('a' + dice(26));
        } else {
            source += std::to_string(dice(1000));
        }
    }
}

}

int main(int count, char **words)
{
    const int modules = count > 1 ? std::atoi(words[1]) : MODULES;
    std::string source;
    for (int i = 0; i < FUNCTIONS; i++) {
        write_sum(source, 3);
        source += ';';
    }
#ifdef ADVISED
    trees = allot_arena_create(nullptr);
#endif
    for (int module = 0; module < modules; module++)
        compile_module(module, source);
    std::uint32_t sum = 0;
    for (const Symbol *symbol : table)
        for (; symbol; symbol = symbol->next)
            sum = sum * 31 + (symbol->hash ^ symbol->code) + static_cast<std::uint32_t>(std::strlen(symbol->name));
    std::printf("%u\n", sum);
    return 0;
}
