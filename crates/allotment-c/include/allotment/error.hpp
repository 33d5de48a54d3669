/* Errors as exceptions: see allotment.hpp. */
#ifndef ALLOTMENT_ERROR_HPP
#define ALLOTMENT_ERROR_HPP

#include "../allotment.h"

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <new>

namespace allot {

/* What every fallible call throws: an allocator, a size, a cause and a remedy. A std::bad_alloc, so that code which expects
 * that goes on to work. */
class error : public std::bad_alloc {
public:
    explicit error(const allot_error &cause) noexcept : cause_(cause) {}

    /* One line: "arena 'query': ...". */
    const char *what() const noexcept override { return cause_.message; }
    const allot_error &cause() const noexcept { return cause_; }
    allot_error_kind kind() const noexcept { return cause_.kind; }
    /* The bytes that could not be had. */
    std::size_t requested() const noexcept { return cause_.requested; }
    /* "arena", "pool", ... */
    const char *allocator() const noexcept { return cause_.allocator != nullptr ? cause_.allocator : ""; }
    /* The allocator's name, or empty. */
    const char *name() const noexcept { return cause_.name; }
    /* errno, where the operating system refused; else 0. */
    int system_error() const noexcept { return cause_.system_error; }

private:
    allot_error cause_;
};

namespace detail {

/* Without exceptions a failure ends the program, as those of the C calls without try_ do. */
[[noreturn, gnu::cold, gnu::noinline]] inline void fail()
{
#ifdef __cpp_exceptions
    throw error(*allot_last_error());
#else
    std::fprintf(stderr, "allotment: %s\n", allot_last_error()->message);
    std::abort();
#endif
}

[[noreturn, gnu::cold, gnu::noinline]] inline void fail_length()
{
#ifdef __cpp_exceptions
    throw std::bad_array_new_length();
#else
    std::fputs("allotment: an array has more bytes than an address can express\n", stderr);
    std::abort();
#endif
}

/* A pointer that a try_ call returned. */
template <class T>
inline T *checked(T *pointer)
{
    if (ALLOT_UNLIKELY(pointer == nullptr)) {
        fail();
    }
    return pointer;
}

/* Where another resource is asked: not each of them sees that a size rounded up to the alignment would be 0 again. */
inline void check_size(std::size_t size, std::size_t align)
{
    constexpr std::size_t most = static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) / 2;
    if (ALLOT_UNLIKELY(size > most || align > most)) {
        fail_length();
    }
}

template <class T>
inline std::size_t array_bytes(std::size_t count)
{
    if (count > static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) / sizeof(T)) {
        fail_length();
    }
    return count * sizeof(T);
}

} // namespace detail
} // namespace allot

#endif
