/* Claims and cases of the C++ tests. A program runs all its claims. With `--cases` it lists its cases. Each must
 * abort with its text when it is run by its name. */
#ifndef CHECK_HPP
#define CHECK_HPP

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace check {

struct test {
    const char *name;
    void (*run)();
    const char *text; /* of a case; null for a claim */
    test *next;

    static test *&first()
    {
        static test *list = nullptr;
        return list;
    }
    test(const char *named, void (*does)(), const char *says) : name(named), run(does), text(says), next(first()) { first() = this; }
};

[[noreturn]] inline void fail(const char *file, int line, const char *what)
{
    std::fprintf(stderr, "%s:%d: %s\n", file, line, what);
    std::exit(1);
}

inline int main(int count, char **arguments)
{
    const char *wanted = count > 1 ? arguments[1] : nullptr;
    const bool lists = wanted != nullptr && std::strcmp(wanted, "--cases") == 0;
    for (const test *each = test::first(); each != nullptr; each = each->next) {
        const bool is_case = each->text != nullptr;
        if (lists && is_case) {
            std::printf("%s\t%s\n", each->name, each->text);
        }
        if (wanted == nullptr ? !is_case : std::strcmp(wanted, each->name) == 0) {
            if (!is_case) { /* a case's own words count */
                std::fprintf(stderr, "%s\n", each->name);
            }
            each->run();
        }
    }
    return 0;
}

} // namespace check

#define CLAIM(name)                                              \
    static void name();                                          \
    static check::test name##_claim(#name, name, nullptr);       \
    static void name()

#define CASE(name, says)                                         \
    static void name();                                          \
    static check::test name##_case(#name, name, says);           \
    static void name()

#define CHECK(condition) ((condition) ? (void)0 : check::fail(__FILE__, __LINE__, #condition))

#define THROWS(exception, ...)                                           \
    do {                                                                 \
        bool thrown = false;                                             \
        try {                                                            \
            __VA_ARGS__;                                                 \
        } catch (const exception &) {                                    \
            thrown = true;                                               \
        }                                                                \
        if (!thrown) {                                                   \
            check::fail(__FILE__, __LINE__, "no " #exception ": " #__VA_ARGS__); \
        }                                                                \
    } while (false)

int main(int count, char **arguments)
{
    return check::main(count, arguments);
}

#endif
